//! Failed requests, a gate that changes often, and a gate that no drain can mark.

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
