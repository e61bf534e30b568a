//! Workflows keep a hold until all their pods have been released.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PropagationPolicy};
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::{
    BelayerOptions, Cluster, HOLD, SOON, Scenario, WORKFLOW_HOLD, eventually, finalizers, pod,
};
use crate::kinds;
use crate::providers::Capability::{
    AdmissionPolicies, GarbageCollector, NamespaceDeletion, Recorder,
};
use crate::providers::{apply, ensure_workflow_crd, manifest};

const CRD: &str = "workflows.argoproj.io";
const ARTIFACT_GC: &str = "workflows.argoproj.io/artifact-gc";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(
            "workflow-held-behind-others",
            "a workflow gets a hold; finalizers of others stay and do not delay its release",
            others,
        ),
        Scenario::shared(
            "workflow-goes-after-its-pods",
            "the pods are released first, then the workflow",
            order,
        )
        .needs([Recorder]),
        Scenario::shared(
            "workflow-same-name-elsewhere",
            "of two workflows of one name in two namespaces only one is released",
            namesakes,
        ),
        Scenario::shared(
            "workflow-same-name-at-once",
            "a workflow re-created under its name is not mistaken for the old one",
            same_name_at_once,
        )
        .needs([GarbageCollector]),
        Scenario::shared(
            "workflow-deleted-amid-creation",
            "pods created during and after the deletion are released too",
            amid_creation,
        )
        .smoke()
        .needs([GarbageCollector]),
        Scenario::shared(
            "workflow-namespace-deleted",
            "a namespace with many workflows and pods is removed",
            namespace_deleted,
        )
        .needs([NamespaceDeletion]),
        Scenario::alone(
            "workflow-finalizer-alone",
            "with pod-finalizer switched off no hold is left either",
            alone,
        )
        .needs([GarbageCollector]),
        Scenario::alone(
            "workflow-kind-comes-and-goes",
            "Belayer works without the CRD, and follows its installation and removal",
            kind_comes_and_goes,
        ),
        Scenario::alone(
            "workflow-mistyped-selector",
            "a selector that matches nothing releases no hold, unless the limit is raised",
            mistyped_selector,
        ),
        Scenario::alone(
            "workflow-policy-adds-hold",
            "the admission policy adds the hold to workflows and respects its switch",
            policy,
        )
        .needs([AdmissionPolicies]),
    ]
}

async fn others(cluster: Cluster) -> Result<()> {
    let metadata = json!({ "finalizers": [ARTIFACT_GC, "a.example.com/b"] });
    let workflow = cluster
        .workflow_in(cluster.namespace(), "w", metadata)
        .await?;
    cluster.workflow_is_held("w").await?;
    cluster
        .create(&pod("a").of(&workflow).finalizer("e2e.belayer.dev/keep"))
        .await?;
    cluster.is_held("a").await?;
    cluster
        .delete_workflow("w", PropagationPolicy::Background)
        .await?;
    // Otherwise Argo would go on running it (A16).
    cluster.workflow_has_finished("w").await?;
    // Other finalizers keep the workflow while the pod is released, and the pod while the workflow is released.
    cluster.is_not_held("a").await?;
    eventually("the workflow is released", SOON, async || {
        let seen = cluster.workflows().get("w").await?;
        ensure!(
            finalizers(&seen) == [ARTIFACT_GC, "a.example.com/b"],
            "{:?}",
            finalizers(&seen)
        );
        Ok(())
    })
    .await?;
    let kept = cluster.pods().get("a").await?;
    ensure!(
        finalizers(&kept) == ["e2e.belayer.dev/keep"],
        "{:?}",
        finalizers(&kept)
    );
    Ok(())
}

/// ORDER, checked in the record of writes.
async fn order(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster.workflow_is_held("w").await?;
    let pods = (0..20).map(|index| pod(format!("p{index}")).of(&workflow));
    cluster.create_all(pods).await?;
    eventually("all pods have the hold", SOON, async || {
        let held = cluster.held_count().await?;
        ensure!(held == 20, "{held} have the hold");
        Ok(())
    })
    .await?;
    let mark = cluster.recorder()?.mark()?;
    cluster
        .delete_workflow("w", PropagationPolicy::Background)
        .await?;
    cluster.workflow_is_removed("w", SOON).await?;
    let here = format!("{}/", cluster.namespace());
    let (patches, of_workflow) =
        eventually("the workflow's release is recorded", SOON, async || {
            let mut patches = cluster.recorder()?.writes_since(mark)?;
            patches.retain(|write| {
                write.object.starts_with(&here) && write.verb == "patch" && write.code == 200
            });
            let of_workflow = patches
                .iter()
                .position(|write| write.resource == "workflows")
                .context("the workflow was not released")?;
            Ok((patches, of_workflow))
        })
        .await?;
    let later = patches[of_workflow..]
        .iter()
        .find(|write| write.resource == "pods");
    ensure!(later.is_none(), "released after its workflow: {later:?}");
    let before = patches[..of_workflow].len();
    ensure!(before == 20, "{before} patches of 20 pods");
    Ok(())
}

async fn namesakes(cluster: Cluster) -> Result<()> {
    let elsewhere = cluster.another_namespace("b", json!({})).await?;
    let here = cluster.workflow("w").await?;
    let there = cluster.workflow_in(&elsewhere, "w", json!({})).await?;
    cluster.create(&pod("a").of(&here)).await?;
    cluster.create_in(&elsewhere, &pod("a").of(&there)).await?;
    cluster.workflow_is_held("w").await?;
    cluster.workflow_is_held_in(&elsewhere, "w").await?;
    let held_there = async || {
        let seen = cluster.pods_in(&elsewhere).get("a").await?;
        ensure!(finalizers(&seen).contains(&HOLD), "{:?}", finalizers(&seen));
        let seen = kinds::workflows(cluster.client(), &elsewhere)
            .get("w")
            .await?;
        ensure!(
            finalizers(&seen) == [WORKFLOW_HOLD],
            "{:?}",
            finalizers(&seen)
        );
        Ok(())
    };
    cluster.is_held("a").await?;
    eventually("the other workflow's pod has the hold", SOON, held_there).await?;
    cluster
        .delete_workflow("w", PropagationPolicy::Background)
        .await?;
    cluster.workflow_is_removed("w", SOON).await?;
    cluster.is_not_held("a").await?;
    cluster.belayer_has_caught_up().await?;
    held_there().await
}

async fn same_name_at_once(cluster: Cluster) -> Result<()> {
    for round in 0..3 {
        let first = match cluster.workflows().get_opt("w").await? {
            Some(there) => crate::harness::Workflow::of(&there)?,
            None => cluster.workflow("w").await?,
        };
        let name = format!("p{round}");
        cluster.create(&pod(&name).of(&first)).await?;
        cluster.workflow_is_held("w").await?;
        cluster.is_held(&name).await?;
        cluster
            .delete_workflow("w", PropagationPolicy::Background)
            .await?;
        // As soon as the name is free, it is used again, and the pod's as well.
        let second = eventually("the name is free", SOON, async || {
            cluster.workflow("w").await
        });
        let second = second.await?;
        eventually("the pod's name is free", SOON, async || {
            cluster.create(&pod(&name).of(&second)).await
        })
        .await?;
        cluster.workflow_is_held("w").await?;
        cluster.is_held(&name).await?;
    }
    cluster.belayer_has_caught_up().await?;
    let seen = cluster.workflows().get("w").await?;
    ensure!(
        seen.metadata.deletion_timestamp.is_none() && finalizers(&seen) == [WORKFLOW_HOLD],
        "{:?}",
        finalizers(&seen)
    );
    Ok(())
}

/// The workflow is deleted while its controller, which has not noticed yet, keeps creating pods with
/// a hold, as the admission policy would add it.
async fn amid_creation(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster.workflow_is_held("w").await?;
    let done = Arc::new(AtomicBool::new(false));
    // Ends with the scenario, also if that fails.
    let mut creator = JoinSet::new();
    {
        let (cluster, workflow) = (cluster.clone(), workflow.clone());
        let done = Arc::clone(&done);
        creator.spawn(async move {
            let mut index = 0;
            while !done.load(Ordering::Relaxed) && index < 500 {
                let pod = pod(format!("p{index}")).of(&workflow).held();
                cluster.create(&pod).await?;
                index += 1;
            }
            anyhow::Ok(index)
        });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    cluster
        .delete_workflow("w", PropagationPolicy::Background)
        .await?;
    cluster.workflow_is_removed("w", SOON).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    done.store(true, Ordering::Relaxed);
    let created = creator.join_next().await.context("no task")???;
    cluster.note(format!("{created} pods"));
    cluster.is_empty(SOON).await
}

async fn namespace_deleted(cluster: Cluster) -> Result<()> {
    let doomed = cluster.another_namespace("doomed", json!({})).await?;
    for name in ["w0", "w1", "w2"] {
        let workflow = cluster.workflow_in(&doomed, name, json!({})).await?;
        for index in 0..5 {
            let pod = pod(format!("{name}-{index}")).of(&workflow);
            cluster.create_in(&doomed, &pod).await?;
        }
        cluster.workflow_is_held_in(&doomed, name).await?;
    }
    let namespaces = kinds::namespaces(cluster.client());
    namespaces.delete(&doomed, &DeleteParams::default()).await?;
    eventually("the namespace is removed", SOON * 3, async || {
        let pods = cluster
            .pods_in(&doomed)
            .list_metadata(&ListParams::default())
            .await?;
        let workflows = kinds::workflows(cluster.client(), &doomed)
            .list_metadata(&ListParams::default())
            .await?;
        ensure!(
            namespaces.get_opt(&doomed).await?.is_none(),
            "{} pods and {} workflows remain",
            pods.items.len(),
            workflows.items.len()
        );
        Ok(())
    })
    .await
}

async fn alone(cluster: Cluster) -> Result<()> {
    let options = BelayerOptions::default()
        .argument("--controllers=*,-pod-finalizer")
        .argument("--on-disable=keep");
    let gone = cluster.workflow("gone").await?;
    cluster.force_workflow_removal("gone").await?;
    cluster
        .create(
            &pod("of-gone")
                .of(&gone)
                .held()
                .finalizer("e2e.belayer.dev/keep"),
        )
        .await?;
    let belayer = cluster.start_belayer_with(&options).await?;
    // With a hold of an earlier pod-finalizer.
    let workflow = cluster.workflow("w").await?;
    cluster.workflow_is_held("w").await?;
    let pods = (0..10).map(|index| pod(format!("p{index}")).of(&workflow).held());
    cluster.create_all(pods).await?;
    cluster.create(&pod("not-held").of(&workflow)).await?;
    cluster.is_held("p0").await?;
    cluster
        .delete_workflow("w", PropagationPolicy::Foreground)
        .await?;
    cluster.workflow_is_removed("w", SOON).await?;
    cluster.is_not_held("of-gone").await?;
    cluster
        .merge("of-gone", json!({ "metadata": { "finalizers": null } }))
        .await?;
    cluster.is_empty(SOON).await?;
    belayer.stop().await
}

async fn kind_comes_and_goes(cluster: Cluster) -> Result<()> {
    let definitions = kinds::definitions(cluster.client());
    let remove = async || -> Result<()> {
        definitions.delete(CRD, &DeleteParams::default()).await?;
        Ok(())
    };
    let is_removed = async || {
        eventually("the CRD is removed", SOON, async || {
            ensure!(
                definitions.get_opt(CRD).await?.is_none(),
                "the CRD still exists"
            );
            Ok(())
        })
        .await
    };
    remove().await?;
    is_removed().await?;
    let belayer = cluster.start_belayer().await?;
    eventually("Belayer's log reports that it waits", SOON, async || {
        ensure!(
            belayer.log()?.contains("this kind is not served"),
            "the log does not report it"
        );
        Ok(())
    })
    .await?;
    for round in 0..2 {
        ensure_workflow_crd(cluster.client()).await?;
        let workflow = cluster.workflow("w").await?;
        cluster.workflow_is_held("w").await?;
        let name = format!("p{round}");
        cluster.create(&pod(&name).of(&workflow)).await?;
        cluster.is_held(&name).await?;
        // Its objects are deleted first, and must be removed without help.
        remove().await?;
        cluster.is_not_held(&name).await?;
        is_removed().await?;
    }
    ensure_workflow_crd(cluster.client()).await?;
    belayer.stop().await
}

async fn mistyped_selector(cluster: Cluster) -> Result<()> {
    let workflows = 25;
    let held = async || -> Result<usize> {
        let all = cluster.workflows().list(&ListParams::default()).await?;
        let held =
            |workflow: &&kube::api::DynamicObject| finalizers(*workflow).contains(&WORKFLOW_HOLD);
        Ok(all.items.iter().filter(held).count())
    };
    let belayer = cluster.start_belayer().await?;
    for index in 0..workflows {
        cluster.workflow(&format!("w{index}")).await?;
    }
    eventually("all workflows have the hold", SOON, async || {
        let held = held().await?;
        ensure!(held == workflows, "{held} have the hold");
        Ok(())
    })
    .await?;
    belayer.stop().await?;
    let nothing = "owners: [{selector: {matchLabels: {team: typo}}}]";
    let config = format!("workflowFinalizer: {{{nothing}}}");
    let options = BelayerOptions::default().config(&config);
    let belayer = cluster.start_belayer_with(&options).await?;
    eventually("it reports how many it keeps", SOON, async || {
        let labels = [("controller", "workflow-finalizer")];
        let kept = belayer.metric("belayer_unselected_kept", &labels).await?;
        ensure!(kept >= workflows as f64, "{kept} kept");
        let reported = belayer.log()?.contains("MassReleaseHeldBack");
        ensure!(reported, "no Event reports it");
        Ok(())
    })
    .await?;
    let kept = held().await?;
    ensure!(kept == workflows, "{kept} of {workflows} were kept");
    // One that is being deleted is released all the same.
    cluster
        .delete_workflow("w0", PropagationPolicy::Background)
        .await?;
    cluster.workflow_is_removed("w0", SOON).await?;
    belayer.stop().await?;
    let config = format!("workflowFinalizer: {{maxUnselected: 100%, {nothing}}}");
    let options = BelayerOptions::default().config(&config);
    let belayer = cluster.start_belayer_with(&options).await?;
    eventually("all are released", SOON, async || {
        let held = held().await?;
        ensure!(held == 0, "{held} still have the hold");
        Ok(())
    })
    .await?;
    belayer.stop().await
}

/// No Belayer runs, so the policy has added every hold.
async fn policy(cluster: Cluster) -> Result<()> {
    apply(cluster.client(), &manifest("workflow-hold-policy")?).await?;
    let shown = policy_obeys(&cluster).await;
    super::admission::remove_policy(&cluster, "belayer-workflow-hold").await?;
    super::admission::switch(&cluster, "holdWorkflows", "on").await?;
    shown?;
    created_with(&cluster, &[], &[]).await
}

async fn policy_obeys(cluster: &Cluster) -> Result<()> {
    created_with(cluster, &[], &[WORKFLOW_HOLD]).await?;
    created_with(cluster, &[ARTIFACT_GC], &[ARTIFACT_GC, WORKFLOW_HOLD]).await?;
    created_with(cluster, &[WORKFLOW_HOLD], &[WORKFLOW_HOLD]).await?;
    super::admission::switch(cluster, "holdWorkflows", "off").await?;
    created_with(cluster, &[], &[]).await
}

/// A changed policy is effective a little later.
async fn created_with(cluster: &Cluster, given: &[&str], expected: &[&str]) -> Result<()> {
    eventually(&format!("created with {expected:?}"), SOON, async || {
        let name = format!("w-{}", jiff::Timestamp::now().as_nanosecond());
        let metadata = json!({ "finalizers": given });
        cluster
            .workflow_in(cluster.namespace(), &name, metadata)
            .await?;
        let seen = cluster.workflows().get(&name).await?;
        ensure!(finalizers(&seen) == expected, "{:?}", seen.finalizers());
        Ok(())
    })
    .await
}
