//! `belayer check`: the policies that deny what RBAC cannot, and what they deny.

use std::sync::Arc;

use belayer_sandbox::{Actor, ApiError, Gvr, Patch, Subresource};
use rstest::rstest;
use serde_json::{Value, json};

use crate::check::{RBAC, admission, manifests};
use crate::world::{Answer, World, gates};

const LIMITS: &[&str] = &[
    "namespace-guard-policy",
    "pod-write-policy",
    "owner-write-policy",
    "pod-delete-policy",
    "pod-recreation-records-policy",
];

async fn installed() -> World {
    let world = World::new().await;
    manifests(&world, RBAC);
    manifests(&world, LIMITS);
    world
}

async fn check_recreation(world: &World) -> Answer {
    let account = "--service-account=belayer-system/belayer-pod-recreation";
    let lease = "--leader-elect-resource-name=belayer-pod-recreation";
    let arguments = [
        "check",
        "--controllers=pod-recreation",
        account,
        lease,
        "-ojson",
    ];
    world.run(&arguments).await
}

fn patch(
    world: &World,
    gvr: &Gvr,
    namespace: Option<&str>,
    name: &str,
    change: Value,
) -> Result<Arc<Value>, ApiError> {
    let (actor, change) = (Actor::new("test"), Patch::Merge(change));
    let (cluster, options) = (world.sandbox.cluster(), Default::default());
    cluster.patch(
        &actor,
        gvr,
        namespace,
        name,
        change,
        Subresource::None,
        &options,
    )
}

/// The level of each finding about a policy that limits writes, with its text.
fn found(answer: &Answer) -> Vec<(String, String)> {
    let report = answer.json();
    let parts = report["parts"].as_array().unwrap();
    let findings = parts
        .iter()
        .flat_map(|part| part["findings"].as_array().unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let about = findings.filter(|one| {
        let what = one["what"].as_str().unwrap();
        one["about"] == "policy" && !what.contains("-hold")
    });
    about
        .map(|one| (text(&one["level"]), text(&one["what"])))
        .collect()
}

/// `belayer drain` removes the binding of the guard, and only `kubectl apply` creates it again.
#[rstest]
#[case::guard("belayer-namespace-guard", "note")]
#[case::deletes("belayer-pod-deletes", "missing")]
#[case::records("belayer-pod-recreation-records", "missing")]
#[case::writes("belayer-pod-writes", "missing")]
#[tokio::test(flavor = "multi_thread")]
async fn gate_each_policy_that_limits_writes_must_be_bound(
    #[case] name: &str,
    #[case] level: &str,
) {
    let world = installed().await;
    let answer = check_recreation(&world).await;
    assert_eq!(found(&answer), [], "{}", answer.err);
    let (cluster, actor) = (world.sandbox.cluster(), Actor::new("test"));
    let delete = |plural| {
        let deleted = cluster.delete(&actor, &admission(plural), None, name, &Default::default());
        deleted.unwrap();
    };
    delete("validatingadmissionpolicybindings");
    let answer = check_recreation(&world).await;
    let what = format!("policy {name} has no binding of the same name");
    assert_eq!(found(&answer), [(level.to_owned(), what)]);
    assert_eq!(answer.code, if level == "note" { 0 } else { 3 });
    delete("validatingadmissionpolicies");
    let answer = check_recreation(&world).await;
    let what = format!("policy {name} does not exist");
    assert_eq!(found(&answer), [("note".to_owned(), what)]);
    assert_eq!(answer.code, 0, "{}", answer.out);
}

/// A policy of another installation limits no account of this one.
#[tokio::test(flavor = "multi_thread")]
async fn gate_policies_of_another_namespace_are_reported() {
    let world = installed().await;
    let account = "--service-account=ops/belayer-pod-recreation";
    let arguments = [
        "check",
        "--controllers=pod-recreation",
        account,
        "--own-namespace=ops",
        "-ojson",
    ];
    let answer = world.run(&arguments).await;
    let found: Vec<String> = found(&answer).into_iter().map(|(_, what)| what).collect();
    let user = "system:serviceaccount:ops:belayer-pod-recreation";
    for name in ["pod-deletes", "pod-recreation-records", "pod-writes"] {
        let what = format!("policy belayer-{name} does not name {user}");
        assert!(found.contains(&what), "{what}: {found:?}");
    }
    let guard = "policy belayer-namespace-guard does not name ops".to_owned();
    assert!(found.contains(&guard), "{found:?}");
}

/// The policy of the manifests allows to delete failed pods only.
#[tokio::test(flavor = "multi_thread")]
async fn cleanup_that_the_policy_denies_is_reported() {
    let world = installed().await;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("belayer.yaml");
    let text = "apiVersion: config.belayer.dev/v1alpha1\nfeatureGates: {PodCleanup: true}\npodFinalizer:\n  profiles:\n  - \
                builtIn: argo\n    cleanup: argo\n";
    std::fs::write(&config, text).unwrap();
    let config = format!("--config={}", config.display());
    let arguments = [
        "check",
        "--controllers=pod-finalizer",
        "--service-account",
        &config,
        "-ojson",
    ];
    let answer = world.run(&arguments).await;
    let denies = "policy belayer-pod-deletes denies the deletion of pods that succeeded";
    let expected = [("missing".to_owned(), denies.to_owned())];
    assert_eq!(found(&answer), expected, "{}", answer.err);
    let policies = admission("validatingadmissionpolicies");
    let change = json!({ "spec": { "variables": [{ "name": "ended", "expression": "['Failed', 'Succeeded']" }] } });
    patch(&world, &policies, None, "belayer-pod-deletes", change).unwrap();
    let answer = world.run(&arguments).await;
    assert_eq!(found(&answer), [], "{}", answer.err);
}

/// The policies of the manifests allow the removal of Belayer's finalizers only.
#[rstest]
#[case::of_pvcs(
    "pvc-protection",
    json!({ "pvcProtection": { "finalizer": "kubernetes.io/pvc-protection" } }),
    "policy belayer-owner-writes denies the removal of kubernetes.io/pvc-protection"
)]
#[case::of_pods(
    "pod-finalizer",
    json!({ "podFinalizer": { "profiles": [{ "builtIn": "argo", "adopt": ["workflows.argoproj.io/status"] }] } }),
    "policy belayer-pod-writes denies the removal of workflows.argoproj.io/status"
)]
#[tokio::test(flavor = "multi_thread")]
async fn removals_that_the_policy_denies_are_reported(
    #[case] controller: &str,
    #[case] mut settings: Value,
    #[case] denies: &str,
) {
    let world = installed().await;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("belayer.yaml");
    settings["apiVersion"] = json!("config.belayer.dev/v1alpha1");
    std::fs::write(&config, settings.to_string()).unwrap();
    let config = format!("--config={}", config.display());
    let controllers = format!("--controllers={controller}");
    let arguments = [
        "check",
        &controllers,
        "--service-account",
        &config,
        "-ojson",
    ];
    let answer = world.run(&arguments).await;
    let missing = ("missing".to_owned(), denies.to_owned());
    assert!(
        found(&answer).contains(&missing),
        "{} {}",
        answer.out,
        answer.err
    );
}

/// The policy of the manifests is for pods of Argo Workflows, and no role of the manifests contains other owners.
#[tokio::test(flavor = "multi_thread")]
async fn profiles_of_other_owners_have_later_holds_and_need_another_role() {
    let world = installed().await;
    manifests(&world, &["pod-hold-policy"]);
    world.gate("belayer-system", &json!({ "mode": "normal", "hold": "on" }));
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("belayer.yaml");
    let text = json!({ "apiVersion": "config.belayer.dev/v1alpha1", "podFinalizer": { "profiles": [
        { "builtIn": "argo" },
        {
            "name": "tekton", "selector": { "matchLabels": { "app": "batch" } },
            "owner": { "group": "tekton.dev", "version": "v1", "kind": "TaskRun", "resource": "taskruns" },
            "consumedWhen": "has(owner.status.completionTime)",
        },
    ] } });
    std::fs::write(&config, text.to_string()).unwrap();
    let config = format!("--config={}", config.display());
    let arguments = [
        "check",
        "--controllers=pod-finalizer",
        "--service-account",
        &config,
    ];
    let answer = world.run(&arguments).await;
    for says in [
        "  note     policy belayer-pod-hold does not refer to label app\n",
        "  missing  get, list, watch taskruns.tekton.dev\n",
        "docs/src/tasks/other-owners.md",
    ] {
        assert!(answer.out.contains(says), "{says}: {}", answer.out);
    }
    assert_eq!(
        answer.out.matches("  missing  ").count(),
        1,
        "{}",
        answer.out
    );
}

/// The policy of the manifests selects what one of the profiles selects: a label of the other one would leave pods out.
#[rstest]
#[case::twice_built_in(json!([
    { "builtIn": "argo", "name": "slow", "selector": { "matchLabels": { "tier": "slow" } }, "releaseAfter": "1h" },
    { "builtIn": "argo" },
]))]
#[case::the_same_owner(json!([
    { "builtIn": "argo" },
    {
        "name": "legacy", "selector": { "matchLabels": { "team": "x" } },
        "owner": { "group": "argoproj.io", "version": "v1alpha1", "kind": "Workflow", "resource": "workflows" },
        "consumed": { "labels": { "read": "true" } },
    },
]))]
#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_one_of_several_profiles_names_is_not_required(#[case] profiles: Value) {
    let world = installed().await;
    manifests(&world, &["pod-hold-policy"]);
    world.gate("belayer-system", &json!({ "mode": "normal", "hold": "on" }));
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("belayer.yaml");
    let text = json!({
        "apiVersion": "config.belayer.dev/v1alpha1", "podFinalizer": { "profiles": profiles },
    });
    std::fs::write(&config, text.to_string()).unwrap();
    let config = format!("--config={}", config.display());
    let answer = world
        .run(&[
            "check",
            "--controllers=pod-finalizer",
            "--service-account",
            &config,
        ])
        .await;
    assert!(!answer.out.contains("missing"), "{}", answer.out);
    assert!(!answer.out.contains("does not refer to"), "{}", answer.out);
}

fn gate(data: &Value) -> Value {
    let name = json!({ "name": "belayer-gate" });
    let mut gate =
        json!({ "apiVersion": "belayer.dev/v1alpha1", "kind": "Gate", "metadata": name });
    if !data.is_null() {
        gate["data"] = data.clone();
    }
    gate
}

#[rstest]
#[case::mistyped("Draining", false)]
#[case::draining("draining", true)]
#[tokio::test(flavor = "multi_thread")]
async fn gate_a_mistyped_mode_is_refused_at_creation(#[case] mode: &str, #[case] accepted: bool) {
    let world = World::new().await;
    manifests(&world, &["namespace"]);
    world.gate_kind();
    let (actor, own) = (Actor::new("test"), Some("belayer-system"));
    let (cluster, options) = (world.sandbox.cluster(), Default::default());
    let gate = gate(&json!({ "mode": mode }));
    let created = cluster.create(&actor, &gates(), own, gate, &options);
    assert_eq!(created.is_ok(), accepted, "{created:?}");
}

/// A mistyped mode would count as normal. A gate that has one, of a time without this rule, stays writable.
#[rstest]
#[case::mistyped(json!({}), json!({ "mode": "drainning" }), false)]
#[case::draining(json!({ "mode": "normal" }), json!({ "mode": "draining" }), true)]
#[case::normal(json!({ "mode": "x" }), json!({ "mode": "normal" }), true)]
#[case::another_key(json!({ "mode": "x" }), json!({ "hold": "on" }), true)]
#[case::another_mode(json!({ "mode": "x" }), json!({ "mode": "y" }), false)]
#[case::removed(json!({ "mode": "x" }), json!({ "mode": null }), true)]
#[case::first_keys(Value::Null, json!({ "mode": "x" }), false)]
#[case::first_keys_with_a_mode(Value::Null, json!({ "mode": "draining" }), true)]
#[tokio::test(flavor = "multi_thread")]
async fn gate_a_mistyped_mode_is_refused(
    #[case] before: Value,
    #[case] change: Value,
    #[case] accepted: bool,
) {
    let world = World::new().await;
    manifests(&world, &["namespace"]);
    let kinds = Gvr::CUSTOMRESOURCEDEFINITIONS;
    let kind: Value = serde_saphyr::from_str(belayer_holds::gate::CRD).unwrap();
    let mut without_rule = kind.clone();
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/data";
    let schema = without_rule.pointer_mut(schema).unwrap();
    schema["x-kubernetes-validations"] = json!([]);
    world.create(&kinds, None, without_rule);
    world.create(&gates(), Some("belayer-system"), gate(&before));
    let ruled = json!({ "spec": kind["spec"] });
    patch(&world, &kinds, None, "gates.belayer.dev", ruled).unwrap();
    let (own, change) = (Some("belayer-system"), json!({ "data": change }));
    let patched = patch(&world, &gates(), own, "belayer-gate", change);
    assert_eq!(patched.is_ok(), accepted, "{patched:?}");
    if let Err(why) = patched {
        let why = format!("{why:?}");
        assert!(why.contains("mode must be normal or draining"), "{why}");
    }
}
