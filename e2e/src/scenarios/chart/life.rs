//! A release from its installation to its end.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::release::{CONTROLLERS, Release};
use super::restored;
use crate::control_plane::{Program, PvcController};
use crate::harness::{Cluster, HOLD, PVC_HOLD, SOON, eventually, finalizers, pod, throughout};
use crate::kinds;

pub(super) async fn whole(cluster: Cluster, helm: Program) -> Result<()> {
    let release = Release::new(&cluster, helm).await?;
    let lived = async {
        installed(&release).await?;
        kept_by_upgrades(&release).await?;
        uninstalled(&release).await?;
        installed_elsewhere(&release).await
    }
    .await;
    let cleaned = restored(&cluster, &release).await;
    lived?;
    cleaned
}

/// H2 and H5: nothing names another namespace, and nothing is held before a Belayer runs.
async fn installed(release: &Release) -> Result<()> {
    let Release {
        cluster, namespace, ..
    } = release;
    let chart = crate::chart::chart();
    release
        .helm(&["lint", "--strict", &chart.to_string_lossy()])
        .await?;
    let printed = release.applied("install", &[]).await?;
    ensure!(
        printed.contains("does not exist. Build one"),
        "no warning of the image: {printed}"
    );
    let objects = release.helm(&["get", "manifest", "belayer"]).await?;
    ensure!(!objects.contains("belayer-system"), "{objects}");
    let (code, report) = release
        .belayer(&["check", "--service-account", CONTROLLERS])
        .await?;
    ensure!(code == 0, "{report}");

    let workflow = cluster.workflow("w").await?;
    throughout(
        "h5: without a Belayer nothing is held",
        Duration::from_secs(5),
        async || {
            let name = format!("early-{}", jiff::Timestamp::now().as_microsecond());
            let created = cluster.create(&pod(name).of(&workflow)).await?;
            ensure!(
                finalizers(&created).is_empty(),
                "{:?}",
                finalizers(&created)
            );
            tokio::time::sleep(Duration::from_millis(500)).await;
            Ok(())
        },
    )
    .await?;
    let belayer = cluster
        .start_belayer_with(&release.options().await?)
        .await?;
    eventually("the policy of the release adds holds", SOON, async || {
        let name = format!("held-{}", jiff::Timestamp::now().as_microsecond());
        let created = cluster.create(&pod(name).of(&workflow)).await?;
        ensure!(finalizers(&created) == [HOLD], "{:?}", finalizers(&created));
        Ok(())
    })
    .await?;
    // The policy names the account of this namespace.
    let account = release.kubeconfig("belayer").await?;
    let patch = format!(
        "export KUBECONFIG={}; pods=\"kubectl -n {}\"
        $pods patch $($pods get pods -o name | head -1) --type=merge -p '{{\"metadata\":{{\"labels\":{{\"a\":\"b\"}}}}}}'",
        account.display(),
        cluster.namespace()
    );
    let refused = cluster
        .sh(&patch)
        .await
        .err()
        .context("the account may write labels")?;
    ensure!(
        refused.to_string().contains("belayer-pod-writes"),
        "{refused:#}"
    );
    ensure!(release.gate().await?["hold"] == "on", "{namespace}");
    let (done, printed, code, report) = release
        .with_hook(&["test", "belayer"], "belayer-check")
        .await?;
    ensure!(
        done && code == 0,
        "helm test: exit code {code}: {report}{printed}"
    );
    belayer.stop().await
}

/// H3: what runs wrote into the gate stays through upgrade, rollback and a second installation of the same.
async fn kept_by_upgrades(release: &Release) -> Result<()> {
    let gates = kinds::gates(release.cluster.client(), &release.namespace);
    let off = Patch::Merge(json!({ "data": { "holdWorkflows": "off" } }));
    gates
        .patch("belayer-gate", &PatchParams::default(), &off)
        .await?;
    let (code, report) = release.belayer(&["drain"]).await?;
    ensure!(code == 0, "{report}");
    let before = release.gate().await?;
    ensure!(
        before["mode"] == "draining" && before["holdWorkflows"] == "off",
        "{before}"
    );
    let more = "flowSchema.enabled=true,networkPolicy.enabled=true,dashboard.enabled=true,\
                commonLabels.team=a,config.limits.qps=50";
    release.applied("upgrade", &[more]).await?;
    ensure!(
        release.gate().await? == before,
        "an upgrade changed the gate"
    );
    release.helm(&["rollback", "belayer", "1"]).await?;
    ensure!(
        release.gate().await? == before,
        "a rollback changed the gate"
    );
    // It restores the policies that drain deleted; they obey the gate.
    release.applied("upgrade", &[]).await?;
    ensure!(
        release.remaining().await?.contains("belayer-pod-hold"),
        "the policies are not restored"
    );
    let (code, report) = release.belayer(&["drain", "--resume"]).await?;
    ensure!(code == 0 && report.contains("holdWorkflows"), "{report}");
    Ok(())
}

async fn uninstalled(release: &Release) -> Result<()> {
    let cluster = &release.cluster;
    let belayer = cluster
        .start_belayer_with(&release.options().await?)
        .await?;
    let workflow = cluster.workflow("again").await?;
    for name in ["a", "b"] {
        cluster.create(&pod(name).of(&workflow)).await?;
        cluster.is_held(name).await?;
    }
    let (done, printed, code, report) = release
        .with_hook(&["uninstall", "belayer", "--timeout=4m"], "belayer-drain")
        .await?;
    ensure!(
        code == 0,
        "the drain of the hook: exit code {code}: {report}"
    );
    ensure!(done, "{printed}");
    cluster.nothing_is_held().await.with_context(|| report)?;
    let left = release.remaining().await?;
    ensure!(left.is_empty(), "left: {left}");
    let gates = kinds::gates(cluster.client(), &release.namespace);
    eventually("the gate is deleted with its account", SOON, async || {
        ensure!(gates.get_opt("belayer-gate").await?.is_none(), "it is left");
        Ok(())
    })
    .await?;
    // By default the CRDs stay, and with them the records.
    kinds::definitions(cluster.client())
        .get("podrecreations.belayer.dev")
        .await?;
    belayer.kill().await
}

/// The CRDs that stay belong to the release that was uninstalled.
async fn installed_elsewhere(release: &Release) -> Result<()> {
    let elsewhere = release
        .cluster
        .another_namespace("elsewhere", json!({}))
        .await?;
    let elsewhere = release.in_namespace(&elsewhere);
    let chart = crate::chart::chart();
    let install = ["install", "belayer", &*chart.to_string_lossy()];
    let done = elsewhere.helm(&install).await;
    let why = done.err().context("it was installed")?.to_string();
    ensure!(why.contains(&release.namespace), "{why}");
    let installed = elsewhere.applied("install", &[]).await;
    // Its namespace goes later than the next scenario begins.
    restored(&release.cluster, &elsewhere).await?;
    installed.map(drop)
}

/// Nothing is deleted while something must stay, and the reason is in the log of the Job.
pub(super) async fn refused(cluster: Cluster) -> Result<()> {
    cluster
        .backend()
        .switch_pvc_controller(PvcController::Off)
        .await?;
    let release = Release::new(&cluster, Program::Helm4).await?;
    let lived = in_use(&release).await;
    let cleaned = restored(&cluster, &release).await;
    cluster
        .backend()
        .switch_pvc_controller(PvcController::On)
        .await?;
    lived?;
    cleaned
}

async fn in_use(release: &Release) -> Result<()> {
    let cluster = &release.cluster;
    release.applied("install", &[]).await?;
    cluster.create_pvc("used", json!({})).await?;
    let held = Patch::Merge(json!({ "metadata": { "finalizers": [PVC_HOLD] } }));
    cluster
        .pvcs()
        .patch("used", &PatchParams::default(), &held)
        .await?;
    cluster.bound(pod("web").pvc("used")).await?;
    let uninstall = ["uninstall", "belayer", "--timeout=4m"];
    let (done, printed, code, report) = release.with_hook(&uninstall, "belayer-drain").await?;
    ensure!(
        code == 3 && report.contains("used") && report.contains("`belayer drain --resume`"),
        "exit code {code}: {report}"
    );
    ensure!(!done, "the uninstall did not stop: {printed}");
    let left = release.remaining().await?;
    ensure!(
        left.contains("clusterrole.rbac.authorization.k8s.io/belayer-core"),
        "left: {left}"
    );
    ensure!(
        !left.lines().any(|line| line.ends_with("/belayer-drain")),
        "permissions of the hook are left: {left}"
    );

    kept(release).await?;
    cluster.remove("web").await?;
    let (done, printed, code, report) = release.with_hook(&uninstall, "belayer-drain").await?;
    ensure!(done && code == 0, "exit code {code}: {report}{printed}");
    cluster.nothing_is_held().await
}

/// The way back that uninstall.md documents: Helm upgrades no release whose uninstall has failed.
async fn kept(release: &Release) -> Result<()> {
    let (code, report) = release.belayer(&["drain", "--resume"]).await?;
    ensure!(code == 0, "{report}");
    release.helm(&["rollback", "belayer", "1"]).await?;
    let policies =
        "kubectl get mutatingadmissionpolicies,validatingadmissionpolicybindings -o name";
    let restored = release.cluster.sh(policies).await?;
    for name in ["/belayer-pod-hold", "/belayer-namespace-guard"] {
        ensure!(restored.contains(name), "no {name}: {restored}");
    }
    release.applied("upgrade", &[]).await.map(drop)
}
