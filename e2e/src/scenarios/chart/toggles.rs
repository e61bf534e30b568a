//! The Roles of every set of controllers, compared with what `belayer check` requires.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;

use super::release::Release;
use super::restored;
use crate::control_plane::Program;
use crate::harness::{Cluster, SOON, eventually};
use crate::providers::apply;

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
            "kubectl -n {0} create serviceaccount belayer; kubectl -n {0} create serviceaccount belayer-pod-recreation",
            release.namespace
        ))
        .await?;
    let mut without = 0;
    for set in 1..16_u32 {
        let on = |at: usize| set & (1 << at) != 0;
        let names = (0..4).filter(|at| on(*at)).map(|at| CONTROLLERS[at].1);
        let names: Vec<&str> = names.collect();
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
    for (what, configuration, grants_more) in CONFIGURED {
        configured(release, configuration, grants_more)
            .await
            .with_context(|| what)?;
    }
    by_namespace(release)
        .await
        .context("writes in one namespace")?;
    release.cluster.note(format!("15 sets, {without} rules"));
    Ok(())
}

/// Configurations, and whether they need permissions that the default Roles do not grant.
const CONFIGURED: [(&str, &str, bool); 3] = [
    (
        "owners of another kind",
        "podFinalizer:
  profiles:
  - name: jobs
    selector: {matchLabels: {app: batch}}
    owner: {group: batch, version: v1, kind: Job, resource: jobs}
    consumedWhen: has(owner.status.completionTime)
workflowFinalizer:
  owners:
  - owner: {group: batch, version: v1, kind: Job, resource: jobs}
",
        true,
    ),
    (
        "records and cleanup",
        "podFinalizer:
  profiles:
  - {builtIn: argo, capture: true, cleanup: argo}
",
        true,
    ),
    (
        "PVCs are held",
        "pvcProtection:
  finalizer: belayer.dev/pvc-protection
",
        false,
    ),
];

/// The Roles for a configuration grant what `check` requires with it.
async fn configured(release: &Release, configuration: &str, grants_more: bool) -> Result<()> {
    let folder = release.cluster.dir();
    let indented = configuration.lines().map(|line| format!("  {line}\n"));
    let values = folder.join("values.yaml");
    std::fs::write(
        &values,
        format!("config:\n{}", indented.collect::<String>()),
    )?;
    let file = folder.join("belayer.yaml");
    let head = "apiVersion: config.belayer.dev/v1alpha1\n";
    std::fs::write(&file, format!("{head}{configuration}"))?;
    let (values, file) = (values.to_string_lossy(), file.to_string_lossy());
    let names = ["pod-finalizer", "workflow-finalizer", "pvc-protection"];
    let on = |at: usize| names.contains(&CONTROLLERS[at].1);
    for (with, expected) in [(None, if grants_more { 3 } else { 0 }), (Some(&*values), 0)] {
        release.removed_by_force().await?;
        for role in roles_of(release, &on, with).await? {
            apply(release.cluster.client(), &serde_json::to_string(&role)?).await?;
        }
        checked_with(release, &names, &["--config", &file], expected).await?;
    }
    Ok(())
}

/// T2: with `rbac.namespaces`, the accounts write in these namespaces only, which suffices where the configuration selects
/// nothing elsewhere.
async fn by_namespace(release: &Release) -> Result<()> {
    let here = release.cluster.namespace();
    let configuration = |namespaces: &str| {
        format!(
            "podFinalizer:
  profiles:
  - {{builtIn: argo, capture: true, cleanup: argo, namespaces: {{include: [{namespaces}]}}}}
workflowFinalizer:
  owners:
  - {{namespaces: {{include: [{namespaces}]}}}}
podRecreation:
  namespaces: {{include: [{namespaces}]}}
"
        )
    };
    let folder = release.cluster.dir();
    let indented: String = configuration(here)
        .lines()
        .map(|line| format!("  {line}\n"))
        .collect();
    let values = folder.join("by-namespace.yaml");
    std::fs::write(
        &values,
        format!("rbac: {{namespaces: [{here}]}}\nconfig:\n{indented}"),
    )?;
    let names = ["pod-finalizer", "workflow-finalizer", "pod-recreation"];
    let on = |at: usize| names.contains(&CONTROLLERS[at].1);
    release.removed_by_force().await?;
    for role in roles_of(release, &on, Some(&values.to_string_lossy())).await? {
        apply(release.cluster.client(), &serde_json::to_string(&role)?).await?;
    }
    let file = folder.join("by-namespace-belayer.yaml");
    let config = file.to_string_lossy();
    for (namespaces, expected) in [(here.to_owned(), 0), (format!("{here}, default"), 3)] {
        let head = "apiVersion: config.belayer.dev/v1alpha1\n";
        std::fs::write(&file, format!("{head}{}", configuration(&namespaces)))?;
        checked_with(release, &names, &["--config", &config], expected).await?;
    }
    // What a thief of the tokens may.
    let accounts = format!("system:serviceaccount:{}", release.namespace);
    for (account, verb) in [
        ("belayer", "patch"),
        ("belayer", "delete"),
        ("belayer-pod-recreation", "create"),
    ] {
        for (namespace, expected) in [(here, "yes"), ("default", "no")] {
            let script = format!(
                "kubectl auth can-i {verb} pods --as={accounts}:{account} -n {namespace} || true"
            );
            let answer = release.cluster.sh(&script).await?;
            ensure!(answer.trim() == expected, "{script}: {answer}");
        }
    }
    Ok(())
}

/// The rendered Roles and bindings of these controllers.
async fn roles(release: &Release, on: &impl Fn(usize) -> bool) -> Result<Vec<DynamicObject>> {
    roles_of(release, on, None).await
}

/// The same with a file of values.
async fn roles_of(
    release: &Release,
    on: &impl Fn(usize) -> bool,
    values: Option<&str>,
) -> Result<Vec<DynamicObject>> {
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
    if let Some(values) = values {
        arguments.extend(["--values", values]);
    }
    let text = release.helm(&arguments).await?;
    let mut objects: Vec<DynamicObject> = serde_saphyr::from_multiple(&text)?;
    objects.retain(|object| {
        let kind = object.types.as_ref().map(|types| types.kind.as_str());
        kind.is_some_and(|kind| kind.contains("Role"))
    });
    Ok(objects)
}

/// T2: pod-recreation has an account of its own if anything else runs.
const APART: &str = "pod-recreation";

/// `check` of all accounts reports nothing missing (0) or something (3).
async fn checked(release: &Release, controllers: &[&str], expected: i32) -> Result<()> {
    checked_with(release, controllers, &[], expected).await
}

/// The same with further arguments.
async fn checked_with(
    release: &Release,
    controllers: &[&str],
    arguments: &[&str],
    expected: i32,
) -> Result<()> {
    let is_apart = controllers.len() > 1 && controllers.contains(&APART);
    let here = controllers
        .iter()
        .filter(|name| !(is_apart && **name == APART));
    let here = here.copied().collect::<Vec<_>>().join(",");
    let controllers = format!("--controllers={here}");
    let apart = format!(
        "--service-account={}/belayer-pod-recreation",
        release.namespace
    );
    let mut commands = vec![vec!["check", "--service-account", &controllers]];
    if is_apart {
        let lease = "--leader-elect-resource-name=belayer-pod-recreation";
        commands.push(vec!["check", &apart, "--controllers=pod-recreation", lease]);
    }
    // The API server learns of a changed Role a moment later.
    eventually(
        &format!("check exits with {expected}: {controllers}"),
        SOON,
        async || {
            let mut worst = (0, String::new());
            for command in &commands {
                let command = [command, arguments].concat();
                let (code, report) = release.belayer(&command).await?;
                worst = worst.max((code, report));
            }
            ensure!(worst.0 == expected, "exit code {}: {}", worst.0, worst.1);
            Ok(())
        },
    )
    .await
}

/// Takes away one rule after the other. Returns how many were checked.
async fn without_each(
    release: &Release,
    controllers: &[&str],
    roles: &[DynamicObject],
) -> Result<usize> {
    let rules = |role: &DynamicObject| role.data["rules"].as_array().cloned().unwrap_or_default();
    // The others are for people.
    let bound = |role: &DynamicObject| {
        roles
            .iter()
            .any(|binding| binding.data["roleRef"]["name"] == role.name_any())
    };
    let mut number = 0;
    for role in roles.iter().filter(|role| bound(role)) {
        for at in 0..rules(role).len() {
            let mut less = role.clone();
            let mut kept = rules(role);
            let taken = grants(&kept.remove(at));
            // What another account may is no replacement.
            let others = roles
                .iter()
                .filter(|role| bound(role))
                .filter(|other| other.metadata.name != role.metadata.name)
                .filter(|other| controllers.len() == 1 || is_granted_with(other, role));
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

/// Whether an account that has `role` has the other one as well.
fn is_granted_with(other: &DynamicObject, role: &DynamicObject) -> bool {
    let name = |role: &DynamicObject| role.metadata.name.clone().unwrap_or_default();
    let is_apart = |role| name(role).contains(APART);
    let is_shared = ["belayer-core", "belayer-gate"].contains(&&*name(other));
    is_shared || is_apart(other) == is_apart(role)
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
