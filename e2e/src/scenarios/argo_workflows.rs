//! Workflows of Argo that are retried, archived, kept by another finalizer, or deleted by the thousand.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use serde_json::json;

use super::argo::{COMPLETED, step};
use super::argo_deleted::{all_stay_held, counted, delete_at_once, exited, report, running};
use super::argo_lost::node;
use crate::harness::{
    BelayerOptions, Cluster, HOLD, Load, SOON, Scenario, WORKFLOW_HOLD, Workflow, eventually,
    finalizers, pod,
};
use crate::kinds;
use crate::providers::Capability::{GarbageCollector, Recorder};

const ARTIFACTS: &str = "workflows.argoproj.io/artifact-gc";
const ARCHIVING: &str = "workflows.argoproj.io/workflow-archiving-status";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "a8-many-workflows-deleted",
            "live lists of pods are shared by the workflows of a namespace",
            many_deleted,
        )
        .needs([Recorder, GarbageCollector])
        .within(Duration::from_secs(600))
        .with_load(Load::Heavy),
        Scenario::alone(
            "a8-workflows-deleted-one-by-one",
            "a deleted workflow needs no list of pods with a selector beside 2,000 pods, some of which change",
            one_by_one,
        )
        .needs([Recorder, GarbageCollector]),
        Scenario::shared(
            "a11-pods-of-an-earlier-run",
            "a deleted pod of a retried workflow is released, one of the current run keeps its hold",
            earlier_run,
        ),
        Scenario::alone(
            "a12-outcome-that-is-not-final",
            "an outcome that is not final delays no release, and is recorded as it is",
            not_final,
        ),
        Scenario::shared(
            "a16-argo-goes-on-running-it",
            "pods of an unfinished workflow that another finalizer keeps are held until their results are read",
            kept_running,
        )
        .needs([GarbageCollector]),
        Scenario::alone(
            "a20-until-archived",
            "a completed workflow is held until it is archived, if the configuration says so",
            until_archived,
        ),
    ]
}

/// 500 workflows with 2,000 pods on a real server, twice as many on the sandbox; every night 5,000 with 20,000.
async fn many_deleted(cluster: Cluster) -> Result<()> {
    let workflows = cluster.setting().large / 2;
    let made: Vec<Workflow> = futures::stream::iter(0..workflows)
        .map(|index| {
            let (cluster, name) = (cluster.clone(), format!("w{index}"));
            let metadata = json!({ "finalizers": [WORKFLOW_HOLD] });
            async move {
                let namespace = cluster.namespace();
                cluster.workflow_in(namespace, &name, metadata).await
            }
        })
        .buffer_unordered(32)
        .try_collect()
        .await?;
    let pods = (0..4 * workflows)
        .map(|index| pod(format!("p{index}")).of(&made[index / 4]))
        .map(|pod| pod.label(COMPLETED, "true"));
    cluster.create_all(pods).await?;
    let belayer = cluster.start_belayer().await?;
    cluster.belayer_has_caught_up().await?;
    let before = cluster.recorder()?.count("list", "pods")?;
    let all = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    let which = kube::api::ListParams::default();
    // A busy server may not delete all of them within the time of one request.
    eventually("all workflows are deleted", SOON * 10, async || {
        let deleted = cluster.workflows().delete_collection(&all, &which).await;
        Ok(deleted.map(drop)?)
    })
    .await?;
    eventually("all workflows are removed", SOON * 10, async || {
        let left = cluster
            .workflows()
            .list_metadata(&which.clone().limit(1))
            .await?;
        ensure!(left.items.is_empty(), "{} remain", left.items[0].name_any());
        Ok(())
    })
    .await?;
    let lists = cluster.recorder()?.count("list", "pods")? - before;
    cluster.note(format!(
        "{workflows} workflows deleted beside {} pods: {lists} lists of pods",
        4 * workflows
    ));
    ensure!(lists <= 50, "{lists} lists of pods");
    belayer.stop().await
}

/// Changes a pod every 50 ms.
async fn change_pods(cluster: &Cluster) -> Result<()> {
    for change in 0_u64.. {
        let label = json!({ "metadata": { "labels": { "change": change.to_string() } } });
        let patch = Patch::Merge(&label);
        let pods = cluster.pods();
        pods.patch("p0", &PatchParams::default(), &patch).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn one_by_one(cluster: Cluster) -> Result<()> {
    const PODS: usize = 2_000;
    const DELETED: usize = 10;
    let beside = cluster.workflow("beside").await?;
    let pods = (0..PODS).map(|index| pod(format!("p{index}")).of(&beside).held());
    cluster.create_all(pods).await?;
    let metadata = json!({ "finalizers": [WORKFLOW_HOLD] });
    for index in 0..DELETED {
        let name = format!("w{index}");
        cluster
            .workflow_in(cluster.namespace(), &name, metadata.clone())
            .await?;
    }
    let belayer = cluster.start_belayer().await?;
    cluster.belayer_has_caught_up().await?;
    let before = cluster.recorder()?.count("list", "pods")?;
    let all = async {
        for index in 0..DELETED {
            let name = format!("w{index}");
            cluster
                .delete_workflow(&name, PropagationPolicy::Background)
                .await?;
            cluster.workflow_is_removed(&name, SOON).await?;
        }
        Ok(())
    };
    // A store learns the current version from changes of pods.
    tokio::select! {
        done = all => done,
        failed = change_pods(&cluster) => failed,
    }?;
    let lists = cluster.recorder()?.count("list", "pods")? - before;
    let mut selected = 0.0;
    for answer in ["none", "some"] {
        let labels = [("question", "pods"), ("answer", answer)];
        selected += belayer.metric("belayer_facts_total", &labels).await?;
    }
    cluster.note(format!(
        "{DELETED} workflows deleted one by one beside {PODS} pods: {lists} lists of pods, {selected} of them with a selector"
    ));
    // On a busy machine the store may be late now and then. Without the rule each of the ten needs one.
    ensure!(selected <= 6.0, "{selected} lists with a selector");
    // A list with a selector has up to four pages.
    ensure!(
        lists <= 2 * DELETED as u64 + 4 * selected as u64,
        "{lists} lists of pods for {DELETED} workflows"
    );
    belayer.stop().await
}

async fn earlier_run(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    for name in ["earlier", "again", "current"] {
        cluster.create(&step(name, &workflow)).await?;
        cluster.is_held(name).await?;
        let containers = [("main", exited(1)), ("wait", exited(0))];
        report(&cluster, name, "Failed", &containers).await?;
    }
    // As `argo retry` writes it. Argo deletes the pods of the nodes that it runs again.
    let now = jiff::Timestamp::now();
    let later = |seconds| (now + Duration::from_secs(seconds)).to_string();
    let before = (now - Duration::from_secs(3_600)).to_string();
    let status = json!({ "status": {
        "phase": "Running", "startedAt": later(120),
        "conditions": [{ "type": "Completed", "status": "False" }],
        "nodes": {
            "w-again": { "type": "Pod", "phase": "Pending", "startedAt": later(121) },
            "w-current": { "type": "Pod", "phase": "Running", "startedAt": before },
        },
    } });
    cluster.merge_workflow("w", status).await?;
    for name in ["earlier", "again", "current"] {
        cluster.delete(name).await?;
    }
    cluster.is_removed("earlier").await?;
    cluster.is_removed("again").await?;
    all_stay_held(&cluster, &["current"]).await?;
    counted(&cluster, "EarlierRun", 2.0).await?;
    cluster.consume("current").await?;
    cluster.is_removed("current").await
}

async fn not_final(cluster: Cluster) -> Result<()> {
    let options = BelayerOptions::default()
        .config("podFinalizer: {profiles: [{builtIn: argo, capture: true}]}");
    let belayer = cluster.start_belayer_with(&options).await?;
    let machine = format!("silent-{}", cluster.namespace());
    node(&cluster, &machine, "Unknown").await?;
    let shown = recorded_as_it_is(&cluster, &machine).await;
    let nodes = kinds::nodes(cluster.client());
    nodes.delete(&machine, &DeleteParams::default()).await?;
    shown?;
    belayer.stop().await
}

async fn recorded_as_it_is(cluster: &Cluster, machine: &str) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    running(cluster, &workflow, "a", machine).await?;
    let uid = cluster.pods().get("a").await?.uid().context("no UID")?;
    // Its phase is final, but a container runs as far as is known, and its node exists.
    let open = json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } });
    let containers = [("main", open), ("wait", exited(0))];
    report(cluster, "a", "Failed", &containers).await?;
    cluster.stays_held("a").await?;
    let outcomes = kinds::outcomes(cluster.client(), cluster.namespace());
    let name = format!("pod-{uid}");
    ensure!(
        outcomes.get_opt(&name).await?.is_none(),
        "an outcome that is not final was recorded"
    );
    cluster.consume("a").await?;
    cluster.is_not_held("a").await?;
    let record = outcomes.get(&name).await?;
    let spec = &record.data["spec"];
    ensure!(
        spec["complete"] == false && spec["unknownContainers"] == json!(["main"]),
        "{spec}"
    );
    delete_at_once(cluster, "a").await
}

async fn kept_running(cluster: Cluster) -> Result<()> {
    let metadata = json!({ "finalizers": [WORKFLOW_HOLD, ARTIFACTS] });
    let namespace = cluster.namespace().to_owned();
    let workflow = cluster.workflow_in(&namespace, "w", metadata).await?;
    for name in ["runs", "ended"] {
        cluster.create(&step(name, &workflow)).await?;
        cluster.is_held(name).await?;
    }
    cluster.finish("ended", "Succeeded").await?;
    cluster
        .delete_workflow("w", PropagationPolicy::Background)
        .await?;
    eventually("the workflow's own hold is removed", SOON, async || {
        let seen = cluster.workflows().get("w").await?;
        ensure!(finalizers(&seen) == [ARTIFACTS], "{:?}", finalizers(&seen));
        Ok(())
    })
    .await?;
    all_stay_held(&cluster, &["runs", "ended"]).await?;
    // Argo reads the result of one, then finishes the workflow and removes its finalizer.
    let nodes =
        json!({ "status": { "nodes": { "w-ended": { "type": "Pod", "phase": "Succeeded" } } } });
    cluster.merge_workflow("w", nodes).await?;
    cluster.is_not_held("ended").await?;
    all_stay_held(&cluster, &["runs"]).await?;
    let done = json!({ "metadata": { "labels": { COMPLETED: "true" } } });
    cluster.merge_workflow("w", done).await?;
    cluster.is_not_held("runs").await?;
    let removed = json!({ "metadata": { "finalizers": null } });
    cluster.merge_workflow("w", removed).await?;
    cluster.workflow_is_removed("w", SOON).await
}

async fn until_archived(cluster: Cluster) -> Result<()> {
    let options =
        BelayerOptions::default().config("workflowFinalizer: {owners: [{until: archived}]}");
    let belayer = cluster.start_belayer_with(&options).await?;
    for (name, archiving) in [("pending", Some("Pending")), ("not-archived", None)] {
        let workflow = cluster.workflow(name).await?;
        cluster.workflow_is_held(name).await?;
        let pod_name = format!("{name}-pod");
        cluster.create(&step(&pod_name, &workflow)).await?;
        cluster.is_held(&pod_name).await?;
        let labels =
            json!({ "metadata": { "labels": { COMPLETED: "true", ARCHIVING: archiving } } });
        cluster.merge_workflow(name, labels).await?;
        cluster.is_not_held(&pod_name).await?;
        cluster
            .delete_workflow(name, PropagationPolicy::Background)
            .await?;
    }
    cluster.workflow_is_removed("not-archived", SOON).await?;
    cluster.belayer_has_caught_up().await?;
    let seen = cluster.workflows().get("pending").await?;
    ensure!(
        finalizers(&seen).contains(&WORKFLOW_HOLD) && !finalizers(&seen).contains(&HOLD),
        "{:?}",
        finalizers(&seen)
    );
    let archived = json!({ "metadata": { "labels": { ARCHIVING: "Archived" } } });
    cluster.merge_workflow("pending", archived).await?;
    cluster.workflow_is_removed("pending", SOON).await?;
    belayer.stop().await
}
