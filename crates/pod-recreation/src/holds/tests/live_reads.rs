//! What only a live read proves.

use belayer_core::object::OwnerReference;
use belayer_holds::names::IGNORE_LABEL;
use belayer_holds::namespace::{NamespaceQuery, NamespaceState};
use belayer_holds::owner::GoneProof;

use super::*;

/// The cache shows the namespace at version 5 as ignored; the live read has the version `read`.
fn ignored(pod: PodView, read: u64, label: &str, begun: LogicalTime) -> HoldSnapshot {
    let namespace = |version, value| ObjectMeta {
        labels: [(IGNORE_LABEL, value)].into_iter().collect(),
        ..ObjectMeta::new(
            ObjectKey::cluster("yard"),
            Uid::new("n-1"),
            ResourceVersion::new(version),
        )
    };
    let state = NamespaceState::Present(namespace(read, label));
    HoldSnapshot {
        namespace: Some(NamespaceView {
            query: NamespaceQuery::new("yard"),
            cached: Some(namespace(5, "true")),
            answer: Some(LiveAnswer::scripted(state, begun)),
        }),
        ..absent(PodView {
            selection: Selection::Ignored,
            ..pod
        })
    }
}

/// Whether it is released, and otherwise after which time the namespace is read.
#[rstest]
#[case::confirmed(5, "true", LogicalTime::now, Ok(()))]
#[case::not_ignored_any_more(6, "false", LogicalTime::now, Err(RECHECK))]
#[case::a_read_before_the_pod_was_seen(5, "true", || LogicalTime::BEGINNING, Err(Duration::ZERO))]
#[case::a_read_older_than_the_cache(4, "true", LogicalTime::now, Err(Duration::ZERO))]
fn row_11_only_a_live_read_proves_that_a_namespace_is_ignored(
    #[case] version: u64,
    #[case] label: &str,
    #[case] begun: fn() -> LogicalTime,
    #[case] expected: Result<(), Duration>,
) {
    let first_seen = LogicalTime::now();
    let snapshot = HoldSnapshot {
        first_seen,
        ..ignored(pod(), version, label, begun())
    };
    let decision = decide(&snapshot, Timestamp::UNIX_EPOCH);
    assert_eq!(decision.row, row::UNSELECTED);
    let found = match (&decision.write, decision.missing.first()) {
        (Some(Write::Release(Evidence::Unselected(NotSelected::ByNamespace(_)))), None) => Ok(()),
        (None, Some(Missing::Answer { after, .. })) => Err(*after),
        other => panic!("{other:?}"),
    };
    assert_eq!(found, expected);
}

fn live_record(state: Option<OwnerState>, begun: LogicalTime) -> HoldSnapshot {
    let reference = OwnerReference {
        api_version: "belayer.dev/v1alpha1".into(),
        kind: api::KIND.into(),
        name: "web-u-1".into(),
        uid: Uid::new("r-1"),
    };
    let query = OwnerQuery::new(api::resource(), &"yard".into(), &reference);
    let answer = state.map(|state| LiveAnswer::scripted(state, begun));
    HoldSnapshot {
        live_record: Some((query, answer)),
        ..absent(of_attempt(1, pod()))
    }
}

#[test]
fn row_04_only_a_live_read_proves_that_a_record_is_gone() {
    let gone = || Some(OwnerState::Gone(GoneProof::scripted()));
    let asked = decide(
        &live_record(None, LogicalTime::BEGINNING),
        Timestamp::UNIX_EPOCH,
    );
    assert!(matches!(asked.missing[0], Missing::Answer { .. }));
    let fresh = decide(
        &live_record(gone(), LogicalTime::now()),
        Timestamp::UNIX_EPOCH,
    );
    assert_eq!(summary(&fresh), "RecordGone");
    let stale = HoldSnapshot {
        first_seen: LogicalTime::now(),
        ..live_record(gone(), LogicalTime::BEGINNING)
    };
    assert_eq!(summary(&decide(&stale, Timestamp::UNIX_EPOCH)), "");
}

/// A pod that was created after its record had been deleted is deleted, unless it ran.
#[rstest]
#[case::not_started(pod(), "delete")]
#[case::rejected(rejected(pod()), "delete")]
#[case::started(started(pod()), "RecordGone")]
#[case::deleted(deleting(pod()), "RecordGone")]
#[case::its_release_is_requested(release_requested(pod()), "RecordGone")]
#[case::not_selected(unselected(pod()), "RecordGone")]
#[case::its_re_creation_ended(recreation_ended(pod()), "RecordGone")]
fn row_04_a_pod_that_its_record_did_not_name_is_deleted(
    #[case] pod: PodView,
    #[case] expected: &str,
) {
    let gone = OwnerState::Gone(GoneProof::scripted());
    let decided = |answer| {
        let snapshot = HoldSnapshot {
            created_in_vain: true,
            pod: of_attempt(1, pod.clone()),
            ..live_record(answer, LogicalTime::now())
        };
        let decision = decide(&snapshot, Timestamp::UNIX_EPOCH);
        assert_eq!(decision.row, row::RECORD_GONE);
        summary(&decision)
    };
    assert_eq!(decided(Some(gone)), expected);
    assert_eq!(decided(Some(OwnerState::Unknown("x".into()))), "");
    assert_eq!(decided(None), "");
}
