//! The model: a queue of customers at a counter.
//!
//! The first one is served, the others wait, and the names of the served ones are kept. Everything
//! is searched for; nothing is cached.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{Op, RESYNC, at, uid};
use crate::{
    Activity, Config, Deadline, Effects, End, Ended, Finished, Phase, Run, Step, View, Work,
};
use belayer_core::logical_time::LogicalTime;

/// One customer.
#[derive(Debug, Clone)]
pub(super) struct Customer {
    name: u8,
    heard: LogicalTime,
    /// All observations, oldest first, and how many of them were used.
    pub(super) observations: Vec<u32>,
    acted: usize,
    /// The observation of a second life.
    reborn: Option<u32>,
    stage: Phase,
    /// Milliseconds; every deadline that was requested.
    deadlines: Vec<u64>,
    gone: bool,
    orphan: bool,
    served: bool,
    /// It was not observed in the store but found.
    remains: bool,
    /// It stood behind a customer that was not found.
    waited: bool,
    failures: u32,
    /// The phase of the run in flight, and whether it was cancelled.
    pub(super) flight: Option<(Phase, bool)>,
    /// `None` means never.
    pub(super) due: Option<u64>,
}

impl Customer {
    fn new(name: u8, observations: Vec<u32>, now: u64, heard: LogicalTime) -> Self {
        Self {
            name,
            heard,
            observations,
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
pub(super) struct Model {
    pub(super) line: Vec<Customer>,
    pub(super) wall: BTreeMap<u8, LogicalTime>,
    pub(super) now: u64,
}

impl Model {
    #[allow(clippy::map_entry, reason = "the model searches first, then acts")]
    pub(super) fn observe(
        &mut self,
        name: u8,
        op: &Op,
        value: u32,
        deadline: Option<u64>,
        heard: LogicalTime,
        fx: &mut Effects,
    ) {
        let now = self.now;
        if self.wall.contains_key(&name) {
            match op {
                Op::Deleted(_) => drop(self.wall.remove(&name)),
                Op::Created(_) => {
                    self.wall.remove(&name);
                    fx.restarts += 1;
                    self.join(Customer::new(name, vec![value], now, heard), fx);
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
                    self.join(Customer::new(name, vec![value], now, heard), fx);
                }
                Op::Terminating(..) => {
                    let mut customer = Customer::new(name, vec![value], now, heard);
                    customer.stop(deadline, now);
                    self.join(customer, fx);
                }
                _ => {}
            }
            return;
        };
        let customer = &mut self.line[place];
        customer.heard = heard;
        match op {
            Op::Created(_) if customer.stage != Phase::Sync => {
                customer.gone = false;
                customer.orphan = false;
                if customer.reborn.replace(value).is_none() {
                    fx.restarts += 1;
                    if place == 0 {
                        self.remove_those_behind(fx);
                    }
                }
            }
            Op::Created(_) | Op::Updated(_) => {
                customer.gone = false;
                customer.orphan = false;
                if customer.reborn.is_some() {
                    customer.reborn = Some(value);
                } else {
                    customer.observations.push(value);
                    customer.due = Some(now);
                }
            }
            Op::Terminating(..) => {
                customer.gone = false;
                customer.orphan = false;
                customer.reborn = None;
                customer.observations.push(value);
                fx.cancel |= customer.stop(deadline, now);
                customer.due = Some(now);
            }
            Op::Kill(..) => {
                customer.reborn = None;
                fx.cancel |= customer.stop(deadline, now);
            }
            _ => {
                customer.gone = true;
                customer.orphan = true;
                customer.reborn = None;
                fx.cancel |= customer.stop(None, now);
            }
        }
    }

    fn join(&mut self, mut customer: Customer, fx: &mut Effects) {
        let now = self.now;
        if let Some(first) = self.line.first_mut() {
            if !first.orphan {
                fx.orphans += 1;
                first.orphan = true;
            }
            first.reborn = None;
            fx.cancel |= first.stop(None, now);
            customer.waited = !first.remains;
            self.remove_those_behind(fx);
        }
        self.line.push(customer);
    }

    fn remove_those_behind(&mut self, fx: &mut Effects) {
        for customer in self.line.split_off(1) {
            self.leave(&customer, End::Unstarted, fx);
        }
    }

    fn leave(&mut self, customer: &Customer, end: End, fx: &mut Effects) {
        fx.finished.push(Finished {
            uid: uid(customer.name),
            end,
        });
        if !customer.gone {
            self.wall.insert(customer.name, customer.heard);
        }
    }

    pub(super) fn tidy(&mut self, fx: &mut Effects) {
        if self.line.len() == 2 && self.line[1].over() {
            let customer = self.line.remove(1);
            self.leave(&customer, End::Unstarted, fx);
        }
        while self.line.first().is_some_and(Customer::over) {
            let customer = self.line.remove(0);
            if let Some(value) = customer.reborn {
                fx.finished.push(Finished {
                    uid: uid(customer.name),
                    end: End::Restarting,
                });
                let again = Customer::new(customer.name, vec![value], self.now, customer.heard);
                self.line.insert(0, again);
            } else {
                let end = if customer.served {
                    End::Done
                } else {
                    End::Unstarted
                };
                self.leave(&customer, end, fx);
            }
        }
    }

    pub(super) fn begin(&mut self, epoch: Instant) -> Step<u32> {
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
        first.acted = first.observations.len();
        first.served = true;
        first.flight = Some((first.stage, false));
        let deadline = at(epoch, first.deadline());
        let work = match (first.stage, first.observations.last().copied()) {
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

    pub(super) fn complete(&mut self, ended: Ended) -> bool {
        let now = self.now;
        let Some(first) = self.line.first_mut() else {
            return false;
        };
        let Some((stage, cancelled)) = first.flight.take() else {
            return false;
        };
        let again = first.acted < first.observations.len();
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
                (Phase::Terminating, _) if first.observations.is_empty() => {
                    first.stage = Phase::Finished;
                }
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

    pub(super) fn pass(&mut self, as_of: LogicalTime, listed: Option<(u8, u32)>, fx: &mut Effects) {
        let now = self.now;
        let name = listed.map(|(name, _)| name);
        self.wall
            .retain(|dead, heard| Some(*dead) == name || *heard > as_of);
        for customer in &mut self.line {
            if Some(customer.name) != name && customer.heard <= as_of && !customer.gone {
                if !customer.orphan {
                    fx.orphans += 1;
                }
                customer.gone = true;
                customer.orphan = true;
                customer.reborn = None;
                fx.cancel |= customer.stop(None, now);
            }
        }
        let Some((name, value)) = listed else { return };
        let all = self.line.iter().map(|it| (it.name, it.heard));
        let mut all = all.chain(self.wall.iter().map(|(name, heard)| (*name, *heard)));
        if all.all(|(other, heard)| other != name && heard <= as_of) {
            self.join(Customer::new(name, vec![value], now, as_of), fx);
        }
    }

    pub(super) fn found(
        &mut self,
        name: u8,
        deadline: Option<u64>,
        as_of: LogicalTime,
        fx: &mut Effects,
    ) {
        if self.line.is_empty() && !self.wall.contains_key(&name) {
            let mut remains = Customer::new(name, vec![], self.now, as_of);
            remains.stage = Phase::Terminating;
            remains.gone = true;
            remains.orphan = true;
            remains.deadlines = deadline.into_iter().collect();
            remains.remains = true;
            self.line.push(remains);
            fx.orphans += 1;
        }
    }

    pub(super) fn views(&self, epoch: Instant) -> Vec<View<u32>> {
        let line = self.line.iter().enumerate().map(|(place, customer)| View {
            uid: uid(customer.name),
            phase: customer.stage,
            config: if customer.orphan {
                Config::Orphan
            } else {
                Config::Desired
            },
            snapshot: customer.observations[..customer.acted].last().copied(),
            deadline: at(epoch, customer.deadline()),
            activity: match customer.flight {
                Some(_) => Activity::Running,
                None if place == 0 => Activity::Idle,
                None => Activity::Blocked,
            },
            failures: customer.failures,
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
