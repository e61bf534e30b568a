//! The manifests, with the commands of `docs/src/install/install.md`: built, dry-run, applied, checked.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::harness::{Cluster, Scenario, eventually, finalizers, manifests, pod};
use crate::providers::Capability::{AdmissionPolicies, Kubectl};

const SOON: Duration = Duration::from_secs(60);

/// Folders that are applied with `-k`.
const FOLDERS: [&str; 3] = ["", "node-agent", "node-agent-unmount"];

/// Optional manifests that no folder includes.
const APART: [&str; 1] = ["rbac-pod-cleanup.yaml"];

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
        .needs([Kubectl])
        .within(Duration::from_secs(240)),
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

    // The result of `kustomize edit set image` with the shipped name.
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
            || APART.contains(&&*name)
            || FOLDERS.contains(&&*name)
            || name == "kustomization.yaml"
            || name == "replacements.yaml";
        ensure!(known, "no folder applies {name}");
    }
    Ok(())
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
                .sh(&format!("kubectl apply {options} -f {home}/{file}"))
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
    let belayer = cluster.start_belayer().await?;
    let workflow = cluster.workflow("w").await?;
    eventually("a pod is created with the hold", SOON, async || {
        let name = format!("a-{}", jiff::Timestamp::now().as_microsecond());
        let created = cluster.create(&pod(name).of(&workflow)).await?;
        ensure!(!finalizers(&created).is_empty(), "no hold yet");
        Ok(())
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
    let command = tokio::process::Command::new(&cluster.setting().belayer)
        .args(["check", "--service-account", "-o", "json"])
        .env("KUBECONFIG", cluster.backend().admin_kubeconfig())
        .env_remove("BELAYER_CONFIG")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(SOON, command).await??;
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).with_context(|| {
        let why = String::from_utf8_lossy(&output.stderr);
        format!("{}: {text}{why}", output.status)
    })
}

/// Removes what other scenarios on this cluster do not expect: they create the policies that they need.
pub(super) async fn remove(cluster: &Cluster) -> Result<()> {
    let home = manifests().display().to_string();
    let script = format!(
        "set -e
        for kind in mutatingadmissionpolicybindings mutatingadmissionpolicies \\
            validatingadmissionpolicybindings validatingadmissionpolicies; do
            kubectl delete $kind -l app.kubernetes.io/part-of=belayer
        done
        kubectl delete deployment -n belayer-system --ignore-not-found belayer
        kubectl delete daemonset -n belayer-node-agent --ignore-not-found belayer-node-agent
        kubectl apply -f {home}/pod-recreation-records-policy.yaml"
    );
    cluster.sh(&script).await?;
    Ok(())
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
