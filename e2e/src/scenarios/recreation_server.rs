//! Re-creation and what the API server adds, refuses and forbids: admission, quota, policies.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt as _};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::admission::{remove_policy, switch};
use super::drain::back_to_work;
use super::recreation::{
    RECREATION_HOLD, bind, comparable, create, held, in_phase, nodes, options, records, rejection,
    rich_pod, successor, write_status,
};
use crate::harness::{
    BelayerOptions, Cluster, NO_SCHEDULER, SOON, Scenario, eventually, finalizers, throughout,
};
use crate::providers::Capability::{AdmissionPolicies, KubeApiserver};
use crate::providers::{apply, manifest};

const POLICY: &str = "belayer-pod-recreation-hold";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "recreation-policy-adds-hold-at-creation",
            "the admission policy adds the hold at creation to pods that request it",
            at_creation,
        )
        .needs([AdmissionPolicies]),
        Scenario::alone(
            "recreation-carries-what-the-user-wrote",
            "the new pod has what the user submitted, without what admission added",
            carries,
        )
        // The sandbox has no LimitRanger.
        .needs([AdmissionPolicies, KubeApiserver]),
        Scenario::alone(
            "recreation-rejected-before-its-hold",
            "R1: five of five pods that were rejected before their hold was added are re-created",
            before_its_hold,
        ),
        Scenario::alone(
            "recreation-drained-in-between",
            "R5: a drain waits for pods that exist only in their record, or lists them",
            drained_in_between,
        ),
        Scenario::alone(
            "recreation-that-quota-refuses",
            "a pod whose re-creation quota refuses is kept, reported, and re-created once there is quota",
            quota,
        )
        // The sandbox has no quotas.
        .needs([AdmissionPolicies, KubeApiserver]),
        Scenario::alone(
            "recreation-record-is-only-belayers",
            "only Belayer changes the spec of a record; the node agent's condition is respected",
            only_belayers,
        )
        .needs([AdmissionPolicies]),
    ]
}

fn asking(name: &str, more: Value) -> Value {
    let mut metadata = json!({
        "name": name, "annotations": { "belayer.dev/recreate": "true" },
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        metadata[field] = value.clone();
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": { "schedulerName": NO_SCHEDULER, "containers": [{ "name": "main", "image": "busybox" }] },
    })
}

/// No Belayer runs, so the policy has added every hold.
async fn at_creation(cluster: Cluster) -> Result<()> {
    apply(cluster.client(), &manifest("pod-recreation-hold-policy")?).await?;
    let shown = obeys(&cluster).await;
    remove_policy(&cluster, POLICY).await?;
    shown?;
    policy_adds(&cluster, false).await
}

async fn policy_adds(cluster: &Cluster, expected: bool) -> Result<()> {
    super::admission::policy_adds(RECREATION_HOLD, expected, |name| async move {
        create(cluster, asking(&name, json!({}))).await
    })
    .await
}

async fn obeys(cluster: &Cluster) -> Result<()> {
    policy_adds(cluster, true).await?;
    let theirs = json!({ "finalizers": ["example.com/first"] });
    let created = create(cluster, asking("with-theirs", theirs)).await?;
    ensure!(
        finalizers(&created) == ["example.com/first", RECREATION_HOLD],
        "{:?}",
        finalizers(&created)
    );
    let owner = json!({ "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "name": "r", "uid": "00000000-0000-0000-0000-000000000001", "controller": true }] });
    for (name, metadata) in [
        (
            "no",
            json!({ "annotations": { "belayer.dev/recreate": "false" } }),
        ),
        ("plain", json!({ "annotations": {} })),
        ("owned", owner),
    ] {
        let created = create(cluster, asking(name, metadata)).await?;
        ensure!(
            finalizers(&created).is_empty(),
            "{name}: {:?}",
            finalizers(&created)
        );
    }
    let ignored = cluster
        .another_namespace("ignored", json!({ "belayer.dev/ignore": "true" }))
        .await?;
    let pod: DynamicObject = serde_json::from_value(asking("there", json!({})))?;
    let created = cluster
        .pods_in(&ignored)
        .create(&PostParams::default(), &pod)
        .await?;
    ensure!(
        finalizers(&created).is_empty(),
        "a pod of an ignored namespace has a hold"
    );
    switch(cluster, "holdRecreations", "off").await?;
    policy_adds(cluster, false).await?;
    switch(cluster, "holdRecreations", "on").await?;
    policy_adds(cluster, true).await
}

/// No policy adds the hold: Belayer's patch is in flight while the pod is bound and rejected, within milliseconds; or it
/// is frozen meanwhile, and then gets each version from the watch.
async fn before_its_hold(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&options()).await?;
    create(&cluster, asking("watched", json!({}))).await?;
    held(&cluster, "watched").await?;
    let names: Vec<String> = (0..5).map(|index| format!("web-{index}")).collect();
    let (running, frozen) = names.split_at(3);
    let mut rejected = rejected_at_once(&cluster, running).await?;
    belayer.signal(Signal::STOP)?;
    let while_frozen = rejected_at_once(&cluster, frozen).await;
    belayer.signal(Signal::CONT)?;
    let while_frozen = while_frozen?;
    ensure!(
        while_frozen.iter().all(|(_, is_late)| *is_late),
        "a frozen Belayer has added a hold"
    );
    rejected.extend(while_frozen);
    let late = rejected.iter().filter(|(_, is_late)| *is_late).count();
    cluster.note(format!("{late} of 5 had no hold when they were rejected"));
    for (name, (first, _)) in names.iter().zip(&rejected) {
        successor(&cluster, name, first).await?;
    }
    belayer.stop().await
}

/// Creates, binds and rejects each pod. Returns its UID, and whether it had no hold then.
async fn rejected_at_once(cluster: &Cluster, names: &[String]) -> Result<Vec<(String, bool)>> {
    let mut rejected = Vec::new();
    for name in names {
        let first = create(cluster, asking(name, json!({}))).await?;
        bind(cluster, name, "no-such-node").await?;
        write_status(cluster, name, rejection()).await?;
        // A pod that is not there any more had its hold: Belayer has begun to re-create it.
        let pod = cluster.pods().get_opt(name).await?;
        let is_late = pod.is_some_and(|pod| !finalizers(&pod).contains(&RECREATION_HOLD));
        rejected.push((first.uid().context("no uid")?, is_late));
    }
    Ok(rejected)
}

/// The backoff is longer than any drain.
async fn drained_in_between(cluster: Cluster) -> Result<()> {
    let options = BelayerOptions::default()
        .argument("--controllers=pod-recreation")
        .config("podRecreation:\n  backoffSeconds: 300\n");
    let belayer = cluster.start_belayer_with(&options).await?;
    let first = create(&cluster, asking("web", json!({}))).await?;
    held(&cluster, "web").await?;
    bind(&cluster, "web", "no-such-node").await?;
    write_status(&cluster, "web", rejection()).await?;
    in_phase(&cluster, "Waiting").await?;
    let printed = cluster.drain(&["--dry-run"]).await?.exited_with(3)?;
    ensure!(
        printed.out.contains("only in a PodRecreation"),
        "{}",
        printed.out
    );
    let drained = async {
        cluster.drain(&[]).await?.exited_with(0)?;
        let pod = cluster.pods().get("web").await?;
        ensure!(pod.uid() != first.uid(), "it is still the old pod");
        ensure!(finalizers(&pod).is_empty(), "{:?}", finalizers(&pod));
        in_phase(&cluster, "Recreated").await?;
        // It runs and ends while Belayer is drained, and is not re-created.
        write_status(&cluster, "web", json!({ "phase": "Succeeded" })).await?;
        in_phase(&cluster, "Started").await?;
        cluster.delete("web").await?;
        cluster.is_removed("web").await
    };
    let drained = drained.await;
    back_to_work(&cluster).await?;
    drained?;
    throughout(
        "the pod is not re-created",
        Duration::from_secs(2),
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

/// Compares the submitted pod, the rejected pod and the new pod.
async fn carries(cluster: Cluster) -> Result<()> {
    let limits: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "defaults" },
        "spec": { "limits": [{ "type": "Container",
            "default": { "cpu": "2" }, "defaultRequest": { "cpu": "100m", "memory": "64Mi" } }] },
    }))?;
    let gvk = GroupVersionKind::gvk("", "v1", "LimitRange");
    let ranges: Api<DynamicObject> = Api::namespaced_with(
        cluster.client().clone(),
        cluster.namespace(),
        &ApiResource::from_gvk(&gvk),
    );
    ranges.create(&PostParams::default(), &limits).await?;
    let belayer = cluster.start_belayer_with(&options()).await?;
    let submitted = rich_pod("web");
    let first = eventually("LimitRanger applies its limits", SOON, async || {
        let first = create(&cluster, submitted.clone()).await?;
        let learned = first
            .annotations()
            .contains_key("kubernetes.io/limit-ranger");
        if !learned {
            cluster
                .merge("web", json!({ "metadata": { "finalizers": null } }))
                .await?;
            cluster.remove("web").await?;
            cluster.is_removed("web").await?;
        }
        ensure!(learned, "not applied yet");
        Ok(first)
    })
    .await?;
    let uid = first.uid().context("no uid")?;
    held(&cluster, "web").await?;
    debug(&cluster, "web").await?;
    bind(&cluster, "web", "no-such-node").await?;
    write_status(&cluster, "web", rejection()).await?;
    let second = successor(&cluster, "web", &uid).await?;
    ensure!(
        comparable(&second) == comparable(&first),
        "the specs differ:\n{:#}\n{:#}",
        comparable(&first),
        comparable(&second)
    );
    ensure!(second.labels() == first.labels(), "{:?}", second.labels());
    let all = records(&cluster).list(&Default::default()).await?;
    let record = all.items.first().context("no record")?;
    let kept = &record.data["spec"]["pod"];
    // Fields that the user did not write are not kept, and those that the user wrote are unchanged.
    let asked = &submitted["spec"];
    for field in [
        "nodeSelector",
        "tolerations",
        "topologySpreadConstraints",
        "affinity",
        "hostname",
    ] {
        ensure!(
            is_within(&asked[field], &kept["spec"][field]),
            "{field}: {:#} is not {:#}",
            kept["spec"][field],
            asked[field]
        );
    }
    for (path, expected) in [
        ("/spec/tolerations", 1),
        ("/spec/volumes", 1),
        ("/spec/containers/0/volumeMounts", 1),
        (
            "/spec/topologySpreadConstraints/0/labelSelector/matchExpressions",
            0,
        ),
        ("/spec/containers/0/resources/requests", 0),
        ("/spec/containers/0/resources/limits", 0),
        ("/spec/ephemeralContainers", 0),
    ] {
        let found = kept.pointer(path);
        let count = found.map_or(0, |found| {
            let listed = found.as_array().map(Vec::len);
            listed.or(found.as_object().map(|o| o.len())).unwrap_or(0)
        });
        ensure!(count == expected, "{path}: {count}, in {kept:#}");
    }
    for field in ["nodeName", "priority", "ephemeralContainers"] {
        ensure!(
            kept["spec"].get(field).is_none(),
            "{field} was copied to the new pod"
        );
    }
    belayer.stop().await
}

/// Adds an ephemeral container, as `kubectl debug` does: a pod cannot be created with one.
async fn debug(cluster: &Cluster, name: &str) -> Result<()> {
    let patch = json!({ "spec": { "ephemeralContainers": [
        { "name": "debug", "image": "busybox", "targetContainerName": "main",
          "terminationMessagePolicy": "File", "imagePullPolicy": "Always" } ] } });
    let path = format!(
        "/api/v1/namespaces/{}/pods/{name}/ephemeralcontainers",
        cluster.namespace()
    );
    let request = http::Request::patch(path)
        .header("content-type", "application/strategic-merge-patch+json")
        .body(patch.to_string().into_bytes())?;
    let _: Value = cluster
        .client()
        .request(request)
        .await
        .context("add an ephemeral container")?;
    Ok(())
}

/// Whether `kept` contains everything of `asked`; the server may have added defaults.
fn is_within(asked: &Value, kept: &Value) -> bool {
    match (asked, kept) {
        (Value::Object(asked), Value::Object(kept)) => asked
            .iter()
            .all(|(name, value)| kept.get(name).is_some_and(|kept| is_within(value, kept))),
        (Value::Array(asked), Value::Array(kept)) => {
            asked.len() == kept.len() && asked.iter().zip(kept).all(|(a, k)| is_within(a, k))
        }
        _ => asked == kept,
    }
}

async fn quota(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&options()).await?;
    let mut pod = asking("web", json!({}));
    pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "100m" } });
    let uid = create(&cluster, pod).await?.uid().context("no uid")?;
    held(&cluster, "web").await?;
    let gvk = GroupVersionKind::gvk("", "v1", "ResourceQuota");
    let quotas: Api<DynamicObject> = Api::namespaced_with(
        cluster.client().clone(),
        cluster.namespace(),
        &ApiResource::from_gvk(&gvk),
    );
    let none: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "none" },
        "spec": { "hard": { "requests.cpu": "10m" } },
    }))?;
    quotas.create(&PostParams::default(), &none).await?;
    // As the quota controller writes it, which may not run here.
    let counted = json!({ "status": {
        "hard": { "requests.cpu": "10m" }, "used": { "requests.cpu": "0" } } });
    quotas
        .patch_status("none", &PatchParams::default(), &Patch::Merge(counted))
        .await?;
    write_status(&cluster, "web", rejection()).await?;
    let denied = eventually(
        "its record has the condition CreateDenied",
        SOON,
        async || {
            let all = records(&cluster).list(&Default::default()).await?;
            let record = all.items.into_iter().next().context("no record")?;
            let conditions = record.data["status"]["conditions"].as_array().cloned();
            let denied = conditions.into_iter().flatten().find(|condition| {
                condition["type"] == "CreateDenied" && condition["status"] == "True"
            });
            denied.context("not denied yet")
        },
    )
    .await?;
    let message = denied["message"].as_str().unwrap_or_default();
    ensure!(
        message.contains("quota") && message.contains("\"web\""),
        "{message}"
    );
    throughout(
        "the rejected pod still exists",
        Duration::from_secs(3),
        async || {
            let pod = cluster.pods().get("web").await?;
            ensure!(pod.uid().as_deref() == Some(&*uid), "the pod was replaced");
            ensure!(
                pod.metadata.deletion_timestamp.is_none(),
                "it is being deleted"
            );
            Ok(())
        },
    )
    .await?;
    quotas.delete("none", &DeleteParams::default()).await?;
    // The second try is 30 s after the first, and the third a minute later.
    let within = Duration::from_secs(150);
    eventually("the pod is re-created", within, async || {
        let pod = cluster.pods().get("web").await?;
        ensure!(
            pod.uid().as_deref() != Some(&*uid),
            "it is still the old pod"
        );
        Ok(())
    })
    .await?;
    belayer.stop().await
}

/// The scenario writes as the node agent. Only Belayer can change the spec, not even an admin.
async fn only_belayers(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&options()).await?;
    let node = "some-node";
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": node } }))?;
    nodes(&cluster)
        .create(&PostParams::default(), &object)
        .await?;
    let shown = wiped(&cluster, node).await;
    nodes(&cluster)
        .delete(node, &DeleteParams::default())
        .await?;
    shown?;
    belayer.stop().await
}

async fn wiped(cluster: &Cluster, node: &str) -> Result<()> {
    let wipe = json!({ "annotations": {
        "belayer.dev/recreate": "true", "belayer.dev/wipe": "true" } });
    let uid = create(cluster, asking("web", wipe))
        .await?
        .uid()
        .context("no uid")?;
    held(cluster, "web").await?;
    bind(cluster, "web", node).await?;
    write_status(cluster, "web", rejection()).await?;
    let record = in_phase(cluster, "Rejected").await?;
    let name = record.name_any();
    // The policy may become effective after the record: until then a patch without a change does no harm.
    let evil = Patch::Merge(json!({ "spec": { "policy": { "maxRetries": 99 } } }));
    let changed = records(cluster)
        .patch(&name, &PatchParams::default(), &evil)
        .await;
    match changed {
        Err(kube::Error::Api(status)) if [403, 422].contains(&status.code) => {}
        other => anyhow::bail!("the spec of a record was changed: {other:?}"),
    }
    cluster
        .stays_itself("web", &uid, Duration::from_secs(3))
        .await?;
    report_wiped(cluster, &name).await?;
    successor(cluster, "web", &uid).await?;
    Ok(())
}

/// Writes the condition that shows that the node agent has wiped the node.
pub(super) async fn report_wiped(cluster: &Cluster, record: &str) -> Result<()> {
    eventually("the node agent's condition is written", SOON, async || {
        let record = records(cluster).get(record).await?;
        let mut conditions = record.data["status"]["conditions"].clone();
        for condition in conditions.as_array_mut().into_iter().flatten() {
            if condition["type"] == "StateWiped" {
                condition["status"] = "True".into();
                condition["reason"] = "Wiped".into();
            }
        }
        let patch = Patch::Merge(json!({
            "metadata": { "resourceVersion": record.resource_version() },
            "status": { "conditions": conditions },
        }));
        records(cluster)
            .patch_status(&record.name_any(), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    })
    .await
}
