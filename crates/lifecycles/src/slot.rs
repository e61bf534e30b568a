//! The state table of one name: the object with the name, the waiting one, and the finished ones.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tokio::time::Instant;

use super::object::Deadline;
use super::phase::{Config, Phase};
use super::status::{Origin, Status};
use super::step::{Effects, End, Ended, Finished, Observation, Pace, Step};
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::Uid;

/// The work for all objects with one name, as a pure state machine: no I/O, no clock, no
/// randomness. Events go in, [`Effects`] and [`Step`]s come out.
///
/// | | [`Created`] | [`Updated`] | [`Terminating`] | [`Kill`] | [`Deleted`] |
/// | --- | --- | --- | --- | --- | --- |
/// | name free | sync | sync | terminating | - | - |
/// | in sync | pending | pending | terminating, cancels | terminating, cancels | terminating, cancels, orphan |
/// | terminating, terminated | restart stored | pending | pending, deadline shrinks | deadline shrinks | orphan |
/// | finished | restart | dropped | dropped | dropped | removed |
/// | waiting for its name | pending | pending | ends without a run | ends without a run | ends without a run |
/// | new, name taken | waits, ends the older | waits, ends the older | ends without a run, ends the older | - | - |
///
/// An object that waits behind [remains](Self::found) does not end without a run: an earlier
/// process may have begun it, so it is terminated when its turn comes.
///
/// [`Created`]: Observation::Created
/// [`Updated`]: Observation::Updated
/// [`Terminating`]: Observation::Terminating
/// [`Kill`]: Observation::Kill
/// [`Deleted`]: Observation::Deleted
///
/// ```
/// use belayer_core::logical_time::LogicalTime;
/// use belayer_core::object::Uid;
/// use belayer_lifecycles::{Observation, Slot, Step};
/// use tokio::time::Instant;
///
/// let mut slot = Slot::default();
/// let effects = slot.observe(&Uid::new("u-1"), Observation::Created("data"), LogicalTime::now());
/// assert!(effects.wake);
/// assert!(matches!(slot.begin(Instant::now()), Step::Run(_)));
/// assert!(matches!(slot.begin(Instant::now()), Step::Rest), "one run at a time");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slot<S> {
    occupant: Option<Status<S>>,
    /// A name belongs to one object at a time, so only the newest of the waiting objects still
    /// exists.
    next: Option<Status<S>>,
    /// UIDs whose work has finished and that are still in the store, with the time of the last
    /// observation.
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
    /// Applies an observation of an object with this name. `seen` is its time on the process's
    /// logical clock; a [pass](Self::pass) over an older list leaves the object alone.
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
                    self.enqueue(Status::new(uid.clone(), snapshot, seen), &mut fx);
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
                // The name belongs to this object again, so the waiting object was deleted.
                self.supersede(&mut fx);
            }
        } else if let Some(next) = self.next.as_mut().filter(|it| it.uid == *uid) {
            next.observe(observation, seen, &mut fx);
        } else {
            self.add(uid, observation, seen, &mut fx);
        }
        self.settle(&mut fx);
        fx
    }

    /// Applies an observation of an unknown UID.
    fn add(&mut self, uid: &Uid, observation: Observation<S>, seen: LogicalTime, fx: &mut Effects) {
        match observation {
            Observation::Created(snapshot) | Observation::Updated(snapshot) => {
                self.enqueue(Status::new(uid.clone(), snapshot, seen), fx);
            }
            Observation::Terminating { snapshot, deadline } => {
                let mut status = Status::new(uid.clone(), snapshot.clone(), seen);
                let terminating = Observation::Terminating { snapshot, deadline };
                status.observe(terminating, seen, fx);
                self.enqueue(status, fx);
            }
            Observation::Kill { .. } | Observation::Deleted => {}
        }
    }

    /// Adds a new object: it takes the name if it is free, else it waits behind the older object,
    /// whose work must end.
    fn enqueue(&mut self, mut status: Status<S>, fx: &mut Effects) {
        fx.wake = true;
        let Some(occupant) = &mut self.occupant else {
            self.occupant = Some(status);
            return;
        };
        occupant.replaced(fx);
        // What was found may come from an earlier process, and so may the object after it.
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

    /// Removes finished work and promotes the waiting object.
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

    /// What to do next. At most one run is handed out at a time.
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

    /// Compares the name with the whole store as of `as_of`, which contains the object `desired` or
    /// none. Objects observed later are left alone.
    ///
    /// Vanished objects become orphans and are ended with their last snapshot; tombstones of
    /// deleted objects are removed; a missed object is added.
    pub fn pass(&mut self, as_of: LogicalTime, desired: Option<(&Uid, S)>) -> Effects {
        let mut fx = Effects::default();
        let uid = desired.as_ref().map(|(uid, _)| *uid);
        let vanished =
            |other: &Uid, observed_at: LogicalTime| Some(other) != uid && observed_at <= as_of;
        self.tombstones
            .retain(|dead, observed_at| !vanished(dead, *observed_at));
        for status in self.occupant.iter_mut().chain(&mut self.next) {
            if vanished(&status.uid, status.seen) {
                status.vanished(&mut fx);
            }
        }
        if let Some((uid, snapshot)) = desired
            && !self.has(uid)
            && !self.observed_after(as_of)
        {
            self.enqueue(Status::new(uid.clone(), snapshot, as_of), &mut fx);
        }
        self.settle(&mut fx);
        fx
    }

    /// Remains of an object were found that is not in the store. If the name is free, their
    /// termination begins. Otherwise they are ignored: they are terminated only once the work of
    /// the object with the name has ended and another pass finds them.
    pub fn found(&mut self, uid: &Uid, deadline: Deadline, as_of: LogicalTime) -> Effects {
        let mut fx = Effects::default();
        if self.occupant.is_none() && !self.has(uid) {
            self.occupant = Some(Status::found(uid.clone(), deadline, as_of));
            fx.orphans += 1;
            fx.wake = true;
        }
        fx
    }

    /// Whether this UID is worked on, waits, or has finished.
    fn has(&self, uid: &Uid) -> bool {
        self.statuses().any(|status| status.uid == *uid) || self.tombstones.contains_key(uid)
    }

    fn observed_after(&self, time: LogicalTime) -> bool {
        self.statuses().any(|status| status.seen > time)
            || self
                .tombstones
                .values()
                .any(|observed_at| *observed_at > time)
    }

    fn statuses(&self) -> impl Iterator<Item = &Status<S>> {
        self.occupant.iter().chain(&self.next)
    }

    /// Whether there is no work, no waiting object and no tombstone: the name can be removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.occupant.is_none() && self.next.is_none() && self.tombstones.is_empty()
    }

    /// Whether nothing is in flight and nothing is due now.
    #[must_use]
    pub fn is_quiet(&self, now: Instant) -> bool {
        self.occupant.as_ref().is_none_or(|it| it.is_quiet(now))
    }

    /// The work of one object with this name.
    #[must_use]
    pub fn view(&self, uid: &Uid) -> Option<View<S>> {
        self.views().find(|view| view.uid == *uid)
    }

    /// The work of all objects with this name: the current one first, then the waiting one, then
    /// the tombstones.
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

/// The visible state of the work for one object. [`Lifecycles::all`](crate::Lifecycles::all)
/// returns one per object. See [`Slot`](crate::Slot), whose example drives the state table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View<S> {
    /// The UID of the object.
    pub uid: Uid,
    /// The phase of its work.
    pub phase: Phase,
    /// Whether the store contains it.
    pub config: Config,
    /// The snapshot in use, or the last one used: never an observation that no worker has used yet.
    pub snapshot: Option<S>,
    /// Until when a termination may be graceful.
    pub deadline: Deadline,
    /// Whether a worker is working on it.
    pub activity: Activity,
    /// Consecutive failures of this phase's work.
    pub failures: u32,
}

/// Whether a worker is working on an object. Part of a [`View`](crate::View), which
/// [`Lifecycles`](crate::Lifecycles) shows. See [`Slot`](crate::Slot), whose example drives the
/// state table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activity {
    /// A run is in flight.
    Running,
    /// Nothing is in flight: it is settled, or waits for its turn, its resync or its retry.
    Idle,
    /// It waits until the work of an older object of its name has finished.
    Blocked,
}
