//! Beside a workflow controller that labels, deletes and patches the same pods.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use kube::ResourceExt as _;
use kube::api::{DynamicObject, PropagationPolicy};
use serde_json::json;

use crate::harness::{
    Argo, ArgoOptions, Belayer, BelayerOptions, Cluster, HOLD, Nodes, PodBuilder, Scenario,
    Workflow, eventually, finalizers, pod,
};
use crate::providers::Capability::{GarbageCollector, Recorder};
use crate::providers::{apply, manifest};

const SOON: Duration = Duration::from_secs(60);
const STATUS: &str = "workflows.argoproj.io/status";
const NODE_ID: &str = "workflows.argoproj.io/node-id";
const POD_GC: &str = "workflows.argoproj.io/pod-gc-strategy";
const COMPLETED: &str = "workflows.argoproj.io/completed";
const PHASE: &str = "workflows.argoproj.io/phase";
const FOREIGN: &str = "e2e.belayer.dev/keep";

pub(super) fn scenarios() -> Vec<Scenario> {
    let beside = |nodes| {
        move |cluster| {
            let options = ArgoOptions {
                nodes,
                deletes: true,
                ..ArgoOptions::default()
            };
            deleted_without_label(cluster, options)
        }
    };
    vec![
        Scenario::shared(
            "argo-deletes-without-label",
            "the workflow's own status says that a result was taken",
            beside(Nodes::Plain),
        )
        .needs([Recorder]),
        Scenario::shared(
            "argo-compressed-nodes",
            "also where the nodes are compressed",
            beside(Nodes::Compressed),
        )
        .needs([Recorder]),
        Scenario::shared(
            "argo-offloaded-status",
            "an offloaded status is no evidence",
            offloaded,
        ),
        Scenario::shared(
            "argo-own-finalizer-beside",
            "with Argo's own finalizer on, no result is lost and nothing left",
            own_finalizer,
        )
        .needs([GarbageCollector]),
        Scenario::shared(
            "argo-retry-same-names",
            "a retry takes the names of the pods that it deletes",
            |cluster| retried(cluster, None),
        ),
        Scenario::alone(
            "argo-retry-while-down",
            "the same while Belayer is down",
            |cluster| async move {
                let belayer = cluster.start_belayer().await?;
                retried(cluster, Some(belayer)).await
            },
        ),
        Scenario::shared(
            "argo-terminate",
            "a terminated workflow's pods go",
            |cluster| terminated(cluster, None),
        ),
        Scenario::alone(
            "argo-terminate-while-down",
            "the same while Belayer is down",
            |cluster| async move {
                let belayer = cluster.start_belayer().await?;
                terminated(cluster, Some(belayer)).await
            },
        ),
        Scenario::alone(
            "argo-deletion-while-both-down",
            "workflows deleted while Belayer and Argo are down",
            both_down,
        )
        .needs([GarbageCollector]),
        Scenario::alone(
            "argo-status-asked-sparingly",
            "a workflow's status is fetched once for all its pods, once a second at most",
            sparingly,
        )
        .needs([Recorder]),
        Scenario::alone(
            "adopt-named-finalizers",
            "named finalizers of others leave with our hold, others never",
            adopted,
        ),
        Scenario::alone(
            "cleanup-by-annotation",
            "pods that were let go are deleted when their annotation says so",
            cleanup,
        ),
        Scenario::alone(
            "observe-lists-losses",
            "observing tells which pods would have lost their result",
            observed,
        ),
    ]
}

/// A pod of a workflow, with its node.
pub(super) fn step(name: &str, workflow: &Workflow) -> PodBuilder {
    let node = format!("{}-{name}", workflow.name);
    pod(name).of(workflow).annotation(NODE_ID, &node)
}

async fn deleted_without_label(cluster: Cluster, options: ArgoOptions) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    let names = ["a", "b", "c"];
    cluster
        .create_all(names.map(|name| step(name, &workflow)))
        .await?;
    for name in names {
        cluster.is_held(name).await?;
    }
    // Deleted, and no word of the controller: the result is still wanted.
    cluster.finish("c", "Failed").await?;
    cluster.delete("c").await?;
    let gets = cluster.recorder()?.gets("workflows")?;
    let started = Instant::now();
    cluster.stays_held("c").await?;
    let looks = cluster.recorder()?.gets("workflows")? - gets;
    let seconds = started.elapsed().as_secs();
    cluster.note(format!(
        "{looks} look(s) at workflows in {seconds} s of waiting"
    ));

    let argo = Argo::start(&cluster, options);
    for name in ["a", "b"] {
        cluster.finish(name, "Succeeded").await?;
    }
    for name in names {
        cluster.is_gone(name).await?;
    }
    let taken = argo.taken();
    argo.stop().await?;
    ensure!(taken.len() == 3, "results taken: {taken:?}");
    Ok(())
}

/// Fifty pods wait while their workflow's controller writes to it ten times a second.
async fn sparingly(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer().await?;
    let workflow = cluster.workflow("w").await?;
    let pods = (0..50).map(|index| step(&format!("p{index}"), &workflow).held());
    cluster.create_all(pods).await?;
    for index in 0..50 {
        cluster.finish(&format!("p{index}"), "Succeeded").await?;
    }
    let gets = cluster.recorder()?.gets("workflows")?;
    let started = Instant::now();
    cluster.delete_all().await?;
    for progress in 0..40 {
        let status = json!({ "status": { "progress": format!("{progress}/50") } });
        cluster.merge_workflow("w", status).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let looks = cluster.recorder()?.gets("workflows")? - gets;
    let seconds = started.elapsed().as_secs_f64();
    cluster.note(format!("{looks} look(s) in {seconds:.1} s for 50 pods"));
    ensure!(looks >= 1, "nobody looked");
    ensure!(
        looks as f64 <= seconds + 2.0,
        "{looks} looks in {seconds:.1} s"
    );
    ensure!(cluster.held_count().await? == 50, "let go without evidence");
    let nodes: serde_json::Map<_, _> = (0..50)
        .map(|index| (format!("w-p{index}"), json!({ "phase": "Succeeded" })))
        .collect();
    cluster
        .merge_workflow("w", json!({ "status": { "nodes": nodes } }))
        .await?;
    cluster.is_empty(SOON).await?;
    belayer.stop().await
}

async fn offloaded(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster
        .merge_workflow(
            "w",
            json!({ "status": { "phase": "Running", "offloadNodeStatusVersion": "fnv:784644126" } }),
        )
        .await?;
    cluster.create(&step("a", &workflow)).await?;
    cluster.is_held("a").await?;
    cluster.finish("a", "Succeeded").await?;
    cluster.delete("a").await?;
    cluster.stays_held("a").await?;
    cluster.consume("a").await?;
    cluster.is_gone("a").await
}

/// Argo holds, labels, patches and deletes the pods that Belayer holds as well.
async fn own_finalizer(cluster: Cluster) -> Result<()> {
    let argo = Argo::start(
        &cluster,
        ArgoOptions {
            labels: true,
            deletes: true,
            ..ArgoOptions::default()
        },
    );
    let pods = 20;
    let workflow = cluster.workflow("w").await?;
    let all = (0..pods).map(|index| step(&format!("p{index}"), &workflow).finalizer(STATUS));
    cluster.create_all(all).await?;
    for index in 0..pods {
        let name = format!("p{index}");
        if index % 4 == 0 {
            cluster.is_held(&name).await?;
        }
        let phase = if index % 3 == 0 {
            "Failed"
        } else {
            "Succeeded"
        };
        // Somebody deletes some before the controller had a look.
        cluster.finish(&name, phase).await?;
    }
    cluster.is_empty(SOON).await?;
    let taken = argo.taken();
    ensure!(taken.len() == pods, "{} of {pods} results", taken.len());

    // And a workflow that is deleted before its time.
    let early = cluster.workflow("early").await?;
    let all = (0..pods).map(|index| step(&format!("e{index}"), &early).finalizer(STATUS));
    cluster.create_all(all).await?;
    cluster.workflow_is_held("early").await?;
    cluster
        .delete_workflow("early", PropagationPolicy::Background)
        .await?;
    cluster.workflow_is_gone("early", SOON).await?;
    cluster.is_empty(SOON).await?;
    argo.stop().await
}

/// Has something happen, while Belayer is down if one is given.
async fn meanwhile<F: Future<Output = Result<()>>>(
    cluster: &Cluster,
    belayer: Option<Belayer>,
    happen: F,
) -> Result<Option<Belayer>> {
    let Some(belayer) = belayer else {
        happen.await?;
        return Ok(None);
    };
    belayer.kill().await?;
    happen.await?;
    cluster.start_belayer().await.map(Some)
}

async fn stopped(belayer: Option<Belayer>) -> Result<()> {
    match belayer {
        Some(belayer) => belayer.stop().await,
        None => Ok(()),
    }
}

async fn retried(cluster: Cluster, belayer: Option<Belayer>) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    let names = ["a", "b"];
    for name in names {
        cluster.create(&step(name, &workflow)).await?;
        cluster.is_held(name).await?;
        cluster.finish(name, "Failed").await?;
    }
    let ended = json!({
        "metadata": { "labels": { COMPLETED: "true", PHASE: "Failed" } },
        "status": { "phase": "Failed", "nodes": {
            "w-a": { "id": "w-a", "name": "w-a", "phase": "Failed" },
            "w-b": { "id": "w-b", "name": "w-b", "phase": "Failed" },
        } },
    });
    cluster.merge_workflow("w", ended).await?;
    for name in names {
        cluster.consume(name).await?;
    }
    let belayer = meanwhile(&cluster, belayer, async {
        // What `argo retry` does: the server deletes the pods, resets the workflow, and its
        // controller makes pods of the very same names.
        for name in names {
            cluster.delete(name).await?;
        }
        let reset = json!({
            "metadata": { "labels": { COMPLETED: null, PHASE: "Running" } },
            "status": { "phase": "Running", "nodes": { "w-a": null, "w-b": null } },
        });
        cluster.merge_workflow("w", reset).await
    })
    .await?;
    for name in names {
        cluster.is_gone(name).await?;
        cluster.create(&step(name, &workflow)).await?;
        cluster.is_held(name).await?;
    }
    // What was said of their predecessors says nothing of them.
    cluster.finish("a", "Succeeded").await?;
    cluster.delete("a").await?;
    cluster.keeps_hold("a").await?;
    cluster.keeps_hold("b").await?;
    let fulfilled = json!({ "status": { "nodes": {
        "w-a": { "id": "w-a", "name": "w-a", "phase": "Succeeded" },
    } } });
    cluster.merge_workflow("w", fulfilled).await?;
    cluster.is_gone("a").await?;
    cluster.keeps_hold("b").await?;
    stopped(belayer).await
}

async fn terminated(cluster: Cluster, belayer: Option<Belayer>) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    let names = ["a", "b", "c"];
    for name in names {
        cluster.create(&step(name, &workflow)).await?;
        cluster.is_held(name).await?;
    }
    let belayer = meanwhile(&cluster, belayer, async {
        // Containers are killed, pods labelled, the workflow is finished.
        for name in names {
            cluster.finish(name, "Failed").await?;
        }
        cluster.consume("a").await?;
        let ended = json!({
            "metadata": { "labels": { COMPLETED: "true", PHASE: "Failed" } },
            "status": { "phase": "Failed" },
        });
        cluster.merge_workflow("w", ended).await?;
        for name in names {
            cluster.delete(name).await?;
        }
        Ok(())
    })
    .await?;
    cluster.is_empty(SOON).await?;
    cluster.workflow_is_held("w").await?;
    stopped(belayer).await
}

async fn both_down(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer().await?;
    for name in ["w0", "w1"] {
        let workflow = cluster.workflow(name).await?;
        let pods = (0..5).map(|index| step(&format!("{name}-{index}"), &workflow));
        cluster.create_all(pods).await?;
        cluster.workflow_is_held(name).await?;
        for index in 0..5 {
            cluster.is_held(&format!("{name}-{index}")).await?;
        }
    }
    belayer.kill().await?;
    cluster.finish("w0-0", "Succeeded").await?;
    cluster.delete("w0-0").await?;
    for name in ["w0", "w1"] {
        cluster
            .delete_workflow(name, PropagationPolicy::Background)
            .await?;
    }
    let belayer = cluster.start_belayer().await?;
    for name in ["w0", "w1"] {
        cluster.workflow_is_gone(name, SOON).await?;
    }
    cluster.is_empty(SOON).await?;
    belayer.stop().await
}

async fn adopted(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    let both = |name: &str| step(name, &workflow).finalizer(STATUS).finalizer(FOREIGN);
    // Without being named they are nobody's business.
    let belayer = cluster.start_belayer().await?;
    cluster.create(&both("not-named")).await?;
    cluster.is_held("not-named").await?;
    cluster.consume("not-named").await?;
    cluster.is_not_held("not-named").await?;
    has(&cluster, "not-named", &[STATUS, FOREIGN]).await?;
    belayer.stop().await?;

    let config = format!("podFinalizer: {{profiles: [{{builtIn: argo, adopt: [{STATUS}]}}]}}");
    let belayer = cluster
        .start_belayer_with(&BelayerOptions::default().config(&config))
        .await?;
    // Left behind by a workflow controller that labelled it and never came back.
    has(&cluster, "not-named", &[FOREIGN]).await?;
    cluster.create(&both("named")).await?;
    cluster
        .create(&pod("not-selected").finalizer(STATUS))
        .await?;
    cluster.is_held("named").await?;
    cluster.finish("named", "Succeeded").await?;
    cluster.keeps_hold("named").await?;
    has(&cluster, "named", &[STATUS, FOREIGN, HOLD]).await?;
    cluster.consume("named").await?;
    has(&cluster, "named", &[FOREIGN]).await?;
    has(&cluster, "not-selected", &[STATUS]).await?;
    let adopted = [("evidence", "Adopted")];
    let counted = belayer.metric("belayer_releases_total", &adopted).await?;
    ensure!((counted - 2.0).abs() < f64::EPSILON, "{counted} adopted");
    ensure!(
        belayer.log()?.contains("released adopted finalizers"),
        "the log does not say so"
    );
    belayer.stop().await
}

/// The pod has exactly these finalizers, before long.
async fn has(cluster: &Cluster, name: &str, expected: &[&str]) -> Result<()> {
    eventually(&format!("{name} has {expected:?}"), SOON, async || {
        let seen = cluster.pods().get(name).await?;
        ensure!(finalizers(&seen) == expected, "{:?}", finalizers(&seen));
        Ok(())
    })
    .await
}

async fn cleanup(cluster: Cluster) -> Result<()> {
    apply(cluster.client(), manifest("rbac-pod-cleanup")?).await?;
    let options = BelayerOptions::default()
        .config("podFinalizer: {profiles: [{builtIn: argo, cleanup: argo}]}");
    let belayer = cluster.start_belayer_with(&options).await?;
    let workflow = cluster.workflow("w").await?;
    let other = cluster.workflow("orphans").await?;
    let cases = [
        ("on-completion", "OnPodCompletion/0s", "Failed"),
        ("on-success", "OnPodSuccess/1s", "Succeeded"),
        ("on-success-failed", "OnPodSuccess/0s", "Failed"),
        ("on-workflow", "OnWorkflowCompletion/0s", "Failed"),
        ("on-workflow-success", "OnWorkflowSuccess/0s", "Succeeded"),
        ("late", "OnPodCompletion/10m0s", "Succeeded"),
        ("empty", "", "Succeeded"),
        ("malformed", "OnPodCompletion", "Succeeded"),
        ("no-strategy", "/-1ns", "Succeeded"),
    ];
    for (name, annotation, phase) in cases {
        cluster
            .create(&step(name, &workflow).annotation(POD_GC, annotation))
            .await?;
        cluster.is_held(name).await?;
        cluster.finish(name, phase).await?;
        cluster.consume(name).await?;
    }
    cluster.is_gone("on-completion").await?;
    cluster.is_gone("on-success").await?;
    let stay = [
        "on-success-failed",
        "late",
        "empty",
        "malformed",
        "no-strategy",
    ];
    let are_there = async |names: &[&str]| -> Result<()> {
        for name in names {
            let seen: DynamicObject = cluster.pods().get(name).await?;
            if seen.metadata.deletion_timestamp.is_some() || finalizers(&seen).contains(&HOLD) {
                bail!("{name} has {:?}", seen.finalizers());
            }
        }
        Ok(())
    };
    cluster.is_not_held("on-workflow").await?;
    cluster.belayer_has_caught_up().await?;
    are_there(&["on-workflow", "on-workflow-success"]).await?;
    let ended = json!({ "metadata": { "labels": { COMPLETED: "true", PHASE: "Failed" } } });
    cluster.merge_workflow("w", ended).await?;
    cluster.is_gone("on-workflow").await?;
    are_there(&["on-workflow-success"]).await?;
    let succeeded = json!({ "metadata": { "labels": { PHASE: "Succeeded" } } });
    cluster.merge_workflow("w", succeeded).await?;
    cluster.is_gone("on-workflow-success").await?;
    are_there(&stay).await?;

    // Orphans, which Argo forgets for the strategies of workflows.
    let orphan = pod("orphan")
        .label("workflows.argoproj.io/workflow", &other.name)
        .annotation(POD_GC, "OnWorkflowCompletion/0s");
    cluster.create(&orphan).await?;
    cluster.finish("orphan", "Failed").await?;
    cluster.is_gone("orphan").await?;
    let deleted = belayer.metric("belayer_cleanups_total", &[]).await?;
    ensure!((deleted - 5.0).abs() < f64::EPSILON, "{deleted} deletions");
    belayer.stop().await
}

async fn observed(cluster: Cluster) -> Result<()> {
    let options = BelayerOptions::default()
        .config("podFinalizer: {profiles: [{builtIn: argo, mode: observe}]}");
    let belayer = cluster.start_belayer_with(&options).await?;
    let workflow = cluster.workflow("w").await?;
    for name in ["taken", "lost"] {
        cluster.create(&step(name, &workflow)).await?;
        cluster.finish(name, "Succeeded").await?;
    }
    cluster.consume("taken").await?;
    eventually("both are seen", SOON, async || {
        let seen = belayer.metric("belayer_informer_objects", &[("kind", "Pod")]);
        ensure!(seen.await? >= 2.0, "not yet");
        Ok(())
    })
    .await?;
    let uid = cluster.pods().get("lost").await?.uid();
    for name in ["taken", "lost"] {
        cluster.delete(name).await?;
        cluster.is_gone(name).await?;
    }
    let told = eventually("the loss is told", SOON, async || {
        let told = belayer.holds().await?["pod-finalizer"].clone();
        ensure!(told["observedLosses"] == 1, "{}", told["observedLosses"]);
        Ok(told)
    })
    .await?;
    let first = &told["latestLosses"][0];
    ensure!(
        first["name"] == "lost" && first["uid"] == json!(uid) && first["at"].is_string(),
        "{first}"
    );
    let counted = belayer.metric("belayer_observed_losses_total", &[]).await?;
    ensure!((counted - 1.0).abs() < f64::EPSILON, "{counted} counted");
    belayer.stop().await
}
