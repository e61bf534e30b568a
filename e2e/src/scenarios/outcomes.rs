//! PodOutcome records, written before pods are released.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::harness::{BelayerOptions, Cluster, SOON, Scenario, eventually, pod};
use crate::kinds;
use crate::providers::Capability::{GarbageCollector, Recorder};
use crate::providers::{Request, apply, manifest};

const CRD: &str = "podoutcomes.belayer.dev";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "outcome-before-release",
            "one record per pod, written before its release, garbage-collected with its owner",
            recorded,
        )
        .needs([Recorder]),
        Scenario::alone(
            "outcome-beside-argo",
            "a record neither releases nor deletes a pod of Argo",
            beside_argo,
        ),
        Scenario::alone(
            "outcome-written-by-a-predecessor",
            "after a crash the existing record is used",
            existed,
        ),
        Scenario::alone(
            "outcome-of-a-lost-node",
            "a lost node gives an incomplete record without an invented result",
            lost_node,
        ),
        Scenario::alone(
            "outcome-that-cannot-be-written",
            "a refused record is reported and does not delay other rules",
            refused,
        ),
        Scenario::alone(
            "outcome-without-owner-expires",
            "a record without an owner expires",
            expires,
        ),
    ]
}

/// The consumer of these pods reads the records.
fn batch() -> BelayerOptions {
    BelayerOptions::default().config(
        "podFinalizer: {profiles: [{name: batch, selector: {matchLabels: {app: batch}}, capture: true}, {builtIn: argo}]}",
    )
}

/// The consumer of these pods reads the pods.
fn argo() -> BelayerOptions {
    BelayerOptions::default()
        .config("podFinalizer: {profiles: [{builtIn: argo, capture: true, cleanup: argo}]}")
}

/// Creates the owner of such a consumer's pods; returns its UID.
async fn owner(cluster: &Cluster, name: &str) -> Result<String> {
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name },
    }))?;
    let maps = kinds::config_maps(cluster.client(), cluster.namespace());
    let created = maps.create(&Default::default(), &object).await?;
    created.uid().context("the object has no UID")
}

async fn records(cluster: &Cluster) -> Result<Vec<DynamicObject>> {
    let all = kinds::outcomes(cluster.client(), cluster.namespace())
        .list(&ListParams::default())
        .await?;
    Ok(all.items)
}

async fn record_of(cluster: &Cluster, uid: &str) -> Result<DynamicObject> {
    let outcomes = kinds::outcomes(cluster.client(), cluster.namespace());
    eventually("the record exists", SOON, async || {
        outcomes
            .get_opt(&format!("pod-{uid}"))
            .await?
            .context("no record")
    })
    .await
}

async fn recorded(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&batch()).await?;
    let owner = owner(&cluster, "w").await?;
    let mark = cluster.recorder()?.mark()?;
    let mut uids = Vec::new();
    for (name, phase) in [("good", "Succeeded"), ("bad", "Failed")] {
        let created = cluster.create(&pod(name).of_batch("w", &owner)).await?;
        uids.push(created.uid().context("the pod has no UID")?);
        cluster.is_held(name).await?;
        cluster.finish(name, phase).await?;
        // The result is not consumed: the record permits the release.
        cluster.is_not_held(name).await?;
    }
    let good = record_of(&cluster, &uids[0]).await?;
    let bad = record_of(&cluster, &uids[1]).await?;
    for (record, name, phase, code) in [(&good, "good", "Succeeded", 0), (&bad, "bad", "Failed", 1)]
    {
        let spec = &record.data["spec"];
        ensure!(
            spec["podName"] == name && spec["phase"] == phase && spec["complete"] == true,
            "{spec}"
        );
        ensure!(spec["containers"][0]["exitCode"] == code, "{spec}");
        ensure!(spec["exitCode"] == code, "{spec}");
        ensure!(
            record.owner_references()[0].uid == owner,
            "{:?}",
            record.owner_references()
        );
    }
    let here = format!("{}/", cluster.namespace());
    eventually(
        "each record was written before its pod's release",
        SOON,
        async || {
            let writes = cluster.recorder()?.writes_since(mark)?;
            let is_here = |write: &Request, verb: &str, resource: &str| {
                write.verb == verb && write.resource == resource && write.object.starts_with(&here)
            };
            let first_record = writes
                .iter()
                .position(|write| is_here(write, "create", "podoutcomes"))
                .context("no record")?;
            for name in ["good", "bad"] {
                let released = writes
                    .iter()
                    .rposition(|write| {
                        is_here(write, "patch", "pods") && write.object.ends_with(name)
                    })
                    .context("no release")?;
                ensure!(
                    first_record < released,
                    "{name} was released before its record was written"
                );
            }
            Ok(())
        },
    )
    .await?;
    ensure!(
        records(&cluster).await?.len() == 2,
        "expected one record per pod"
    );
    // Neither a resync nor a restart writes about them again.
    belayer.stop().await?;
    let mark = cluster.recorder()?.mark()?;
    let belayer = cluster.start_belayer_with(&batch()).await?;
    cluster.belayer_has_caught_up().await?;
    let again = cluster.recorder()?.writes_since(mark)?;
    let again: Vec<_> = again
        .iter()
        .filter(|write| write.object.ends_with("/good") || write.object.ends_with("/bad"))
        .collect();
    ensure!(again.is_empty(), "written again: {again:?}");
    ensure!(
        records(&cluster).await?.len() == 2,
        "there are further records"
    );
    if cluster.can(GarbageCollector) {
        let maps = kinds::config_maps(cluster.client(), cluster.namespace());
        maps.delete("w", &DeleteParams::background()).await?;
        eventually("the records are collected", SOON * 2, async || {
            let left = records(&cluster).await?.len();
            ensure!(left == 0, "{left} remain");
            Ok(())
        })
        .await?;
    }
    belayer.stop().await
}

/// Argo reads pods: the record is kept in addition to the pod, without further effect.
async fn beside_argo(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&argo()).await?;
    let workflow = cluster.workflow("w").await?;
    let step = pod("a").of(&workflow).annotation(
        "workflows.argoproj.io/pod-gc-strategy",
        "OnPodCompletion/0s",
    );
    let created = cluster.create(&step).await?;
    cluster.is_held("a").await?;
    cluster.finish("a", "Succeeded").await?;
    record_of(&cluster, &created.uid().context("the pod has no UID")?).await?;
    cluster.stays_held("a").await?;
    let seen = cluster.pods().get("a").await?;
    ensure!(
        seen.metadata.deletion_timestamp.is_none(),
        "the pod was deleted before its result was consumed"
    );
    cluster.consume("a").await?;
    cluster.is_removed("a").await?;
    belayer.stop().await
}

async fn existed(cluster: Cluster) -> Result<()> {
    let owner = owner(&cluster, "w").await?;
    let created = cluster
        .create(&pod("a").of_batch("w", &owner).held())
        .await?;
    cluster.finish("a", "Succeeded").await?;
    let uid = created.uid().context("the pod has no UID")?;
    let record: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "belayer.dev/v1alpha1", "kind": "PodOutcome",
        "metadata": { "name": format!("pod-{uid}") },
        "spec": { "podName": "a", "podUID": uid, "phase": "Succeeded", "complete": true, "containers": [] },
    }))?;
    kinds::outcomes(cluster.client(), cluster.namespace())
        .create(&Default::default(), &record)
        .await?;
    let belayer = cluster.start_belayer_with(&batch()).await?;
    cluster.is_not_held("a").await?;
    ensure!(records(&cluster).await?.len() == 1, "more than one record");
    // The cache of records shows it (A13).
    let written = [("result", "written")];
    let counted = belayer
        .metric("belayer_outcome_records_total", &written)
        .await?;
    ensure!(
        counted.abs() < f64::EPSILON,
        "{counted} records were written"
    );
    belayer.stop().await
}

async fn lost_node(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&batch()).await?;
    let owner = owner(&cluster, "w").await?;
    let created = cluster.create(&pod("a").of_batch("w", &owner)).await?;
    let uid = created.uid().context("the pod has no UID")?;
    cluster.is_held("a").await?;
    // As pod GC leaves it: a final phase with the node's last container statuses.
    let status = json!({ "status": { "phase": "Failed", "reason": "NodeLost", "containerStatuses": [{
        "name": "main", "image": "registry.invalid/step:1", "imageID": "", "ready": true, "restartCount": 0,
        "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } },
    }] } });
    cluster
        .pods()
        .patch_status("a", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    cluster.is_not_held("a").await?;
    let record = record_of(&cluster, &uid).await?;
    let spec = &record.data["spec"];
    ensure!(
        spec["complete"] == false && spec["unknownContainers"] == json!(["main"]),
        "{spec}"
    );
    ensure!(
        spec["containers"][0].get("exitCode").is_none() && spec.get("exitCode").is_none(),
        "the record has an invented exit code: {spec}"
    );
    belayer.stop().await
}

async fn refused(cluster: Cluster) -> Result<()> {
    let definitions = kinds::definitions(cluster.client());
    definitions.delete(CRD, &DeleteParams::default()).await?;
    eventually("the kind is removed", SOON, async || {
        ensure!(
            definitions.get_opt(CRD).await?.is_none(),
            "the CRD still exists"
        );
        Ok(())
    })
    .await?;
    let shown = without_the_kind(&cluster).await;
    eventually("the kind is back", SOON, async || {
        apply(cluster.client(), &manifest("podoutcome-crd")?).await?;
        records(&cluster).await.map(drop)
    })
    .await?;
    shown
}

async fn without_the_kind(cluster: &Cluster) -> Result<()> {
    let belayer = cluster.start_belayer_with(&argo()).await?;
    let workflow = cluster.workflow("w").await?;
    for name in ["taken", "wanted"] {
        cluster.create(&pod(name).of(&workflow)).await?;
        cluster.is_held(name).await?;
        cluster.finish(name, "Succeeded").await?;
    }
    // The later rules still release it, and pods whose result is needed keep their hold.
    cluster.consume("taken").await?;
    cluster.is_not_held("taken").await?;
    cluster.keeps_hold("wanted").await?;
    let refused = [("result", "refused")];
    let counted = belayer
        .metric("belayer_outcome_records_total", &refused)
        .await?;
    ensure!(counted >= 1.0, "{counted} failures are counted");
    eventually("an Event reports it", SOON, async || {
        let events = kinds::events(cluster.client(), cluster.namespace())
            .list(&ListParams::default())
            .await?;
        let reported = events
            .items
            .iter()
            .any(|event| event.data["reason"] == "OutcomeNotRecorded");
        ensure!(reported, "no Event reports it");
        Ok(())
    })
    .await?;
    belayer.stop().await
}

async fn expires(cluster: Cluster) -> Result<()> {
    let config = "podFinalizer: {outcomeTtl: 2s, profiles: [{name: bare, capture: true, \
                  selector: {matchLabels: {app: bare}}}]}";
    let belayer = cluster
        .start_belayer_with(&BelayerOptions::default().config(config))
        .await?;
    let created = cluster.create(&pod("a").label("app", "bare")).await?;
    let uid = created.uid().context("the pod has no UID")?;
    cluster.is_held("a").await?;
    cluster.finish("a", "Succeeded").await?;
    cluster.is_not_held("a").await?;
    let outcomes = kinds::outcomes(cluster.client(), cluster.namespace());
    eventually("the record has expired", SOON, async || {
        let left = outcomes.get_opt(&format!("pod-{uid}")).await?;
        ensure!(left.is_none(), "the record still exists");
        Ok(())
    })
    .await?;
    let written = [("result", "written")];
    let counted = belayer
        .metric("belayer_outcome_records_total", &written)
        .await?;
    ensure!((counted - 1.0).abs() < f64::EPSILON, "{counted} written");
    belayer.stop().await
}
