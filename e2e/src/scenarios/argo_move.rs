//! Moving from Argo's own finalizer to Belayer and back, with the commands of `docs/src/tasks/argo.md`.

use anyhow::{Result, ensure};
use serde_json::json;

use super::admission::with_write_policies;
use crate::harness::{
    Belayer, BelayerOptions, Cluster, HOLD, SOON, Scenario, Workflow, eventually, pod,
};
use crate::providers::Capability::{AdmissionPolicies, Kubectl};
use crate::providers::{apply, manifest};

const STATUS: &str = "workflows.argoproj.io/status";

/// The output format that the page uses for finalizers.
const EACH: &str =
    "jsonpath={range .items[*]}{.metadata.name} {.metadata.finalizers}{\"\\n\"}{end}";

const OBSERVE: &str = "podFinalizer:\n  profiles: [{builtIn: argo, mode: observe}]";
const ADOPT: &str =
    "podFinalizer:\n  profiles: [{builtIn: argo, adopt: [workflows.argoproj.io/status]}]";
const BACK: &str = "\
podFinalizer:
  maxUnselected: 100%
  profiles: [{builtIn: argo, namespaces: {include: [nowhere]}}]
workflowFinalizer:
  maxUnselected: 100%
  owners: [{namespaces: {include: [nowhere]}}]";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "argo-there-and-back",
            "the commands of docs/src/tasks/argo.md: observe, adopt Argo's finalizer, and back",
            there_and_back,
        )
        .needs([Kubectl]),
    ]
}

async fn there_and_back(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("build").await?;
    for name in ["build-a", "build-b", "build-c"] {
        argos_own(&cluster, name, &workflow).await?;
    }
    shows(&cluster, &["build-a [S]", "build-b [S]", "build-c [S]"]).await?;

    let belayer = observed(&cluster).await?;
    belayer.stop().await?;
    let belayer = start(&cluster, ADOPT).await?;
    adopted(&cluster, &belayer).await?;
    belayer.stop().await?;

    // Argo's switch is off: new pods have Belayer's hold only, and `adopt` has no effect on them.
    cluster.create(&pod("build-d").of(&workflow)).await?;
    if cluster.can(AdmissionPolicies) {
        with_write_policies(&cluster, held(&cluster, true)).await?;
        without_policies(&cluster, &workflow).await?;
    } else {
        held(&cluster, false).await?;
    }
    let belayer = start(&cluster, BACK).await?;
    shows(&cluster, &["build-b [S]", "build-d []"]).await?;
    for controller in ["pod-finalizer", "workflow-finalizer"] {
        nothing_held(&belayer, controller).await?;
    }
    belayer.stop().await
}

/// The pods are held, and with the policies of Belayer's writes the leader turns on the switch of new pods.
async fn held(cluster: &Cluster, is_on: bool) -> Result<()> {
    let belayer = start(cluster, "podFinalizer: {profiles: [{builtIn: argo}]}").await?;
    shows(cluster, &["build-b [S,H]", "build-d [H]"]).await?;
    if is_on {
        cluster.gate_shows("hold", "on").await?;
    }
    belayer.stop().await
}

/// The step before the last: the policies are deleted, and new pods are created without a hold.
async fn without_policies(cluster: &Cluster, workflow: &Workflow) -> Result<()> {
    for name in ["pod-hold-policy", "workflow-hold-policy"] {
        apply(cluster.client(), &manifest(name)?).await?;
    }
    let added = policy_adds(cluster, workflow, true).await;
    let kinds = "mutatingadmissionpolicybinding,mutatingadmissionpolicy";
    cluster
        .kubectl()
        .run(["delete", kinds, "belayer-pod-hold", "belayer-workflow-hold"])
        .await?;
    added?;
    policy_adds(cluster, workflow, false).await
}

async fn policy_adds(cluster: &Cluster, workflow: &Workflow, expected: bool) -> Result<()> {
    super::admission::policy_adds(HOLD, expected, |name| async move {
        let created = cluster.create(&pod(&name).of(workflow)).await?;
        // Removed from the output of the page's commands.
        let free = json!({ "metadata": { "finalizers": null } });
        cluster.merge(&name, free).await?;
        cluster.remove(&name).await?;
        cluster.is_removed(&name).await?;
        Ok(created)
    })
    .await
}

async fn start(cluster: &Cluster, keys: &str) -> Result<Belayer> {
    cluster
        .start_belayer_with(&BelayerOptions::default().config(keys))
        .await
}

/// A pod as Argo creates it with its own switch on.
async fn argos_own(cluster: &Cluster, name: &str, workflow: &Workflow) -> Result<()> {
    cluster
        .create(&pod(name).of(workflow).finalizer(STATUS))
        .await
        .map(drop)
}

/// Waits for the output of the page's first command; `S` is Argo's finalizer, `H` Belayer's.
async fn shows(cluster: &Cluster, expected: &[&str]) -> Result<()> {
    let label = "workflows.argoproj.io/workflow";
    eventually(&format!("kubectl shows {expected:?}"), SOON, async || {
        let printed = cluster
            .kubectl()
            .run(["get", "pods", "-l", label, "-o", EACH])
            .await?;
        let short = printed
            .replace(&format!("\"{STATUS}\""), "S")
            .replace(&format!("\"{HOLD}\""), "H");
        let lines: Vec<String> = short
            .lines()
            .map(|line| {
                if line.ends_with(']') {
                    line.to_owned()
                } else {
                    format!("{line}[]")
                }
            })
            .collect();
        ensure!(lines == expected, "{printed}");
        Ok(())
    })
    .await
}

/// Step 1: no holds are added, and lost results are counted.
async fn observed(cluster: &Cluster) -> Result<Belayer> {
    let belayer = start(cluster, OBSERVE).await?;
    let kubectl = cluster.kubectl();
    eventually("the pods are counted", SOON, async || {
        let seen = belayer.metric("belayer_informer_objects", &[("kind", "Pod")]);
        ensure!(seen.await? >= 3.0, "fewer than three");
        Ok(())
    })
    .await?;
    let reported = belayer.holds().await?["pod-finalizer"].clone();
    ensure!(
        reported["held"] == 0
            && reported["observedLosses"] == 0
            && reported["latestLosses"] == json!([]),
        "{reported}"
    );
    // Argo's finalizer is removed by hand: the pod is removed before its result was consumed.
    cluster.finish("build-c", "Succeeded").await?;
    kubectl
        .run(["delete", "pod", "build-c", "--wait=false"])
        .await?;
    let none = r#"{"metadata":{"finalizers":[]}}"#;
    kubectl
        .run(["patch", "pod", "build-c", "--type=merge", "-p", none])
        .await?;
    cluster.is_removed("build-c").await?;
    eventually("the lost result is reported", SOON, async || {
        let reported = belayer.holds().await?["pod-finalizer"].clone();
        ensure!(reported["observedLosses"] == 1, "{reported}");
        ensure!(
            reported["latestLosses"][0]["name"] == "build-c",
            "{reported}"
        );
        Ok(())
    })
    .await?;
    shows(cluster, &["build-a [S]", "build-b [S]"]).await?;
    let gate = cluster.gate().await?;
    ensure!(gate["hold"] != "on", "new pods would be held: {gate}");
    Ok(belayer)
}

/// Step 2: both finalizers are present, and are removed together.
async fn adopted(cluster: &Cluster, belayer: &Belayer) -> Result<()> {
    let kubectl = cluster.kubectl();
    shows(cluster, &["build-a [S,H]", "build-b [S,H]"]).await?;
    let taken = "workflows.argoproj.io/completed=true";
    kubectl
        .run(["label", "--overwrite", "pod", "build-a", taken])
        .await?;
    kubectl
        .run(["delete", "pod", "build-a", "--wait=false"])
        .await?;
    cluster.is_removed("build-a").await?;
    shows(cluster, &["build-b [S,H]"]).await?;
    for evidence in ["Consumed", "Adopted"] {
        let labels = [("controller", "pod-finalizer"), ("evidence", evidence)];
        belayer
            .counts("belayer_releases_total", &labels, 1.0)
            .await?;
    }
    ensure!(
        belayer
            .log()?
            .contains("removed finalizers of other controllers"),
        "the log does not report the adopted finalizers"
    );
    Ok(())
}

async fn nothing_held(belayer: &Belayer, controller: &str) -> Result<()> {
    eventually(&format!("{controller} has no holds"), SOON, async || {
        let labels = [("controller", controller)];
        let held = belayer.metric("belayer_holds", &labels).await?;
        ensure!(held < 1.0, "{held} held");
        Ok(())
    })
    .await
}
