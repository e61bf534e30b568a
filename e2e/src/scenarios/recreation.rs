//! Pods that their node rejects: they come back under their own name, as their user wrote them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::harness::{BelayerOptions, Cluster, Scenario, eventually, finalizers, throughout};
use crate::providers::Capability::{AdmissionPolicies, ClaimController, Kubelet};

pub(super) const SOON: Duration = Duration::from_secs(60);
pub(super) const RECREATION_HOLD: &str = "belayer.dev/pod-recreation";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "rejected-pod-comes-back",
            "a rejected pod is re-created as its user wrote it, and counted",
            comes_back,
        )
        .within(Duration::from_secs(180)),
        Scenario::alone(
            "rejected-always-is-exhausted",
            "exactly three re-creations, then quiet",
            exhausted,
        )
        .within(Duration::from_secs(240)),
        Scenario::alone(
            "recreation-record-is-a-privilege",
            "nobody but Belayer creates a PodRecreation",
            privilege,
        )
        .needs([AdmissionPolicies]),
        Scenario::alone(
            "kubelet-rejects-pod",
            "a kubelet rejects a pod by NodeAffinity; it is scheduled elsewhere and runs",
            by_kubelet,
        )
        .needs([Kubelet, AdmissionPolicies])
        .within(Duration::from_secs(240)),
        Scenario::alone(
            "ran-once-through-kubelet-restart",
            "a pod that ran, rejected when its kubelet restarts, is never re-created",
            ran_once,
        )
        .needs([Kubelet, ClaimController])
        .within(Duration::from_secs(240)),
        Scenario::alone(
            "kubelet-rejects-every-time",
            "a kubelet rejects a pod by OutOfcpu every time: exactly three re-creations",
            never_fits,
        )
        .needs([Kubelet, AdmissionPolicies])
        .within(Duration::from_secs(240)),
    ]
}

pub(super) fn options() -> BelayerOptions {
    BelayerOptions::default()
        .argument("--controllers=pod-recreation")
        .config("podRecreation:\n  backoffSeconds: 1\n")
}

pub(super) fn records(cluster: &Cluster) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("belayer.dev", "v1alpha1", "PodRecreation");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "podrecreations");
    Api::namespaced_with(cluster.client().clone(), cluster.namespace(), &resource)
}

/// A pod that uses much of what admission and the server add to, or change.
pub(super) fn rich_pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": { "app": name, "rev": "7" },
            "annotations": { "belayer.dev/recreate": "true", "note": "mine" },
        },
        "spec": {
            "schedulerName": "nobody",
            "serviceAccountName": "default",
            "restartPolicy": "Never",
            "hostname": "h",
            "nodeSelector": { "disk": "ssd" },
            "tolerations": [{ "key": "gpu", "operator": "Exists" }],
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": { "matchLabels": { "app": name } }, "matchLabelKeys": ["rev"],
            }],
            "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 1,
                "podAffinityTerm": {
                    "topologyKey": "zone", "labelSelector": { "matchLabels": { "app": name } },
                    "mismatchLabelKeys": ["rev"],
                },
            }] } },
            "volumes": [{ "name": "vault", "projected": { "sources": [
                { "serviceAccountToken": { "path": "token", "audience": "vault" } } ] } }],
            "initContainers": [
                { "name": "init", "image": "busybox", "command": ["true"] },
                { "name": "side", "image": "busybox", "restartPolicy": "Always" },
            ],
            "containers": [{ "name": "main", "image": "busybox", "env": [{ "name": "A", "value": "b" }],
                "volumeMounts": [{ "name": "vault", "mountPath": "/vault" }] }],
        },
    })
}

pub(super) async fn create(cluster: &Cluster, pod: Value) -> Result<DynamicObject> {
    let pod = serde_json::from_value(pod)?;
    Ok(cluster.pods().create(&PostParams::default(), &pod).await?)
}

pub(super) async fn told(cluster: &Cluster, name: &str, status: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "status": status }));
    cluster
        .pods()
        .patch_status(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

pub(super) fn rejection() -> Value {
    json!({ "phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: Node didn't have enough resource: cpu" })
}

pub(super) async fn held(cluster: &Cluster, name: &str) -> Result<()> {
    eventually("it is held", SOON, async || {
        let pod = cluster.pods().get(name).await?;
        let all = finalizers(&pod);
        ensure!(all.contains(&RECREATION_HOLD), "{all:?}");
        Ok(())
    })
    .await
}

/// The next pod of the name, held.
pub(super) async fn successor(
    cluster: &Cluster,
    name: &str,
    before: &str,
) -> Result<DynamicObject> {
    eventually("it is re-created", SOON, async || {
        let pod = cluster.pods().get(name).await?;
        ensure!(pod.uid().as_deref() != Some(before), "it is the old one");
        Ok(pod)
    })
    .await
}

pub(super) async fn in_phase(cluster: &Cluster, phase: &str) -> Result<DynamicObject> {
    eventually(&format!("its record is {phase}"), SOON, async || {
        let all = records(cluster).list(&Default::default()).await?;
        let record = all.items.into_iter().next().context("no record")?;
        let now = &record.data["status"]["phase"];
        ensure!(now == phase, "it is {now}");
        Ok(record)
    })
    .await
}

/// A pod's spec without what admission makes up anew for each pod.
pub(super) fn comparable(pod: &DynamicObject) -> Value {
    let text = pod.data["spec"].to_string();
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("kube-api-access-") {
        let end = (at + "kube-api-access-".len() + 5).min(rest.len());
        out.push_str(&rest[..at]);
        out.push_str("kube-api-access");
        rest = &rest[end..];
    }
    out.push_str(rest);
    let mut spec: Value = serde_json::from_str(&out).unwrap_or_default();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("nodeName");
    }
    spec
}

async fn comes_back(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&options()).await?;
    let first = create(&cluster, rich_pod("web")).await?;
    let uid = first.uid().context("no uid")?;
    held(&cluster, "web").await?;
    told(&cluster, "web", rejection()).await?;
    let second = successor(&cluster, "web", &uid).await?;
    ensure!(
        comparable(&second) == comparable(&first),
        "the specs differ:\n{:#}\n{:#}",
        comparable(&first),
        comparable(&second)
    );
    ensure!(second.labels() == first.labels(), "{:?}", second.labels());
    ensure!(
        second.annotations().get("note").map(String::as_str) == Some("mine"),
        "{:?}",
        second.annotations()
    );
    told(&cluster, "web", json!({ "phase": "Running" })).await?;
    let record = in_phase(&cluster, "Started").await?;
    let status = &record.data["status"];
    ensure!(
        status["podStarts"] == 2 && status["podRecreated"] == 1,
        "{status}"
    );
    eventually("its hold is off", SOON, async || {
        let pod = cluster.pods().get("web").await?;
        let all = finalizers(&pod);
        ensure!(all.is_empty(), "{all:?}");
        Ok(())
    })
    .await?;
    cluster.delete("web").await?;
    cluster.is_gone("web").await?;
    throughout("it stays gone", Duration::from_secs(3), async || {
        ensure!(cluster.pods().get_opt("web").await?.is_none(), "it is back");
        Ok(())
    })
    .await?;
    belayer.stop().await
}

async fn exhausted(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&options()).await?;
    let mut uid = create(&cluster, rich_pod("web"))
        .await?
        .uid()
        .context("no uid")?;
    for _ in 0..3 {
        held(&cluster, "web").await?;
        told(&cluster, "web", rejection()).await?;
        let next = successor(&cluster, "web", &uid).await?;
        uid = next.uid().context("no uid")?;
    }
    told(&cluster, "web", rejection()).await?;
    let record = in_phase(&cluster, "Exhausted").await?;
    let status = &record.data["status"];
    ensure!(
        status["attempts"] == 3 && status["podStarts"] == 4,
        "{status}"
    );
    cluster
        .stays_itself("web", &uid, Duration::from_secs(5))
        .await?;
    belayer.stop().await
}

async fn privilege(cluster: Cluster) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "belayer.dev/v1alpha1", "kind": "PodRecreation",
        "metadata": { "name": "web-12345678" },
        "spec": { "podName": "web", "firstUID": "12345678-0000-4000-8000-000000000000", "policy": {},
            "pod": { "spec": { "hostPID": true } } },
    }))?;
    // A policy is learned some time after it was made.
    eventually("it is refused", SOON, async || {
        let name = object.name_any();
        match records(&cluster)
            .create(&PostParams::default(), &object)
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 403 => {
                ensure!(
                    status.message.contains("only Belayer creates"),
                    "{}",
                    status.message
                );
                Ok(())
            }
            Err(error) => Err(error.into()),
            Ok(_) => {
                records(&cluster)
                    .delete(&name, &DeleteParams::default())
                    .await?;
                anyhow::bail!("a user created a record")
            }
        }
    })
    .await
}

async fn by_kubelet(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&options()).await?;
    let nodes = nodes(&cluster);
    let node = nodes.list(&Default::default()).await?;
    let node = node.items.first().context("no node")?.name_any();
    let label = format!("{}-room", cluster.namespace());
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web", "annotations": { "belayer.dev/recreate": "true" } },
        "spec": { "nodeSelector": { label.as_str(): "yes" },
            "containers": [{ "name": "main", "image": "busybox" }] },
    });
    let uid = create(&cluster, pod).await?.uid().context("no uid")?;
    held(&cluster, "web").await?;
    // As the race does it: bound to a node that has not got the label, any more or yet.
    bind(&cluster, "web", &node).await?;
    let second = successor(&cluster, "web", &uid).await?;
    ensure!(
        second.data["spec"]["nodeName"].is_null(),
        "the node was carried over"
    );
    let patch = Patch::Merge(json!({ "metadata": { "labels": { label.as_str(): "yes" } } }));
    nodes.patch(&node, &PatchParams::default(), &patch).await?;
    let record = in_phase(&cluster, "Started").await?;
    let status = &record.data["status"];
    ensure!(status["reason"] == "NodeAffinity", "{status}");
    ensure!(
        status["podStarts"] == 2 && status["podRecreated"] == 1,
        "{status}"
    );
    let patch = Patch::Merge(json!({ "metadata": { "labels": { label.as_str(): null } } }));
    nodes.patch(&node, &PatchParams::default(), &patch).await?;
    belayer.stop().await
}

pub(super) fn nodes(cluster: &Cluster) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("", "v1", "Node");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "nodes");
    Api::all_with(cluster.client().clone(), &resource)
}

pub(super) async fn bind(cluster: &Cluster, pod: &str, node: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": pod },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    });
    let bound: kube::Result<Value> = cluster
        .pods()
        .create_subresource("binding", pod, &PostParams::default(), &binding)
        .await;
    bound.context("bind")?;
    Ok(())
}

/// No node has that much: whoever is bound is rejected, every time.
async fn never_fits(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&options()).await?;
    let node = nodes(&cluster).list(&Default::default()).await?;
    let node = node.items.first().context("no node")?.name_any();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "big", "annotations": { "belayer.dev/recreate": "true" } },
        "spec": { "containers": [{ "name": "main", "image": "busybox",
            "resources": { "requests": { "cpu": "100000" } } }] },
    });
    let mut uid = create(&cluster, pod).await?.uid().context("no uid")?;
    for _ in 0..3 {
        held(&cluster, "big").await?;
        bind(&cluster, "big", &node).await?;
        let next = successor(&cluster, "big", &uid).await?;
        uid = next.uid().context("no uid")?;
    }
    bind(&cluster, "big", &node).await?;
    let record = in_phase(&cluster, "Exhausted").await?;
    let status = &record.data["status"];
    ensure!(
        status["attempts"] == 3 && status["podStarts"] == 4 && status["reason"] == "OutOfcpu",
        "{status}"
    );
    cluster
        .stays_itself("big", &uid, Duration::from_secs(5))
        .await?;
    belayer.stop().await
}

/// Belayer is down while the pod runs: its hold stays on, and nothing but the pod itself says that it ran.
async fn ran_once(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&options()).await?;
    let node = format!("restarted-{}", cluster.namespace());
    let label = format!("{}-room", cluster.namespace());
    let kubelet = cluster.backend().start_kubelet(&node)?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web", "annotations": { "belayer.dev/recreate": "true" } },
        "spec": { "nodeSelector": { label.as_str(): "yes" },
            "containers": [{ "name": "main", "image": "busybox" }] },
    });
    let uid = create(&cluster, pod).await?.uid().context("no uid")?;
    held(&cluster, "web").await?;
    belayer.stop().await?;
    let labelled = async |value: Value| {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { label.as_str(): value } } }));
        let nodes = nodes(&cluster);
        eventually("the node is labelled", SOON, async || {
            nodes.patch(&node, &PatchParams::default(), &patch).await?;
            Ok(())
        })
        .await
    };
    labelled("yes".into()).await?;
    let phase = async |wanted: &str| {
        eventually(&format!("the pod is {wanted}"), SOON, async || {
            let pod = cluster.pods().get("web").await?;
            let now = &pod.data["status"]["phase"];
            ensure!(now == wanted, "it is {now}");
            Ok(pod)
        })
        .await
    };
    phase("Running").await?;
    // Longer than a kubelet takes from its first look at a pod to its rejection.
    tokio::time::sleep(Duration::from_secs(12)).await;
    labelled(Value::Null).await?;
    drop(kubelet);
    let kubelet = cluster.backend().start_kubelet(&node)?;
    let rejected = phase("Failed").await?;
    let status = &rejected.data["status"];
    ensure!(status["reason"] == "NodeAffinity", "{status}");
    cluster.note(format!("the kubelet wrote {status}"));
    let belayer = cluster.start_belayer_with(&options()).await?;
    eventually("it is let go", SOON, async || {
        let pod = cluster.pods().get("web").await?;
        let all = finalizers(&pod);
        ensure!(all.is_empty(), "{all:?}");
        Ok(())
    })
    .await?;
    throughout("it is left alone", Duration::from_secs(5), async || {
        let pod = cluster.pods().get("web").await?;
        ensure!(pod.uid().as_deref() == Some(&*uid), "it was re-created");
        let records = records(&cluster).list(&Default::default()).await?;
        ensure!(records.items.is_empty(), "there is a record of it");
        Ok(())
    })
    .await?;
    nodes(&cluster)
        .delete(&node, &DeleteParams::default())
        .await?;
    drop(kubelet);
    belayer.stop().await
}
