//! The Roles of every set of controllers, compared with what `belayer check` requires.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::DynamicObject;
use serde_json::Value;

use super::release::Release;
use super::restored;
use crate::control_plane::Program;
use crate::harness::{Cluster, eventually};
use crate::providers::apply;

const SOON: Duration = Duration::from_secs(60);

/// Key in the values, and name.
const CONTROLLERS: [(&str, &str); 4] = [
    ("podFinalizer", "pod-finalizer"),
    ("workflowFinalizer", "workflow-finalizer"),
    ("podRecreation", "pod-recreation"),
    ("pvcProtection", "pvc-protection"),
];

pub(super) async fn all_sets(cluster: Cluster) -> Result<()> {
    let release = Release::new(&cluster, Program::Helm4).await?;
    let checked = sets(&release).await;
    let cleaned = restored(&cluster, &release).await;
    checked?;
    cleaned
}

async fn sets(release: &Release) -> Result<()> {
    release
        .cluster
        .sh(&format!(
            "kubectl -n {} create serviceaccount belayer",
            release.namespace
        ))
        .await?;
    let mut without = 0;
    for set in 1..16_u32 {
        let on = |at: usize| set & (1 << at) != 0;
        let names = (0..4).filter(|at| on(*at)).map(|at| CONTROLLERS[at].1);
        let names = names.collect::<Vec<_>>().join(",");
        let roles = roles(release, &on).await?;
        release.removed_by_force().await?;
        for role in &roles {
            apply(release.cluster.client(), &serde_json::to_string(role)?).await?;
        }
        checked(release, &names, 0).await?;
        if set.count_ones() == 1 || set == 15 {
            without += without_each(release, &names, &roles).await?;
        }
    }
    ensure!(without > 20, "{without} rules");
    release.cluster.note(format!("15 sets, {without} rules"));
    Ok(())
}

/// The rendered Roles and bindings of these controllers.
async fn roles(release: &Release, on: &impl Fn(usize) -> bool) -> Result<Vec<DynamicObject>> {
    let chart = crate::chart::chart();
    let chart = chart.to_string_lossy();
    let sets: Vec<String> = (0..4)
        .map(|at| format!("controllers.{}.enabled={}", CONTROLLERS[at].0, on(at)))
        .chain(["onDisable=keep".to_owned()])
        .collect();
    let mut arguments = vec![
        "template",
        "belayer",
        &*chart,
        "--no-hooks",
        "--kube-version=1.36.0",
    ];
    for set in &sets {
        arguments.extend(["--set", set]);
    }
    let text = release.helm(&arguments).await?;
    let mut objects: Vec<DynamicObject> = serde_saphyr::from_multiple(&text)?;
    objects.retain(|object| {
        let kind = object.types.as_ref().map(|types| types.kind.as_str());
        kind.is_some_and(|kind| kind.contains("Role"))
    });
    Ok(objects)
}

/// `check` reports nothing missing (0) or something (3).
async fn checked(release: &Release, controllers: &str, expected: i32) -> Result<()> {
    let controllers = format!("--controllers={controllers}");
    // The API server learns of a changed Role a moment later.
    eventually(
        &format!("check exits with {expected}: {controllers}"),
        SOON,
        async || {
            let (code, report) = release
                .belayer(&["check", "--service-account", &controllers])
                .await?;
            ensure!(code == expected, "exit code {code}: {report}");
            Ok(())
        },
    )
    .await
}

/// Takes away one rule after the other. Returns how many were checked.
async fn without_each(
    release: &Release,
    controllers: &str,
    roles: &[DynamicObject],
) -> Result<usize> {
    let rules = |role: &DynamicObject| role.data["rules"].as_array().cloned().unwrap_or_default();
    let aggregated = |role: &DynamicObject| {
        role.metadata
            .labels
            .as_ref()
            .is_some_and(|labels| labels.keys().any(|label| label.contains("aggregate-to-")))
    };
    let mut number = 0;
    for role in roles.iter().filter(|role| !aggregated(role)) {
        for at in 0..rules(role).len() {
            let mut less = role.clone();
            let mut kept = rules(role);
            let taken = grants(&kept.remove(at));
            let others = roles
                .iter()
                .filter(|other| other.metadata.name != role.metadata.name);
            let elsewhere = others.flat_map(rules).chain(kept.clone());
            let elsewhere: BTreeSet<String> = elsewhere.flat_map(|rule| grants(&rule)).collect();
            // Roles overlap: another rule may grant the same.
            if taken.is_subset(&elsewhere) {
                continue;
            }
            less.data["rules"] = Value::Array(kept);
            apply(release.cluster.client(), &serde_json::to_string(&less)?).await?;
            checked(release, controllers, 3).await?;
            apply(release.cluster.client(), &serde_json::to_string(role)?).await?;
            number += 1;
        }
    }
    checked(release, controllers, 0).await?;
    Ok(number)
}

/// Group, resource, name and verb of each grant of a rule.
fn grants(rule: &Value) -> BTreeSet<String> {
    let of = |key: &str| {
        let values = rule[key].as_array().cloned().unwrap_or_default();
        values
            .iter()
            .map(|value| value.as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    let names = of("resourceNames").join(",");
    let mut all = BTreeSet::new();
    for group in of("apiGroups") {
        for resource in of("resources") {
            all.extend(
                of("verbs")
                    .iter()
                    .map(|verb| format!("{group}/{resource}/{names}/{verb}")),
            );
        }
    }
    all
}
