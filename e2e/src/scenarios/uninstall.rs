//! The ways in which Belayer is removed: in order, out of order, and with nothing but kubectl.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::admission::remove_cluster_wide;
use super::drain::back_to_work;
use crate::control_plane::ClaimController;
use crate::harness::{
    CLAIM_HOLD, Cluster, HOLD, Scenario, eventually, finalizers, pod, throughout,
};
use crate::kinds;
use crate::providers::Capability::{AdmissionPolicies, Faults, Kubectl};
use crate::providers::{apply, manifest};

const SOON: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(600);
const HOME: &str = "belayer-system";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "break-glass",
            "the very commands of the documentation take every hold off with kubectl alone",
            break_glass,
        )
        .needs([Kubectl])
        .within(LONG),
        Scenario::alone(
            "namespace-guard",
            "Belayer's namespace cannot be deleted before it has been drained",
            guarded,
        )
        .needs([AdmissionPolicies])
        .within(LONG),
        Scenario::alone(
            "namespace-deleted",
            "Belayer's namespace is deleted all the same: no new hold, and drain cleans up",
            namespace_deleted,
        )
        // Only where the cluster is not needed afterwards.
        .needs([Faults])
        .within(LONG),
        Scenario::alone(
            "delete-manifests-first",
            "the manifests are deleted before anybody drained: what is held goes by drain",
            delete_manifests_first,
        )
        .needs([Faults, Kubectl])
        .within(LONG),
        Scenario::alone(
            "pod-writes-are-limited",
            "a policy limits our account's writes to our finalizers and annotations; we never notice",
            pod_writes,
        )
        .needs([AdmissionPolicies])
        .within(LONG),
    ]
}

/// The shell blocks of the documentation's recipe, as one script.
fn recipe() -> Result<String> {
    let page = include_str!("../../../docs/uninstall.md");
    let (_, section) = page
        .split_once("\n## Break glass\n")
        .context("no recipe in the documentation")?;
    let section = section.split("\n## ").next().unwrap_or(section);
    let blocks: Vec<&str> = section
        .split("\n```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("\n```").next())
        .collect();
    ensure!(blocks.len() == 4, "{} blocks", blocks.len());
    Ok(blocks.join("\n"))
}

async fn break_glass(cluster: Cluster) -> Result<()> {
    cluster
        .backend()
        .switch_claim_controller(ClaimController::Off)
        .await?;
    cluster.fill(20).await?;
    let only_ours = json!({ "metadata": { "finalizers": [CLAIM_HOLD] } });
    for name in ["used", "free"] {
        cluster.create_claim(name, json!({})).await?;
        cluster
            .claims()
            .patch(name, &PatchParams::default(), &Patch::Merge(&only_ours))
            .await?;
    }
    cluster.bound(pod("web").claim("used")).await?;
    let before = cluster.census().await?;
    let said = shell(&cluster, &recipe()?).await?;
    let after = cluster.census().await?;
    let left: Vec<_> = after.ours.iter().collect();
    ensure!(
        left == [(&"claims/used".to_owned(), &vec![CLAIM_HOLD.to_owned()])],
        "left: {left:?}\n{said}"
    );
    after.lost_only_our_holds(&before)?;
    ensure!(
        said.contains(&format!("in use: {}/used", cluster.namespace())),
        "{said}"
    );
    cluster.remove("web").await?;
    let said = shell(&cluster, &recipe()?).await?;
    ensure!(said.contains("no hold of Belayer is left"), "{said}");
    back_to_work(&cluster).await?;
    cluster
        .backend()
        .switch_claim_controller(ClaimController::On)
        .await
}

/// Runs a script as an admin would, and says what it printed.
pub(super) async fn shell(cluster: &Cluster, script: &str) -> Result<String> {
    let cache = cluster.dir().join("kubectl-cache");
    let output = tokio::process::Command::new("bash")
        .args(["-u", "-c", script])
        .env("KUBECONFIG", cluster.backend().admin_kubeconfig())
        .env("KUBECACHEDIR", cache)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(LONG, output)
        .await
        .context("the recipe did not end")??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok(said)
}

async fn guarded(cluster: Cluster) -> Result<()> {
    apply(cluster.client(), manifest("namespace-guard-policy")?).await?;
    let shown = refuses_until_drained(&cluster).await;
    for kind in [
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
    ] {
        remove_cluster_wide(&cluster, kind, "belayer-namespace-guard").await?;
    }
    shown?;
    back_to_work(&cluster).await
}

async fn refuses_until_drained(cluster: &Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow).held()).await?;
    let namespaces = kinds::namespaces(cluster.client());
    // Admission is asked all the same, and the cluster is needed afterwards.
    let try_it = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    let definitions = kinds::definitions(cluster.client());
    let refused = async |expected: bool| {
        eventually(&format!("refused: {expected}"), SOON, async || {
            let tried = definitions
                .delete("podrecreations.belayer.dev", &try_it)
                .await;
            ensure!(tried.is_err() == expected, "{:?}", tried.map(drop));
            let tried = namespaces.delete(HOME, &try_it).await;
            match (tried, expected) {
                (Err(kube::Error::Api(status)), true) => {
                    ensure!(
                        status.message.contains("run `belayer drain` first"),
                        "{}",
                        status.message
                    );
                    Ok(())
                }
                (Ok(_), false) => Ok(()),
                (tried, _) => anyhow::bail!("{:?}", tried.map(drop)),
            }
        })
        .await
    };
    refused(true).await?;
    // Another namespace is nobody's business.
    namespaces.delete(cluster.namespace(), &try_it).await?;
    cluster.drain(&[]).await?.ended_with(0)?;
    cluster.is_not_held("a").await?;
    refused(false).await?;
    // Back to work, it is guarded again.
    cluster.drain(&["--resume"]).await?.ended_with(0)?;
    refused(true).await
}

async fn namespace_deleted(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer().await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    cluster.workflow_is_held("w").await?;
    let namespaces = kinds::namespaces(cluster.client());
    // As a foreign finalizer would have it, it takes a while to go.
    let slow = json!({ "metadata": { "finalizers": ["z.example.com/slow"] } });
    let params = PatchParams::default();
    namespaces
        .patch(HOME, &params, &Patch::Merge(&slow))
        .await?;
    namespaces.delete(HOME, &DeleteParams::default()).await?;
    eventually("Belayer knows", SOON, async || {
        ensure!(
            belayer.log()?.contains("own namespace is being deleted"),
            "its log does not say so"
        );
        Ok(())
    })
    .await?;
    cluster.create(&pod("b").of(&workflow)).await?;
    stays_free(&cluster, "b").await?;
    let said = cluster.drain(&[]).await?.ended_with(0)?;
    cluster.is_not_held("a").await?;
    ensure!(cluster.census().await?.ours.is_empty(), "{}", said.out);
    let gone = json!({ "metadata": { "finalizers": null } });
    namespaces
        .patch(HOME, &params, &Patch::Merge(&gone))
        .await?;
    eventually("the namespace is gone", SOON, async || {
        ensure!(namespaces.get_opt(HOME).await?.is_none(), "it is there");
        Ok(())
    })
    .await?;
    belayer.kill().await?;
    // And when nothing of Belayer is left at all.
    cluster.create(&pod("c").of(&workflow).held()).await?;
    let said = cluster.drain(&[]).await?.ended_with(0)?;
    ensure!(said.err.contains("namespace is not there"), "{}", said.err);
    cluster.is_not_held("c").await
}

async fn stays_free(cluster: &Cluster, name: &str) -> Result<()> {
    throughout("it is not held", Duration::from_secs(3), async || {
        let seen = cluster.pods().get(name).await?;
        ensure!(!finalizers(&seen).contains(&HOLD), "it is");
        Ok(())
    })
    .await
}

async fn delete_manifests_first(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer().await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/manifests");
    let said = shell(
        &cluster,
        &format!(
            "kubectl delete -k {} --ignore-not-found --wait=false",
            manifests.display()
        ),
    )
    .await?;
    ensure!(said.contains("namespace \"belayer-system\""), "{said}");
    // With the Deployment goes the process.
    belayer.kill().await?;
    let seen = cluster.pods().get("a").await?;
    ensure!(finalizers(&seen).contains(&HOLD), "who let it go?");
    cluster.drain(&[]).await?.ended_with(0)?;
    cluster.is_not_held("a").await?;
    ensure!(cluster.census().await?.ours.is_empty(), "something is held");
    Ok(())
}

async fn pod_writes(cluster: Cluster) -> Result<()> {
    apply(cluster.client(), manifest("pod-write-policy")?).await?;
    let shown = limited(&cluster).await;
    for kind in [
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
    ] {
        remove_cluster_wide(&cluster, kind, "belayer-pod-writes").await?;
    }
    shown
}

async fn limited(cluster: &Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    let foreign = "z.example.com/theirs";
    let big = "x".repeat(200_000);
    let built = pod("a").of(&workflow).finalizer(foreign);
    let built = built.annotation("example.com/big", &big);
    cluster.create(&built).await?;
    // As Belayer's account, which has the right to patch pods.
    let kubeconfig = cluster.backend().belayer_kubeconfig();
    let ours = kinds::pods(
        &crate::control_plane::client(kubeconfig).await?,
        cluster.namespace(),
    );
    let patch = async |body: serde_json::Value| {
        let params = PatchParams::default();
        ours.patch("a", &params, &Patch::Merge(&body)).await
    };
    let refused = [
        json!({ "metadata": { "labels": { "a": "b" } } }),
        json!({ "metadata": { "annotations": { "example.com/a": "b" } } }),
        json!({ "metadata": { "annotations": { "example.com/big": null } } }),
        json!({ "metadata": { "finalizers": [] } }),
        json!({ "metadata": { "finalizers": [foreign, "example.com/more"] } }),
        json!({ "metadata": { "ownerReferences": [] } }),
        json!({ "spec": { "activeDeadlineSeconds": 5 } }),
    ];
    eventually("the policy is in force", SOON, async || {
        // Another value each time: what changes nothing is allowed.
        let value = jiff::Timestamp::now().as_microsecond().to_string();
        let tried = patch(json!({ "metadata": { "labels": { "try": value } } })).await;
        ensure!(tried.is_err(), "not yet");
        Ok(())
    })
    .await?;
    for body in &refused {
        match patch(body.clone()).await {
            Err(kube::Error::Api(status)) if status.message.contains("belayer-pod-writes") => {}
            other => anyhow::bail!("{body}: {:?}", other.map(drop)),
        }
    }
    for allowed in [
        json!({ "metadata": { "annotations": { "belayer.dev/note": "b" } } }),
        json!({ "metadata": { "finalizers": [foreign, "belayer.dev/pod-recreation"] } }),
        json!({ "metadata": { "finalizers": [foreign] } }),
    ] {
        patch(allowed).await?;
    }
    // An admin is not limited, and Belayer does not notice.
    cluster
        .merge("a", json!({ "metadata": { "labels": { "a": "b" } } }))
        .await?;
    let belayer = cluster.start_belayer().await?;
    cluster.is_held("a").await?;
    cluster.finish("a", "Succeeded").await?;
    cluster.consume("a").await?;
    cluster.is_not_held("a").await?;
    let denied = belayer.metric("belayer_release_denied_total", &[]).await?;
    ensure!(denied == 0.0, "{denied} writes were denied");
    belayer.stop().await
}
