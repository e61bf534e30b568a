//! The state table of one name: who occupies it, who waits for it, and whose work has finished.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tokio::time::Instant;

use super::object::Deadline;
use super::phase::{Config, Phase};
use super::status::{Origin, Status};
use super::step::{Effects, End, Ended, Finished, Observation, Pace, Step};
use belayer_core::moment::LogicalTime;
use belayer_core::object::Uid;

/// The work for all objects that ever had one name, as a pure state machine: no I/O, no clock, no
/// chance. Events go in, [`Effects`] and [`Step`]s come out.
///
/// | | [`Created`] | [`Updated`] | [`Terminating`] | [`Kill`] | [`Deleted`] |
/// | --- | --- | --- | --- | --- | --- |
/// | name free | sync | sync | terminating | - | - |
/// | in sync | pending | pending | terminating, cancels | terminating, cancels | terminating, cancels, orphan |
/// | terminating, terminated | restart remembered | pending | pending, deadline shrinks | deadline shrinks | orphan |
/// | finished | restart | dropped | dropped | dropped | forgotten |
/// | waits for its name | pending | pending | ends without a run | ends without a run | ends without a run |
/// | new, name taken | waits, ends the older | waits, ends the older | ends without a run, ends the older | - | - |
///
/// An object that waits behind [remains](Self::found) is not one that ends without a run: a process
/// before this one may have begun it, so it is terminated when its turn comes.
///
/// [`Created`]: Observation::Created
/// [`Updated`]: Observation::Updated
/// [`Terminating`]: Observation::Terminating
/// [`Kill`]: Observation::Kill
/// [`Deleted`]: Observation::Deleted
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slot<S> {
    occupant: Option<Status<S>>,
    /// A name belongs to one object at a time, so of those that wait only the newest exists.
    next: Option<Status<S>>,
    /// UIDs whose work has finished and that are still in the store, and when they were last heard of.
    tombstones: BTreeMap<Uid, LogicalTime>,
}

impl<S> Default for Slot<S> {
    fn default() -> Self {
        Self {
            occupant: None,
            next: None,
            tombstones: BTreeMap::new(),
        }
    }
}

impl<S: Clone> Slot<S> {
    /// Something was observed of an object of this name. `seen` is when, on the process's logical
    /// clock; a [pass](Self::pass) over a list that is older leaves the object alone.
    pub fn observe(
        &mut self,
        uid: &Uid,
        observation: Observation<S>,
        seen: LogicalTime,
    ) -> Effects {
        let mut fx = Effects::default();
        if let Entry::Occupied(mut tombstone) = self.tombstones.entry(uid.clone()) {
            match observation {
                Observation::Deleted => drop(tombstone.remove()),
                Observation::Created(snapshot) => {
                    tombstone.remove();
                    fx.restarts += 1;
                    self.arrive(Status::new(uid.clone(), snapshot, seen), &mut fx);
                }
                Observation::Updated(_)
                | Observation::Terminating { .. }
                | Observation::Kill { .. } => {
                    tombstone.insert(seen);
                    fx.dropped += 1;
                }
            }
        } else if let Some(occupant) = self.occupant.as_mut().filter(|it| it.uid == *uid) {
            occupant.observe(observation, seen, &mut fx);
            if fx.restarts > 0 {
                // The name is this object's again, so whoever waited for it is gone.
                self.supersede(&mut fx);
            }
        } else if let Some(next) = self.next.as_mut().filter(|it| it.uid == *uid) {
            next.observe(observation, seen, &mut fx);
        } else {
            self.meet(uid, observation, seen, &mut fx);
        }
        self.settle(&mut fx);
        fx
    }

    /// A UID that is not known.
    fn meet(
        &mut self,
        uid: &Uid,
        observation: Observation<S>,
        seen: LogicalTime,
        fx: &mut Effects,
    ) {
        match observation {
            Observation::Created(snapshot) | Observation::Updated(snapshot) => {
                self.arrive(Status::new(uid.clone(), snapshot, seen), fx);
            }
            Observation::Terminating { snapshot, deadline } => {
                let mut status = Status::new(uid.clone(), snapshot.clone(), seen);
                let terminating = Observation::Terminating { snapshot, deadline };
                status.observe(terminating, seen, fx);
                self.arrive(status, fx);
            }
            Observation::Kill { .. } | Observation::Deleted => {}
        }
    }

    /// An object that is new to the table takes its place: the name if it is free, else behind the
    /// older one, whose time is over.
    fn arrive(&mut self, mut status: Status<S>, fx: &mut Effects) {
        fx.wake = true;
        let Some(occupant) = &mut self.occupant else {
            self.occupant = Some(status);
            return;
        };
        occupant.replaced(fx);
        // What was found may stem from a process before this one, and then so may what comes after.
        if occupant.origin != Origin::Found {
            status.origin = Origin::Waited;
        }
        self.supersede(fx);
        self.next = Some(status);
    }

    fn supersede(&mut self, fx: &mut Effects) {
        if let Some(superseded) = self.next.take() {
            self.retire(superseded, End::Unstarted, fx);
        }
    }

    fn retire(&mut self, status: Status<S>, end: End, fx: &mut Effects) {
        fx.finished.push(Finished {
            uid: status.uid.clone(),
            end,
        });
        if !status.is_gone() {
            self.tombstones.insert(status.uid, status.seen);
        }
    }

    /// Takes out what is over and lets the next one move up.
    fn settle(&mut self, fx: &mut Effects) {
        if let Some(next) = self.next.take_if(|next| next.is_over()) {
            self.retire(next, End::Unstarted, fx);
        }
        while let Some(mut over) = self.occupant.take_if(|occupant| occupant.is_over()) {
            if let Some(snapshot) = over.take_restart() {
                fx.finished.push(Finished {
                    uid: over.uid.clone(),
                    end: End::Restarting,
                });
                self.occupant = Some(Status::new(over.uid, snapshot, over.seen));
            } else {
                let end = if over.was_started() {
                    End::Done
                } else {
                    End::Unstarted
                };
                self.retire(over, end, fx);
                self.occupant = self.next.take();
            }
        }
    }

    /// What to do next. At most one run is out at a time.
    pub fn begin(&mut self, now: Instant) -> Step<S> {
        let Some(occupant) = &mut self.occupant else {
            return Step::Rest;
        };
        match occupant.begin(now) {
            Ok(run) => Step::Run(run),
            Err(Some(due)) => Step::Sleep(due),
            Err(None) => Step::Rest,
        }
    }

    /// The run that was handed out has ended.
    pub fn complete(&mut self, ended: Ended, pace: Pace, now: Instant) -> Effects {
        let mut fx = Effects::default();
        if let Some(occupant) = &mut self.occupant {
            occupant.complete(ended, pace, now);
            fx.wake = true;
        }
        self.settle(&mut fx);
        fx
    }

    /// A look at the whole store, begun at `as_of`, found this object of the name, or none. What the
    /// look could not have seen, because it was heard of later, is left alone.
    ///
    /// Objects that vanished become orphans and are brought to their end with their last snapshot;
    /// tombstones of objects that are gone go; an object that was missed is taken up.
    pub fn pass(&mut self, as_of: LogicalTime, desired: Option<(&Uid, S)>) -> Effects {
        let mut fx = Effects::default();
        let uid = desired.as_ref().map(|(uid, _)| *uid);
        let vanished = |other: &Uid, heard: LogicalTime| Some(other) != uid && heard <= as_of;
        self.tombstones
            .retain(|dead, heard| !vanished(dead, *heard));
        for status in self.occupant.iter_mut().chain(&mut self.next) {
            if vanished(&status.uid, status.seen) {
                status.vanished(&mut fx);
            }
        }
        if let Some((uid, snapshot)) = desired
            && !self.knows(uid)
            && !self.heard_after(as_of)
        {
            self.arrive(Status::new(uid.clone(), snapshot, as_of), &mut fx);
        }
        self.settle(&mut fx);
        fx
    }

    /// Remains of an object were found that is not in the store. If the name is free, ending them is
    /// taken up as work; else whoever occupies it goes first, and the next look will find them again.
    pub fn found(&mut self, uid: &Uid, deadline: Deadline, as_of: LogicalTime) -> Effects {
        let mut fx = Effects::default();
        if self.occupant.is_none() && !self.knows(uid) {
            self.occupant = Some(Status::found(uid.clone(), deadline, as_of));
            fx.orphans += 1;
            fx.wake = true;
        }
        fx
    }

    /// Whether this UID is worked on, waits, or has finished.
    fn knows(&self, uid: &Uid) -> bool {
        self.statuses().any(|status| status.uid == *uid) || self.tombstones.contains_key(uid)
    }

    fn heard_after(&self, moment: LogicalTime) -> bool {
        self.statuses().any(|status| status.seen > moment)
            || self.tombstones.values().any(|heard| *heard > moment)
    }

    fn statuses(&self) -> impl Iterator<Item = &Status<S>> {
        self.occupant.iter().chain(&self.next)
    }

    /// Nothing is worked on, waits or is remembered: the name can be forgotten.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.occupant.is_none() && self.next.is_none() && self.tombstones.is_empty()
    }

    /// Nothing is in flight, and nothing is to be done at this moment.
    #[must_use]
    pub fn is_quiet(&self, now: Instant) -> bool {
        self.occupant.as_ref().is_none_or(|it| it.is_quiet(now))
    }

    /// Everything that is known of one object of this name.
    #[must_use]
    pub fn view(&self, uid: &Uid) -> Option<View<S>> {
        self.views().find(|view| view.uid == *uid)
    }

    /// Everything that is known: the object being worked on first, then the one that waits, then
    /// those that have finished and are still in the store.
    pub fn views(&self) -> impl Iterator<Item = View<S>> {
        let alive = self.statuses().enumerate().map(|(place, status)| View {
            uid: status.uid.clone(),
            phase: status.phase(),
            config: status.config(),
            snapshot: status.active().cloned(),
            deadline: status.deadline(),
            activity: if status.is_running() {
                Activity::Running
            } else if place > 0 {
                Activity::Blocked
            } else {
                Activity::Idle
            },
            failures: status.failures(),
        });
        let finished = self.tombstones.keys().map(|uid| View {
            uid: uid.clone(),
            phase: Phase::Finished,
            config: Config::Desired,
            snapshot: None,
            deadline: Deadline::NONE,
            activity: Activity::Idle,
            failures: 0,
        });
        alive.chain(finished)
    }
}

/// What others can see of the work for one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View<S> {
    /// Which object of the name.
    pub uid: Uid,
    /// Which kind of work is done for it.
    pub phase: Phase,
    /// Whether the store still asks for it.
    pub config: Config,
    /// What is being acted on, or was last: never an observation that no worker has taken up yet.
    pub snapshot: Option<S>,
    /// Until when a termination may take its time.
    pub deadline: Deadline,
    /// Whether a worker is at it.
    pub activity: Activity,
    /// How often this phase's work has failed in a row.
    pub failures: u32,
}

/// Whether a worker is at an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activity {
    /// A run is in flight.
    Running,
    /// Nothing is in flight: it is settled, or waits for its turn, its resync or its retry.
    Idle,
    /// It waits until the work of an older object of its name has finished.
    Blocked,
}
