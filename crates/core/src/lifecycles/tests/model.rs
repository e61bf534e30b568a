//! Random interleavings against a model that is as simple as can be: a line of people at a counter.
//!
//! The first in line is served, the others wait, and names of those who have been served hang on a
//! wall. Everything is searched for; nothing is remembered that can be looked up.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use crate::lifecycles::{
    Activity, Config, Deadline, Effects, End, Ended, Finished, Observation, Pace, Phase, Run, Slot,
    Step, View, Work,
};
use crate::moment::Moment;
use crate::object::Uid;
use crate::workqueue::Backoff;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(8), Duration::from_millis(64));
const RESYNC: u64 = 40;
const PACE: Pace = Pace {
    resync: Some(Duration::from_millis(RESYNC)),
    draw: 1.0,
};

#[derive(Debug, Clone)]
enum Op {
    Created(u8),
    Updated(u8),
    /// Milliseconds from now; 0 is no deadline.
    Terminating(u8, u64),
    Kill(u8, u64),
    Deleted(u8),
    Begin,
    Complete(Ended),
    Advance(u64),
    /// A look begun at the n-th of the moments so far, counted from the last, that found this UID.
    Pass(usize, Option<u8>),
    Found(u8, u64),
}

fn op() -> impl Strategy<Value = Op> {
    let uid = || 0..4_u8;
    let grace = || 0..60_u64;
    let ended = prop_oneof![
        2 => Just(Ended::Settled),
        1 => (0..30_u64).prop_map(|ms| Ended::Again { after: Duration::from_millis(ms) }),
        1 => Just(Ended::Terminal),
        4 => Just(Ended::Done),
        2 => Just(Ended::Failed(BACKOFF)),
    ];
    prop_oneof![
        3 => uid().prop_map(Op::Created),
        3 => uid().prop_map(Op::Updated),
        2 => (uid(), grace()).prop_map(|(uid, grace)| Op::Terminating(uid, grace)),
        1 => (uid(), grace()).prop_map(|(uid, grace)| Op::Kill(uid, grace)),
        2 => uid().prop_map(Op::Deleted),
        8 => Just(Op::Begin),
        8 => ended.prop_map(Op::Complete),
        3 => (0..50_u64).prop_map(Op::Advance),
        1 => (0..4_usize, prop::option::of(uid())).prop_map(|(age, uid)| Op::Pass(age, uid)),
        1 => (uid(), grace()).prop_map(|(uid, grace)| Op::Found(uid, grace)),
    ]
}

/// One in line.
#[derive(Debug, Clone)]
struct Person {
    name: u8,
    heard: Moment,
    /// Everything that was told of it, oldest first, and how much of that has been acted on.
    told: Vec<u32>,
    acted: usize,
    /// Told of a second life.
    reborn: Option<u32>,
    stage: Phase,
    /// Milliseconds; every deadline that was ever asked for.
    deadlines: Vec<u64>,
    gone: bool,
    orphan: bool,
    served: bool,
    /// Nobody told of it when it came: it was found.
    remains: bool,
    /// It stood behind somebody who was not found.
    waited: bool,
    failures: u32,
    /// The stage of the run in flight, and whether it was cancelled.
    flight: Option<(Phase, bool)>,
    /// `None` is never.
    due: Option<u64>,
}

impl Person {
    fn new(name: u8, told: Vec<u32>, now: u64, heard: Moment) -> Self {
        Self {
            name,
            heard,
            told,
            acted: 0,
            reborn: None,
            stage: Phase::Sync,
            deadlines: vec![],
            gone: false,
            orphan: false,
            served: false,
            remains: false,
            waited: false,
            failures: 0,
            flight: None,
            due: Some(now),
        }
    }

    fn deadline(&self) -> Option<u64> {
        self.deadlines.iter().min().copied()
    }

    fn stop(&mut self, deadline: Option<u64>, now: u64) -> bool {
        let before = self.deadline();
        self.deadlines.extend(deadline);
        let shorter = self.deadline() != before;
        let matters = self.stage == Phase::Sync || (self.stage == Phase::Terminating && shorter);
        if self.stage == Phase::Sync {
            self.stage = Phase::Terminating;
            self.failures = 0;
        }
        if matters {
            self.due = Some(now);
            if let Some((_, cancelled)) = &mut self.flight {
                *cancelled = true;
                return true;
            }
        }
        false
    }

    fn over(&self) -> bool {
        let never = self.waited && !self.served && self.stage != Phase::Sync;
        self.flight.is_none() && (self.stage == Phase::Finished || never)
    }
}

#[derive(Debug, Default)]
struct Model {
    line: Vec<Person>,
    wall: BTreeMap<u8, Moment>,
    now: u64,
}

impl Model {
    #[allow(clippy::map_entry, reason = "the model looks things up, and then acts")]
    fn told(
        &mut self,
        name: u8,
        op: &Op,
        value: u32,
        deadline: Option<u64>,
        heard: Moment,
        fx: &mut Effects,
    ) {
        let now = self.now;
        if self.wall.contains_key(&name) {
            match op {
                Op::Deleted(_) => drop(self.wall.remove(&name)),
                Op::Created(_) => {
                    self.wall.remove(&name);
                    fx.restarts += 1;
                    self.join(Person::new(name, vec![value], now, heard), fx);
                }
                _ => {
                    self.wall.insert(name, heard);
                    fx.dropped += 1;
                }
            }
            return;
        }
        let Some(place) = self.line.iter().position(|it| it.name == name) else {
            match op {
                Op::Created(_) | Op::Updated(_) => {
                    self.join(Person::new(name, vec![value], now, heard), fx);
                }
                Op::Terminating(..) => {
                    let mut person = Person::new(name, vec![value], now, heard);
                    person.stop(deadline, now);
                    self.join(person, fx);
                }
                _ => {}
            }
            return;
        };
        let person = &mut self.line[place];
        person.heard = heard;
        match op {
            Op::Created(_) if person.stage != Phase::Sync => {
                person.gone = false;
                person.orphan = false;
                if person.reborn.replace(value).is_none() {
                    fx.restarts += 1;
                    if place == 0 {
                        self.send_home_those_behind(fx);
                    }
                }
            }
            Op::Created(_) | Op::Updated(_) => {
                person.gone = false;
                person.orphan = false;
                if person.reborn.is_some() {
                    person.reborn = Some(value);
                } else {
                    person.told.push(value);
                    person.due = Some(now);
                }
            }
            Op::Terminating(..) => {
                person.gone = false;
                person.orphan = false;
                person.reborn = None;
                person.told.push(value);
                fx.cancel |= person.stop(deadline, now);
                person.due = Some(now);
            }
            Op::Kill(..) => {
                person.reborn = None;
                fx.cancel |= person.stop(deadline, now);
            }
            _ => {
                person.gone = true;
                person.orphan = true;
                person.reborn = None;
                fx.cancel |= person.stop(None, now);
            }
        }
    }

    fn join(&mut self, mut person: Person, fx: &mut Effects) {
        let now = self.now;
        if let Some(first) = self.line.first_mut() {
            if !first.orphan {
                fx.orphans += 1;
                first.orphan = true;
            }
            first.reborn = None;
            fx.cancel |= first.stop(None, now);
            person.waited = !first.remains;
            self.send_home_those_behind(fx);
        }
        self.line.push(person);
    }

    fn send_home_those_behind(&mut self, fx: &mut Effects) {
        for person in self.line.split_off(1) {
            self.leave(&person, End::Unstarted, fx);
        }
    }

    fn leave(&mut self, person: &Person, end: End, fx: &mut Effects) {
        fx.finished.push(Finished {
            uid: uid(person.name),
            end,
        });
        if !person.gone {
            self.wall.insert(person.name, person.heard);
        }
    }

    fn tidy(&mut self, fx: &mut Effects) {
        if self.line.len() == 2 && self.line[1].over() {
            let person = self.line.remove(1);
            self.leave(&person, End::Unstarted, fx);
        }
        while self.line.first().is_some_and(Person::over) {
            let person = self.line.remove(0);
            if let Some(value) = person.reborn {
                fx.finished.push(Finished {
                    uid: uid(person.name),
                    end: End::Restarting,
                });
                let again = Person::new(person.name, vec![value], self.now, person.heard);
                self.line.insert(0, again);
            } else {
                let end = if person.served {
                    End::Done
                } else {
                    End::Unstarted
                };
                self.leave(&person, end, fx);
            }
        }
    }

    fn begin(&mut self, epoch: Instant) -> Step<u32> {
        let now = self.now;
        let Some(first) = self.line.first_mut() else {
            return Step::Rest;
        };
        if first.flight.is_some() {
            return Step::Rest;
        }
        match first.due {
            None => return Step::Rest,
            Some(due) if due > now => return Step::Sleep(epoch + Duration::from_millis(due)),
            Some(_) => {}
        }
        first.acted = first.told.len();
        first.served = true;
        first.flight = Some((first.stage, false));
        let deadline = at(epoch, first.deadline());
        let work = match (first.stage, first.told.last().copied()) {
            (Phase::Sync, Some(snapshot)) => Work::Sync { snapshot },
            (Phase::Terminating, Some(snapshot)) => Work::Terminate { snapshot, deadline },
            (Phase::Terminating, None) => Work::TerminateFound { deadline },
            (Phase::Terminated, Some(snapshot)) => Work::CleanUp { snapshot },
            other => panic!("{other:?}"),
        };
        Step::Run(Run {
            uid: uid(first.name),
            work,
            failures: first.failures,
        })
    }

    fn complete(&mut self, ended: Ended) -> bool {
        let now = self.now;
        let Some(first) = self.line.first_mut() else {
            return false;
        };
        let Some((stage, cancelled)) = first.flight.take() else {
            return false;
        };
        let again = first.acted < first.told.len();
        if stage != first.stage {
            first.due = Some(now);
        } else if let Ended::Failed(_) = ended {
            if cancelled {
                first.due = Some(now);
            } else {
                first.failures += 1;
                let doubled = 8_u64 << (first.failures - 1).min(3);
                first.due = Some(now + doubled.min(64));
            }
        } else {
            first.failures = 0;
            match (stage, ended) {
                (Phase::Sync, Ended::Terminal) => {
                    first.stage = Phase::Terminating;
                    first.due = Some(now);
                }
                (Phase::Sync, Ended::Again { after }) => {
                    first.due = Some(now + after.as_millis() as u64);
                }
                (Phase::Sync, _) => first.due = Some(now + RESYNC),
                (Phase::Terminating, _) if first.told.is_empty() => first.stage = Phase::Finished,
                (Phase::Terminating, _) => {
                    first.stage = Phase::Terminated;
                    first.due = Some(now);
                }
                _ => first.stage = Phase::Finished,
            }
        }
        if again {
            first.due = Some(now);
        }
        true
    }

    fn pass(&mut self, as_of: Moment, listed: Option<(u8, u32)>, fx: &mut Effects) {
        let now = self.now;
        let name = listed.map(|(name, _)| name);
        self.wall
            .retain(|dead, heard| Some(*dead) == name || *heard > as_of);
        for person in &mut self.line {
            if Some(person.name) != name && person.heard <= as_of && !person.gone {
                if !person.orphan {
                    fx.orphans += 1;
                }
                person.gone = true;
                person.orphan = true;
                person.reborn = None;
                fx.cancel |= person.stop(None, now);
            }
        }
        let Some((name, value)) = listed else { return };
        let all = self.line.iter().map(|it| (it.name, it.heard));
        let mut all = all.chain(self.wall.iter().map(|(name, heard)| (*name, *heard)));
        if all.all(|(other, heard)| other != name && heard <= as_of) {
            self.join(Person::new(name, vec![value], now, as_of), fx);
        }
    }

    fn found(&mut self, name: u8, deadline: Option<u64>, as_of: Moment, fx: &mut Effects) {
        if self.line.is_empty() && !self.wall.contains_key(&name) {
            let mut remains = Person::new(name, vec![], self.now, as_of);
            remains.stage = Phase::Terminating;
            remains.gone = true;
            remains.orphan = true;
            remains.deadlines = deadline.into_iter().collect();
            remains.remains = true;
            self.line.push(remains);
            fx.orphans += 1;
        }
    }

    fn views(&self, epoch: Instant) -> Vec<View<u32>> {
        let line = self.line.iter().enumerate().map(|(place, person)| View {
            uid: uid(person.name),
            phase: person.stage,
            config: if person.orphan {
                Config::Orphan
            } else {
                Config::Desired
            },
            snapshot: person.told[..person.acted].last().copied(),
            deadline: at(epoch, person.deadline()),
            activity: match person.flight {
                Some(_) => Activity::Running,
                None if place == 0 => Activity::Idle,
                None => Activity::Blocked,
            },
            failures: person.failures,
        });
        let wall = self.wall.keys().map(|name| View {
            uid: uid(*name),
            phase: Phase::Finished,
            config: Config::Desired,
            snapshot: None,
            deadline: Deadline::NONE,
            activity: Activity::Idle,
            failures: 0,
        });
        line.chain(wall).collect()
    }
}

fn uid(name: u8) -> Uid {
    Uid::new(format!("u-{name}"))
}

fn at(epoch: Instant, ms: Option<u64>) -> Deadline {
    ms.map_or(Deadline::NONE, |ms| {
        Deadline::at(epoch + Duration::from_millis(ms))
    })
}

/// The table and the model side by side.
struct Pair {
    slot: Slot<u32>,
    model: Model,
    epoch: Instant,
    moments: Vec<Moment>,
    values: u32,
}

impl Pair {
    fn new() -> Self {
        Self {
            slot: Slot::default(),
            model: Model::default(),
            epoch: Instant::now(),
            moments: vec![Moment::now()],
            values: 0,
        }
    }

    fn now(&self) -> Instant {
        self.epoch + Duration::from_millis(self.model.now)
    }

    /// When the model has something to do; `None` is never.
    fn due(&self) -> Option<u64> {
        let first = self.model.line.first()?;
        first.due.filter(|_| first.flight.is_none())
    }

    fn apply(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let heard = Moment::now();
        self.moments.push(heard);
        let due = self.due();
        self.values += 1;
        let value = self.values;
        let grace = |ms: u64| (ms > 0).then_some(self.model.now + ms);
        let mut expected = Effects::default();
        let happened = match *op {
            Op::Begin => {
                let step = self.model.begin(self.epoch);
                prop_assert_eq!(self.slot.begin(self.now()), step);
                return Ok(());
            }
            Op::Advance(ms) => {
                self.model.now += ms;
                return Ok(());
            }
            Op::Complete(ended) => {
                if !self.model.complete(ended) {
                    return Ok(());
                }
                self.slot.complete(ended, PACE, self.now())
            }
            Op::Pass(age, name) => {
                let as_of = self.moments[self.moments.len().saturating_sub(1 + age)];
                let listed = name.map(|name| (name, value));
                self.model.pass(as_of, listed, &mut expected);
                let name = name.map(uid);
                self.slot
                    .pass(as_of, name.as_ref().map(|name| (name, value)))
            }
            Op::Found(name, ms) => {
                let deadline = grace(ms);
                self.model.found(name, deadline, heard, &mut expected);
                self.slot.found(&uid(name), at(self.epoch, deadline), heard)
            }
            Op::Created(name)
            | Op::Updated(name)
            | Op::Terminating(name, _)
            | Op::Kill(name, _)
            | Op::Deleted(name) => {
                let deadline = match *op {
                    Op::Terminating(_, ms) | Op::Kill(_, ms) => grace(ms),
                    _ => None,
                };
                self.model
                    .told(name, op, value, deadline, heard, &mut expected);
                let observation = match op {
                    Op::Created(_) => Observation::Created(value),
                    Op::Updated(_) => Observation::Updated(value),
                    Op::Deleted(_) => Observation::Deleted,
                    Op::Kill(..) => Observation::Kill {
                        deadline: at(self.epoch, deadline),
                    },
                    _ => Observation::Terminating {
                        snapshot: value,
                        deadline: at(self.epoch, deadline),
                    },
                };
                self.slot.observe(&uid(name), observation, heard)
            }
        };
        self.model.tidy(&mut expected);
        let sooner = match (due, self.due()) {
            (Some(before), Some(after)) => after < before,
            (before, after) => before.is_none() && after.is_some(),
        };
        prop_assert!(happened.wake || !sooner, "nobody is woken for what is due");
        // To wake for nothing is allowed.
        expected.wake = happened.wake;
        prop_assert_eq!(happened, expected);
        Ok(())
    }

    fn compare(&self) -> Result<(), TestCaseError> {
        let mut views: Vec<_> = self.slot.views().collect();
        views.sort_by_key(|view| view.uid.clone());
        let mut expected = self.model.views(self.epoch);
        expected.sort_by_key(|view| view.uid.clone());
        prop_assert_eq!(views, expected);
        prop_assert_eq!(
            self.slot.is_empty(),
            self.model.line.is_empty() && self.model.wall.is_empty()
        );
        let quiet = self.model.line.first().is_none_or(|first| {
            first.flight.is_none() && first.due.is_none_or(|due| due > self.model.now)
        });
        prop_assert_eq!(self.slot.is_quiet(self.now()), quiet);
        Ok(())
    }

    /// Faults stop: every run succeeds. Whatever has to stop does, and what is wanted was acted on.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..40 {
            self.apply(&Op::Begin)?;
            self.apply(&Op::Complete(Ended::Done))?;
            self.apply(&Op::Advance(100))?;
        }
        for view in self.slot.views() {
            prop_assert!(matches!(view.phase, Phase::Sync | Phase::Finished));
        }
        let first = self.model.line.first();
        if let Some(view) = self.slot.views().find(|view| view.phase == Phase::Sync) {
            let last = first.and_then(|first| first.told.last().copied());
            prop_assert_eq!(view.snapshot, last, "the last observation was not acted on");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn random_interleavings_behave_like_a_line_at_a_counter(
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let mut pair = Pair::new();
        for op in &ops {
            pair.apply(op)?;
            pair.compare()?;
        }
        pair.settle()?;
    }
}
