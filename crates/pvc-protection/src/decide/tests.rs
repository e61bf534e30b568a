//! Tests of the decision table: cases for each rule, and for each way to miss it.

use std::sync::Arc;

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, OwnerReference, ResourceVersion, Uid};
use belayer_core::slim::{ObjectMeta, Phase, Pod};
use belayer_holds::owner::{GoneProof, OwnerState};
use rstest::rstest;

use super::*;
use crate::config::Mode;
use crate::evidence::EVIDENCE_NAMES;
use crate::owner::{COMPLETED_LABEL, query};
use crate::pods_query::{Listed, PodsQuery};
use crate::snapshot::Hold;

const NOW: i64 = 1_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A PVC that is neither held nor being deleted. The store shows no users; there is no live read.
fn pvc() -> Snapshot {
    let meta = ObjectMeta::new(
        ObjectKey::new("shop", "data"),
        Uid::new("c-1"),
        ResourceVersion::new(7),
    );
    Snapshot {
        pvc: Some(PvcView {
            meta,
            mode: Mode::Own,
            hold: Hold::Missing,
            deletion_seen: None,
            cached: CachedUsers::Known {
                users: Users::default(),
                as_of: ResourceVersion::new(100),
            },
            query: PodsQuery::new("shop"),
            pods_answer: None,
            list_error: None,
            owner: None,
        }),
    }
}

impl Snapshot {
    fn with(mut self, change: impl FnOnce(&mut PvcView)) -> Self {
        if let Some(pvc) = &mut self.pvc {
            change(pvc);
        }
        self
    }

    fn held(self) -> Self {
        self.with(|pvc| pvc.hold = Hold::Present)
    }

    fn formerly_held(self) -> Self {
        self.with(|pvc| pvc.hold = Hold::Former)
    }

    /// Its deletion began just now, and was seen.
    fn deleting(self) -> Self {
        self.deleting_for(0)
    }

    fn deleting_for(self, seconds: i64) -> Self {
        self.with(|pvc| {
            pvc.meta.deletion_timestamp = Some(at(NOW - seconds));
            pvc.deletion_seen = Some(LogicalTime::now());
        })
    }

    fn used_by(self, pods: &[&str]) -> Self {
        self.with(|pvc| {
            pvc.cached = CachedUsers::Known {
                users: pods.iter().collect(),
                as_of: ResourceVersion::new(100),
            };
        })
    }

    fn with_an_unsynced_store(self) -> Self {
        self.with(|pvc| pvc.cached = CachedUsers::Unknown)
    }

    /// A live read that begins now listed these pods; the list is newer than the store.
    fn listed(self, pods: &[Pod]) -> Self {
        self.listed_at(101, pods)
    }

    fn listed_at(self, version: u64, pods: &[Pod]) -> Self {
        self.listed_after(0, version, pods)
    }

    /// The same for a pod store that was at the version `store` before the read.
    fn listed_after(self, store: u64, version: u64, pods: &[Pod]) -> Self {
        let [store, version] = [store, version].map(ResourceVersion::new);
        let mut listed = Listed::at(version).after(store);
        pods.iter().for_each(|pod| listed.note(pod));
        let listed = PodsAnswer::Listed(Arc::new(listed));
        self.with(|pvc| {
            pvc.pods_answer = Some(LiveAnswer::scripted(listed, LogicalTime::now()));
        })
    }

    /// A live read that begins now found that the store has reached this version.
    fn store_reached(self, version: u64) -> Self {
        let reached = PodsAnswer::StoreReached(ResourceVersion::new(version));
        self.with(|pvc| {
            pvc.pods_answer = Some(LiveAnswer::scripted(reached, LogicalTime::now()));
        })
    }

    fn advised(self) -> Self {
        self.with(|pvc| pvc.mode = Mode::Advise)
    }

    fn protected_by_kubernetes(self) -> Self {
        self.with(|pvc| {
            pvc.meta.finalizers = Box::from([KUBERNETES_PVC_PROTECTION.into()]);
        })
    }

    /// The store shows these pods.
    fn used_by_pods(self, pods: &[Pod]) -> Self {
        let mut users = Users::default();
        pods.iter().for_each(|pod| users.note_pod(pod));
        self.with(|pvc| {
            pvc.cached = CachedUsers::Known {
                users,
                as_of: ResourceVersion::new(100),
            };
        })
    }

    /// Its controller owner is of this kind; it was not read yet.
    fn owned_by(self, api_version: &str, kind: &str) -> Self {
        let owner = OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "build".into(),
            uid: Uid::new("w-1"),
        };
        self.with(|pvc| {
            pvc.meta.controller = Some(Arc::new(owner));
            let asked = query(&pvc.meta);
            pvc.owner = asked.map(|query| OwnerView {
                query,
                answer: None,
            });
        })
    }

    fn of_a_workflow(self) -> Self {
        self.owned_by("argoproj.io/v1alpha1", "Workflow")
    }

    /// A live read that begins now returned this owner.
    fn owner_is(self, state: OwnerState) -> Self {
        self.with(|pvc| {
            if let Some(owner) = &mut pvc.owner {
                owner.answer = Some(LiveAnswer::scripted(state, LogicalTime::now()));
            }
        })
    }

    fn with_failing_reads(self) -> Self {
        self.with(|pvc| pvc.list_error = Some("pods is forbidden".into()))
    }
}

fn user(name: &str) -> Pod {
    let key = ObjectKey::new("shop", name);
    let meta = ObjectMeta::new(key, Uid::new(name), ResourceVersion::new(1));
    Pod {
        node_name: Some("node-1".into()),
        pvcs: Box::from(["data".into()]),
        ..Pod::new(meta)
    }
}

fn unbound(name: &str) -> Pod {
    Pod {
        node_name: None,
        ..user(name)
    }
}

fn ended(name: &str) -> Pod {
    Pod {
        phase: Phase::Succeeded,
        ..user(name)
    }
}

fn workflow(labels: &[(&str, &str)]) -> OwnerState {
    let key = ObjectKey::new("shop", "build");
    let mut meta = ObjectMeta::new(key, Uid::new("w-1"), ResourceVersion::new(1));
    meta.labels = labels.iter().copied().collect();
    OwnerState::Present(meta)
}

fn finished() -> OwnerState {
    workflow(&[(COMPLETED_LABEL, "true")])
}

/// The expected effect of a decision.
#[derive(Debug, PartialEq, Eq)]
enum Does {
    Nothing,
    AddsHold,
    Releases,
    /// Waits for an event.
    Keeps,
    /// Requires a live read at once.
    Asks,
    /// Waits, and repeats a live read later.
    KeepsAndRechecks,
}

fn does(decision: &PvcDecision) -> Does {
    let asks = decision.missing.iter().find_map(|missing| match missing {
        Missing::Answer { after, .. } => Some(*after),
        Missing::Event(_) => None,
    });
    match (&decision.write, asks) {
        (Some(Write::AddHold), _) => Does::AddsHold,
        (Some(Write::Release(Evidence::Unused(_) | Evidence::OwnerFinished(_))), _) => {
            Does::Releases
        }
        (None, Some(after)) if after.is_zero() => Does::Asks,
        (None, Some(_)) => Does::KeepsAndRechecks,
        (None, None) if decision.missing.is_empty() => Does::Nothing,
        (Some(other), _) => panic!("no row writes {other:?}"),
        (None, None) => Does::Keeps,
    }
}

#[rstest]
#[case::row_01_not_in_cache(Snapshot { pvc: None }, 1, Does::Nothing)]
#[case::row_02_a_new_pvc_is_held(pvc(), 2, Does::AddsHold)]
#[case::row_02_a_used_pvc_is_held(pvc().used_by(&["a"]), 2, Does::AddsHold)]
#[case::row_02_after_a_change_of_name_the_new_one_is_added(pvc().formerly_held(), 2, Does::AddsHold)]
#[case::row_03_a_user_in_the_index_keeps(pvc().held().deleting().used_by(&["a"]), 3, Does::Keeps)]
#[case::row_03_regardless_of_live_reads(pvc().held().deleting().used_by(&["a"]).listed(&[]), 3, Does::Keeps)]
#[case::row_03_also_under_the_former_name(pvc().formerly_held().deleting().used_by(&["a"]), 3, Does::Keeps)]
#[case::row_04_the_index_alone_is_no_proof(pvc().held().deleting(), 4, Does::Asks)]
#[case::row_04_a_list_that_shows_no_user_releases(pvc().held().deleting().listed(&[]), 4, Does::Releases)]
#[case::row_04_an_unbound_pod_is_no_user(pvc().held().deleting().listed(&[unbound("a")]), 4, Does::Releases)]
#[case::row_04_a_user_in_the_list_keeps(pvc().held().deleting().listed(&[user("a")]), 4, Does::KeepsAndRechecks)]
#[case::row_04_a_list_begun_before_the_deletion_was_seen(pvc().held().listed(&[]).deleting(), 4, Does::Asks)]
#[case::row_04_its_users_say_nothing_either(pvc().held().listed(&[user("a")]).deleting(), 4, Does::Asks)]
#[case::row_04_a_user_of_the_list_that_a_newer_store_shows_gone(
    pvc().held().deleting().listed_at(100, &[user("a")]), 4, Does::Releases)]
#[case::row_04_a_store_from_before_the_data_went_back_does_not(
    pvc().held().deleting().listed_after(100, 99, &[user("a")]), 4, Does::KeepsAndRechecks)]
#[case::row_04_a_store_that_is_as_new_releases(pvc().held().deleting().store_reached(100), 4, Does::Releases)]
#[case::row_04_a_store_that_fell_back_does_not(pvc().held().deleting().store_reached(101), 4, Does::Asks)]
#[case::row_04_a_store_reached_before_the_deletion_was_seen(pvc().held().store_reached(100).deleting(), 4, Does::Asks)]
#[case::row_04_unknown_is_not_unused(pvc().held().deleting().with_an_unsynced_store(), 4, Does::Asks)]
#[case::row_04_unknown_does_not_become_unused_by_a_version(
    pvc().held().deleting().with_an_unsynced_store().store_reached(1), 4, Does::Asks)]
#[case::row_04_a_list_serves_where_the_store_cannot_say(
    pvc().held().deleting().with_an_unsynced_store().listed(&[]), 4, Does::Releases)]
#[case::row_04_a_failing_read_is_repeated(pvc().held().deleting().with_failing_reads(), 4, Does::Asks)]
#[case::row_04_the_former_name_leaves_as_well(pvc().formerly_held().deleting().listed(&[]), 4, Does::Releases)]
#[case::row_05_a_held_pvc_that_is_not_deleted(pvc().held(), 5, Does::Nothing)]
#[case::row_05_no_hold_is_added_late(pvc().deleting(), 5, Does::Nothing)]
#[case::row_06_a18_the_pvc_of_a_finished_workflow_is_released(
    pvc().held().deleting().of_a_workflow().used_by_pods(&[ended("a")]).owner_is(finished()).listed(&[ended("a")]),
    6, Does::Releases)]
#[case::row_06_a18_the_store_serves_where_it_is_new_enough(
    pvc().held().deleting().of_a_workflow().used_by_pods(&[ended("a")]).owner_is(finished()).store_reached(100),
    6, Does::Releases)]
#[case::row_06_a18_the_owner_is_asked_first(
    pvc().held().deleting().of_a_workflow().used_by_pods(&[ended("a")]), 6, Does::Asks)]
#[case::row_06_a18_then_the_pods(
    pvc().held().deleting().of_a_workflow().used_by_pods(&[ended("a")]).owner_is(finished()), 6, Does::Asks)]
#[case::row_06_a18_a_pod_that_the_index_missed_keeps(
    pvc().held().deleting().of_a_workflow().used_by_pods(&[ended("a")]).owner_is(finished())
        .listed(&[ended("a"), user("b")]), 6, Does::KeepsAndRechecks)]
#[case::row_06_a18_a_running_workflow_keeps(
    pvc().held().deleting().of_a_workflow().used_by_pods(&[ended("a")]).owner_is(workflow(&[])).listed(&[ended("a")]),
    6, Does::KeepsAndRechecks)]
#[case::row_06_a18_unknown_is_not_finished(
    pvc().held().deleting().of_a_workflow().used_by_pods(&[ended("a")])
        .owner_is(OwnerState::Unknown("forbidden".into())).listed(&[ended("a")]), 6, Does::KeepsAndRechecks)]
#[case::row_06_a18_gone_is_not_finished(
    pvc().held().deleting().of_a_workflow().used_by_pods(&[ended("a")])
        .owner_is(OwnerState::Gone(GoneProof::scripted())).listed(&[ended("a")]), 6, Does::KeepsAndRechecks)]
#[case::row_06_a18_a_read_begun_before_the_deletion_was_seen(
    pvc().held().of_a_workflow().used_by_pods(&[ended("a")]).owner_is(finished()).deleting().listed(&[ended("a")]),
    6, Does::Asks)]
#[case::row_06_a18_a_list_begun_before_the_deletion_was_seen(
    pvc().held().of_a_workflow().used_by_pods(&[ended("a")]).listed(&[ended("a")]).deleting().owner_is(finished()),
    6, Does::Asks)]
#[case::row_03_a18_a_running_pod_keeps_the_pvc_of_a_finished_workflow(
    pvc().held().deleting().of_a_workflow().used_by_pods(&[ended("a"), user("b")]).owner_is(finished()).listed(&[]),
    3, Does::Keeps)]
#[case::row_03_a18_an_ended_pod_keeps_the_pvc_of_another_owner(
    pvc().held().deleting().owned_by("apps/v1", "StatefulSet").used_by_pods(&[ended("a")]).owner_is(finished()),
    3, Does::Keeps)]
#[case::row_03_a18_a_workflow_of_another_group(
    pvc().held().deleting().owned_by("example.com/v1", "Workflow").used_by_pods(&[ended("a")]), 3, Does::Keeps)]
#[case::row_05_a18_advise_adds_nothing(pvc().advised().used_by(&["a"]), 5, Does::Nothing)]
#[case::row_05_a18_advise_leaves_an_unused_pvc_to_kubernetes(
    pvc().advised().protected_by_kubernetes().deleting(), 5, Does::Nothing)]
#[case::row_05_a18_advise_does_not_report_an_unprotected_pvc(
    pvc().advised().deleting().used_by(&["a"]), 5, Does::Nothing)]
#[case::row_07_a18_advise_names_the_users(
    pvc().advised().protected_by_kubernetes().deleting().used_by(&["a"]), 7, Does::Keeps)]
#[case::row_03_a18_a_pvc_that_only_belayer_protects_stays_held_while_used(
    pvc().advised().held().deleting().used_by(&["a"]), 3, Does::Keeps)]
#[case::row_04_a18_and_is_released_after_its_last_user(
    pvc().advised().held().deleting().listed(&[]), 4, Does::Releases)]
#[case::row_08_a18_a_pvc_that_only_belayer_protects_is_reported(pvc().advised().held().used_by(&["a"]), 8, Does::Keeps)]
#[case::row_05_a18_what_kubernetes_protects_too_is_not(
    pvc().advised().held().protected_by_kubernetes().used_by(&["a"]), 5, Does::Nothing)]
#[case::row_05_a_pvc_that_was_never_held_and_is_being_deleted_is_not_reported(
    pvc().protected_by_kubernetes().deleting().used_by(&["a"]), 5, Does::Nothing)]
fn table(#[case] world: Snapshot, #[case] row: u8, #[case] expected: Does) {
    let decision = decide(&world, at(NOW));
    if let Some(Write::Release(evidence)) = &decision.write {
        use belayer_holds::decision::Evidence as _;
        assert!(EVIDENCE_NAMES.contains(&evidence.name()), "{evidence:?}");
    }
    assert_eq!((decision.row.number, does(&decision)), (row, expected));
}

#[test]
fn a_waiting_pvc_reports_the_pods_that_use_it() {
    let pods = ["a", "b", "c", "d", "e", "f", "g"];
    let world = pvc().held().deleting_for(60).used_by(&pods);
    let decision = decide(&world, at(NOW));
    assert_eq!(decision.notices.len(), 1);
    let notice = &decision.notices[0];
    assert_eq!(notice.reason, "DeletionWaits");
    assert_eq!(
        notice.message,
        "deletion of this PVC waits: it is used by the pods a, b, c, d, e and 2 more"
    );
    assert_eq!(decision.requeue_after, Some(RESYNC));
}

/// T3: of such a pod it is not known which PVCs it uses.
#[test]
fn t3_a_pod_with_too_many_pvcs_may_use_a_pvc() {
    let any = Pod {
        pvcs: Box::from([belayer_core::slim::ANY_PVC.into()]),
        ..user("any")
    };
    let waits = |pods: &[Pod]| {
        let world = pvc().held().deleting_for(60).used_by_pods(pods);
        decide(&world, at(NOW)).notices[0].message.to_string()
    };
    assert_eq!(
        waits(std::slice::from_ref(&any)),
        "deletion of this PVC waits: it may be used by the pod any: it refers to more PVCs than Belayer keeps"
    );
    assert_eq!(
        waits(&[user("a"), any]),
        "deletion of this PVC waits: it is used by the pods a, any; 1 of them may use it: it refers to more PVCs than \
         Belayer keeps"
    );
}

/// A live read that began when the deletion was seen may be older than it.
#[test]
fn a_user_found_by_a_read_as_old_as_the_deletion_is_read_again_at_once() {
    let world = pvc().held().deleting().listed(&[user("a")]);
    let world = world.with(|pvc| {
        pvc.deletion_seen = pvc.pods_answer.as_ref().map(LiveAnswer::begun);
    });
    let decision = decide(&world, at(NOW));
    let Some(Missing::Answer { after, .. }) = decision.missing.last() else {
        panic!("{decision:?}");
    };
    assert_eq!(*after, Duration::ZERO);
}

#[rstest]
#[case(REPORT_AFTER.as_secs(), 1)]
#[case(REPORT_AFTER.as_secs() - 1, 0)]
fn a_deletion_is_reported_once_it_has_waited_long_enough(
    #[case] seconds: u64,
    #[case] events: usize,
) {
    let world = pvc().held().deleting_for(seconds as i64);
    let decision = decide(&world.used_by(&["a"]), at(NOW));
    assert_eq!(decision.notices.len(), events);
}

#[test]
fn a_pvc_that_waits_briefly_causes_no_event() {
    let decision = decide(&pvc().held().deleting_for(1).used_by(&["a"]), at(NOW));
    assert!(decision.notices.is_empty());
    assert_eq!(
        decision.requeue_after,
        Some(REPORT_AFTER - Duration::from_secs(1))
    );
}

#[test]
fn a_failing_live_read_is_reported() {
    let world = pvc().held().deleting_for(60).with_failing_reads();
    let decision = decide(&world, at(NOW));
    assert!(
        decision.notices[0].message.ends_with("pods is forbidden"),
        "{:?}",
        decision.notices
    );
}

#[test]
fn a18_advise_reports_the_pods_that_a_pvc_waits_for() {
    let world = pvc().advised().protected_by_kubernetes();
    let decision = decide(&world.deleting_for(60).used_by(&["a"]), at(NOW));
    assert_eq!(decision.notices[0].reason, "DeletionWaits");
    assert_eq!(
        decision.notices[0].message,
        "deletion of this PVC waits: it is used by the pod a"
    );
}

#[test]
fn a18_a_finalizer_that_stays_is_reported() {
    let decision = decide(&pvc().advised().held().used_by(&["a"]), at(NOW));
    let notice = &decision.notices[0];
    assert_eq!(notice.reason, "FinalizerKept");
    assert!(notice.message.contains("used by the pod a"), "{notice:?}");
}
