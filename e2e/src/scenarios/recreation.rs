//! Pods that their node rejects are re-created under their name, with the spec that the user wrote.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::control_plane::STEP_IMAGE;
use crate::harness::{
    BelayerOptions, Cluster, NO_SCHEDULER, SOON, Scenario, eventually, finalizers, throughout,
};
use crate::providers::Capability::{AdmissionPolicies, Kubelet, MoreKubelets};

pub(super) const RECREATION_HOLD: &str = "belayer.dev/pod-recreation";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "rejected-pod-comes-back",
            "a rejected pod is re-created with its user's spec, and counted",
            comes_back,
        )
        .smoke(),
        Scenario::alone(
            "rejected-always-is-exhausted",
            "exactly three re-creations, then no further write",
            exhausted,
        )
        .smoke(),
        Scenario::alone(
            "recreation-record-is-a-privilege",
            "only Belayer can create a PodRecreation",
            privilege,
        )
        .needs([AdmissionPolicies]),
        Scenario::alone(
            "kubelet-rejects-pod",
            "a kubelet rejects a pod with NodeAffinity; it is scheduled to another node and runs",
            by_kubelet,
        )
        .needs([Kubelet, AdmissionPolicies]),
        Scenario::alone(
            "ran-once-through-kubelet-restart",
            "a pod that ran and is rejected when its kubelet restarts is never re-created",
            ran_once,
        )
        .smoke()
        .needs([MoreKubelets]),
        Scenario::alone(
            "kubelet-rejects-every-time",
            "a kubelet rejects a pod with OutOfcpu every time: exactly three re-creations",
            never_fits,
        )
        .needs([Kubelet, AdmissionPolicies]),
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

/// A pod with many fields that admission and the server add to or change.
pub(super) fn rich_pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": { "app": name, "rev": "7" },
            "annotations": { "belayer.dev/recreate": "true", "note": "mine" },
        },
        "spec": {
            "schedulerName": NO_SCHEDULER,
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

pub(super) async fn write_status(cluster: &Cluster, name: &str, status: Value) -> Result<()> {
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
    eventually("the pod has the hold", SOON, async || {
        let pod = cluster.pods().get(name).await?;
        let all = finalizers(&pod);
        ensure!(all.contains(&RECREATION_HOLD), "{all:?}");
        Ok(())
    })
    .await
}

/// The next pod of the name, with the hold.
pub(super) async fn successor(
    cluster: &Cluster,
    name: &str,
    before: &str,
) -> Result<DynamicObject> {
    eventually("the pod is re-created", SOON, async || {
        let pod = cluster.pods().get(name).await?;
        ensure!(
            pod.uid().as_deref() != Some(before),
            "it is still the old pod"
        );
        Ok(pod)
    })
    .await
}

pub(super) async fn in_phase(cluster: &Cluster, phase: &str) -> Result<DynamicObject> {
    eventually(
        &format!("its record is in phase {phase}"),
        SOON,
        async || {
            let all = records(cluster).list(&Default::default()).await?;
            let record = all.items.into_iter().next().context("no record")?;
            let now = &record.data["status"]["phase"];
            ensure!(now == phase, "its phase is {now}");
            Ok(record)
        },
    )
    .await
}

/// A pod's spec without the fields that admission sets for each pod.
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
    let uid = first.uid().context("the pod has no UID")?;
    held(&cluster, "web").await?;
    write_status(&cluster, "web", rejection()).await?;
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
    write_status(&cluster, "web", json!({ "phase": "Running" })).await?;
    let record = in_phase(&cluster, "Started").await?;
    let status = &record.data["status"];
    ensure!(
        status["podStarts"] == 2 && status["podRecreated"] == 1,
        "{status}"
    );
    eventually("its hold is removed", SOON, async || {
        let pod = cluster.pods().get("web").await?;
        let all = finalizers(&pod);
        ensure!(all.is_empty(), "{all:?}");
        Ok(())
    })
    .await?;
    cluster.delete("web").await?;
    cluster.is_removed("web").await?;
    throughout(
        "the pod is not re-created",
        Duration::from_secs(3),
        async || {
            ensure!(
                cluster.pods().get_opt("web").await?.is_none(),
                "it was re-created"
            );
            Ok(())
        },
    )
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
        write_status(&cluster, "web", rejection()).await?;
        let next = successor(&cluster, "web", &uid).await?;
        uid = next.uid().context("no uid")?;
    }
    write_status(&cluster, "web", rejection()).await?;
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
    // A policy is effective some time after it was created.
    eventually("the create is refused", SOON, async || {
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
    let node = node
        .items
        .first()
        .context("the cluster has no node")?
        .name_any();
    let label = format!("{}-room", cluster.namespace());
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web", "annotations": { "belayer.dev/recreate": "true" } },
        "spec": { "nodeSelector": { label.as_str(): "yes" },
            "containers": [{ "name": "main", "image": STEP_IMAGE }] },
    });
    let uid = create(&cluster, pod)
        .await?
        .uid()
        .context("the pod has no UID")?;
    held(&cluster, "web").await?;
    // As in the race: bound to a node that does not have the label (any more or yet).
    bind(&cluster, "web", &node).await?;
    let second = successor(&cluster, "web", &uid).await?;
    ensure!(
        second.data["spec"]["nodeName"].is_null(),
        "the node was copied to the new pod"
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

/// No node has that much CPU: the pod is rejected wherever it is bound.
async fn never_fits(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&options()).await?;
    let node = nodes(&cluster).list(&Default::default()).await?;
    let node = node.items.first().context("no node")?.name_any();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "big", "annotations": { "belayer.dev/recreate": "true" } },
        "spec": { "containers": [{ "name": "main", "image": STEP_IMAGE,
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

/// Belayer is down while the pod runs: its hold stays, and only the pod itself shows that it ran.
async fn ran_once(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&options()).await?;
    let node = format!("restarted-{}", cluster.namespace());
    let label = format!("{}-room", cluster.namespace());
    let kubelet = cluster.backend().start_kubelet(&node).await?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web", "annotations": { "belayer.dev/recreate": "true" } },
        "spec": { "nodeSelector": { label.as_str(): "yes" },
            "containers": [{ "name": "main", "image": STEP_IMAGE }] },
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
        eventually(&format!("the pod is in phase {wanted}"), SOON, async || {
            let pod = cluster.pods().get("web").await?;
            let now = &pod.data["status"]["phase"];
            ensure!(now == wanted, "its phase is {now}");
            Ok(pod)
        })
        .await
    };
    phase("Running").await?;
    // Longer than a kubelet takes from first seeing a pod to rejecting it.
    tokio::time::sleep(Duration::from_secs(12)).await;
    labelled(Value::Null).await?;
    drop(kubelet);
    let kubelet = cluster.backend().start_kubelet(&node).await?;
    let rejected = phase("Failed").await?;
    let status = &rejected.data["status"];
    ensure!(status["reason"] == "NodeAffinity", "{status}");
    cluster.note(format!("the kubelet wrote {status}"));
    let belayer = cluster.start_belayer_with(&options()).await?;
    eventually("the pod is released", SOON, async || {
        let pod = cluster.pods().get("web").await?;
        let all = finalizers(&pod);
        ensure!(all.is_empty(), "{all:?}");
        Ok(())
    })
    .await?;
    throughout(
        "the pod is not changed",
        Duration::from_secs(5),
        async || {
            let pod = cluster.pods().get("web").await?;
            ensure!(pod.uid().as_deref() == Some(&*uid), "it was re-created");
            let records = records(&cluster).list(&Default::default()).await?;
            ensure!(records.items.is_empty(), "there is a record of the pod");
            Ok(())
        },
    )
    .await?;
    nodes(&cluster)
        .delete(&node, &DeleteParams::default())
        .await?;
    drop(kubelet);
    belayer.stop().await
}
