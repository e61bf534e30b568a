//! `belayer drain` while the controllers are down: what it releases, what it leaves, and the exit codes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use belayer_sandbox::{Answer, Fault, Match, Verb};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::control_plane::PvcController;
use crate::harness::{
    Cluster, HOLD, KUBERNETES_PVC_HOLD, PVC_HOLD, SOON, Scenario, WORKFLOW_HOLD, eventually,
    finalizers, pod,
};
use crate::providers::Capability::{AdmissionPolicies, Faults, UnprotectedPvcs};
use crate::providers::apply;

/// Objects with holds, of all kinds.
const MANY: usize = 2_000;
const LONG: Duration = Duration::from_secs(500);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "drain-stopped",
            "2,000 objects with holds, controllers down: all released, finalizers of others unchanged",
            stopped,
        )
        .within(LONG),
        Scenario::alone(
            "drain-killed",
            "a drain that was killed is started again and completes",
            killed,
        )
        .smoke()
        .within(LONG),
        Scenario::alone(
            "drain-claim-in-use",
            "a PVC in use that only Belayer protects keeps its hold: listed, exit code 3, released later",
            pvc_in_use,
        )
        .needs([UnprotectedPvcs])
        .within(LONG),
        Scenario::alone(
            "drain-refused",
            "refused releases are listed, exit code 4; the others succeed",
            refused,
        )
        .needs([Faults])
        .within(LONG),
        Scenario::alone(
            "drain-denied-by-policy",
            "the same with a foreign admission policy; clean after its deletion",
            denied_by_policy,
        )
        .needs([AdmissionPolicies])
        .within(LONG),
        Scenario::alone(
            "drain-unselected",
            "--unselected drains only what nothing selects; Belayer keeps working",
            unselected,
        )
        .smoke()
        .within(LONG),
        Scenario::alone(
            "drain-dry-run",
            "a dry run reports what would be released and changes nothing",
            dry_run,
        )
        .smoke()
        .within(LONG),
    ]
}

async fn stopped(cluster: Cluster) -> Result<()> {
    cluster.fill(MANY).await?;
    let before = cluster.held_objects().await?;
    let held = before.belayers.len();
    let printed = cluster.drain(&["-o", "json"]).await?.exited_with(0)?;
    let report = printed.json()?;
    let after = cluster.held_objects().await?;
    ensure!(
        after.belayers.is_empty(),
        "remaining holds: {:?}",
        after.belayers
    );
    after.lost_only_belayer_holds(&before)?;
    ensure!(report["outcome"] == "clean", "{report}");
    ensure!(report["objectsReleased"] == held, "of {held}: {report}");
    ensure!(
        report["released"][PVC_HOLD]["HandedOver"].is_number(),
        "PVCs that Kubernetes protects are handed over: {report}"
    );
    cluster.note(format!(
        "{held} objects in {} s, {} passes",
        report["seconds"], report["passes"]
    ));
    let data = &cluster.gate().await?;
    ensure!(
        data["mode"] == "draining" && data["drained"] == "true" && !any_switch_is(data, "on"),
        "{data}"
    );
    back_to_work(&cluster).await
}

fn any_switch_is(gate: &Value, word: &str) -> bool {
    let keys = ["hold", "holdClaims", "holdRecreations", "holdWorkflows"];
    keys.iter().any(|key| gate[key] == word)
}

/// Restores what the next scenario on this cluster expects. Switches that were off because their
/// controller was missing remain off.
pub(super) async fn back_to_work(cluster: &Cluster) -> Result<()> {
    cluster.drain(&["--resume"]).await?.exited_with(0)?;
    let data = &cluster.gate().await?;
    ensure!(
        data["mode"] == "normal" && data["drained"].is_null() && !any_switch_is(data, "draining"),
        "{data}"
    );
    Ok(())
}

async fn killed(cluster: Cluster) -> Result<()> {
    cluster.fill(MANY / 2).await?;
    let before = cluster.held_objects().await?;
    let mut left = before.belayers.len();
    for round in 0..3 {
        let held = left;
        // Slowly, so that it can be killed in between.
        let mut drain = cluster.spawn_drain(&["--concurrent-releases=1"])?;
        eventually("some are released", SOON, async || {
            let now = cluster.held_objects().await?.belayers.len();
            ensure!(now < held, "{now} of {held} have holds");
            Ok(())
        })
        .await?;
        drain.kill().await?;
        left = cluster.held_objects().await?.belayers.len();
        cluster.note(format!("round {round}: killed with {left} of {held} left"));
        if left == 0 {
            break;
        }
    }
    cluster.drain(&[]).await?.exited_with(0)?;
    let after = cluster.held_objects().await?;
    ensure!(
        after.belayers.is_empty(),
        "remaining holds: {:?}",
        after.belayers
    );
    after.lost_only_belayer_holds(&before)?;
    back_to_work(&cluster).await
}

async fn pvc_in_use(cluster: Cluster) -> Result<()> {
    cluster
        .backend()
        .switch_pvc_controller(PvcController::Off)
        .await?;
    let only_belayers = json!({ "metadata": { "finalizers": [PVC_HOLD] } });
    for name in ["used", "deleted", "free", "both"] {
        cluster
            .create_pvc(name, json!({ "finalizers": [PVC_HOLD] }))
            .await?;
        if name != "both" {
            // An API server may have added its own finalizer at creation.
            cluster
                .pvcs()
                .patch(name, &PatchParams::default(), &Patch::Merge(&only_belayers))
                .await?;
        }
    }
    let both = json!({ "metadata": { "finalizers": [KUBERNETES_PVC_HOLD, PVC_HOLD] } });
    cluster
        .pvcs()
        .patch("both", &PatchParams::default(), &Patch::Merge(&both))
        .await?;
    let user = pod("web").pvc("used").pvc("deleted").pvc("both");
    cluster.bound(user).await?;
    cluster.create(&pod("pending").pvc("free")).await?;
    cluster.delete_pvc("deleted").await?;
    let printed = cluster.drain(&["-o", "json"]).await?.exited_with(3)?;
    let report = printed.json()?;
    let left = report["left"].as_array().context("`left` is not a list")?;
    let names: Vec<_> = left.iter().map(|left| left["name"].as_str()).collect();
    ensure!(names == [Some("deleted"), Some("used")], "{report}");
    ensure!(left[0]["why"] == "in use by web", "{report}");
    let on = async |name: &str| {
        let pvc = cluster.pvcs().get(name).await?;
        anyhow::Ok(finalizers(&pvc).join(" "))
    };
    ensure!(on("used").await? == PVC_HOLD, "used lost its hold");
    ensure!(on("deleted").await? == PVC_HOLD, "deleted lost its hold");
    ensure!(on("free").await?.is_empty(), "free still has its hold");
    ensure!(
        on("both").await? == KUBERNETES_PVC_HOLD,
        "both was not handed over"
    );
    let text = cluster.drain(&["--timeout=60s"]).await?.exited_with(3)?.out;
    ensure!(
        text.contains("Kept 2 PVCs in use that only Belayer protects:")
            && text.contains("persistentvolumeclaims/used: in use by web"),
        "{text}"
    );
    cluster.remove("web").await?;
    cluster.drain(&[]).await?.exited_with(0)?;
    cluster.pvc_is_removed("deleted").await?;
    back_to_work(&cluster).await?;
    cluster
        .backend()
        .switch_pvc_controller(PvcController::On)
        .await
}

async fn refused(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    for name in ["a", "b", "denied"] {
        cluster.create(&pod(name).of(&workflow).held()).await?;
    }
    let denied = Match::verb(Verb::Patch)
        .resource("pods")
        .name("denied")
        .client("admin");
    let fault = cluster
        .faults()?
        .inject(Fault::on(denied).answer(Answer::forbidden("denied the request: no ropes today")));
    let printed = cluster.drain(&["-o", "json"]).await?.exited_with(4)?;
    let report = printed.json()?;
    ensure!(
        report["refused"][0]["what"] == format!("{}/pods/denied", cluster.namespace()),
        "{report}"
    );
    ensure!(report["refused"][0]["code"] == 403, "{report}");
    cluster.is_not_held("a").await?;
    cluster.is_not_held("b").await?;
    let text = cluster.drain(&[]).await?.exited_with(4)?.out;
    ensure!(text.contains("no ropes today"), "{text}");
    fault.remove();
    cluster.drain(&[]).await?.exited_with(0)?;
    cluster.is_not_held("denied").await?;
    back_to_work(&cluster).await
}

const DENIES: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: e2e-no-ropes
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [UPDATE]
      resources: [pods]
    objectSelector:
      matchLabels:
        e2e.belayer.dev/denied: "yes"
  validations:
  - expression: "false"
    message: no ropes today
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: e2e-no-ropes
spec:
  policyName: e2e-no-ropes
  validationActions: [Deny]
"#;

async fn denied_by_policy(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    let denied = || pod("denied").label("e2e.belayer.dev/denied", "yes");
    cluster.create(&denied().of(&workflow).held()).await?;
    cluster.create(&pod("free").of(&workflow).held()).await?;
    apply(cluster.client(), DENIES).await?;
    eventually("the policy denies", SOON, async || {
        let patch = json!({ "metadata": { "annotations": { "e2e": "x" } } });
        ensure!(cluster.merge("denied", patch).await.is_err(), "it does not");
        Ok(())
    })
    .await?;
    let printed = cluster.drain(&[]).await;
    let gone = remove_denial(&cluster).await;
    let printed = printed?.exited_with(4)?;
    gone?;
    ensure!(
        printed.out.contains("no ropes today") && printed.out.contains("pods/denied"),
        "{}",
        printed.out
    );
    cluster.is_not_held("free").await?;
    cluster.drain(&[]).await?.exited_with(0)?;
    cluster.is_not_held("denied").await?;
    back_to_work(&cluster).await
}

async fn remove_denial(cluster: &Cluster) -> Result<()> {
    for kind in [
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
    ] {
        super::admission::remove_cluster_wide(cluster, kind, "e2e-no-ropes").await?;
    }
    Ok(())
}

async fn unselected(cluster: Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    // Its second finalizer is for PVCs: no controller removes it from a pod.
    let selected = pod("selected").of(&workflow).held();
    let selected = selected.finalizer("belayer.dev/pvc-protection");
    cluster.create(&selected).await?;
    let unlabelled = pod("stranger").held().finalizer("z.example.com/theirs");
    cluster.create(&unlabelled).await?;
    let hold = json!({ "metadata": { "finalizers": [WORKFLOW_HOLD] } });
    cluster.merge_workflow("w", hold).await?;
    let printed = cluster
        .drain(&["--unselected", "-o", "json"])
        .await?
        .exited_with(0)?;
    let report = printed.json()?;
    ensure!(
        report["released"]
            == json!({ HOLD: { "Unselected": 1 }, "belayer.dev/pvc-protection": { "Unselected": 1 } }),
        "{report}"
    );
    let on = |object: &kube::api::DynamicObject| finalizers(object).join(" ");
    ensure!(on(&cluster.pods().get("stranger").await?) == "z.example.com/theirs");
    ensure!(on(&cluster.pods().get("selected").await?) == HOLD);
    ensure!(on(&cluster.workflows().get("w").await?) == WORKFLOW_HOLD);
    let gate = cluster.gate().await?;
    ensure!(gate["mode"] == "normal", "{gate}");
    Ok(())
}

async fn dry_run(cluster: Cluster) -> Result<()> {
    cluster.fill(100).await?;
    let before = cluster.held_objects().await?;
    let printed = cluster.drain(&["--dry-run"]).await?.exited_with(0)?;
    ensure!(
        printed.out.contains("Would remove")
            && printed.out.contains("Dry run: nothing was changed."),
        "{}",
        printed.out
    );
    ensure!(
        cluster.held_objects().await?.belayers == before.belayers,
        "it did"
    );
    let gate = cluster.gate().await?;
    ensure!(gate["mode"] == "normal", "{gate}");
    Ok(())
}
