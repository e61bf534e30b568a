//! Missing RBAC permissions: `belayer check` reports exactly them, and a running Belayer continues with
//! everything that does not need them.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::harness::{
    BelayerOptions, Cluster, HOLD, PVC_HOLD, SOON, Scenario, eventually, finalizers, pod,
};
use crate::kinds;
use crate::providers::Capability::Rbac;
use crate::providers::{apply, manifest};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "check-with-all-permissions",
            "the RBAC permissions of deploy are all that check requires",
            all_rights,
        ),
        Scenario::alone(
            "check-names-who-else-sets-a-hold",
            "check reports other field managers of Belayer's finalizers, and only those",
            other_setters,
        ),
        Scenario::alone(
            "check-names-a-permission-taken-away",
            "check reports each missing permission, its consequence, and the role that grants it",
            taken_away,
        )
        .needs([Rbac]),
        Scenario::alone(
            "a-permission-taken-away-stops-one-part",
            "without permission to list PVCs the other controllers work, and PVCs follow later",
            one_part,
        )
        .needs([Rbac]),
    ]
}

/// Exit code and output of `belayer check`, run as Belayer's ServiceAccount.
async fn check(cluster: &Cluster) -> Result<(i32, String)> {
    let kubeconfig = cluster.backend().belayer_kubeconfig();
    let output = cluster
        .belayer(kubeconfig, &["check", "-o", "json"])
        .await?;
    Ok((output.code, output.out))
}

/// The missing permissions, with the part that requires them.
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

/// A tool that applies a pod and a PVC with Belayer's finalizers in its manifests: it would add them again
/// after each release.
async fn other_setters(cluster: Cluster) -> Result<()> {
    const TOOL: &str = "gitops";
    let options = BelayerOptions::holding_pvcs();
    let belayer = cluster.start_belayer_with(&options).await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    cluster.held_pvc("data").await?;
    cluster.held_pvc("untouched").await?;
    ensure!(
        setters(&cluster).await?.is_empty(),
        "reported before any tool set them"
    );

    applied(&cluster.pods(), "a", HOLD, TOOL).await?;
    applied(&cluster.pvcs(), "data", PVC_HOLD, TOOL).await?;
    // Applying other fields adds no hold, and neither does an ordinary write.
    applied(&cluster.pvcs(), "untouched", "", "labeller").await?;
    let expected = [
        format!("{HOLD} is also set by {TOOL} (on 1 pods)"),
        format!("{PVC_HOLD} is also set by {TOOL} (on 1 persistentvolumeclaims)"),
    ];
    let named = setters(&cluster).await?;
    ensure!(named == expected, "{named:?}");
    belayer.stop().await
}

/// The other setters that `check` reports.
async fn setters(cluster: &Cluster) -> Result<Vec<String>> {
    let (code, text) = check(cluster).await?;
    let report: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("exit code {code}: {text}"))?;
    let parts = report["parts"].as_array().into_iter().flatten();
    let findings = parts.flat_map(|part| part["findings"].as_array().into_iter().flatten());
    let printed = findings
        .filter(|finding| finding["level"] == "note")
        .filter_map(|finding| finding["what"].as_str());
    let setters = printed.filter(|what| what.contains("is also set by"));
    Ok(setters.map(str::to_owned).collect())
}

/// Applies an object with one finalizer, or with a label only, by server-side apply.
async fn applied(
    objects: &Api<DynamicObject>,
    name: &str,
    finalizer: &str,
    tool: &str,
) -> Result<()> {
    let metadata = if finalizer.is_empty() {
        json!({ "name": name, "labels": { "team": "shop" } })
    } else {
        json!({ "name": name, "finalizers": [finalizer] })
    };
    let now = objects.get(name).await?;
    let types = now.types.context("an object without a kind")?;
    let document =
        json!({ "apiVersion": types.api_version, "kind": types.kind, "metadata": metadata });
    let by = PatchParams::apply(tool).force();
    let applied = objects.patch(name, &by, &Patch::Apply(&document)).await;
    applied.map(drop).context("apply")
}

/// Removes one verb on one resource from a role.
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
    if let Some(rules) = &mut found.rules {
        // A rule has at least one verb.
        rules.retain(|rule| !rule.verbs.is_empty());
    }
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
            "every controller",
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
        // RBAC applies the change a little later.
        let expected = vec![(part.to_owned(), what.to_owned())];
        let named = eventually(
            &format!("{what} is reported as missing"),
            SOON,
            async || {
                let missing = missing(&cluster).await?;
                ensure!(missing == expected, "{missing:?}");
                Ok(())
            },
        )
        .await;
        apply(cluster.client(), &manifest(file)?).await?;
        named?;
    }
    eventually("no permission is missing", SOON, async || {
        let missing = missing(&cluster).await?;
        ensure!(missing.is_empty(), "{missing:?}");
        Ok(())
    })
    .await
}

async fn one_part(cluster: Cluster) -> Result<()> {
    let (role, file) = ("belayer-pvc-protection", "rbac-pvc-protection");
    // A server with streaming lists requires only the permission to watch.
    for verb in ["list", "watch"] {
        take(&cluster, role, "persistentvolumeclaims", verb).await?;
    }
    let seen = without_pvcs(&cluster).await;
    apply(cluster.client(), &manifest(file)?).await?;
    let belayer = seen?;
    // It catches up as soon as it has the permission, without a restart.
    eventually("the PVC has the hold", SOON * 2, async || {
        let pvc = kinds::pvcs(cluster.client(), cluster.namespace())
            .get("data")
            .await?;
        ensure!(
            finalizers(&pvc).contains(&PVC_HOLD),
            "{:?}",
            finalizers(&pvc)
        );
        Ok(())
    })
    .await?;
    belayer.stop().await
}

async fn without_pvcs(cluster: &Cluster) -> Result<crate::harness::Belayer> {
    let missed: Vec<_> = ["list", "watch"]
        .map(|verb| {
            (
                "pvc-protection".to_owned(),
                format!("{verb} persistentvolumeclaims"),
            )
        })
        .into();
    eventually("the missing permission is reported", SOON, async || {
        let missing = missing(cluster).await?;
        ensure!(missing == missed, "{missing:?}");
        Ok(())
    })
    .await?;
    // It is not ready, because it cannot list PVCs; everything else works.
    let belayer = cluster.spawn_belayer(&BelayerOptions::holding_pvcs())?;
    let pvc = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "namespace": cluster.namespace() },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
            "resources": { "requests": { "storage": "1Gi" } },
        },
    }))?;
    kinds::pvcs(cluster.client(), cluster.namespace())
        .create(&PostParams::default(), &pvc)
        .await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    cluster.consume("a").await?;
    cluster.is_not_held("a").await?;
    eventually("the log names the permission", SOON, async || {
        let log = belayer.log()?;
        let named = log.contains("persistentvolumeclaims is forbidden");
        ensure!(named, "the log does not name it");
        Ok(())
    })
    .await?;
    Ok(belayer)
}
