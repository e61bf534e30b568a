//! Rights that are taken away: `belayer check` names exactly them, and a running Belayer goes on with
//! all that does not need them.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::harness::{BelayerOptions, CLAIM_HOLD, Cluster, Scenario, eventually, finalizers, pod};
use crate::kinds;
use crate::providers::Capability::Rbac;
use crate::providers::{apply, manifest};

const SOON: Duration = Duration::from_secs(60);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "check-with-all-rights",
            "the rights that deploy grants are all that check asks for",
            all_rights,
        ),
        Scenario::alone(
            "check-names-a-right-taken-away",
            "check names each right that is taken away, what follows, and the role that grants it",
            taken_away,
        )
        .needs([Rbac])
        .within(Duration::from_secs(240)),
        Scenario::alone(
            "a-right-taken-away-stops-one-part",
            "without the right to see claims the other components work, and claims follow later",
            one_part,
        )
        .needs([Rbac])
        .within(Duration::from_secs(240)),
    ]
}

/// Exit code and output of `belayer check`, spoken as Belayer's own account.
async fn check(cluster: &Cluster) -> Result<(i32, String)> {
    let command = tokio::process::Command::new(&cluster.setting().belayer)
        .args(["check", "-o", "json"])
        .env("KUBECONFIG", cluster.backend().belayer_kubeconfig())
        .env_remove("BELAYER_CONFIG")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(SOON, command).await??;
    let code = output.status.code().context("it was killed")?;
    Ok((code, String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// The rights that are missing, with the part that misses them.
async fn missing(cluster: &Cluster) -> Result<Vec<(String, String)>> {
    let (code, text) = check(cluster).await?;
    let report: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("exit code {code}: {text}"))?;
    let mut missing = Vec::new();
    for part in report["parts"].as_array().into_iter().flatten() {
        for finding in part["findings"].as_array().into_iter().flatten() {
            if finding["about"] == "right" {
                ensure!(finding["level"] == "missing", "{finding}");
                let text =
                    |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
                missing.push((text(&part["name"]), text(&finding["what"])));
            }
        }
    }
    ensure!(missing.is_empty() || code == 3, "exit code {code}");
    Ok(missing)
}

async fn all_rights(cluster: Cluster) -> Result<()> {
    let missing = missing(&cluster).await?;
    ensure!(missing.is_empty(), "{missing:?}");
    Ok(())
}

/// Takes one verb on one resource out of a role.
async fn take(cluster: &Cluster, role: &str, resource: &str, verb: &str) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(cluster.client().clone());
    let mut found = roles.get(role).await?;
    let mut taken = false;
    for rule in found.rules.iter_mut().flatten() {
        let about = rule.resources.iter().flatten().any(|it| it == resource);
        if about {
            taken |= rule.verbs.iter().any(|it| it == verb);
            rule.verbs.retain(|it| it != verb);
        }
    }
    ensure!(taken, "{role} does not grant {verb} {resource}");
    roles.replace(role, &PostParams::default(), &found).await?;
    Ok(())
}

async fn taken_away(cluster: Cluster) -> Result<()> {
    for (file, role, resource, verb, part, what) in [
        (
            "rbac-core",
            "belayer-core",
            "events",
            "create",
            "every component",
            "create events",
        ),
        (
            "rbac-pvc-protection",
            "belayer-pvc-protection",
            "persistentvolumeclaims",
            "patch",
            "pvc-protection",
            "patch persistentvolumeclaims",
        ),
        (
            "rbac-workflow-finalizer",
            "belayer-workflow-finalizer",
            "workflows",
            "patch",
            "workflow-finalizer",
            "patch workflows.argoproj.io",
        ),
    ] {
        take(&cluster, role, resource, verb).await?;
        // RBAC learns of it a moment later.
        let expected = vec![(part.to_owned(), what.to_owned())];
        let named = eventually(&format!("{what} is missed"), SOON, async || {
            let missing = missing(&cluster).await?;
            ensure!(missing == expected, "{missing:?}");
            Ok(())
        })
        .await;
        apply(cluster.client(), manifest(file)?).await?;
        named?;
    }
    eventually("nothing is missed any more", SOON, async || {
        let missing = missing(&cluster).await?;
        ensure!(missing.is_empty(), "{missing:?}");
        Ok(())
    })
    .await
}

async fn one_part(cluster: Cluster) -> Result<()> {
    let (role, file) = ("belayer-pvc-protection", "rbac-pvc-protection");
    // A server that streams its lists asks for the right to watch alone.
    for verb in ["list", "watch"] {
        take(&cluster, role, "persistentvolumeclaims", verb).await?;
    }
    let seen = without_claims(&cluster).await;
    apply(cluster.client(), manifest(file)?).await?;
    let belayer = seen?;
    // As soon as it may, it catches up: nobody has to restart it.
    eventually("the claim is held", SOON * 2, async || {
        let claim = kinds::claims(cluster.client(), cluster.namespace())
            .get("data")
            .await?;
        ensure!(
            finalizers(&claim).contains(&CLAIM_HOLD),
            "{:?}",
            finalizers(&claim)
        );
        Ok(())
    })
    .await?;
    belayer.stop().await
}

async fn without_claims(cluster: &Cluster) -> Result<crate::harness::Belayer> {
    let missed: Vec<_> = ["list", "watch"]
        .map(|verb| {
            (
                "pvc-protection".to_owned(),
                format!("{verb} persistentvolumeclaims"),
            )
        })
        .into();
    eventually("the right is missed", SOON, async || {
        let missing = missing(cluster).await?;
        ensure!(missing == missed, "{missing:?}");
        Ok(())
    })
    .await?;
    // It is not ready, for it cannot know of the claims; the rest works all the same.
    let belayer = cluster.spawn_belayer(&BelayerOptions::default())?;
    let claim = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "namespace": cluster.namespace() },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
            "resources": { "requests": { "storage": "1Gi" } },
        },
    }))?;
    kinds::claims(cluster.client(), cluster.namespace())
        .create(&PostParams::default(), &claim)
        .await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    cluster.consume("a").await?;
    cluster.is_not_held("a").await?;
    eventually("the log names the right", SOON, async || {
        let log = belayer.log()?;
        let named = log.contains("persistentvolumeclaims is forbidden");
        ensure!(named, "it does not");
        Ok(())
    })
    .await?;
    Ok(belayer)
}
