//! The manifests, with the commands of `docs/src/install/install.md`: built, dry-run, applied, checked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::DynamicObject;
use serde_json::Value;

use super::admission::policy_adds;
use super::installation::{deployed, is_denied, printed, remove};
use super::recreation::{RECREATION_HOLD, rejection, write_status};
use crate::harness::{
    Cluster, HOLD, SOON, Scenario, eventually, finalizers, manifests, pod, throughout,
};
use crate::kinds;
use crate::providers::APART;
use crate::providers::Capability::{AdmissionPolicies, IdleDeployments, Kubectl, Rbac};

/// Folders that are applied with `-k`.
const FOLDERS: [&str; 3] = ["", "node-agent", "node-agent-unmount"];

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "manifests-build",
            "the manifests build without a cluster, with another image, and for an older server",
            build,
        )
        .needs([Kubectl]),
        Scenario::alone(
            "manifests-install",
            "the server accepts every manifest, in a dry run and applied, and check reports nothing missing",
            install,
        )
        .needs([Kubectl, IdleDeployments]),
        Scenario::alone(
            "install-without-image",
            "manifests whose image cannot be pulled hold nothing, and nothing of theirs can be deleted by mistake",
            without_image,
        )
        .needs([Kubectl, AdmissionPolicies, IdleDeployments]),
        Scenario::alone(
            "install-again-while-draining",
            "H3: manifests that are applied again, and again by a tool, change neither a drain nor what an admin turned off",
            again_while_draining,
        )
        .needs([Kubectl, AdmissionPolicies, Rbac, IdleDeployments]),
        Scenario::alone(
            "t2-own-account-for-pod-recreation",
            "of the two accounts of the manifests only that of pod-recreation may create and delete pods; both work",
            own_account,
        )
        .needs([Kubectl, AdmissionPolicies, Rbac, IdleDeployments]),
    ]
}

/// An editable copy of the manifests.
fn copy(cluster: &Cluster, name: &str) -> Result<PathBuf> {
    let to = cluster.dir().join(name);
    std::fs::create_dir_all(&to)?;
    for entry in std::fs::read_dir(manifests())? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(to)
}

fn edit(folder: &Path, change: impl FnOnce(String) -> String) -> Result<()> {
    let file = folder.join("kustomization.yaml");
    let text = std::fs::read_to_string(&file)?;
    Ok(std::fs::write(&file, change(text))?)
}

async fn built(cluster: &Cluster, folder: &Path) -> Result<String> {
    let folder = folder.to_str().context("a path in another encoding")?;
    cluster.kubectl().run(["kustomize", folder]).await
}

async fn build(cluster: Cluster) -> Result<()> {
    for folder in FOLDERS {
        let all = built(&cluster, &manifests().join(folder)).await?;
        ensure!(all.contains("kind: Namespace"), "{folder}: {all}");
    }
    let unmount = built(&cluster, &manifests().join("node-agent-unmount")).await?;
    ensure!(
        unmount.contains("privileged: true") && unmount.contains("mountPropagation: Bidirectional"),
        "{unmount}"
    );

    // The block that docs/src/install/install.md shows, with the shipped name.
    let image = copy(&cluster, "with-image")?;
    edit(&image, |text| {
        format!(
            "{text}images:\n- name: registry.invalid/belayer/belayer\n  newName: registry.example.com/b\n  newTag: 0.1.0\n"
        )
    })?;
    let all = built(&cluster, &image).await?;
    let images: Vec<&str> = all
        .lines()
        .filter(|line| line.contains("image: "))
        .collect();
    ensure!(
        !images.is_empty()
            && images
                .iter()
                .all(|line| line.ends_with("registry.example.com/b:0.1.0")),
        "{images:?}"
    );

    // For a server before 1.36.
    let older = copy(&cluster, "older")?;
    edit(&older, |text| {
        let kept = text
            .lines()
            .filter(|line| !line.ends_with("-hold-policy.yaml"));
        kept.map(|line| format!("{line}\n")).collect()
    })?;
    let all = built(&cluster, &older).await?;
    ensure!(
        !all.contains("MutatingAdmissionPolicy"),
        "the output still contains a MutatingAdmissionPolicy"
    );

    // Every file is part of a folder or known to be separate.
    let listed = std::fs::read_to_string(manifests().join("kustomization.yaml"))?;
    for entry in std::fs::read_dir(manifests())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let known = listed
            .lines()
            .any(|line| line.strip_prefix("- ") == Some(&name))
            || name
                .strip_suffix(".yaml")
                .is_some_and(|name| APART.contains(&name))
            || FOLDERS.contains(&&*name)
            || name == "kustomization.yaml"
            || name == "replacements.yaml";
        ensure!(known, "no folder applies {name}");
    }
    Ok(())
}

/// H5, with what a leader leaves removed: nothing has opened a gate.
async fn without_image(cluster: Cluster) -> Result<()> {
    let shown = holds_nothing(&cluster).await;
    remove(&cluster).await?;
    shown
}

async fn holds_nothing(cluster: &Cluster) -> Result<()> {
    cluster
        .sh("kubectl -n belayer-system delete gate belayer-gate")
        .await?;
    let home = manifests().display().to_string();
    cluster.sh(&format!("kubectl apply -k {home}")).await?;
    is_denied(cluster, "a namespace without a gate").await?;
    let workflow = cluster.workflow("w").await?;
    throughout("nothing is held", Duration::from_secs(5), async || {
        let name = format!("early-{}", jiff::Timestamp::now().as_microsecond());
        let created = cluster.create(&pod(name).of(&workflow)).await?;
        let held = finalizers(&created);
        ensure!(held.is_empty(), "{held:?}");
        let created = kinds::workflows(cluster.client(), cluster.namespace())
            .get("w")
            .await?;
        let held = finalizers(&created);
        ensure!(held.is_empty(), "{held:?}");
        Ok(())
    })
    .await?;
    let gates = kinds::gates(cluster.client(), "belayer-system");
    ensure!(gates.get_opt("belayer-gate").await?.is_none(), "a gate");
    // A drain without any Belayer creates the gate and allows an uninstall.
    cluster.drain(&[]).await?.exited_with(0)?;
    let gate = gates.get("belayer-gate").await?;
    ensure!(gate.data["data"]["drained"] == "true", "{:?}", gate.data);
    is_owned(cluster, &gate).await
}

/// The gate is deleted with Belayer's account.
async fn is_owned(cluster: &Cluster, gate: &DynamicObject) -> Result<()> {
    let accounts = kinds::service_accounts(cluster.client(), "belayer-system");
    let account = accounts.get("belayer").await?;
    let owners = gate.metadata.owner_references.iter().flatten();
    let owners: Vec<&str> = owners.map(|owner| owner.uid.as_str()).collect();
    let expected = account.metadata.uid.context("an account without UID")?;
    ensure!(owners == [&expected], "{owners:?}");
    Ok(())
}

async fn again_while_draining(cluster: Cluster) -> Result<()> {
    let shown = keeps_draining(&cluster).await;
    remove(&cluster).await?;
    shown
}

async fn keeps_draining(cluster: &Cluster) -> Result<()> {
    let home = manifests().display().to_string();
    cluster
        .sh("kubectl -n belayer-system delete gate belayer-gate")
        .await?;
    cluster.sh(&format!("kubectl apply -k {home}")).await?;
    let belayer = deployed(cluster, "belayer", "deployed").await?;
    let workflow = cluster.workflow("w").await?;
    let gates = kinds::gates(cluster.client(), "belayer-system");
    eventually("the leader has opened its gate", SOON, async || {
        let gate = gates.get("belayer-gate").await?;
        ensure!(gate.data["data"]["hold"] == "on", "{:?}", gate.data);
        is_owned(cluster, &gate).await
    })
    .await?;
    is_denied(cluster, "the namespace of a Belayer that runs").await?;
    cluster
        .sh("kubectl -n belayer-system patch gate belayer-gate --type=merge -p '{\"data\":{\"holdWorkflows\":\"off\"}}'")
        .await?;
    cluster.drain(&[]).await?.exited_with(0)?;
    let before = gates.get("belayer-gate").await?;
    let data = &before.data["data"];
    ensure!(
        data["mode"] == "draining" && data["drained"] == "true" && data["holdWorkflows"] == "off",
        "{data}"
    );
    for how in ["apply -k", "apply --server-side --force-conflicts -k"] {
        cluster.sh(&format!("kubectl {how} {home}")).await?;
        let now = gates.get("belayer-gate").await?;
        ensure!(now.data == before.data, "{how}: {:?}", now.data);
        ensure!(
            now.metadata.resource_version == before.metadata.resource_version,
            "{how} wrote the gate"
        );
    }
    // The restored policies obey it.
    throughout("nothing is held", Duration::from_secs(3), async || {
        let name = format!("late-{}", jiff::Timestamp::now().as_microsecond());
        let created = cluster.create(&pod(name).of(&workflow)).await?;
        let held = finalizers(&created);
        ensure!(held.is_empty(), "{held:?}");
        Ok(())
    })
    .await?;
    // The guard still lets go of the namespace.
    cluster
        .sh("kubectl delete namespace belayer-system --dry-run=server")
        .await?;
    cluster.drain(&["--resume"]).await?.exited_with(0)?;
    is_denied(cluster, "the namespace after the drain").await?;
    belayer.kill().await
}

async fn own_account(cluster: Cluster) -> Result<()> {
    let shown = two_accounts(&cluster).await;
    remove(&cluster).await?;
    shown
}

/// T2, with the arguments of the Deployments.
async fn two_accounts(cluster: &Cluster) -> Result<()> {
    let home = manifests().display().to_string();
    cluster.sh(&format!("kubectl apply -k {home}")).await?;
    for (account, expected) in [("belayer", "no"), ("belayer-pod-recreation", "yes")] {
        let script = format!(
            "for verb in create delete; do
                kubectl auth can-i $verb pods --as=system:serviceaccount:belayer-system:{account} || true
            done"
        );
        eventually(account, SOON, async || {
            let answers = cluster.sh(&script).await?;
            ensure!(
                answers.lines().all(|answer| answer == expected),
                "{account}: {answers}"
            );
            Ok(())
        })
        .await?;
    }
    let main = deployed(cluster, "belayer", "all-others").await?;
    let apart = deployed(cluster, "belayer-pod-recreation", "pod-recreation").await?;
    let gates = kinds::gates(cluster.client(), "belayer-system");
    eventually("both leaders own the gate", SOON, async || {
        let gate = gates.get("belayer-gate").await?;
        let data = &gate.data["data"];
        ensure!(
            data["lease.hold"] == "belayer-system/belayer"
                && data["lease.holdRecreations"] == "belayer-system/belayer-pod-recreation",
            "{data}"
        );
        let owners = gate.metadata.owner_references.unwrap_or_default();
        ensure!(owners.len() == 2, "{owners:?}");
        Ok(())
    })
    .await?;
    let admin = cluster.backend().admin_kubeconfig();
    let (_, status) = printed(cluster, admin, &["status"]).await?;
    let installation = &status["installation"];
    let other = &installation["otherLeases"][0];
    ensure!(
        installation["leader"]["lapsed"] == false
            && other["lease"] == "belayer-system/belayer-pod-recreation"
            && other["leader"]["lapsed"] == false,
        "{installation}"
    );
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    for (account, answer) in [
        ("belayer", "may change no annotation of a pod"),
        ("belayer-pod-recreation", "annotated"),
    ] {
        let script = format!(
            "kubectl --namespace {} annotate pod a belayer.dev/recreation-ended=x --dry-run=server \
             --as=system:serviceaccount:belayer-system:{account} 2>&1 || true",
            cluster.namespace(),
        );
        let printed = cluster.sh(&script).await?;
        ensure!(printed.contains(answer), "{account}: {printed}");
    }
    let web = pod("web").annotation("belayer.dev/recreate", "true");
    let first = cluster.create(&web).await?.metadata.uid;
    eventually("the pod is held for its re-creation", SOON, async || {
        let seen = cluster.pods().get("web").await?;
        ensure!(finalizers(&seen).contains(&RECREATION_HOLD), "it is not");
        Ok(())
    })
    .await?;
    write_status(cluster, "web", rejection()).await?;
    eventually("the pod is re-created", SOON, async || {
        let seen = cluster.pods().get("web").await?;
        ensure!(seen.metadata.uid != first, "it is the first");
        Ok(())
    })
    .await?;
    cluster.drain(&[]).await?.exited_with(0)?;
    cluster.nothing_is_held().await?;
    main.kill().await?;
    apart.kill().await
}

async fn install(cluster: Cluster) -> Result<()> {
    let seen = applied(&cluster).await;
    let removed = removed(&cluster).await;
    seen?;
    removed
}

async fn applied(cluster: &Cluster) -> Result<()> {
    let home = manifests().display().to_string();
    for options in ["--dry-run=server", ""] {
        for folder in FOLDERS {
            cluster
                .sh(&format!("kubectl apply {options} -k {home}/{folder}"))
                .await?;
        }
        for file in APART {
            cluster
                .sh(&format!("kubectl apply {options} -f {home}/{file}.yaml"))
                .await?;
        }
    }
    // Applying again changes nothing, so that GitOps tools find no difference.
    for folder in ["", "node-agent-unmount"] {
        let again = cluster
            .sh(&format!("kubectl apply -k {home}/{folder}"))
            .await?;
        let changed: Vec<&str> = again
            .lines()
            .filter(|line| !line.ends_with(" unchanged"))
            // kubectl always sends the selector of a budget, which changes nothing.
            .filter(|line| !line.starts_with("poddisruptionbudget"))
            .collect();
        ensure!(changed.is_empty(), "{changed:?}");
    }

    nothing_is_missing(&check(cluster).await?)?;
    if cluster.can(AdmissionPolicies) {
        held_from_creation(cluster).await?;
    }
    Ok(())
}

/// Belayer opens the gate, which is installed closed; then the policies are effective.
async fn held_from_creation(cluster: &Cluster) -> Result<()> {
    let belayer = deployed(cluster, "belayer", "deployed").await?;
    let workflow = cluster.workflow("w").await?;
    let workflow = &workflow;
    policy_adds(HOLD, true, |name| async move {
        cluster.create(&pod(name).of(workflow)).await
    })
    .await?;
    belayer.kill().await
}

/// The report has no error and no warning.
pub(super) fn nothing_is_missing(report: &Value) -> Result<()> {
    let parts = report["parts"].as_array().into_iter().flatten();
    let findings = parts.flat_map(|part| part["findings"].as_array().into_iter().flatten());
    let bad: Vec<&Value> = findings
        .filter(|finding| finding["level"] != "note")
        .collect();
    ensure!(bad.is_empty(), "{bad:?}");
    Ok(())
}

/// The output of `belayer check --service-account` for an admin.
pub(super) async fn check(cluster: &Cluster) -> Result<Value> {
    let admin = cluster.backend().admin_kubeconfig();
    let (_, report) = printed(cluster, admin, &["check", "--service-account"]).await?;
    Ok(report)
}

async fn removed(cluster: &Cluster) -> Result<()> {
    remove(cluster).await?;
    if !cluster.can(AdmissionPolicies) {
        return Ok(());
    }
    let workflow = cluster.workflow("after").await?;
    eventually("pods are created without a hold", SOON, async || {
        let name = format!("b-{}", jiff::Timestamp::now().as_microsecond());
        let created = cluster.create(&pod(name).of(&workflow)).await?;
        ensure!(finalizers(&created).is_empty(), "it has a hold");
        Ok(())
    })
    .await
}
