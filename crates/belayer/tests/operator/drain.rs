//! `belayer drain`, in all tests but one without running controllers, on the embedded API server under paused time: what
//! it does in which order, what it reports, and which holds stay.

mod reported;
mod requests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use belayer_core::client;
use belayer_core::executor::{Bounds, Executor, Writes};
use belayer_core::object::Resource;
use belayer_core::slim::{Keep, ObjectMeta};
use belayer_drain::decide::Purpose;
use belayer_drain::evidence::Order;
use belayer_drain::passes::{Outcome, SETTLE};
use belayer_drain::progress::{Progress, Silent};
use belayer_drain::report::{GateState, Reason, Report};
use belayer_drain::run::{Drain, DrainParts, Kinds, Resumed};
use belayer_drain::selection::{NoSelection, Selection};
use belayer_drain::text;
use belayer_holds::names::FIELD_MANAGER;
use belayer_holds::selection::Selected;
use belayer_inspect::reader::Reader;
use belayer_sandbox::{Answer, Fault, Gvr, Match, Subresource, Verb};
use belayer_workload::WORKFLOWS;
use rstest::rstest;
use serde_json::{Value, json};

use crate::world::{NAMESPACE, World, eventually, gates, let_pass};

const OWN: &str = "belayer-system";
const ADMIN: &str = "admin";
const PVCS: Gvr = Gvr::PERSISTENTVOLUMECLAIMS;
const PVC_HOLD: &str = "belayer.dev/pvc-protection";
const KUBERNETES: &str = "kubernetes.io/pvc-protection";

fn policies() -> Gvr {
    Gvr::new(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingadmissionpolicies",
    )
}

fn bindings() -> Gvr {
    Gvr::new(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingadmissionpolicybindings",
    )
}

/// L2: drain sends few requests to a server that refuses them, and continues afterwards.
#[tokio::test(start_paused = true)]
async fn l2_a_storm_of_429_costs_drain_at_most_three_requests_for_each_release() {
    const HELD: usize = 300;
    let world = installed();
    let uid = world.workflow("build");
    for n in 0..HELD {
        world.held_pod(&format!("p-{n}"), "build", &uid);
    }
    let releases = Match::verb(Verb::Patch).resource("pods").client(ADMIN);
    let busy = Answer::too_many_requests(Duration::from_secs(1));
    let faults = world.sandbox.faults();
    let fault = faults.inject(Fault::on(releases).answer(busy));
    let drain = drain(&world, Writes::Sent);
    let storm = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        fault.remove();
        fault.hits()
    };
    let (report, refused) = tokio::join!(drain.run(&Silent), storm);
    assert_eq!(report.unwrap().outcome, Outcome::Clean);
    assert_eq!(world.held_pods(), 0);
    assert!((20..=70).contains(&refused), "{refused}");
}

/// A cluster with Belayer's namespace and its gate.
fn installed() -> World {
    let world = World::new();
    world.create_namespace(OWN);
    let gate = json!({ "apiVersion": "belayer.dev/v1alpha1", "kind": "Gate", "metadata": { "name": "belayer-gate" },
        "data": { "mode": "normal", "hold": "on", "holdClaims": "off" } });
    world.create(&gates(), Some(OWN), gate);
    world
}

fn drain(world: &World, writes: Writes) -> Drain {
    drain_except(world, writes, &[])
}

fn drain_except(world: &World, writes: Writes, namespaces: &[&str]) -> Drain {
    let except_namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
    Drain::new(DrainParts {
        except_namespaces,
        ..parts(world, writes)
    })
}

fn parts(world: &World, writes: Writes) -> DrainParts {
    let client = client::in_process(
        world.sandbox.service(ADMIN),
        belayer_holds::names::USER_AGENT,
    );
    let bounds = Bounds {
        concurrent_releases: 1,
        ..Bounds::default()
    };
    DrainParts {
        executor: Arc::new(Executor::new(client.clone(), FIELD_MANAGER, bounds, writes)),
        reader: Reader::new(client, bounds),
        namespace: OWN.to_owned(),
        purpose: Purpose::Everything(Order::of_the_admin()),
        kinds: Kinds::Served,
        selection: Box::new(NoSelection),
        timeout: Duration::from_secs(120),
        except_namespaces: Vec::new(),
    }
}

async fn drained(world: &World) -> Report {
    drain(world, Writes::Sent).run(&Silent).await.unwrap()
}

fn pvc(world: &World, name: &str, finalizers: &[&str]) {
    let pvc = json!({
        "metadata": { "name": name, "finalizers": finalizers },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    world.create(&PVCS, Some(NAMESPACE), pvc);
}

fn user_of(world: &World, pvc: &str) {
    let pod = json!({
        "metadata": { "name": "web" },
        "spec": {
            "nodeName": "n1", "containers": [{ "name": "m", "image": "m" }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": pvc } }],
        },
    });
    world.create(&Gvr::PODS, Some(NAMESPACE), pod);
}

fn map(world: &World, name: &str, hold: &str) {
    let map = json!({ "metadata": { "name": name, "finalizers": [hold] } });
    world.create(&Gvr::CONFIGMAPS, Some(NAMESPACE), map);
}

fn get(world: &World, gvr: &Gvr, namespace: Option<&str>, name: &str) -> Value {
    (*world.cluster().get(gvr, namespace, name).unwrap()).clone()
}

fn gate(world: &World) -> Value {
    get(world, &gates(), Some(OWN), "belayer-gate")["data"].clone()
}

fn mark(world: &World) -> Value {
    gate(world)["drained"].clone()
}

/// Writes of the admin to objects with holds, in order.
fn releases(world: &World) -> Vec<String> {
    let writes = world.sandbox.recorder().writes_by(ADMIN);
    let kinds = ["pods", "workflows", "persistentvolumeclaims"];
    let resources = writes
        .iter()
        .map(|write| write.resource.resource.to_string());
    resources
        .filter(|resource| kinds.contains(&resource.as_str()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn pods_are_released_first_and_pvcs_last() {
    let world = installed();
    pvc(&world, "a", &[PVC_HOLD]);
    let uid = world.workflow("a");
    let hold = json!({ "metadata": { "finalizers": ["belayer.dev/workflow-cleanup"] } });
    world.patch(&WORKFLOWS, "a", hold);
    world.held_pod("z", "a", &uid);
    let report = drained(&world).await;
    assert_eq!((report.outcome, report.exit_code), (Outcome::Clean, 0));
    let order = ["pods", "workflows", "persistentvolumeclaims"];
    assert_eq!(releases(&world), order);
    assert_eq!(report.taken.objects, 3);
    assert_eq!(report.taken.holds[PVC_HOLD]["Unused"], 1);
}

/// T4: a client keeps adding holds. The drain ends, names the namespace, and can ignore it.
#[tokio::test(start_paused = true)]
async fn t4_only_new_holds_end_the_drain() {
    let world = installed();
    map(&world, "old", "belayer.dev/pod-status");
    let hostile = async {
        for n in 0.. {
            map(&world, &format!("new-{n}"), "belayer.dev/pod-status");
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
    };
    let both = async {
        let report = drained(&world).await;
        assert_eq!((report.outcome, report.exit_code), (Outcome::NewHolds, 3));
        assert!(report.new_holds.namespaces[NAMESPACE] > 1, "{report:?}");
        assert!(report.seconds < 40.0 && !report.timed_out, "{report:?}");
        let said = text::report(&report, usize::MAX);
        assert!(said.contains("Only new holds since pass "), "{said}");
        assert_eq!(mark(&world), Value::Null);

        let except = drain_except(&world, Writes::Sent, &[NAMESPACE]);
        let report = except.run(&Silent).await.unwrap();
        assert_eq!((report.outcome, report.exit_code), (Outcome::Clean, 0));
        assert!(
            report.taken.objects > 0,
            "holds in that namespace are removed"
        );
        let told = report
            .notes
            .iter()
            .any(|note| note.contains("--except-namespace"));
        assert!(told, "{report:?}");
        assert_eq!(mark(&world), "true");
    };
    tokio::select! {
        () = hostile => {}
        () = both => {}
    }
}

/// T4: a pod that exists only in its record, because the API server denies it, does not end the drain of others.
#[tokio::test(start_paused = true)]
async fn t4_a_record_in_an_excepted_namespace_is_only_listed() {
    let world = installed();
    let records = json!({ "items": [{
        "metadata": { "namespace": NAMESPACE, "name": "web-u", "uid": "u", "resourceVersion": "1" },
        "spec": { "podName": "web" },
        "status": { "phase": "Creating" },
    }]});
    let lists = Match::verb(Verb::List).resource("podrecreations");
    let answer = Answer::raw(200, "application/json", records.to_string());
    let faults = world.sandbox.faults();
    faults.inject(Fault::on(lists.client(ADMIN)).answer(answer));
    let except = drain_except(&world, Writes::Sent, &[NAMESPACE]);
    let report = except.run(&Silent).await.unwrap();
    assert_eq!((report.outcome, report.exit_code), (Outcome::Clean, 0));
    assert_eq!(report.left[0].reason, Reason::InItsRecord);
    assert_eq!(report.left[0].name, "web-u");
    assert!(report.seconds < 20.0, "it is not waited for: {report:?}");
    assert_eq!(drained(&world).await.outcome, Outcome::LeftOver);
}

#[tokio::test(start_paused = true)]
async fn the_namespace_may_be_deleted_only_without_holds() {
    let world = installed();
    pvc(&world, "data", &[PVC_HOLD]);
    user_of(&world, "data");
    let report = drained(&world).await;
    assert_eq!((report.outcome, report.exit_code), (Outcome::LeftOver, 3));
    assert_eq!(report.left[0].reason, Reason::InUse);
    assert_eq!(report.left[0].why, "in use by web");
    assert_eq!(mark(&world), Value::Null);
    world.delete(&Gvr::PODS, Some(NAMESPACE), "web");
    assert_eq!(drained(&world).await.outcome, Outcome::Clean);
    assert_eq!(mark(&world), "true");
    // A hold comes back, as from a backup: the next drain is not clean.
    pvc(&world, "restored", &[PVC_HOLD]);
    user_of(&world, "restored");
    assert_eq!(drained(&world).await.outcome, Outcome::LeftOver);
    assert_eq!(mark(&world), Value::Null);
    world.delete(&Gvr::PODS, Some(NAMESPACE), "web");
    assert_eq!(drained(&world).await.outcome, Outcome::Clean);
    assert_eq!(mark(&world), "true");
    assert_eq!(gate(&world)["mode"], "draining");
    let off = drain(&world, Writes::Sent)
        .resume(&belayer_drain::progress::Silent)
        .await
        .unwrap();
    assert_eq!(mark(&world), Value::Null);
    // A switch that an admin had turned off stays off and is reported.
    let before = json!({ "mode": "normal", "hold": "on", "holdClaims": "off" });
    assert_eq!(gate(&world), before);
    let off_before = vec![("holdClaims".to_owned(), "off".to_owned())];
    assert_eq!(off, Resumed::Ended(off_before));
    let again = drain(&world, Writes::Sent).resume(&Silent).await.unwrap();
    assert_eq!(again, Resumed::NotDraining);
    assert_eq!(gate(&world), before);
}

/// A running Belayer creates a gate that was deleted during or after a drain as it was.
#[tokio::test(start_paused = true)]
async fn a_deleted_gate_does_not_end_the_drain() {
    let world = installed();
    let belayer = world.run();
    assert_eq!(drained(&world).await.outcome, Outcome::Clean);
    let before = gate(&world);
    assert_eq!(before["drained"], "true");
    let_pass(Duration::from_secs(5)).await;
    world.delete(&gates(), Some(OWN), "belayer-gate");
    let uid = world.workflow("build");
    world.pod("late", "build", &uid);
    let_pass(Duration::from_secs(60)).await;
    assert_eq!(gate(&world), before);
    assert!(!world.is_held("late"));
    drain(&world, Writes::Sent).resume(&Silent).await.unwrap();
    eventually("it is held", || world.is_held("late")).await;
    belayer.stop().await;
}

/// The account of Belayer's Deployment.
fn account(world: &World) {
    let account = json!({ "metadata": { "name": "belayer" } });
    world.create(&Gvr::SERVICEACCOUNTS, Some(OWN), account);
}

/// H5: Belayer was installed and never ran, so that nothing would release what a policy holds.
#[tokio::test(start_paused = true)]
async fn h5_the_end_of_a_drain_opens_no_switch_that_no_leader_opened() {
    let world = World::new();
    world.create_namespace(OWN);
    account(&world);
    assert_eq!(drained(&world).await.outcome, Outcome::Clean);
    let off = drain(&world, Writes::Sent).resume(&Silent).await.unwrap();
    assert_eq!(gate(&world), json!({ "mode": "normal" }));
    assert_eq!(off, Resumed::Ended(Vec::new()));
}

/// The second try finds the gate as the first one left it.
#[tokio::test(start_paused = true)]
async fn an_end_of_a_drain_whose_answer_was_lost_is_reported() {
    let world = World::new();
    world.create_namespace(OWN);
    account(&world);
    assert_eq!(drained(&world).await.outcome, Outcome::Clean);
    let patch = Match::verb(Verb::Patch).resource("gates");
    let lost = Fault::on(patch).times(1).lose_answer();
    let _lost = world.sandbox.faults().inject(lost);
    let ended = drain(&world, Writes::Sent).resume(&Silent).await.unwrap();
    assert_eq!(ended, Resumed::Ended(Vec::new()));
    assert_eq!(gate(&world), json!({ "mode": "normal" }));
}

/// The run waits longer than this for the API servers to notice the deletion of the policies.
#[rstest]
#[tokio::test(start_paused = true)]
async fn a_short_timeout_ends_no_clean_drain(#[values(1, 5, 12)] timeout: u64) {
    let drain = Drain::new(DrainParts {
        timeout: Duration::from_secs(timeout),
        ..parts(&installed(), Writes::Sent)
    });
    let report = drain.run(&Silent).await.unwrap();
    assert_eq!((report.outcome, report.exit_code), (Outcome::Clean, 0));
    assert!(!report.timed_out);
}

/// Selects all objects, except in ignored namespaces.
struct NotIgnored;

impl Selection for NotIgnored {
    fn keep(&self) -> Keep {
        Keep::nothing()
    }

    fn selects(
        &self,
        _: &'static str,
        _: &Resource,
        object: &ObjectMeta,
        ignored: &BTreeSet<String>,
    ) -> Selected {
        let namespace = object.key.namespace().unwrap_or_default();
        (!ignored.contains(namespace)).into()
    }
}

/// The namespace is created anew without the label, or loses it, while the objects are listed.
#[tokio::test(start_paused = true)]
async fn ignored_namespaces_are_read_after_the_objects() {
    let world = installed();
    let uid = world.workflow("build");
    world.held_pod("a", "build", &uid);
    let ignore = |value: Value| {
        let label = json!({ "metadata": { "labels": { "belayer.dev/ignore": value } } });
        world.patch_in(&Gvr::NAMESPACES, None, NAMESPACE, label, Subresource::None);
    };
    ignore(json!("true"));
    let lists = Match::verb(Verb::List).resource("pods").client(ADMIN);
    let slow = Fault::on(lists).delay(Duration::from_secs(5));
    world.sandbox.faults().inject(slow);
    let drain = Drain::new(DrainParts {
        purpose: Purpose::Unselected(Order::of_the_admin()),
        selection: Box::new(NotIgnored),
        ..parts(&world, Writes::Sent)
    });
    let changes = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        ignore(Value::Null);
    };
    let (report, ()) = tokio::join!(drain.run(&Silent), changes);
    assert_eq!(report.unwrap().outcome, Outcome::Clean);
    assert!(world.is_held("a"));
}

#[tokio::test(start_paused = true)]
async fn belayers_policies_are_deleted_and_others_reported() {
    let world = installed();
    let belayers = json!({ "app.kubernetes.io/name": "belayer" });
    let ties = |hold: &str| {
        json!({ "mutations": [{ "patchType": "JSONPatch",
            "jsonPatch": { "expression": format!("[{hold:?}]") } }] })
    };
    for (name, labels, hold) in [
        (
            "belayer-pod-hold",
            belayers.clone(),
            "belayer.dev/pod-status",
        ),
        ("a-copy", json!({}), "belayer.dev/pod-status"),
        ("belayer-anchor", belayers.clone(), "nothing"),
    ] {
        let policy = json!({ "metadata": { "name": name, "labels": labels }, "spec": ties(hold) });
        world.create(&policies(), None, policy);
    }
    let binding = json!({ "metadata": { "name": "belayer-pod-hold", "labels": belayers },
        "spec": { "policyName": "belayer-pod-hold" } });
    world.create(&bindings(), None, binding);
    let report = drained(&world).await;
    assert_eq!(report.outcome, Outcome::Clean);
    let removed: Vec<&str> = report
        .taken
        .policies
        .iter()
        .map(|name| name.split('.').next().unwrap())
        .collect();
    let order = [
        "mutatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
    ];
    assert_eq!(
        removed, order,
        "the binding first: without it a policy has no effect"
    );
    assert!(world.cluster().get(&policies(), None, "a-copy").is_ok());
    assert!(
        world
            .cluster()
            .get(&policies(), None, "belayer-anchor")
            .is_ok()
    );
    let note = "adds a finalizer of Belayer but is not labelled";
    assert!(
        report.notes.len() == 1
            && report.notes[0].contains("a-copy")
            && report.notes[0].contains(note),
        "{:?}",
        report.notes
    );
    assert!(
        report.seconds >= SETTLE.as_secs_f64(),
        "API servers learn of it late: {} s",
        report.seconds
    );
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_is_opened_meanwhile_is_closed_again() {
    let world = installed();
    let uid = world.workflow("build");
    world.held_pod("a", "build", &uid);
    let opens = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(gate(&world)["mode"], "draining");
        let open = json!({ "data": { "mode": "normal" } });
        world.patch_in(&gates(), Some(OWN), "belayer-gate", open, Subresource::None);
    };
    let (report, ()) = tokio::join!(drained(&world), opens);
    assert_eq!(report.outcome, Outcome::Clean);
    assert_eq!(gate(&world)["mode"], "draining");
    // The time without new holds counts from then.
    assert!(
        report.seconds >= 2.0 + SETTLE.as_secs_f64(),
        "{}",
        report.seconds
    );
}

/// Another client adds the hold again each time: many holds of one object.
#[tokio::test(start_paused = true)]
async fn an_object_that_is_held_again_is_counted_once() {
    let world = installed();
    map(&world, "a", "belayer.dev/pod-status");
    let draining = drain(&world, Writes::Sent);
    let again = async {
        let finalizers = json!({ "metadata": { "finalizers": ["belayer.dev/pod-status"] } });
        loop {
            tokio::time::sleep(Duration::from_millis(400)).await;
            let map = get(&world, &Gvr::CONFIGMAPS, Some(NAMESPACE), "a");
            if map["metadata"]["finalizers"].is_null() {
                world.patch(&Gvr::CONFIGMAPS, "a", finalizers.clone());
            }
        }
    };
    let report = tokio::select! {
        report = draining.run(&Silent) => report.unwrap(),
        () = again => unreachable!(),
    };
    assert!(!report.timed_out);
    assert_eq!(report.outcome, Outcome::NewHolds);
    assert_eq!(report.taken.objects, 1);
    assert!(report.taken.holds["belayer.dev/pod-status"]["Drained"] > 1);
    let text = text::report(&report, usize::MAX);
    assert!(
        text.contains(" from 1 object:") && text.contains("new holds keep being added"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn denied_releases_are_reported_and_others_succeed() {
    let world = installed();
    let uid = world.workflow("build");
    for name in ["a", "denied"] {
        world.held_pod(name, "build", &uid);
    }
    let denied = Match::verb(Verb::Patch).resource("pods").name("denied");
    let fault = Fault::on(denied).answer(Answer::forbidden("no ropes today"));
    let fault = world.sandbox.faults().inject(fault);
    let report = drained(&world).await;
    assert_eq!((report.outcome, report.exit_code), (Outcome::Refused, 4));
    assert_eq!(report.refused[0].what, format!("{NAMESPACE}/pods/denied"));
    assert_eq!(report.refused[0].code, 403);
    assert!(report.refused[0].why.contains("no ropes today"));
    assert!(!world.is_held("a") && world.is_held("denied"));
    assert_eq!(mark(&world), Value::Null);
    assert!(fault.hits() >= 3, "tried {} times", fault.hits());
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_may_not_be_listed_is_not_clean() {
    let world = installed();
    let lists = Match::verb(Verb::List).resource("secrets").client(ADMIN);
    let fault = Fault::on(lists).answer(Answer::forbidden("no"));
    world.sandbox.faults().inject(fault);
    let report = drained(&world).await;
    assert_eq!((report.outcome, report.exit_code), (Outcome::Refused, 4));
    assert_eq!(report.unseen[0].what, "secrets");
    assert_eq!(mark(&world), Value::Null);
}

/// An aggregated API may compute its objects, without UIDs and with versions that are not numbers, as OLM and Calico do.
#[rstest]
#[case::without_holds(json!([]), Outcome::Clean)]
#[case::with_a_hold(json!(["belayer.dev/pod-status"]), Outcome::Error)]
#[case::with_a_hold_of_another_version(json!(["belayer.dev/of-tomorrow"]), Outcome::Error)]
#[tokio::test(start_paused = true)]
async fn computed_objects_keep_drain_from_the_end_only_with_a_hold(
    #[case] finalizers: Value,
    #[case] expected: Outcome,
    #[values("12/34", "34")] version: &str,
) {
    let world = installed();
    let computed = json!({ "kind": "List", "metadata": { "resourceVersion": version },
        "items": [{ "metadata": { "name": "a", "namespace": "b", "finalizers": finalizers } }] });
    let lists = Match::verb(Verb::List).resource("secrets").client(ADMIN);
    let answer = Answer::raw(200, "application/json", computed.to_string());
    world
        .sandbox
        .faults()
        .inject(Fault::on(lists).answer(answer));
    let report = drained(&world).await;
    assert_eq!(report.outcome, expected, "{report:#?}");
    let is_clean = expected == Outcome::Clean;
    assert_eq!(report.unseen.is_empty(), is_clean, "{report:#?}");
    assert_eq!(mark(&world) == "true", is_clean);
    let said = text::report(&report, usize::MAX);
    assert_eq!(said.contains("--configured-kinds"), !is_clean, "{said}");
}

/// A server that cannot answer has denied nothing: another run may succeed.
#[rstest]
#[case::the_gate_cannot_be_written(Match::verb(Verb::Patch).resource("gates"))]
#[case::the_policies_cannot_be_listed(Match::verb(Verb::List).resource("mutatingadmissionpolicies"))]
#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_answer_is_an_error_and_no_denial(#[case] requests: Match) {
    let world = installed();
    let fault = Fault::on(requests.client(ADMIN)).answer(Answer::service_unavailable());
    let fault = world.sandbox.faults().inject(fault);
    let report = drained(&world).await;
    assert!(fault.hits() > 0);
    assert_eq!((report.outcome, report.exit_code), (Outcome::Error, 1));
    assert_eq!(report.refused, []);
    assert_eq!(mark(&world), Value::Null);
}

/// An earlier drain has set the gate to draining already, or the answer to this drain's first write is lost.
#[rstest]
#[case::the_gate_cannot_be_read(Fault::on(Match::verb(Verb::Get).resource("gates")).times(1).answer(Answer::service_unavailable()))]
#[case::an_answer_is_lost(Fault::on(Match::verb(Verb::Patch).resource("gates")).times(1).lose_answer())]
#[tokio::test(start_paused = true)]
async fn a_failed_first_request_of_the_gate_does_not_leave_it_draining(#[case] fault: Fault) {
    let world = installed();
    drain(&world, Writes::Sent).run(&Silent).await.unwrap();
    let draining = json!({ "data": { "drained": null, "hold": "draining" } });
    world.patch_in(
        &gates(),
        Some(OWN),
        "belayer-gate",
        draining,
        Subresource::None,
    );
    let fault = world.sandbox.faults().inject(fault);
    let report = drained(&world).await;
    assert_eq!(fault.hits(), 1);
    assert_eq!(report.outcome, Outcome::Clean);
    assert_ne!(mark(&world), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_hold_of_another_version_stays_and_is_reported() {
    let world = installed();
    map(&world, "tomorrow", "belayer.dev/of-tomorrow");
    let report = drained(&world).await;
    assert_eq!((report.outcome, report.exit_code), (Outcome::LeftOver, 3));
    assert_eq!(report.left[0].reason, Reason::OfAnotherVersion);
    assert_eq!(report.left[0].hold, "belayer.dev/of-tomorrow");
    // A tenant may have made it up.
    let said = text::report(&report, usize::MAX);
    let says = "if no version of belayer has it, remove it with kubectl, or leave the namespace out with --except-namespace NAME";
    assert!(said.contains(says), "{said}");
}

#[tokio::test(start_paused = true)]
async fn pvcs_that_wait_only_for_kubernetes_are_counted() {
    let world = installed();
    pvc(&world, "handed-over", &[PVC_HOLD, KUBERNETES]);
    pvc(&world, "waits", &[KUBERNETES]);
    pvc(&world, "stays", &[KUBERNETES]);
    pvc(&world, "of-others-too", &[KUBERNETES, "example.com/keep"]);
    for name in ["handed-over", "waits", "of-others-too"] {
        world.delete(&PVCS, Some(NAMESPACE), name);
    }
    let report = drained(&world).await;
    assert_eq!(report.outcome, Outcome::Clean);
    assert_eq!(report.taken.holds[PVC_HOLD]["HandedOver"], 1);
    assert_eq!(report.handed_over, 2, "the one handed over waits now, too");
}

#[tokio::test(start_paused = true)]
async fn changed_objects_are_read_again_and_deleted_ones_count_as_released() {
    let world = installed();
    let uid = world.workflow("build");
    for name in ["changes", "goes"] {
        world.held_pod(name, "build", &uid);
    }
    let conflicts = Match::verb(Verb::Patch).resource("pods").name("changes");
    let conflicts = Fault::on(conflicts).times(3).answer(Answer::conflict());
    let conflicts = world.sandbox.faults().inject(conflicts);
    let slow = Match::verb(Verb::Patch).resource("pods").name("goes");
    let slow = Fault::on(slow).delay(Duration::from_secs(1));
    world.sandbox.faults().inject(slow);
    let goes = async {
        tokio::time::sleep(Duration::from_millis(900)).await;
        let none = json!({ "metadata": { "finalizers": [] } });
        world.patch(&Gvr::PODS, "goes", none);
        world.delete(&Gvr::PODS, Some(NAMESPACE), "goes");
    };
    let (report, ()) = tokio::join!(drained(&world), goes);
    assert_eq!(report.outcome, Outcome::Clean, "{report:#?}");
    assert_eq!(conflicts.hits(), 3);
    assert_eq!(report.taken.objects, 1);
    assert!(report.failed.is_empty() && !world.is_held("changes"));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_belayer_is_checked_completely() {
    let world = World::new();
    let uid = world.workflow("build");
    world.held_pod("a", "build", &uid);
    let report = drained(&world).await;
    assert_eq!(report.outcome, Outcome::Clean);
    assert_eq!(report.gate, GateState::NoNamespace);
    assert!(!world.is_held("a"));
}
