//! The gate opens once the caches are synced, closes above the backlog limit, and opens again.

use std::sync::Arc;
use std::time::Duration;

use belayer::operator::Components;
use belayer_core::executor::Writes;
use belayer_core::logged::Log;
use belayer_holds::names::WORKFLOW_HOLD;
use belayer_pod_finalizer::profile::config::Settings;
use belayer_pvc_protection::Mode;
use belayer_sandbox::{
    Answer, Fault, FaultHandle, Gvr, ListOptions, Match, Sandbox, Subresource, Verb,
};
use belayer_workflow_finalizer::config::WorkflowFinalizerConfig;
use belayer_workload::WORKFLOWS;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::{BELAYER, NAMESPACE, World, eventually, gates, let_pass, within};

/// The gate of the manifests, with these keys changed.
pub(super) fn with_gate(world: &World, keys: &Value) {
    world.create_namespace("belayer-system");
    let mut data = json!({ "hold": "on", "mode": "normal" });
    for (key, word) in keys.as_object().unwrap() {
        data[key] = word.clone();
    }
    let gate = json!({
        "apiVersion": "belayer.dev/v1alpha1", "kind": "Gate", "metadata": { "name": "belayer-gate" }, "data": data,
    });
    world.create(&gates(), Some("belayer-system"), gate);
}

/// The value of a key of the gate; `None` also before a leader has created it.
fn said(world: &World, key: &str) -> Option<String> {
    let own = Some("belayer-system");
    let gate = world.cluster().get(&gates(), own, "belayer-gate").ok()?;
    gate["data"][key].as_str().map(str::to_owned)
}

fn closed(world: &World) -> bool {
    said(world, "closed.ci").is_some()
}

/// Held pods that ended and are being deleted, and whose result is not read.
fn backlog(world: &World, uid: &str, names: impl Iterator<Item = String>) {
    for name in names {
        world.held_pod(&name, "build", uid);
        world.end(&name);
        world.delete(&Gvr::PODS, Some(NAMESPACE), &name);
    }
}

pub(super) fn threshold(backlog_threshold: usize) -> Settings {
    Settings {
        backlog_threshold,
        ..Settings::default()
    }
}

/// Another tenant's workflow with a pod that waits for a hold, as [`World::pod`] makes it.
pub(super) fn of_another_tenant(world: &World, pod: &str) {
    let workflow = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
        "metadata": { "namespace": "other", "name": pod }, "spec": {},
    });
    let created = world.create(&WORKFLOWS, Some("other"), workflow);
    let uid = created["metadata"]["uid"].as_str().unwrap();
    let mut object = crate::world::pod(pod, pod, uid);
    object["metadata"]["namespace"] = json!("other");
    world.create(&Gvr::PODS, Some("other"), object);
}

pub(super) fn is_held_elsewhere(world: &World, pod: &str) -> bool {
    let found = world.cluster().get(&Gvr::PODS, Some("other"), pod);
    found.is_ok_and(|pod| {
        pod["metadata"]["finalizers"]
            .to_string()
            .contains("belayer")
    })
}

/// A drain that removed finalizers would otherwise have to remove them again.
#[tokio::test(start_paused = true)]
async fn no_hold_is_added_as_soon_as_a_drain_has_begun() {
    let world = World::new();
    with_gate(&world, &json!({}));
    let uid = world.workflow("build");
    let _belayer = world.run();
    let_pass(Duration::from_secs(10)).await;
    let draining = json!({ "data": { "mode": "draining" } });
    world.patch_in(
        &gates(),
        Some("belayer-system"),
        "belayer-gate",
        draining,
        Subresource::None,
    );
    let_pass(Duration::from_millis(50)).await;
    world.pod("late", "build", &uid);
    let_pass(Duration::from_secs(10)).await;
    assert!(!world.is_held("late"));
}

/// T4: only the namespace with the waiting deletions is closed, and no release is stopped.
#[tokio::test(start_paused = true)]
async fn t4_a_closed_namespace_stops_only_its_own_holds() {
    let world = World::new();
    world.create_namespace("other");
    with_gate(&world, &json!({}));
    let uid = world.workflow("build");
    backlog(&world, &uid, (0..12).map(|n| format!("a-{n}")));
    let _belayer = world.run_with(threshold(10), Writes::Sent);
    eventually("the namespace is closed", || closed(&world)).await;
    assert_eq!(said(&world, "closed.ci").as_deref(), Some("backlog"));
    assert_eq!(
        said(&world, "hold").as_deref(),
        Some("on"),
        "for all others"
    );
    world.pod("late", "build", &uid);
    of_another_tenant(&world, "theirs");
    eventually("another tenant's pod is held", || {
        is_held_elsewhere(&world, "theirs")
    })
    .await;
    let_pass(Duration::from_secs(60)).await;
    assert!(!world.is_held("late"), "its namespace is closed");
    eventually("it is reported", || {
        world.events("BacklogNamespaceClosed") == 1
    })
    .await;
    for n in 0..7 {
        world.consume(&format!("a-{n}"));
    }
    eventually("releases go on", || world.held_pods() == 6).await;
    let_pass(Duration::from_secs(5)).await;
    assert!(
        !world.is_held("late"),
        "half of the threshold is not below half"
    );
    world.consume("a-7");
    eventually("it opens and the pod is held", || world.is_held("late")).await;
    eventually("the policy's key is gone", || !closed(&world)).await;
}

/// The answer to the write that closes the gate is lost, and the backlog is over before the write is tried again. The server may also
/// handle that request so late that Belayer has read since that the gate is open.
#[rstest]
#[case::at_once(Fault::lose_answer)]
#[case::late(|fault: Fault| fault.handle_late(Duration::from_secs(30)))]
#[tokio::test(start_paused = true)]
async fn t4_a_gate_that_was_closed_without_an_answer_opens_again(#[case] lose: fn(Fault) -> Fault) {
    let world = World::new();
    with_gate(&world, &json!({}));
    let uid = world.workflow("build");
    let _belayer = world.run_with(threshold(10), Writes::Sent);
    let_pass(Duration::from_secs(5)).await;
    let writes = Match::verb(Verb::Patch).resource("gates").client(BELAYER);
    let lost = Fault::on(writes).times(1);
    let lost = world.sandbox.faults().inject(lose(lost));
    backlog(&world, &uid, (0..12).map(|n| format!("a-{n}")));
    eventually("it is lost", || lost.hits() == 1).await;
    for n in 0..12 {
        world.consume(&format!("a-{n}"));
    }
    eventually("all are released", || world.held_pods() == 0).await;
    within(Duration::from_secs(60), "the namespace is closed", || {
        closed(&world)
    })
    .await;
    within(Duration::from_secs(90), "the policy's key is gone", || {
        !closed(&world)
    })
    .await;
}

/// A5: ended pods that are not being deleted are no backlog, whatever their number.
#[tokio::test(start_paused = true)]
async fn a5_ended_pods_that_are_not_deleted_close_nothing() {
    let world = World::new();
    with_gate(&world, &json!({}));
    let uid = world.workflow("build");
    for n in 0..30 {
        world.held_pod(&format!("a-{n}"), "build", &uid);
        world.end(&format!("a-{n}"));
    }
    let _belayer = world.run_with(threshold(10), Writes::Sent);
    world.pod("late", "build", &uid);
    eventually("the pod is held", || world.is_held("late")).await;
    let_pass(Duration::from_secs(30)).await;
    assert!(!closed(&world));
    assert_eq!(said(&world, "hold").as_deref(), Some("on"));
}

/// T4: the gate of the cluster closes by the sum of shares; closed namespaces, whether closed by the backlog or by
/// an admin, survive a restart and a drain.
#[tokio::test(start_paused = true)]
async fn t4_closed_namespaces_survive_a_restart_and_a_drain() {
    let world = World::new();
    world.create_namespace("other");
    with_gate(
        &world,
        &json!({ "closed.gone": "backlog", "closed.other": "maintenance" }),
    );
    let uid = world.workflow("build");
    backlog(&world, &uid, (0..12).map(|n| format!("a-{n}")));
    let belayer = world.run_with(threshold(10), Writes::Sent);
    eventually("the namespace is closed", || closed(&world)).await;
    eventually("what has no backlog opens", || {
        said(&world, "closed.gone").is_none()
    })
    .await;
    for n in 0..6 {
        world.consume(&format!("a-{n}"));
    }
    eventually("6 are left", || world.held_pods() == 6).await;
    belayer.stop().await;
    let draining = json!({ "data": { "mode": "draining", "hold": "draining" } });
    let gate = |change: Value| {
        let own = Some("belayer-system");
        world.patch_in(&gates(), own, "belayer-gate", change, Subresource::None);
    };
    gate(draining);
    let belayer = world.run_with(threshold(10), Writes::Sent);
    world.pod("late", "build", &uid);
    let_pass(Duration::from_secs(30)).await;
    assert!(closed(&world), "a drain leaves it");
    gate(json!({ "data": { "mode": "normal", "hold": "on" } }));
    let_pass(Duration::from_secs(90)).await;
    assert!(closed(&world), "6 are not below half of 10");
    assert!(!world.is_held("late"));
    belayer.stop().await;
    let _belayer = world.run_with(threshold(10), Writes::Sent);
    let_pass(Duration::from_secs(90)).await;
    assert!(
        closed(&world) && !world.is_held("late"),
        "a restart does not change it"
    );
    for n in 6..9 {
        world.consume(&format!("a-{n}"));
    }
    eventually("it opens", || !closed(&world) && world.is_held("late")).await;
    let admins = said(&world, "closed.other");
    assert_eq!(admins.as_deref(), Some("maintenance"), "an admin's stays");
}

/// The messages of the Events on the gate with this reason.
pub(super) fn reports(world: &World, reason: &str) -> Vec<String> {
    let events = world
        .cluster()
        .list(&Gvr::EVENTS, None, &ListOptions::default());
    let events = events.unwrap().items;
    let about = events.iter().filter(|event| event["reason"] == reason);
    about
        .map(|event| event["message"].as_str().unwrap().to_owned())
        .collect()
}

/// T4: a new leader that finds the gate closed reports its own numbers: fewer pods than closed the gate.
#[tokio::test(start_paused = true)]
async fn t4_a_gate_that_is_closed_already_is_reported_with_true_numbers() {
    let world = World::new();
    with_gate(
        &world,
        &json!({ "closed.ci": "backlog", "backlog": "closed", "hold": "off" }),
    );
    let uid = world.workflow("build");
    backlog(&world, &uid, (0..7).map(|n| format!("a-{n}")));
    let _belayer = world.run_with(threshold(10), Writes::Sent);
    eventually("both are reported", || {
        !reports(&world, "BacklogGateClosed").is_empty()
            && !reports(&world, "BacklogNamespaceClosed").is_empty()
    })
    .await;
    let all = reports(&world, "BacklogGateClosed").remove(0);
    let one = reports(&world, "BacklogNamespaceClosed").remove(0);
    for says in [&all, &one] {
        let numbers = "above 10 held pods that are being deleted";
        assert!(
            says.contains(numbers) && says.contains("fewer than 5"),
            "{says}"
        );
    }
    assert!(all.contains("7 count now"), "{all}");
    assert!(one.contains("7 are there now"), "{one}");
    assert!(!one.contains("not affected"), "{one}");
}

/// T4: if another client overwrites the gate while a namespace is closed, the policy sees it open for a short
/// time only.
#[tokio::test(start_paused = true)]
async fn t4_a_removed_key_is_restored() {
    let world = World::new();
    with_gate(&world, &json!({}));
    let uid = world.workflow("build");
    backlog(&world, &uid, (0..12).map(|n| format!("a-{n}")));
    let _belayer = world.run_with(threshold(10), Writes::Sent);
    eventually("the namespace is closed", || closed(&world)).await;
    let own = Some("belayer-system");
    let away = json!({ "data": { "closed.ci": null } });
    world.patch_in(&gates(), own, "belayer-gate", away, Subresource::None);
    within(Duration::from_secs(90), "it is closed again", || {
        closed(&world)
    })
    .await;
}

/// Belayer with all controllers that are on by default, on a server without the policies that limit what it writes.
fn run_all(world: &World, pvcs: Mode) -> crate::world::Running {
    let policies = Match::any().group("admissionregistration.k8s.io");
    let not_served = Fault::on(policies.client(BELAYER)).answer(Answer::page_not_found());
    world.sandbox.faults().inject(not_served);
    let pvcs = belayer_pvc_protection::Settings {
        mode: pvcs,
        ..Default::default()
    };
    let components = Components::default()
        .with(Settings::default())
        .with(belayer_workflow_finalizer::Settings::default())
        .with(pvcs);
    world.run_components(components)
}

/// Of a kind that Belayer does not see, a policy would hold objects that nothing releases. An open switch stays open: the
/// leader knows what it held.
#[rstest]
#[case("persistentvolumeclaims", "holdClaims")]
#[case("workflows", "holdWorkflows")]
#[tokio::test(start_paused = true)]
async fn gate_a_switch_opens_once_what_its_policy_holds_is_seen(
    #[case] plural: &'static str,
    #[case] key: &str,
) {
    let world = World::new();
    world.create_namespace("belayer-system");
    let down = world.hide(plural);
    let _belayer = run_all(&world, Mode::Own);
    eventually("the others are on", || {
        let keys = ["hold", "holdClaims", "holdWorkflows"];
        keys.iter()
            .all(|other| *other == key || said(&world, other).as_deref() == Some("on"))
    })
    .await;
    let_pass(Duration::from_secs(60)).await;
    assert_eq!(said(&world, key), None);
    down.iter().for_each(FaultHandle::remove);
    eventually("it is on", || said(&world, key).as_deref() == Some("on")).await;
    world.hide(plural);
    let_pass(Duration::from_secs(300)).await;
    assert_eq!(said(&world, key).as_deref(), Some("on"));
}

/// Nothing of a kind that the server does not serve can be held.
#[tokio::test(start_paused = true)]
async fn gate_a_switch_does_not_wait_for_a_kind_that_is_not_served() {
    let world = World::new();
    world.create_namespace("belayer-system");
    let crd = "workflows.argoproj.io";
    world.delete(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, crd);
    let _belayer = run_all(&world, Mode::Own);
    within(Duration::from_secs(15), "it is on", || {
        said(&world, "holdWorkflows").as_deref() == Some("on")
    })
    .await;
}

/// Also with `--on-disable=keep`, where the component is not switched off: the policy would go on adding a finalizer that
/// the configuration does not name.
#[rstest]
#[case::that_only_reports(Mode::Advise)]
#[case::whose_finalizer_the_api_server_adds(Mode::InPlace)]
#[tokio::test(start_paused = true)]
async fn gate_a_controller_without_a_policy_has_its_switch_turned_off(#[case] mode: Mode) {
    let world = World::new();
    with_gate(&world, &json!({ "holdClaims": "on" }));
    let belayer = run_all(&world, mode);
    eventually("it is off", || {
        said(&world, "holdClaims").as_deref() == Some("switched-off")
    })
    .await;
    assert_eq!(said(&world, "hold").as_deref(), Some("on"));
    belayer.stop().await;
    let _belayer = run_all(&world, Mode::Own);
    eventually("it is on again", || {
        said(&world, "holdClaims").as_deref() == Some("on")
    })
    .await;
}

/// The policy is for workflows of Argo Workflows, which no rule of this configuration would release.
#[tokio::test(start_paused = true)]
async fn gate_the_policy_of_owners_that_are_not_configured_is_switched_off() {
    let world = World::new();
    with_gate(&world, &json!({ "holdWorkflows": "on" }));
    let owner = json!({ "group": "tekton.dev", "version": "v1", "kind": "TaskRun", "resource": "taskruns" });
    let owners: WorkflowFinalizerConfig =
        serde_json::from_value(json!({ "owners": [{ "owner": owner }] })).unwrap();
    let _belayer = world.run_with_owners(owners.try_into().unwrap());
    eventually("it is off", || {
        said(&world, "holdWorkflows").as_deref() == Some("switched-off")
    })
    .await;
}

fn accounts() -> Gvr {
    Gvr::new("", "v1", "serviceaccounts")
}

/// Creates the account of Belayer, which the API server then sees as the client, and returns its UID.
fn account(world: &World) -> (Value, FaultHandle) {
    let own = "belayer-system";
    let account = json!({ "metadata": { "namespace": own, "name": "belayer" } });
    let uid = world.create(&accounts(), Some(own), account)["metadata"]["uid"].clone();
    let user = json!({ "username": "system:serviceaccount:belayer-system:belayer", "uid": uid });
    let review = json!({ "status": { "userInfo": user } }).to_string();
    let reviews = Match::verb(Verb::Create).resource("selfsubjectreviews");
    let answer = Fault::on(reviews).answer(Answer::raw(201, "application/json", review));
    (uid, world.sandbox.faults().inject(answer))
}

/// The garbage collector deletes a gate whose owner is gone, and the next one must not have the same owner.
#[tokio::test(start_paused = true)]
async fn gate_its_owner_is_the_account_that_exists_now() {
    const OWN: &str = "belayer-system";
    let world = World::new();
    world.create_namespace(OWN);
    let is_owned_by = |uid: &Value| {
        let gate = world.cluster().get(&gates(), Some(OWN), "belayer-gate");
        gate.is_ok_and(|gate| {
            let owners = gate["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.len() == 1 && owners[0]["uid"] == *uid)
        })
    };
    let (first, fault) = account(&world);
    let _belayer = run_all(&world, Mode::Own);
    eventually("it has its owner", || is_owned_by(&first)).await;
    fault.remove();
    world.delete(&accounts(), Some(OWN), "belayer");
    let (second, _fault) = account(&world);
    eventually("it has its new owner", || is_owned_by(&second)).await;
    let_pass(Duration::from_secs(300)).await;
    assert!(is_owned_by(&second));
}

/// `helm uninstall` drains and deletes the account. The garbage collector has not deleted the gate yet when the next
/// installation begins.
#[rstest]
#[case::with_the_same_account("belayer")]
#[case::with_an_account_that_was_not_installed_before("belayer-pod-recreation")]
#[tokio::test(start_paused = true)]
async fn gate_a_new_installation_does_not_inherit_a_drain(
    #[case] before: &str,
    #[values(false, true)] is_standby: bool,
) {
    const OWN: &str = "belayer-system";
    // Without garbage collector.
    let world = World {
        sandbox: Sandbox::builder().seed(7).build(),
    };
    for crd in [
        belayer_workload::workflow_crd(),
        serde_saphyr::from_str(belayer_holds::gate::CRD).unwrap(),
    ] {
        world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, crd);
    }
    world.create_namespace(NAMESPACE);
    world.create_namespace(OWN);
    let owner =
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "name": before, "uid": "gone" });
    let gate = json!({
        "apiVersion": "belayer.dev/v1alpha1", "kind": "Gate",
        "metadata": { "name": "belayer-gate", "ownerReferences": [owner] },
        "data": { "mode": "draining", "drained": "true", "hold": "draining" },
    });
    world.create(&gates(), Some(OWN), gate);
    let (uid, _fault) = account(&world);
    let workflow = world.workflow("build");
    let (guard, _belayer) = world.standby();
    let lead = || guard.extend(Instant::now() + Duration::from_secs(600));
    if !is_standby {
        lead();
    }
    world.pod("early", "build", &workflow);
    let_pass(Duration::from_secs(30)).await;
    assert!(!world.is_held("early"), "the gate is still there");
    world.delete(&gates(), Some(OWN), "belayer-gate");
    let_pass(Duration::from_secs(5)).await;
    lead();
    eventually("it holds", || world.is_held("early")).await;
    let gate = world
        .cluster()
        .get(&gates(), Some(OWN), "belayer-gate")
        .unwrap();
    let owners = gate["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!((owners.len(), &owners[0]["uid"]), (1, &uid));
    assert_eq!(said(&world, "mode"), None);
    assert_eq!(said(&world, "drained"), None);
}

/// The admission plugin OwnerReferencesPermissionEnforcement, which OpenShift enables, refuses a change of the owners: Belayer
/// may not delete the gate.
#[tokio::test(start_paused = true)]
async fn gate_a_switch_opens_also_if_the_gate_can_get_no_owner() {
    let log = Log::kept_from(tracing::Level::WARN);
    let world = World::new();
    with_gate(&world, &json!({}));
    let (_, _fault) = account(&world);
    let admission = |resource: &str, object: Value| {
        let kind = Gvr::new("admissionregistration.k8s.io", "v1", resource);
        world.create(&kind, None, object);
    };
    let gates = json!({
        "apiGroups": ["belayer.dev"], "apiVersions": ["*"], "resources": ["gates"], "operations": ["UPDATE"],
    });
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": { "name": "owners" },
        "spec": {
            "matchConstraints": { "resourceRules": [gates] },
            "validations": [{
                "expression": "!has(object.metadata.ownerReferences)", "reason": "Forbidden",
                "message": "cannot set an ownerRef on a resource you can't delete",
            }],
        },
    });
    admission("validatingadmissionpolicies", policy);
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": "owners" }, "spec": { "policyName": "owners", "validationActions": ["Deny"] },
    });
    admission("validatingadmissionpolicybindings", binding);
    let _belayer = run_all(&world, Mode::Own);
    eventually("it is on", || {
        said(&world, "holdClaims").as_deref() == Some("on")
    })
    .await;
    let_pass(Duration::from_secs(600)).await;
    let lines = log.lines("cannot make this ServiceAccount an owner of the gate");
    assert_eq!(lines.len(), 1, "{}", log.text());
    assert!(
        lines[0].contains("a resource you can't delete"),
        "{lines:?}"
    );
}

/// Until the gate can be written, the policy adds finalizers after the process has found none.
#[tokio::test(start_paused = true)]
async fn gate_what_the_policy_of_a_switched_off_controller_adds_late_is_released() {
    let world = World::new();
    with_gate(&world, &json!({ "holdWorkflows": "on" }));
    let writes = Match::verb(Verb::Patch).resource("gates").client(BELAYER);
    let faults = world.sandbox.faults();
    let failing = faults.inject(Fault::on(writes).answer(Answer::internal_error()));
    let mut components = Components::default().with(Settings::default());
    let workflows = belayer_workflow_finalizer::Settings::default();
    components.switched_off.push(Arc::new(workflows));
    let _belayer = world.run_components(components);
    let_pass(Duration::from_secs(10)).await;
    assert!(failing.hits() > 0);
    let held = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "spec": {},
        "metadata": { "namespace": NAMESPACE, "name": "build", "finalizers": [WORKFLOW_HOLD] },
    });
    world.create(&WORKFLOWS, Some(NAMESPACE), held);
    failing.remove();
    eventually("it is released", || {
        let found = world.cluster().get(&WORKFLOWS, Some(NAMESPACE), "build");
        found.unwrap()["metadata"]["finalizers"].is_null()
    })
    .await;
    eventually("the policy is off", || {
        said(&world, "holdWorkflows").as_deref() == Some("switched-off")
    })
    .await;
}

/// A 401 says nothing about permissions, and nothing about finalizers that are left.
#[tokio::test(start_paused = true)]
async fn refused_credentials_are_not_reported_as_a_missing_permission() {
    let log = Log::kept_from(tracing::Level::WARN);
    let world = World::new();
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 401, "reason": "Unauthorized",
        "message": "Unauthorized",
    });
    let lists = Match::verb(Verb::List)
        .resource("workflows")
        .client(BELAYER);
    let refused = Answer::raw(401, "application/json", status.to_string());
    let refused = world
        .sandbox
        .faults()
        .inject(Fault::on(lists).answer(refused));
    let mut components = Components::default().with(Settings::default());
    let workflows = belayer_workflow_finalizer::Settings::default();
    components.switched_off.push(Arc::new(workflows));
    let _belayer = world.run_components(components);
    eventually("it is reported", || {
        let says = "does not accept Belayer's credentials; trying again";
        !log.lines(says).is_empty()
    })
    .await;
    assert!(log.lines("RBAC").is_empty(), "{}", log.text());
    // New credentials may be read at any time.
    let held = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "spec": {},
        "metadata": { "namespace": NAMESPACE, "name": "build", "finalizers": [WORKFLOW_HOLD] },
    });
    world.create(&WORKFLOWS, Some(NAMESPACE), held);
    refused.remove();
    within(Duration::from_secs(60), "it is released", || {
        let found = world.cluster().get(&WORKFLOWS, Some(NAMESPACE), "build");
        found.unwrap()["metadata"]["finalizers"].is_null()
    })
    .await;
}

/// A cluster without Belayer has no gate, and a dry run would not update one.
#[rstest]
#[case::dry_run(Writes::DryRun, false)]
#[case::sent(Writes::Sent, true)]
#[tokio::test(start_paused = true)]
async fn a_dry_run_reports_no_gate_that_it_could_not_update(
    #[case] writes: Writes,
    #[case] is_reported: bool,
) {
    let log = Log::kept_from(tracing::Level::INFO);
    let world = World::new();
    let gets = Match::verb(Verb::Get).resource("gates").client(BELAYER);
    let absent = Answer::raw(404, "text/plain", "404 page not found".to_owned());
    let faults = world.sandbox.faults();
    let _absent = faults.inject(Fault::on(gets).answer(absent));
    let _belayer = world.run_with(Settings::default(), writes);
    let_pass(Duration::from_secs(30)).await;
    let lines = log.lines("could not update the gate");
    assert_eq!(!lines.is_empty(), is_reported, "{}", log.text());
}
