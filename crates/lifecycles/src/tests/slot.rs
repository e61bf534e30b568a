//! The table in the documentation of [`Slot`], cell by cell.

use rstest::rstest;
use tokio::time::Instant;

use crate::{Deadline, End, Ended, Observation, Pace, Slot, Step, Work};
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::Uid;
use belayer_core::workqueue::Backoff;

type Event = (&'static str, Observation<&'static str>);

const PACE: Pace = Pace {
    resync: None,
    draw: 0.0,
};

fn created(uid: &'static str) -> Event {
    (uid, Observation::Created("new"))
}

fn updated(uid: &'static str) -> Event {
    (uid, Observation::Updated("new"))
}

fn terminating(uid: &'static str) -> Event {
    let (snapshot, deadline) = ("new", Deadline::NONE);
    (uid, Observation::Terminating { snapshot, deadline })
}

fn kill(uid: &'static str) -> Event {
    let deadline = Deadline::NONE;
    (uid, Observation::Kill { deadline })
}

fn deleted(uid: &'static str) -> Event {
    (uid, Observation::Deleted)
}

/// A name in some state, with its history since then.
struct Name {
    slot: Slot<&'static str>,
    history: Vec<String>,
    running: bool,
    now: Instant,
}

fn free() -> Name {
    Name {
        slot: Slot::default(),
        history: Vec::new(),
        running: false,
        now: Instant::now(),
    }
}

/// u-1 is in sync, with a run in flight.
fn in_sync() -> Name {
    free().observe(("u-1", Observation::Created("old"))).begun()
}

/// u-1 is terminating, with a run in flight.
fn in_termination() -> Name {
    free()
        .observe(("u-1", Observation::Created("old")))
        .observe(kill("u-1"))
        .begun()
}

/// u-1 is terminated and being cleaned up.
fn in_cleanup() -> Name {
    in_termination().ended(Ended::Done).begun()
}

/// The work of u-1 has finished, and it is still in the store.
fn finished() -> Name {
    in_cleanup().ended(Ended::Done)
}

/// u-2 waits until the work of u-1 has finished.
fn waiting() -> Name {
    in_termination().observe(("u-2", Observation::Created("old")))
}

impl Name {
    fn observe(mut self, (uid, observation): Event) -> Self {
        let fx = self
            .slot
            .observe(&Uid::new(uid), observation, LogicalTime::now());
        if fx.cancel {
            self.history.push("cancel".into());
        }
        for (count, what) in [
            (fx.restarts, "restart"),
            (fx.orphans, "orphan"),
            (fx.dropped, "dropped"),
        ] {
            assert!(count <= 1);
            if count == 1 {
                self.history.push(what.into());
            }
        }
        self.finished(&fx.finished);
        self
    }

    fn finished(&mut self, finished: &[crate::Finished]) {
        for finished in finished {
            self.history.push(match finished.end {
                End::Done => format!("{} done", finished.uid),
                End::Unstarted => format!("{} unstarted", finished.uid),
                End::Restarting => format!("{} restarting", finished.uid),
            });
        }
    }

    fn begun(mut self) -> Self {
        self.running = self.begin();
        assert!(self.running);
        self
    }

    fn begin(&mut self) -> bool {
        let Step::Run(run) = self.slot.begin(self.now) else {
            return false;
        };
        self.history.push(match run.work {
            Work::Sync { snapshot } => format!("sync {} {snapshot}", run.uid),
            Work::Terminate { snapshot, .. } => format!("terminate {} {snapshot}", run.uid),
            Work::TerminateFound { .. } => format!("remains {}", run.uid),
            Work::CleanUp { snapshot } => format!("clean {} {snapshot}", run.uid),
        });
        true
    }

    fn ended(mut self, ended: Ended) -> Self {
        let fx = self.slot.complete(ended, PACE, self.now);
        self.finished(&fx.finished);
        self.running = false;
        self
    }

    fn clear_history(mut self) -> Self {
        self.history.clear();
        self
    }

    /// Runs everything successfully from here on; returns the history until nothing is left to do,
    /// and the final state.
    fn run_to_end(mut self) -> String {
        while self.running || self.begin() {
            self = self.ended(Ended::Done);
        }
        let left: Vec<_> = self
            .slot
            .views()
            .map(|view| format!("{} {:?} {:?}", view.uid, view.phase, view.config))
            .collect();
        let history = self.history.join(", ");
        format!("{history} | {}", left.join(", "))
    }
}

#[rstest]
#[case::free_created(free(), created("u-1"), "sync u-1 new | u-1 Sync Desired")]
#[case::free_updated(free(), updated("u-1"), "sync u-1 new | u-1 Sync Desired")]
#[case::free_terminating(
    free(),
    terminating("u-1"),
    "terminate u-1 new, clean u-1 new, u-1 done | u-1 Finished Desired"
)]
#[case::free_killed(free(), kill("u-1"), " | ")]
#[case::free_deleted(free(), deleted("u-1"), " | ")]
#[case::sync_created(in_sync(), created("u-1"), "sync u-1 new | u-1 Sync Desired")]
#[case::sync_updated(in_sync(), updated("u-1"), "sync u-1 new | u-1 Sync Desired")]
#[case::sync_terminating(
    in_sync(),
    terminating("u-1"),
    "cancel, terminate u-1 new, clean u-1 new, u-1 done | u-1 Finished Desired"
)]
#[case::sync_killed(
    in_sync(),
    kill("u-1"),
    "cancel, terminate u-1 old, clean u-1 old, u-1 done | u-1 Finished Desired"
)]
#[case::sync_deleted(
    in_sync(),
    deleted("u-1"),
    "cancel, terminate u-1 old, clean u-1 old, u-1 done | "
)]
#[case::termination_created(
    in_termination(),
    created("u-1"),
    "restart, clean u-1 old, u-1 restarting, sync u-1 new | u-1 Sync Desired"
)]
#[case::termination_updated(
    in_termination(),
    updated("u-1"),
    "clean u-1 new, u-1 done | u-1 Finished Desired"
)]
#[case::termination_terminating(
    in_termination(),
    terminating("u-1"),
    "clean u-1 new, u-1 done | u-1 Finished Desired"
)]
#[case::termination_killed(
    in_termination(),
    kill("u-1"),
    "clean u-1 old, u-1 done | u-1 Finished Desired"
)]
#[case::termination_deleted(in_termination(), deleted("u-1"), "clean u-1 old, u-1 done | ")]
#[case::cleanup_created(
    in_cleanup(),
    created("u-1"),
    "restart, u-1 restarting, sync u-1 new | u-1 Sync Desired"
)]
#[case::cleanup_updated(in_cleanup(), updated("u-1"), "u-1 done | u-1 Finished Desired")]
#[case::cleanup_terminating(in_cleanup(), terminating("u-1"), "u-1 done | u-1 Finished Desired")]
#[case::cleanup_killed(in_cleanup(), kill("u-1"), "u-1 done | u-1 Finished Desired")]
#[case::cleanup_deleted(in_cleanup(), deleted("u-1"), "u-1 done | ")]
#[case::finished_created(finished(), created("u-1"), "restart, sync u-1 new | u-1 Sync Desired")]
#[case::finished_updated(finished(), updated("u-1"), "dropped | u-1 Finished Desired")]
#[case::finished_terminating(finished(), terminating("u-1"), "dropped | u-1 Finished Desired")]
#[case::finished_killed(finished(), kill("u-1"), "dropped | u-1 Finished Desired")]
#[case::finished_deleted(finished(), deleted("u-1"), " | ")]
#[case::waiting_created(
    waiting(),
    created("u-2"),
    "clean u-1 old, u-1 done, sync u-2 new | u-2 Sync Desired, u-1 Finished Desired"
)]
#[case::waiting_updated(
    waiting(),
    updated("u-2"),
    "clean u-1 old, u-1 done, sync u-2 new | u-2 Sync Desired, u-1 Finished Desired"
)]
#[case::waiting_terminating(
    waiting(),
    terminating("u-2"),
    "u-2 unstarted, clean u-1 old, u-1 done | u-1 Finished Desired, u-2 Finished Desired"
)]
#[case::waiting_killed(
    waiting(),
    kill("u-2"),
    "u-2 unstarted, clean u-1 old, u-1 done | u-1 Finished Desired, u-2 Finished Desired"
)]
#[case::waiting_deleted(
    waiting(),
    deleted("u-2"),
    "u-2 unstarted, clean u-1 old, u-1 done | u-1 Finished Desired"
)]
#[case::taken_created(
    in_sync(),
    created("u-2"),
    "cancel, orphan, terminate u-1 old, clean u-1 old, u-1 done, sync u-2 new \
     | u-2 Sync Desired, u-1 Finished Desired"
)]
#[case::taken_updated(
    in_sync(),
    updated("u-2"),
    "cancel, orphan, terminate u-1 old, clean u-1 old, u-1 done, sync u-2 new \
     | u-2 Sync Desired, u-1 Finished Desired"
)]
#[case::taken_terminating(
    in_sync(),
    terminating("u-2"),
    "cancel, orphan, u-2 unstarted, terminate u-1 old, clean u-1 old, u-1 done \
     | u-1 Finished Desired, u-2 Finished Desired"
)]
#[case::taken_killed(in_sync(), kill("u-2"), " | u-1 Sync Desired")]
#[case::taken_deleted(in_sync(), deleted("u-2"), " | u-1 Sync Desired")]
fn table(#[case] name: Name, #[case] observe: Event, #[case] history: &str) {
    assert_eq!(name.clear_history().observe(observe).run_to_end(), history);
}

#[test]
fn a_name_has_at_most_one_run_at_a_time() {
    let mut name = in_sync();
    assert!(!name.begin());
    assert_eq!(name.slot.begin(name.now), Step::Rest);
}

#[test]
fn only_the_newest_waiting_object_is_worked_on() {
    let name = waiting().clear_history().observe(created("u-3"));
    assert_eq!(
        name.observe(updated("u-2")).run_to_end(),
        "u-2 unstarted, dropped, clean u-1 old, u-1 done, sync u-3 new \
         | u-3 Sync Desired, u-1 Finished Desired, u-2 Finished Desired"
    );
}

#[test]
fn an_object_promoted_but_not_begun_ends_without_a_run_too() {
    let name = waiting().ended(Ended::Done).begun().ended(Ended::Done);
    assert_eq!(
        name.clear_history().observe(deleted("u-2")).run_to_end(),
        "u-2 unstarted | u-1 Finished Desired"
    );
}

#[test]
fn an_object_first_observed_terminating_is_terminated() {
    // An earlier process may have begun it.
    let observe = free().observe(terminating("u-1")).observe(deleted("u-1"));
    assert_eq!(
        observe.run_to_end(),
        "terminate u-1 new, clean u-1 new, u-1 done | "
    );
}

#[test]
fn updates_after_a_second_creation_belong_to_the_second_life() {
    let name = in_termination()
        .clear_history()
        .observe(("u-1", Observation::Created("second")))
        .observe(updated("u-1"));
    assert_eq!(
        name.run_to_end(),
        "restart, clean u-1 old, u-1 restarting, sync u-1 new | u-1 Sync Desired"
    );
}

#[rstest]
#[case::ordered_to_stop(kill("u-1"))]
#[case::seen_to_stop(terminating("u-1"))]
#[case::gone(deleted("u-1"))]
#[case::replaced(created("u-2"))]
fn a_second_creation_is_dropped_when_the_object_must_terminate_again(#[case] observe: Event) {
    let name = in_termination().observe(created("u-1"));
    assert!(name.observe(observe).run_to_end().contains("u-1 done"));
}

#[test]
fn a_second_creation_takes_the_name_from_the_waiting_object() {
    assert_eq!(
        waiting()
            .clear_history()
            .observe(created("u-1"))
            .run_to_end(),
        "restart, u-2 unstarted, clean u-1 old, u-1 restarting, sync u-1 new \
         | u-1 Sync Desired, u-2 Finished Desired"
    );
}

#[test]
fn a_replaced_object_is_kept_until_its_deletion_is_observed() {
    let name = in_sync().observe(created("u-2")).ended(Ended::Settled);
    let name = name.begun().ended(Ended::Done).begun().ended(Ended::Done);
    let late = name.observe(updated("u-1")).clear_history();
    assert_eq!(
        late.observe(deleted("u-1")).run_to_end(),
        "sync u-2 new | u-2 Sync Desired"
    );
}

#[test]
fn a_change_is_acted_on_before_the_retry() {
    let mut name = in_sync().ended(Ended::Failed(Backoff::DENIED));
    let retry = name.now + Backoff::DENIED.floor();
    assert_eq!(name.slot.begin(name.now), Step::Sleep(retry));
    let mut name = name.observe(updated("u-1"));
    assert!(name.begin());
}

#[test]
fn an_observation_that_does_not_affect_the_work_keeps_its_backoff() {
    let mut name = in_termination().ended(Ended::Failed(Backoff::DENIED));
    let retry = name.now + Backoff::DENIED.floor();
    for observe in [kill("u-1"), deleted("u-1"), created("u-2"), created("u-3")] {
        name = name.observe(observe);
        assert_eq!(name.slot.begin(name.now), Step::Sleep(retry));
    }
}
