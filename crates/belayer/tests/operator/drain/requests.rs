//! Failed requests, a gate that changes often, one that no drain can mark, and none.

use super::*;

const GUARD: &str = "belayer-namespace-guard";

fn guards() -> Gvr {
    Gvr::new(
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicybindings",
    )
}

fn change_gate(world: &World, data: Value) {
    let change = json!({ "data": data });
    world.patch_in(
        &gates(),
        Some(OWN),
        "belayer-gate",
        change,
        Subresource::None,
    );
}

/// A leader writes the gate up to twice a second while namespaces reach their backlog limit.
#[tokio::test(start_paused = true)]
async fn a_drain_is_noticed_at_once_however_often_the_gate_changes() {
    let world = installed();
    let uid = world.workflow("build");
    let _belayer = world.run();
    let_pass(Duration::from_secs(10)).await;
    for round in 0..3 {
        for _ in 0..30 {
            change_gate(&world, json!({ "closed.elsewhere": "backlog" }));
            let_pass(Duration::from_millis(500)).await;
            change_gate(&world, json!({ "closed.elsewhere": null }));
            let_pass(Duration::from_millis(500)).await;
        }
        change_gate(&world, json!({ "mode": "draining" }));
        let_pass(Duration::from_secs(2)).await;
        let late = format!("late-{round}");
        world.pod(&late, "build", &uid);
        let_pass(Duration::from_secs(5)).await;
        assert!(!world.is_held(&late), "{late}");
        change_gate(&world, json!({ "mode": "normal" }));
        eventually("it is held", || world.is_held(&late)).await;
    }
}

/// Without the kind of its parameter the guard denies every deletion, and no drain can mark the gate.
#[tokio::test(start_paused = true)]
async fn without_the_kind_of_the_gate_the_guard_is_removed() {
    let world = installed();
    let crds = Gvr::CUSTOMRESOURCEDEFINITIONS;
    world.delete(&crds, None, "gates.belayer.dev");
    let guard = json!({ "metadata": { "name": GUARD }, "spec": { "policyName": GUARD } });
    world.create(&guards(), None, guard);
    let report = drained(&world).await;
    assert_eq!(report.outcome, Outcome::Clean);
    assert_eq!(report.gate, GateState::NotServed);
    assert!(world.cluster().get(&guards(), None, GUARD).is_err());
    assert!(report.notes.is_empty(), "{:?}", report.notes);
}

/// Without Belayer's namespace there is no gate either. A guard of another installation stays.
#[rstest]
#[case::of_this_namespace(OWN, true)]
#[case::of_another_namespace("elsewhere", false)]
#[tokio::test(start_paused = true)]
async fn without_belayers_namespace_its_guard_is_removed(
    #[case] namespace: &str,
    #[case] is_removed: bool,
) {
    let world = World::new();
    guard_of(&world, namespace);
    let report = drained(&world).await;
    assert_eq!(report.outcome, Outcome::Clean);
    assert_eq!(report.gate, GateState::NoNamespace);
    let guard = world.cluster().get(&guards(), None, GUARD);
    assert_eq!(guard.is_err(), is_removed);
}

/// The roles of admins may lack that permission: then the report names the command.
#[tokio::test(start_paused = true)]
async fn a_guard_that_cannot_be_read_is_named() {
    let world = World::new();
    guard_of(&world, OWN);
    let reads = Match::verb(Verb::Get).resource("validatingadmissionpolicybindings");
    let fault = Fault::on(reads.client(ADMIN)).answer(Answer::forbidden("no"));
    let _fault = world.sandbox.faults().inject(fault);
    let report = drained(&world).await;
    assert_eq!(report.outcome, Outcome::Clean);
    let command = "kubectl delete validatingadmissionpolicybinding belayer-namespace-guard";
    let names = |note: &String| note.contains(command);
    assert!(report.notes.iter().any(names), "{:?}", report.notes);
}

fn guard_of(world: &World, namespace: &str) {
    let guard = json!({
        "metadata": { "name": GUARD },
        "spec": { "policyName": GUARD, "paramRef": { "name": "belayer-gate", "namespace": namespace } },
    });
    world.create(&guards(), None, guard);
}

/// A drain before left the gate draining, so that the only write to it is the mark.
async fn draining() -> World {
    let world = installed();
    drain(&world, Writes::Sent).run(&Silent).await.unwrap();
    change_gate(&world, json!({ "drained": null }));
    world
}

#[rstest]
#[case::the_mark(Match::verb(Verb::Patch).resource("gates"))]
#[case::the_guard(Match::verb(Verb::Delete).resource("validatingadmissionpolicybindings"))]
#[tokio::test(start_paused = true)]
async fn the_last_writes_are_retried(#[case] requests: Match) {
    let world = draining().await;
    guard_of(&world, OWN);
    let fault = Fault::on(requests.client(ADMIN)).times(1);
    let fault = world
        .sandbox
        .faults()
        .inject(fault.answer(Answer::service_unavailable()));
    let report = drained(&world).await;
    assert_eq!(fault.hits(), 1);
    assert_eq!((report.outcome, report.exit_code), (Outcome::Clean, 0));
    assert_eq!(mark(&world), "true");
    assert!(world.cluster().get(&guards(), None, GUARD).is_err());
    assert!(report.notes.is_empty(), "{:?}", report.notes);
}

/// Holds are removed, but the namespace and the CRDs cannot be deleted yet.
#[tokio::test(start_paused = true)]
async fn a_drain_whose_last_write_never_succeeds_is_an_error() {
    let world = draining().await;
    let marks = Match::verb(Verb::Patch).resource("gates").client(ADMIN);
    let fault = Fault::on(marks).answer(Answer::service_unavailable());
    let _fault = world.sandbox.faults().inject(fault);
    let report = drained(&world).await;
    assert_eq!((report.outcome, report.exit_code), (Outcome::Error, 1));
    assert!(report.timed_out);
}

/// Only a write may have ended the drain although its answer was lost.
#[tokio::test(start_paused = true)]
async fn a_failed_read_does_not_end_a_drain_that_was_not_in_progress() {
    let world = installed();
    let reads = Match::verb(Verb::Get).resource("gates").client(ADMIN);
    let fault = Fault::on(reads)
        .times(1)
        .answer(Answer::service_unavailable());
    let fault = world.sandbox.faults().inject(fault);
    let resumed = drain(&world, Writes::Sent).resume(&Silent).await.unwrap();
    assert_eq!(fault.hits(), 1);
    assert_eq!(resumed, Resumed::NotDraining);
}

/// `--resume` during the last pass: a running Belayer holds again, and the CRDs stay guarded until the next clean pass.
#[tokio::test(start_paused = true)]
async fn a_drain_that_is_ended_during_its_last_pass_is_not_clean() {
    let world = installed();
    guard_of(&world, OWN);
    // Only the last pass begins after the policies have no effect any more.
    let lists = Match::verb(Verb::List).resource("secrets").client(ADMIN);
    let slow = Fault::on(lists).delay(Duration::from_secs(2));
    let _slow = world.sandbox.faults().inject(slow);
    let uid = world.workflow("build");
    let ended = async {
        tokio::time::sleep(SETTLE + Duration::from_secs(1)).await;
        change_gate(&world, json!({ "mode": "normal" }));
        world.held_pod("late", "build", &uid);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(world.cluster().get(&guards(), None, GUARD).is_ok());
    };
    let (report, ()) = tokio::join!(drained(&world), ended);
    assert_eq!((report.outcome, report.exit_code), (Outcome::Clean, 0));
    assert!(report.seconds > 2.0 * SETTLE.as_secs_f64(), "{report:?}");
    assert!(!world.is_held("late"));
    assert_eq!(gate(&world)["mode"], "draining");
    assert_eq!(mark(&world), "true");
    assert!(world.cluster().get(&guards(), None, GUARD).is_err());
}

/// After an uninstall the namespace and the CRDs are still there. A gate without an owner would keep the next installation
/// in draining mode.
#[tokio::test(start_paused = true)]
async fn a_drain_after_an_uninstall_leaves_no_gate() {
    let world = World::new();
    world.create_namespace(OWN);
    let uid = world.workflow("build");
    world.held_pod("restored", "build", &uid);
    let report = drained(&world).await;
    assert_eq!(report.outcome, Outcome::Clean);
    assert_eq!(report.gate, GateState::NotInstalled);
    assert_eq!(report.notes, [""; 0]);
    assert!(!world.is_held("restored"));
    let _belayer = world.run();
    world.pod("new", "build", &uid);
    eventually("the next installation holds", || world.is_held("new")).await;
}

/// Whether Belayer is installed is unknown: a gate stops one that is.
#[tokio::test(start_paused = true)]
async fn a_gate_without_an_owner_is_reported() {
    let world = World::new();
    world.create_namespace(OWN);
    let reads = Match::verb(Verb::Get).resource("serviceaccounts");
    let fault = Fault::on(reads.client(ADMIN)).answer(Answer::forbidden("no"));
    let _fault = world.sandbox.faults().inject(fault);
    let report = drained(&world).await;
    assert_eq!(report.gate, GateState::Draining);
    let says = "after it, run `belayer drain --resume`";
    assert_eq!(report.notes.len(), 1);
    assert!(report.notes[0].ends_with(says), "{:?}", report.notes);
}
