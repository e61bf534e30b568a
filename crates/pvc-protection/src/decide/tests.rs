//! One case per row and per way to miss it.

use std::sync::Arc;

use belayer_core::moment::Moment;
use belayer_core::object::{ObjectKey, ResourceVersion, Uid};
use belayer_core::slim::{ObjectMeta, Pod};
use rstest::rstest;

use super::*;
use crate::look::Listed;
use crate::snapshot::Hold;

const NOW: i64 = 1_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A claim that is neither held nor being deleted, with nothing known about its users but the store,
/// which shows none.
fn claim() -> Snapshot {
    let meta = ObjectMeta::new(
        ObjectKey::new("shop", "data"),
        Uid::new("c-1"),
        ResourceVersion::new(7),
    );
    Snapshot {
        claim: Some(ClaimView {
            meta,
            hold: Hold::Missing,
            deletion_seen: None,
            cached: CachedUsers::Known {
                users: Users::default(),
                as_of: ResourceVersion::new(100),
            },
            question: PodsQuestion::new("shop"),
            look: None,
            look_error: None,
        }),
    }
}

impl Snapshot {
    fn with(mut self, change: impl FnOnce(&mut ClaimView)) -> Self {
        if let Some(claim) = &mut self.claim {
            change(claim);
        }
        self
    }

    fn held(self) -> Self {
        self.with(|claim| claim.hold = Hold::Present)
    }

    fn formerly_held(self) -> Self {
        self.with(|claim| claim.hold = Hold::Former)
    }

    /// Deletion was asked for just now, and seen.
    fn deleting(self) -> Self {
        self.deleting_for(0)
    }

    fn deleting_for(self, seconds: i64) -> Self {
        self.with(|claim| {
            claim.meta.deletion_timestamp = Some(at(NOW - seconds));
            claim.deletion_seen = Some(Moment::now());
        })
    }

    fn used_by(self, pods: &[&str]) -> Self {
        self.with(|claim| {
            claim.cached = CachedUsers::Known {
                users: pods.iter().collect(),
                as_of: ResourceVersion::new(100),
            };
        })
    }

    fn with_a_store_that_cannot_say(self) -> Self {
        self.with(|claim| claim.cached = CachedUsers::Unknown)
    }

    /// A look that begins now found these pods by a list that is newer than the store.
    fn listed(self, pods: &[Pod]) -> Self {
        self.listed_at(101, pods)
    }

    fn listed_at(self, version: u64, pods: &[Pod]) -> Self {
        let mut listed = Listed::at(ResourceVersion::new(version));
        pods.iter().for_each(|pod| listed.note(pod));
        let listed = PodsLook::Listed(Arc::new(listed));
        self.with(|claim| claim.look = Some(Fact::scripted(listed, Moment::now())))
    }

    /// A look that begins now found the store to be as of this version.
    fn store_reached(self, version: u64) -> Self {
        let reached = PodsLook::StoreReached(ResourceVersion::new(version));
        self.with(|claim| claim.look = Some(Fact::scripted(reached, Moment::now())))
    }

    fn with_failing_looks(self) -> Self {
        self.with(|claim| claim.look_error = Some("pods is forbidden".into()))
    }
}

fn user(name: &str) -> Pod {
    let key = ObjectKey::new("shop", name);
    let meta = ObjectMeta::new(key, Uid::new(name), ResourceVersion::new(1));
    Pod {
        node_name: Some("node-1".into()),
        claims: Box::from(["data".into()]),
        ..Pod::new(meta)
    }
}

fn unbound(name: &str) -> Pod {
    Pod {
        node_name: None,
        ..user(name)
    }
}

/// What a case expects: how the row is seen from outside.
#[derive(Debug, PartialEq, Eq)]
enum Does {
    Nothing,
    AddsHold,
    Releases,
    /// Waits for something in the world.
    Keeps,
    /// Asks at once.
    Asks,
    /// Waits, and asks again later.
    KeepsAndRechecks,
}

fn does(decision: &ClaimDecision) -> Does {
    let asks = decision.missing.iter().find_map(|missing| match missing {
        Missing::Answer { after, .. } => Some(*after),
        Missing::Event(_) => None,
    });
    match (&decision.write, asks) {
        (Some(Write::AddHold), _) => Does::AddsHold,
        (Some(Write::Release(Evidence::Unused(_))), _) => Does::Releases,
        (None, Some(after)) if after.is_zero() => Does::Asks,
        (None, Some(_)) => Does::KeepsAndRechecks,
        (None, None) if decision.missing.is_empty() => Does::Nothing,
        (Some(other), _) => panic!("no row writes {other:?}"),
        (None, None) => Does::Keeps,
    }
}

#[rstest]
#[case::row_01_not_in_cache(Snapshot { claim: None }, 1, Does::Nothing)]
#[case::row_02_a_new_claim_is_held(claim(), 2, Does::AddsHold)]
#[case::row_02_a_used_claim_is_held(claim().used_by(&["a"]), 2, Does::AddsHold)]
#[case::row_02_after_a_change_of_name_the_new_one_is_added(claim().formerly_held(), 2, Does::AddsHold)]
#[case::row_03_a_user_in_the_index_keeps(claim().held().deleting().used_by(&["a"]), 3, Does::Keeps)]
#[case::row_03_whatever_a_look_says(claim().held().deleting().used_by(&["a"]).listed(&[]), 3, Does::Keeps)]
#[case::row_03_also_under_the_former_name(claim().formerly_held().deleting().used_by(&["a"]), 3, Does::Keeps)]
#[case::row_04_the_index_alone_is_no_proof(claim().held().deleting(), 4, Does::Asks)]
#[case::row_04_a_list_that_shows_no_user_releases(claim().held().deleting().listed(&[]), 4, Does::Releases)]
#[case::row_04_an_unbound_pod_is_no_user(claim().held().deleting().listed(&[unbound("a")]), 4, Does::Releases)]
#[case::row_04_a_user_in_the_list_keeps(claim().held().deleting().listed(&[user("a")]), 4, Does::KeepsAndRechecks)]
#[case::row_04_a_list_begun_before_the_deletion_was_seen(claim().held().listed(&[]).deleting(), 4, Does::Asks)]
#[case::row_04_its_users_say_nothing_either(claim().held().listed(&[user("a")]).deleting(), 4, Does::Asks)]
#[case::row_04_a_user_of_the_list_that_a_newer_store_shows_gone(
    claim().held().deleting().listed_at(100, &[user("a")]), 4, Does::Releases)]
#[case::row_04_a_store_that_is_as_new_releases(claim().held().deleting().store_reached(100), 4, Does::Releases)]
#[case::row_04_a_store_that_fell_back_does_not(claim().held().deleting().store_reached(101), 4, Does::Asks)]
#[case::row_04_a_store_reached_before_the_deletion_was_seen(claim().held().store_reached(100).deleting(), 4, Does::Asks)]
#[case::row_04_unknown_is_not_unused(claim().held().deleting().with_a_store_that_cannot_say(), 4, Does::Asks)]
#[case::row_04_unknown_does_not_become_unused_by_a_version(
    claim().held().deleting().with_a_store_that_cannot_say().store_reached(1), 4, Does::Asks)]
#[case::row_04_a_list_serves_where_the_store_cannot_say(
    claim().held().deleting().with_a_store_that_cannot_say().listed(&[]), 4, Does::Releases)]
#[case::row_04_a_failing_look_is_repeated(claim().held().deleting().with_failing_looks(), 4, Does::Asks)]
#[case::row_04_the_former_name_leaves_as_well(claim().formerly_held().deleting().listed(&[]), 4, Does::Releases)]
#[case::row_05_a_held_claim_that_is_not_deleted(claim().held(), 5, Does::Nothing)]
#[case::row_05_no_hold_is_added_late(claim().deleting(), 5, Does::Nothing)]
fn table(#[case] world: Snapshot, #[case] row: u8, #[case] expected: Does) {
    let decision = decide(&world, at(NOW));
    assert_eq!((decision.row.number, does(&decision)), (row, expected));
}

#[test]
fn a_claim_that_waits_tells_which_pods_keep_it() {
    let pods = ["a", "b", "c", "d", "e", "f", "g"];
    let world = claim().held().deleting_for(60).used_by(&pods);
    let decision = decide(&world, at(NOW));
    assert_eq!(decision.notices.len(), 1);
    let notice = &decision.notices[0];
    assert_eq!(notice.reason, "DeletionWaits");
    assert_eq!(
        notice.message,
        "deletion of this claim waits: it is used by the pods a, b, c, d, e and 2 more"
    );
    assert_eq!(decision.look_again, Some(RESYNC));
}

#[test]
fn a_claim_that_goes_with_its_pods_tells_nothing() {
    let decision = decide(&claim().held().deleting_for(1).used_by(&["a"]), at(NOW));
    assert!(decision.notices.is_empty());
    assert_eq!(
        decision.look_again,
        Some(TELL_AFTER - Duration::from_secs(1))
    );
}

#[test]
fn a_look_that_cannot_be_had_is_told() {
    let world = claim().held().deleting_for(60).with_failing_looks();
    let decision = decide(&world, at(NOW));
    assert!(
        decision.notices[0].message.ends_with("pods is forbidden"),
        "{:?}",
        decision.notices
    );
}
