//! Tests of the decision table, by rule.

use rstest::rstest;

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, ResourceVersion, Uid};
use belayer_core::slim::ObjectMeta;
use belayer_holds::names;
use belayer_holds::namespace::{NamespaceQuery, NamespaceState, NamespaceView};
use belayer_holds::selection::Scope;

use super::*;
use crate::evidence::{KeptRunning, NoPodHeld};
use crate::pods_query::PodsQuery;
use crate::snapshot::PodsView;

/// The expected decision of a case.
#[derive(Debug, PartialEq, Eq)]
enum Expect {
    Nothing(&'static Rule),
    Hold(&'static Rule),
    Release(&'static Rule, &'static str),
    /// Keeps the workflow, and requires a live read at once.
    Ask(&'static Rule),
    /// Keeps the workflow, and requires a live read later.
    AskLater(&'static Rule),
    /// Keeps the workflow until an event.
    Keep(&'static Rule),
}

fn outcome(decision: &WorkflowDecision) -> Expect {
    use belayer_holds::decision::Evidence as _;
    let row = decision.row;
    let now =
        |missing: &Missing<_>| matches!(missing, Missing::Answer { after, .. } if after.is_zero());
    let later = |missing: &Missing<_>| matches!(missing, Missing::Answer { .. });
    match &decision.write {
        Some(Write::AddHold) => Expect::Hold(row),
        Some(Write::Release(evidence)) => Expect::Release(row, evidence.name()),
        Some(other) => panic!("{other:?}"),
        None if decision.missing.iter().any(now) => Expect::Ask(row),
        None if decision.missing.iter().any(later) => Expect::AskLater(row),
        None if decision.missing.is_empty() => Expect::Nothing(row),
        None => Expect::Keep(row),
    }
}

const RELEASED: &str = "NoPodHeld";

#[rstest]
#[case::row_01_not_selected_any_more(workflow().held().unselected(), Expect::Release(row::UNSELECTED, "Unselected"))]
#[case::row_01_too_many_at_once_are_kept(workflow().held().unselected().mass_release(), Expect::Keep(row::UNSELECTED))]
#[case::row_01_an_ignored_namespace_is_confirmed(workflow().held().ignored(), Expect::Ask(row::UNSELECTED))]
#[case::row_01_an_ignored_namespace_releases(
    workflow().held().ignored().ignored_confirmed(),
    Expect::Release(row::UNSELECTED, "Unselected")
)]
#[case::row_01_a_namespace_that_a_live_read_does_not_find_ignored_is_read_later(
    workflow().held().ignored().ignored_denied(),
    Expect::AskLater(row::UNSELECTED)
)]
#[case::row_01_a_read_older_than_the_workflow_is_repeated_at_once(
    workflow().held().ignored().ignored_denied().seen_after_it(),
    Expect::Ask(row::UNSELECTED)
)]
#[case::row_01_and_one_as_old_as_it(
    workflow().held().ignored().ignored_denied().seen_with_it(),
    Expect::Ask(row::UNSELECTED)
)]
#[case::row_01_does_not_apply_to_a_workflow_being_deleted(
    workflow().held().unselected().mass_release().deleting().pods(3),
    Expect::Keep(row::PODS_HELD)
)]
#[case::row_02_a_new_workflow_is_held(workflow(), Expect::Hold(row::ADD_HOLD))]
#[case::row_02_not_one_that_nothing_selects(workflow().unselected(), Expect::Nothing(row::NOTHING))]
#[case::row_02_not_one_in_an_ignored_namespace(workflow().ignored(), Expect::Nothing(row::NOTHING))]
#[case::row_03_no_hold_is_added_late(workflow().deleting(), Expect::Nothing(row::NOT_HELD))]
#[case::row_04_its_pods_go_first(workflow().held().deleting().pods(10_000), Expect::Keep(row::PODS_HELD))]
#[case::row_04_whatever_an_earlier_list_said(
    workflow().held().deleting().pods(1).listed(PodsState::none_held()),
    Expect::Keep(row::PODS_HELD)
)]
#[case::row_05_an_empty_index_is_confirmed(workflow().held().deleting(), Expect::Ask(row::CONFIRM))]
#[case::row_05_an_index_that_cannot_say_is_no_empty_one(
    workflow().held().deleting().index_unknown(),
    Expect::Ask(row::CONFIRM)
)]
#[case::row_05_a_list_begun_before_the_deletion_was_seen_is_no_proof(
    workflow().held().listed(PodsState::none_held()).deleting(),
    Expect::Ask(row::CONFIRM)
)]
#[case::row_05_nor_is_one_as_old_as_the_deletion(
    workflow().held().listed(PodsState::none_held()).deleted_with_it(),
    Expect::Ask(row::CONFIRM)
)]
#[case::row_05_none_found_releases(
    workflow().held().deleting().listed(PodsState::none_held()),
    Expect::Release(row::CONFIRM, RELEASED)
)]
#[case::row_05_some_found_is_row_4_again(
    workflow().held().deleting().listed(of_it()),
    Expect::AskLater(row::PODS_HELD)
)]
#[case::row_06_pods_go_first_in_a_dying_namespace_too(
    workflow().held().deleting().namespace_deleting().pods(2),
    Expect::Keep(row::NAMESPACE_TERMINATING)
)]
#[case::row_06_confirms_as_well(
    workflow().held().deleting().namespace_deleting(),
    Expect::Ask(row::NAMESPACE_TERMINATING)
)]
#[case::row_06_releases_as_well(
    workflow().held().deleting().namespace_deleting().listed(PodsState::none_held()),
    Expect::Release(row::NAMESPACE_TERMINATING, RELEASED)
)]
#[case::row_07_a_held_workflow_is_left_alone(workflow().held(), Expect::Nothing(row::NOTHING))]
#[case::row_07_one_not_in_the_cache(workflow().absent(), Expect::Nothing(row::NOTHING))]
#[case::row_05_a8_a_store_that_is_up_to_date_answers_by_its_index(
    workflow().held().deleting().listed(PodsState::StoreReached),
    Expect::Release(row::CONFIRM, RELEASED)
)]
#[case::row_05_a8_a_store_that_is_not_synced_is_no_answer(
    workflow().held().deleting().index_unknown().listed(PodsState::StoreReached),
    Expect::AskLater(row::PODS_HELD)
)]
#[case::row_05_a8_held_pods_of_others_do_not_matter(
    workflow().held().deleting().listed(of("wf-2")),
    Expect::Release(row::CONFIRM, RELEASED)
)]
#[case::row_08_a16_argo_goes_on_running_it(
    workflow().held().deleting().kept_running().pods(3),
    Expect::Release(row::KEPT_RUNNING, "KeptRunning")
)]
#[case::row_09_a20_it_is_not_archived_yet(
    workflow().held().deleting().awaits_archive().listed(PodsState::none_held()),
    Expect::Keep(row::ARCHIVING)
)]
#[case::row_09_a20_its_pods_go_first(
    workflow().held().deleting().awaits_archive().pods(1),
    Expect::Keep(row::PODS_HELD)
)]
#[case::row_09_a20_a_dying_namespace_does_not_wait(
    workflow().held().deleting().awaits_archive().namespace_deleting().namespace_deletion_read()
        .listed(PodsState::none_held()),
    Expect::Release(row::NAMESPACE_TERMINATING, RELEASED)
)]
#[case::row_09_a20_the_cache_does_not_prove_that_the_namespace_is_dying(
    workflow().held().deleting().awaits_archive().namespace_deleting().listed(PodsState::none_held()),
    Expect::Ask(row::NAMESPACE_TERMINATING)
)]
#[case::row_09_a20_the_namespace_was_created_anew(
    workflow().held().deleting().awaits_archive().namespace_deleting().ignored_denied()
        .listed(PodsState::none_held()),
    Expect::AskLater(row::NAMESPACE_TERMINATING)
)]
fn table(#[case] case: Case, #[case] expected: Expect) {
    assert_eq!(outcome(&decide(&case.0, Timestamp::UNIX_EPOCH)), expected);
}

#[test]
fn a_list_as_old_as_the_deletion_proves_nothing() {
    let begun = LogicalTime::now();
    let answer = LiveAnswer::scripted(PodsState::none_held(), begun);
    let prove = |seen| NoPodHeld::prove(&answer, seen, &Uid::new("wf-1"), Some(0));
    assert_eq!(prove(begun), None);
}

#[test]
fn a16_only_a_workflow_that_another_finalizer_keeps_goes_on_running() {
    let deleted = |finalizers: &[&str]| ObjectMeta {
        deletion_timestamp: Some(Timestamp::UNIX_EPOCH),
        finalizers: finalizers.iter().map(|name| (*name).into()).collect(),
        ..namespace_meta()
    };
    let kept = KeptRunning::prove(&deleted(&["workflows.argoproj.io/artifact-gc"]));
    assert_eq!(kept, Some(KeptRunning::scripted()));
    assert_eq!(KeptRunning::prove(&deleted(&["orphan"])), None);
}

#[rstest]
#[case::one(1, "1 of its pods is released")]
#[case::many(7, "7 of its pods are released")]
fn a_waiting_deletion_is_reported_with_the_number_of_pods(#[case] pods: usize, #[case] says: &str) {
    let waiting = workflow().held().deleting().pods(pods).0;
    let decision = decide(&waiting, Timestamp::UNIX_EPOCH);
    assert_eq!(decision.notices[0].reason, "DeletionWaits");
    let message = &decision.notices[0].message;
    assert!(message.contains(says), "{message}");
    assert!(decision.requeue_after.is_some());
}

#[test]
fn in_a_namespace_being_deleted_no_event_is_recorded() {
    let case = workflow().held().deleting().namespace_deleting().pods(7);
    assert!(decide(&case.0, Timestamp::UNIX_EPOCH).notices.is_empty());
}

/// A list with a held pod of this workflow.
fn of(workflow: &str) -> PodsState {
    PodsState::HeldOf(std::sync::Arc::new(
        [Uid::new(workflow)].into_iter().collect(),
    ))
}

fn of_it() -> PodsState {
    of("wf-1")
}

/// A selected workflow, not held, in a namespace that is not being deleted.
struct Case(Snapshot);

fn workflow() -> Case {
    Case(Snapshot {
        workflow: Some(WorkflowView {
            uid: Uid::new("wf-1"),
            kept_running: None,
            is_to_be_archived: false,
            held: false,
            deletion: None,
            first_seen: LogicalTime::now(),
            selection: Selection::Yes,
            namespace: NamespaceView {
                query: NamespaceQuery::new("ci"),
                cached: Some(namespace_meta()),
                answer: None,
            },
            pods: PodsView {
                query: PodsQuery::new("ci".into(), None),
                held: Some(0),
                answer: None,
            },
        }),
        mass_release: MassRelease::Within,
        resync: Duration::from_secs(600),
    })
}

fn namespace_meta() -> ObjectMeta {
    ObjectMeta::new(
        ObjectKey::cluster("ci"),
        Uid::new("ns-1"),
        ResourceVersion::new(10),
    )
}

fn ignored_meta() -> ObjectMeta {
    ObjectMeta {
        labels: [(names::IGNORE_LABEL, "true")].into_iter().collect(),
        ..namespace_meta()
    }
}

impl Case {
    fn with(mut self, change: impl FnOnce(&mut WorkflowView)) -> Self {
        change(self.0.workflow.as_mut().unwrap());
        self
    }

    fn absent(mut self) -> Self {
        self.0.workflow = None;
        self
    }

    fn held(self) -> Self {
        self.with(|workflow| workflow.held = true)
    }

    fn kept_running(self) -> Self {
        self.with(|workflow| workflow.kept_running = Some(KeptRunning::scripted()))
    }

    fn awaits_archive(self) -> Self {
        self.with(|workflow| workflow.is_to_be_archived = true)
    }

    fn deleting(self) -> Self {
        self.with(|workflow| {
            workflow.deletion = Some(Deletion {
                since: Timestamp::UNIX_EPOCH,
                seen: LogicalTime::now(),
            });
        })
    }

    fn unselected(self) -> Self {
        self.with(|workflow| workflow.selection = Selection::No)
    }

    fn ignored(self) -> Self {
        self.with(|workflow| {
            workflow.selection = Selection::Ignored;
            workflow.namespace.cached = Some(ignored_meta());
        })
    }

    fn ignored_confirmed(self) -> Self {
        self.namespace_read(ignored_meta())
    }

    fn ignored_denied(self) -> Self {
        self.namespace_read(namespace_meta())
    }

    fn namespace_read(self, found: ObjectMeta) -> Self {
        let state = NamespaceState::Present(found);
        self.with(|workflow| {
            workflow.namespace.answer = Some(LiveAnswer::scripted(state, LogicalTime::now()));
        })
    }

    fn seen_after_it(self) -> Self {
        self.with(|workflow| workflow.first_seen = LogicalTime::now())
    }

    /// First seen at the time at which the live read of the namespace began.
    fn seen_with_it(self) -> Self {
        self.with(|workflow| {
            if let Some(answer) = &workflow.namespace.answer {
                workflow.first_seen = answer.begun();
            }
        })
    }

    /// Its deletion is seen at the time at which the list of pods began.
    fn deleted_with_it(self) -> Self {
        self.with(|workflow| {
            let begun = workflow.pods.answer.as_ref().map(LiveAnswer::begun);
            workflow.deletion = begun.map(|seen| Deletion {
                since: Timestamp::UNIX_EPOCH,
                seen,
            });
        })
    }

    fn namespace_deletion_read(self) -> Self {
        self.namespace_read(ObjectMeta {
            deletion_timestamp: Some(Timestamp::UNIX_EPOCH),
            ..namespace_meta()
        })
    }

    fn namespace_deleting(self) -> Self {
        self.with(|workflow| {
            workflow.namespace.cached = Some(ObjectMeta {
                deletion_timestamp: Some(Timestamp::UNIX_EPOCH),
                ..namespace_meta()
            });
        })
    }

    fn pods(self, held: usize) -> Self {
        self.with(|workflow| workflow.pods.held = Some(held))
    }

    fn index_unknown(self) -> Self {
        self.with(|workflow| workflow.pods.held = None)
    }

    fn listed(self, state: PodsState) -> Self {
        self.with(|workflow| {
            workflow.pods.answer = Some(LiveAnswer::scripted(state, LogicalTime::now()));
        })
    }

    fn mass_release(mut self) -> Self {
        self.0.mass_release = MassRelease::Exceeded {
            unselected: 50,
            held: 100,
            scope: Scope::Namespace,
        };
        self
    }
}
