//! Together with a workflow controller that labels, deletes and patches the same pods.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::json;

use crate::harness::{
    Argo, ArgoOptions, Belayer, Cluster, NODE_ID, Nodes, Packing, PodBuilder, SOON, Scenario,
    Workflow, pod,
};
use crate::providers::Capability::{GarbageCollector, Recorder};

pub(super) const STATUS: &str = "workflows.argoproj.io/status";
pub(super) const COMPLETED: &str = "workflows.argoproj.io/completed";
pub(super) const PHASE: &str = "workflows.argoproj.io/phase";

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
            "a result recorded in the workflow's status counts as consumed",
            beside(Nodes::Plain),
        )
        .needs([Recorder]),
        Scenario::shared(
            "argo-compressed-nodes",
            "the same with compressed nodes",
            beside(Nodes::Compressed(Packing::Gzip)),
        )
        .needs([Recorder]),
        Scenario::shared(
            "argo-nodes-in-zstd",
            "the same with nodes that are compressed by zstd",
            beside(Nodes::Compressed(Packing::Zstd)),
        )
        .needs([Recorder]),
        Scenario::shared(
            "argo-nodes-in-brotli",
            "the same with nodes that are compressed by brotli",
            beside(Nodes::Compressed(Packing::Brotli)),
        )
        .needs([Recorder]),
        Scenario::shared(
            "argo-offloaded-status",
            "an offloaded status is no evidence",
            offloaded,
        ),
        Scenario::shared(
            "argo-own-finalizer-beside",
            "with Argo's own finalizer, no result is lost and no finalizer is left",
            own_finalizer,
        )
        .needs([GarbageCollector]),
        Scenario::shared(
            "argo-retry-same-names",
            "a retry re-uses the names of the pods that it deletes",
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
            "the pods of a terminated workflow are released",
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
            "workflows are deleted while Belayer and Argo are down",
            both_down,
        )
        .needs([GarbageCollector]),
        Scenario::alone(
            "argo-status-asked-sparingly",
            "a workflow's status is read once for all its pods, at most once a second",
            sparingly,
        )
        .needs([Recorder]),
    ]
}

/// A pod of a node of the workflow.
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
    // Deleted, and not recorded by the controller: the result is still needed.
    cluster.finish("c", "Failed").await?;
    cluster.delete("c").await?;
    let gets = cluster.recorder()?.gets("workflows")?;
    let started = Instant::now();
    cluster.stays_held("c").await?;
    let looks = cluster.recorder()?.gets("workflows")? - gets;
    let seconds = started.elapsed().as_secs();
    cluster.note(format!("{looks} live reads of workflows in {seconds} s"));

    let argo = Argo::start(&cluster, options);
    for name in ["a", "b"] {
        cluster.finish(name, "Succeeded").await?;
    }
    for name in names {
        cluster.is_removed(name).await?;
    }
    let taken = argo.taken();
    argo.stop().await?;
    ensure!(taken.len() == 3, "results consumed: {taken:?}");
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
    cluster.note(format!("{looks} live reads in {seconds:.1} s for 50 pods"));
    ensure!(looks >= 1, "no live read was made");
    // One at most every 0.75 s, the first, and one under way.
    ensure!(
        looks as f64 <= seconds / 0.75 + 2.0,
        "{looks} live reads in {seconds:.1} s"
    );
    ensure!(
        cluster.held_count().await? == 50,
        "a pod was released without evidence"
    );
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
    cluster.is_removed("a").await
}

/// Argo holds, labels, patches and deletes the same pods as Belayer.
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
        // Some are deleted before the controller has read them.
        cluster.finish(&name, phase).await?;
    }
    cluster.is_empty(SOON).await?;
    let taken = argo.taken();
    ensure!(taken.len() == pods, "{} of {pods} results", taken.len());

    // And a workflow that is deleted before it has finished.
    let early = cluster.workflow("early").await?;
    let all = (0..pods).map(|index| step(&format!("e{index}"), &early).finalizer(STATUS));
    cluster.create_all(all).await?;
    cluster.workflow_is_held("early").await?;
    cluster
        .delete_workflow("early", PropagationPolicy::Background)
        .await?;
    cluster.workflow_is_removed("early", SOON).await?;
    cluster.is_empty(SOON).await?;
    argo.stop().await
}

/// Runs an action, while Belayer is down if one is given.
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
        // As `argo retry`: the server deletes the pods and resets the workflow, and its controller creates
        // pods of the same names.
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
        cluster.is_removed(name).await?;
        cluster.create(&step(name, &workflow)).await?;
        cluster.is_held(name).await?;
    }
    // Evidence about the previous pods does not apply to the new ones.
    cluster.finish("a", "Succeeded").await?;
    cluster.delete("a").await?;
    cluster.keeps_hold("a").await?;
    cluster.keeps_hold("b").await?;
    let fulfilled = json!({ "status": { "nodes": {
        "w-a": { "id": "w-a", "name": "w-a", "phase": "Succeeded" },
    } } });
    cluster.merge_workflow("w", fulfilled).await?;
    cluster.is_removed("a").await?;
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
        cluster.workflow_is_removed(name, SOON).await?;
    }
    cluster.is_empty(SOON).await?;
    belayer.stop().await
}
