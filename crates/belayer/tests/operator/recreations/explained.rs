//! What `explain` reports about a pod, on live reads.

use belayer_core::object::ObjectKey;
use belayer_inspect::explain::Explained;
use belayer_pod_recreation::{Settings, row};
use rstest::rstest;
use serde_json::json;

use super::{Fate, YARD, Yard};
use crate::world::gates;

pub(super) async fn explained(yard: &Yard) -> Explained {
    let web = ObjectKey::new(YARD, "web");
    let explained = crate::explained::explained(&yard.world, &Settings::default(), web).await;
    explained.unwrap()
}

#[tokio::test(start_paused = true)]
async fn explain_covers_every_phase_of_a_pod() {
    let yard = Yard::new();
    yard.pod("web");
    let seen = explained(&yard).await;
    assert_eq!(seen.row.name, row::ADD_HOLD.name);
    let belayer = yard.run();
    yard.wait("it is held", || yard.is_held("web")).await;
    let seen = explained(&yard).await;
    assert_eq!(seen.row.name, row::KEEP.name);
    assert_eq!(seen.why_not, None);
    assert!(seen.notes.is_empty());

    belayer.stop().await;
    yard.report("web", Fate::Rejected("OutOfcpu"));
    let notes = explained(&yard).await.notes.join("\n");
    assert!(notes.contains(row::REJECTED.says), "{notes}");
    assert!(notes.contains("writes its record"), "{notes}");

    let belayer = yard.run();
    yard.until("it runs", || yard.is_settled("web")).await;
    let seen = explained(&yard).await;
    let notes = seen.notes.join("\n");
    assert!(
        notes.contains("phase Started: 1 of 3 re-creations begun"),
        "{notes}"
    );
    let why = seen.why_not.unwrap();
    assert!(why.contains("never re-created"), "{why}");
    belayer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn explain_reports_why_a_pod_is_not_eligible() {
    let yard = Yard::new();
    yard.pod_with("web", json!({ "annotations": {} }));
    let seen = explained(&yard).await;
    let why = seen.why_not.unwrap();
    assert!(why.contains("belayer.dev/recreate"), "{why}");
    assert_eq!(seen.row.name, row::NOT_OURS.name);
    // Neither held nor rejected: no configuration changes what happens to it now.
    assert!(seen.notes.is_empty(), "{:?}", seen.notes);
}

#[rstest]
#[case::written_by_a_user("because", true)]
#[case::copied_from_another_pod("pod 12345678-0000-4000-8000-000000000000: because", false)]
#[tokio::test(start_paused = true)]
async fn explain_reports_an_annotation_that_ends_the_re_creation(
    #[case] text: &str,
    #[case] ends: bool,
) {
    let yard = Yard::new();
    let annotations =
        json!({ "belayer.dev/recreate": "true", "belayer.dev/recreation-ended": text });
    yard.pod_with("web", json!({ "annotations": annotations }));
    let seen = explained(&yard).await;
    let expected = "its annotation belayer.dev/recreation-ended ends its re-creation: because";
    assert_eq!(seen.why_not.as_deref(), ends.then_some(expected));
}

/// Only a process that has watched the pod since before can know that nothing of it ran.
#[tokio::test(start_paused = true)]
async fn a_pod_that_was_rejected_without_its_hold_may_have_run() {
    let yard = Yard::new();
    yard.pod("web");
    yard.report("web", Fate::Rejected("OutOfcpu"));
    let seen = explained(&yard).await;
    assert_eq!(seen.row.name, row::NOT_OURS.name);
    let why = seen.why_not.unwrap();
    assert!(why.contains("it does not have the finalizer"), "{why}");
    let notes = seen.notes.join("\n");
    assert!(notes.contains("only the leader can know"), "{notes}");
    // By default pod-recreation has a Lease of its own; otherwise the gate names the Lease.
    assert!(
        notes.contains("-n belayer-system get lease belayer-pod-recreation"),
        "{notes}"
    );
    let own = "belayer-system";
    yard.world.create_namespace(own);
    let gate = json!({ "apiVersion": "belayer.dev/v1alpha1", "kind": "Gate", "metadata": { "name": "belayer-gate" },
        "data": { "lease.holdRecreations": "leases/another" } });
    yard.world.create(&gates(), Some(own), gate);
    let notes = explained(&yard).await.notes.join("\n");
    assert!(notes.contains("-n leases get lease another"), "{notes}");
}
