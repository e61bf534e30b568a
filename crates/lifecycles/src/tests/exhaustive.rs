//! Every state that three objects of one name can reach, and in each of them every event.
//!
//! The state space is finite: snapshots are distinguished only where it matters, one failure stands
//! for many, and there is one deadline. So this is a proof about the table, not a sample.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

use crate::{
    Activity, Deadline, Effects, End, Ended, Observation, Pace, Phase, Run, Slot, Step, View, Work,
};
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::Uid;
use belayer_core::workqueue::Backoff;

const UIDS: [&str; 3] = ["u-1", "u-2", "u-3"];
const OLD: u8 = 0;
const NEW: u8 = 1;
const HOUR: Duration = Duration::from_secs(3600);
const PACE: Pace = Pace {
    resync: None,
    draw: 0.0,
};

#[derive(Debug, Clone, Copy)]
enum Event {
    Told(usize, fn(u8, Deadline) -> Observation<u8>),
    Found(usize),
    Pass(Option<usize>),
    Begin,
    Ended(Ended),
}

fn events() -> Vec<Event> {
    let reported: [fn(u8, Deadline) -> Observation<u8>; 6] = [
        |snapshot, _| Observation::Created(snapshot),
        |snapshot, _| Observation::Updated(snapshot),
        |snapshot, _| Observation::Terminating {
            snapshot,
            deadline: Deadline::NONE,
        },
        |snapshot, deadline| Observation::Terminating { snapshot, deadline },
        |_, deadline| Observation::Kill { deadline },
        |_, _| Observation::Deleted,
    ];
    let mut events = vec![Event::Begin, Event::Pass(None)];
    for uid in 0..UIDS.len() {
        events.extend(reported.map(|reported| Event::Told(uid, reported)));
        events.extend([Event::Found(uid), Event::Pass(Some(uid))]);
    }
    let ends = [
        Ended::Settled,
        Ended::Terminal,
        Ended::Done,
        Ended::Failed(Backoff::new(HOUR, HOUR).at_least(HOUR)),
    ];
    events.extend(ends.map(Event::Ended));
    events
}

/// A setup with fixed times, so that equal states are equal.
struct Explorer {
    now: Instant,
    deadline: Deadline,
    uids: Vec<Uid>,
}

/// The result of one event.
struct Transition {
    effects: Effects,
    step: Option<Step<u8>>,
}

impl Explorer {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            now,
            deadline: Deadline::at(now + HOUR),
            uids: UIDS.map(Uid::new).into(),
        }
    }

    /// `None` if the event cannot happen in this state.
    fn apply(&self, slot: &mut Slot<u8>, event: Event, snapshot: u8) -> Option<Transition> {
        let mut step = None;
        let heard = LogicalTime::BEGINNING;
        let effects = match event {
            Event::Told(uid, reported) => {
                let observation = reported(snapshot, self.deadline);
                slot.observe(&self.uids[uid], observation, heard)
            }
            Event::Found(uid) => slot.found(&self.uids[uid], Deadline::NONE, heard),
            Event::Pass(uid) => slot.pass(heard, uid.map(|uid| (&self.uids[uid], snapshot))),
            Event::Begin => {
                step = Some(slot.begin(self.now));
                Effects::default()
            }
            Event::Ended(ended) => {
                let running = running(slot)?;
                let failing = matches!(ended, Ended::Failed(_));
                if failing && running.failures > 0 {
                    return None;
                }
                slot.complete(ended, PACE, self.now)
            }
        };
        Some(Transition { effects, step })
    }

    /// Runs everything successfully, an hour later, and returns the runs until nothing is left to
    /// do.
    fn drain(&self, slot: &mut Slot<u8>) -> Vec<Run<u8>> {
        let later = self.now + HOUR * 2;
        let mut runs = Vec::new();
        for _ in 0..20 {
            if running(slot).is_some() {
                let _ = slot.complete(Ended::Done, PACE, later);
            }
            match slot.begin(later) {
                Step::Run(run) => runs.push(run),
                Step::Rest => return runs,
                Step::Sleep(_) => panic!("nothing to wait for"),
            }
        }
        panic!("no end: {runs:?}");
    }

    /// Visits every reachable state; calls `check` for every event in each of them.
    fn explore(
        &self,
        mut check: impl FnMut(&Slot<u8>, Event, &Slot<u8>, &Transition),
    ) -> HashSet<Slot<u8>> {
        let events = events();
        let mut known = HashSet::from([Slot::default()]);
        let mut open = vec![Slot::default()];
        while let Some(before) = open.pop() {
            for event in &events {
                let mut after = before.clone();
                let Some(transition) = self.apply(&mut after, *event, OLD) else {
                    assert_eq!(before, after);
                    continue;
                };
                check(&before, *event, &after, &transition);
                if !known.contains(&after) {
                    known.insert(after.clone());
                    open.push(after);
                }
            }
        }
        known
    }
}

fn running(slot: &Slot<u8>) -> Option<View<u8>> {
    slot.views().find(|view| view.activity == Activity::Running)
}

fn is_sync(step: &Option<Step<u8>>) -> bool {
    matches!(step, Some(Step::Run(run)) if matches!(run.work, Work::Sync { .. }))
}

/// The invariants of every event in every state.
fn check_invariants(
    explorer: &Explorer,
    before: &Slot<u8>,
    event: Event,
    after: &Slot<u8>,
    it: &Transition,
) {
    let context = || format!("{event:?}\nbefore {before:#?}\nafter {after:#?}");
    let restarted = |uid: &Uid| {
        it.effects.restarts > 0
            || it
                .effects
                .finished
                .iter()
                .any(|finished| finished.uid == *uid && finished.end == End::Restarting)
    };
    for old in before.views() {
        let new = after.view(&old.uid);
        if let Some(new) = &new
            && !restarted(&old.uid)
        {
            assert!(new.phase >= old.phase, "a phase went back: {}", context());
            let finished = new.phase == Phase::Finished;
            assert!(
                finished || new.deadline <= old.deadline,
                "a deadline grew: {}",
                context()
            );
        }
        // The run in flight stays until it is completed, and no other run begins.
        if old.activity == Activity::Running && !matches!(event, Event::Ended(_)) {
            let still = new.is_some_and(|new| new.activity == Activity::Running);
            assert!(still, "a run was lost: {}", context());
            assert!(
                !matches!(it.step, Some(Step::Run(_))),
                "two runs at once: {}",
                context()
            );
        }
        let unfinished = old.phase != Phase::Finished;
        if unfinished
            && after
                .view(&old.uid)
                .is_none_or(|it| it.phase == Phase::Finished)
        {
            let reported = it.effects.finished.iter().any(|it| it.uid == old.uid);
            assert!(reported, "an object ended without a report: {}", context());
        }
    }
    if is_sync(&it.step) {
        let view = running(after).unwrap_or_else(|| panic!("{}", context()));
        assert_eq!(view.phase, Phase::Sync, "{}", context());
    }
    let running = after
        .views()
        .filter(|view| view.activity == Activity::Running);
    assert!(running.count() <= 1, "{}", context());
    if let Some(cancelled) = running_cancelled(before, it) {
        let after = after.view(&cancelled.uid);
        let ending = after.is_some_and(|after| after.phase == Phase::Terminating);
        assert!(ending, "a run was cancelled without need: {}", context());
    }
    let woken = it.effects.wake || matches!(event, Event::Begin);
    let could = |slot: &Slot<u8>| matches!(slot.clone().begin(explorer.now), Step::Run(_));
    assert!(
        woken || could(before) || !could(after),
        "no worker is woken: {}",
        context()
    );
}

fn running_cancelled(before: &Slot<u8>, it: &Transition) -> Option<View<u8>> {
    running(before).filter(|_| it.effects.cancel)
}

/// The states, computed once for all tests, with the invariants checked for each event.
fn states() -> &'static (Explorer, HashSet<Slot<u8>>) {
    static STATES: OnceLock<(Explorer, HashSet<Slot<u8>>)> = OnceLock::new();
    STATES.get_or_init(|| {
        let explorer = Explorer::new();
        let states = explorer.explore(|before, event, after, transition| {
            check_invariants(&explorer, before, event, after, transition);
        });
        (explorer, states)
    })
}

#[test]
fn every_event_in_every_reachable_state_keeps_the_invariants() {
    let (_, states) = states();
    assert!(states.len() > 1000, "only {} states", states.len());
    println!("{} states", states.len());
}

#[test]
fn from_every_reachable_state_everything_that_must_stop_finishes() {
    let (explorer, states) = states();
    for state in states {
        let mut slot = state.clone();
        explorer.drain(&mut slot);
        for view in slot.views() {
            let at_rest = matches!(view.phase, Phase::Sync | Phase::Finished);
            assert!(at_rest, "{state:#?}");
            assert_eq!(view.activity, Activity::Idle, "{state:#?}");
        }
        for uid in &explorer.uids {
            let _ = slot.observe(uid, Observation::Deleted, LogicalTime::BEGINNING);
        }
        explorer.drain(&mut slot);
        assert!(slot.is_empty(), "the slot is not empty: {state:#?}");
    }
}

/// The snapshot of the last run for an object.
fn last_snapshot(runs: &[Run<u8>], uid: &Uid) -> Option<u8> {
    let last = runs.iter().rev().find(|run| run.uid == *uid)?;
    match last.work {
        Work::Sync { snapshot } | Work::Terminate { snapshot, .. } | Work::CleanUp { snapshot } => {
            Some(snapshot)
        }
        Work::TerminateFound { .. } => None,
    }
}

#[test]
fn in_every_reachable_state_a_creation_is_acted_on() {
    let (explorer, states) = states();
    for state in states {
        for uid in &explorer.uids {
            let mut slot = state.clone();
            let _ = slot.observe(uid, Observation::Created(NEW), LogicalTime::BEGINNING);
            let runs = explorer.drain(&mut slot);
            assert_eq!(last_snapshot(&runs, uid), Some(NEW), "{uid} {state:#?}");
            let wanted = slot.view(uid).map(|view| view.phase);
            assert_eq!(wanted, Some(Phase::Sync), "{uid} {state:#?}");
        }
    }
}

#[test]
fn in_every_reachable_state_an_update_is_acted_on_unless_the_object_is_ending() {
    let (explorer, states) = states();
    for state in states {
        for uid in &explorer.uids {
            let ending = state.view(uid).map(|view| view.phase);
            if ending.is_some_and(|phase| phase > Phase::Sync) {
                continue;
            }
            let mut slot = state.clone();
            let _ = slot.observe(uid, Observation::Updated(NEW), LogicalTime::BEGINNING);
            let runs = explorer.drain(&mut slot);
            assert_eq!(last_snapshot(&runs, uid), Some(NEW), "{uid} {state:#?}");
        }
    }
}

#[test]
fn in_every_reachable_state_an_update_does_not_undo_a_termination() {
    let (explorer, states) = states();
    for state in states {
        for view in state.views().filter(|view| view.phase > Phase::Sync) {
            let mut slot = state.clone();
            let _ = slot.observe(&view.uid, Observation::Updated(NEW), LogicalTime::BEGINNING);
            let after = slot.view(&view.uid).map(|view| view.phase);
            assert!(after >= Some(view.phase), "{state:#?}");
            if view.phase == Phase::Finished {
                let runs = explorer.drain(&mut slot);
                assert_ne!(last_snapshot(&runs, &view.uid), Some(NEW), "{state:#?}");
            }
        }
    }
}

#[test]
fn in_every_reachable_state_an_object_that_waits_and_is_terminated_is_never_synced() {
    let (explorer, states) = states();
    let mut seen = 0;
    for state in states {
        for view in state.views() {
            if view.activity != Activity::Blocked || view.phase != Phase::Sync {
                continue;
            }
            let mut slot = state.clone();
            let _ = slot.observe(&view.uid, Observation::Deleted, LogicalTime::BEGINNING);
            let runs = explorer.drain(&mut slot);
            let mut synced = runs
                .iter()
                .filter(|run| matches!(run.work, Work::Sync { .. }));
            assert!(synced.all(|run| run.uid != view.uid), "{state:#?}");
            seen += 1;
        }
    }
    assert!(seen > 0);
}
