//! Changes while Belayer is down: after the start everything settles without further events.

use anyhow::{Result, bail, ensure};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use serde_json::json;

use crate::harness::{
    BelayerOptions, Cluster, HOLD, Proxy, SOON, Scenario, eventually, finalizers, pod,
};
use crate::kinds;
use crate::providers::Capability::{GarbageCollector, NamespaceDeletion};

pub(super) fn scenarios() -> Vec<Scenario> {
    let all = [GarbageCollector, NamespaceDeletion];
    vec![
        Scenario::alone(
            "settles-after-downtime",
            "pods, owners (three ways) and namespaces are deleted while Belayer is down",
            |cluster| after(cluster, Absence::Stopped),
        )
        .needs(all),
        Scenario::alone(
            "settles-after-kill-9",
            "the same after kill -9",
            |cluster| after(cluster, Absence::Killed),
        )
        .needs(all),
        Scenario::alone(
            "settles-after-connection-cut",
            "the same while the API server refuses connections",
            |cluster| after(cluster, Absence::Cut),
        )
        .needs(all),
        Scenario::alone(
            "settles-after-connections-hung",
            "the same while all connections hang",
            |cluster| after(cluster, Absence::Silent),
        )
        .needs(all),
    ]
}

/// Why Belayer receives no events for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absence {
    Stopped,
    Killed,
    Cut,
    Silent,
}

async fn after(cluster: Cluster, absence: Absence) -> Result<()> {
    let doomed = cluster.another_namespace("doomed", json!({})).await?;
    let server = cluster.server_address()?;
    let wire = Proxy::start(server).await?;
    let options = match absence {
        Absence::Stopped | Absence::Killed => BelayerOptions::default(),
        Absence::Cut | Absence::Silent => BelayerOptions::default().through(wire.address()),
    };
    let belayer = cluster.start_belayer_with(&options).await?;
    prepare(&cluster, &doomed).await?;

    let belayer = match absence {
        Absence::Stopped => belayer.stop().await.map(|()| None)?,
        Absence::Killed => belayer.kill().await.map(|()| None)?,
        Absence::Cut => {
            wire.cut();
            Some(belayer)
        }
        Absence::Silent => {
            wire.silence();
            Some(belayer)
        }
    };
    upheaval(&cluster, &doomed).await?;
    let belayer = match belayer {
        Some(belayer) => {
            wire.restore();
            belayer
        }
        None => cluster.start_belayer().await?,
    };
    settled(&cluster, &doomed, absence).await?;
    for index in 0..3 {
        let name = format!("again-{index}");
        let released = belayer.released_for(cluster.namespace(), &name, &["OwnerGone"]);
        released.await?;
    }
    belayer.stop().await
}

const WORKFLOWS: [&str; 5] = ["background", "foreground", "orphan", "alive", "again"];

async fn prepare(cluster: &Cluster, doomed: &str) -> Result<()> {
    for name in WORKFLOWS {
        let workflow = cluster.workflow(name).await?;
        cluster
            .create_all((0..3).map(|index| pod(format!("{name}-{index}")).of(&workflow)))
            .await?;
    }
    let workflow = cluster.workflow_in(doomed, "w", json!({})).await?;
    cluster.create_in(doomed, &pod("a").of(&workflow)).await?;
    eventually("all pods have the hold", SOON, async || {
        let held = cluster.held_count().await?;
        ensure!(held == WORKFLOWS.len() * 3, "{held} have the hold");
        let elsewhere = cluster.pods_in(doomed).get("a").await?;
        ensure!(
            finalizers(&elsewhere).contains(&HOLD),
            "the one in {doomed} has no hold"
        );
        Ok(())
    })
    .await
}

/// Changes while Belayer receives no events.
async fn upheaval(cluster: &Cluster, doomed: &str) -> Result<()> {
    let policies = [
        ("background", PropagationPolicy::Background),
        ("foreground", PropagationPolicy::Foreground),
        ("orphan", PropagationPolicy::Orphan),
    ];
    for (name, policy) in policies {
        cluster.delete_workflow(name, policy).await?;
    }
    // They have results, so that their deletion by the garbage collector does not release them.
    for index in 0..3 {
        let name = format!("again-{index}");
        cluster.finish(&name, "Succeeded").await?;
    }
    // A user removes the hold by hand, and then the workflow: no version of it shows its deletion.
    let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let workflows = cluster.workflows();
    workflows
        .patch("again", &PatchParams::default(), &none)
        .await?;
    cluster
        .delete_workflow("again", PropagationPolicy::Background)
        .await?;
    // Another owner has the old name when Belayer returns.
    let successor = cluster.workflow("again").await?;
    cluster
        .create(&pod("of-the-successor").of(&successor))
        .await?;
    // The result of one was consumed before its deletion, one was only deleted, one keeps running.
    cluster.finish("alive-0", "Succeeded").await?;
    cluster.consume("alive-0").await?;
    cluster.delete("alive-0").await?;
    cluster.finish("alive-1", "Failed").await?;
    cluster.delete("alive-1").await?;
    kinds::namespaces(cluster.client())
        .delete(doomed, &DeleteParams::default())
        .await?;
    // The orphans must have lost their owner before Belayer returns.
    eventually("the orphans have no owner", SOON, async || {
        for index in 0..3 {
            let orphan = cluster.pods().get(&format!("orphan-{index}")).await?;
            ensure!(
                orphan.owner_references().is_empty(),
                "orphan-{index} has one"
            );
        }
        Ok(())
    })
    .await
}

async fn settled(cluster: &Cluster, doomed: &str, absence: Absence) -> Result<()> {
    // A client notices hung connections only by their timeout.
    let deadline = if absence == Absence::Silent {
        SOON * 2
    } else {
        SOON
    };
    eventually("everything has settled", deadline, async || {
        for name in ["background", "foreground"] {
            for index in 0..3 {
                let pod = cluster.pods().get_opt(&format!("{name}-{index}")).await?;
                ensure!(pod.is_none(), "{name}-{index} still exists");
            }
            if let Some(left) = cluster.workflows().get_opt(name).await? {
                bail!("the workflow {name} has {:?}", left.finalizers());
            }
        }
        ensure!(
            cluster.workflows().get_opt("orphan").await?.is_none(),
            "the orphaned workflow still exists"
        );
        for index in 0..3 {
            let orphan = cluster.pods().get(&format!("orphan-{index}")).await?;
            ensure!(
                !finalizers(&orphan).contains(&HOLD),
                "orphan-{index} has a hold"
            );
            let old = cluster.pods().get_opt(&format!("again-{index}")).await?;
            ensure!(old.is_none(), "again-{index} still exists");
        }
        ensure!(
            cluster.pods().get_opt("alive-0").await?.is_none(),
            "alive-0 still exists"
        );
        let left = cluster.pods_in(doomed).get_opt("a").await?;
        ensure!(
            left.is_none(),
            "the pod in the deleted namespace still exists"
        );
        let workflow = kinds::workflows(cluster.client(), doomed)
            .get_opt("w")
            .await?;
        ensure!(
            workflow.is_none(),
            "the workflow in the deleted namespace still exists"
        );
        Ok(())
    })
    .await?;
    cluster.is_held("of-the-successor").await?;
    cluster.keeps_hold("alive-1").await?;
    cluster.keeps_hold("alive-2").await
}
