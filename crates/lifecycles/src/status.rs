//! The state of the work for one UID, changed only by events.

use std::time::Duration;

use tokio::time::Instant;

use super::object::Deadline;
use super::phase::{Config, Phase};
use super::step::{Effects, Ended, Observation, Pace, Run, Work};
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::Uid;

/// The presence of the object in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Presence {
    Stored,
    /// Another object has its name, so it must have been deleted; its deletion was not observed
    /// yet.
    Replaced,
    Gone,
}

/// How the object got its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    /// The name was free. An earlier process may have worked on it.
    First,
    /// It waited, in this table, until the work of an older UID had finished: unless it was started
    /// since, nothing of it exists.
    Waited,
    /// Only its remains are known: it was never in the store as far as this table has observed.
    Found,
}

/// When the next run is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Due {
    Now,
    At(Instant),
    Never,
}

/// A run in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Running {
    phase: Phase,
    cancelled: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Status<S> {
    pub(super) uid: Uid,
    pub(super) origin: Origin,
    /// When it was last observed.
    pub(super) seen: LogicalTime,
    phase: Phase,
    presence: Presence,
    started: bool,
    running: Option<Running>,
    /// The pending slot: the last observation, if no run has used it yet.
    pending: Option<S>,
    /// The snapshot of the last run, or of the run in flight.
    active: Option<S>,
    /// The object was created again, with the same UID, while its work was ending.
    restart: Option<S>,
    deadline: Deadline,
    due: Due,
    failures: u32,
    ceiling: Option<Duration>,
}

impl<S: Clone> Status<S> {
    pub(super) fn new(uid: Uid, snapshot: S, seen: LogicalTime) -> Self {
        Self {
            uid,
            origin: Origin::First,
            seen,
            phase: Phase::Sync,
            presence: Presence::Stored,
            started: false,
            running: None,
            pending: Some(snapshot),
            active: None,
            restart: None,
            deadline: Deadline::NONE,
            due: Due::Now,
            failures: 0,
            ceiling: None,
        }
    }

    /// Something of it was found that is not in the store: there is no snapshot, and the only work
    /// is to terminate it.
    pub(super) fn found(uid: Uid, deadline: Deadline, seen: LogicalTime) -> Self {
        Self {
            uid,
            origin: Origin::Found,
            seen,
            phase: Phase::Terminating,
            presence: Presence::Gone,
            started: false,
            running: None,
            pending: None,
            active: None,
            restart: None,
            deadline,
            due: Due::Now,
            failures: 0,
            ceiling: None,
        }
    }

    pub(super) fn observe(
        &mut self,
        observation: Observation<S>,
        seen: LogicalTime,
        fx: &mut Effects,
    ) {
        self.seen = seen;
        match observation {
            Observation::Created(snapshot) if self.phase > Phase::Sync => {
                if self.restart.is_none() {
                    fx.restarts += 1;
                }
                self.presence = Presence::Stored;
                self.restart = Some(snapshot);
            }
            Observation::Created(snapshot) | Observation::Updated(snapshot) => {
                self.presence = Presence::Stored;
                // After it was created again, updates belong to that life.
                if self.restart.is_some() {
                    self.restart = Some(snapshot);
                    return;
                }
                self.pending = Some(snapshot);
                self.wake(fx);
            }
            Observation::Terminating { snapshot, deadline } => {
                self.presence = Presence::Stored;
                self.restart = None;
                self.pending = Some(snapshot);
                self.terminate(deadline, fx);
                self.wake(fx);
            }
            Observation::Kill { deadline } => {
                self.restart = None;
                self.terminate(deadline, fx);
            }
            Observation::Deleted => {
                self.presence = Presence::Gone;
                self.restart = None;
                self.terminate(Deadline::NONE, fx);
            }
        }
    }

    /// A comparison with the whole store did not find it.
    pub(super) fn vanished(&mut self, fx: &mut Effects) {
        match self.presence {
            Presence::Stored => fx.orphans += 1,
            Presence::Replaced => {}
            Presence::Gone => return,
        }
        self.presence = Presence::Gone;
        self.restart = None;
        self.terminate(Deadline::NONE, fx);
    }

    /// Another object has its name.
    pub(super) fn replaced(&mut self, fx: &mut Effects) {
        if self.presence == Presence::Stored {
            fx.orphans += 1;
            self.presence = Presence::Replaced;
        }
        self.restart = None;
        self.terminate(Deadline::NONE, fx);
    }

    /// Ends the sync phase, shortens the deadline, and cancels the run in flight if necessary.
    fn terminate(&mut self, deadline: Deadline, fx: &mut Effects) {
        let shortened = deadline < self.deadline;
        self.deadline = self.deadline.min(deadline);
        match self.phase {
            Phase::Sync => self.enter(Phase::Terminating),
            Phase::Terminating if shortened => {}
            // Nothing changes for the work, so a retry keeps its backoff.
            Phase::Terminating | Phase::Terminated | Phase::Finished => return,
        }
        if let Some(running) = &mut self.running {
            running.cancelled = true;
            fx.cancel = true;
        }
        self.wake(fx);
    }

    fn wake(&mut self, fx: &mut Effects) {
        self.due = Due::Now;
        fx.wake = true;
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.due = Due::Now;
        self.failures = 0;
        self.ceiling = None;
    }

    /// The run that is due now, or else when the next one is due.
    pub(super) fn begin(&mut self, now: Instant) -> Result<Run<S>, Option<Instant>> {
        if self.running.is_some() {
            return Err(None);
        }
        match self.due {
            Due::Now => {}
            Due::At(due) if due <= now => {}
            Due::At(due) => return Err(Some(due)),
            Due::Never => return Err(None),
        }
        if let Some(pending) = self.pending.take() {
            self.active = Some(pending);
        }
        let work = match (self.phase, self.active.clone()) {
            (Phase::Sync, Some(snapshot)) => Work::Sync { snapshot },
            (Phase::Terminating, Some(snapshot)) => Work::Terminate {
                snapshot,
                deadline: self.deadline,
            },
            (Phase::Terminating, None) => Work::TerminateFound {
                deadline: self.deadline,
            },
            (Phase::Terminated, Some(snapshot)) => Work::CleanUp { snapshot },
            // A snapshot comes before the phases that need one, and what is finished is retired.
            (Phase::Sync | Phase::Terminated, None) | (Phase::Finished, _) => {
                debug_assert!(false, "a run without a snapshot");
                self.due = Due::Never;
                return Err(None);
            }
        };
        self.started = true;
        self.running = Some(Running {
            phase: self.phase,
            cancelled: false,
        });
        Ok(Run {
            uid: self.uid.clone(),
            work,
            failures: self.failures,
        })
    }

    /// The run in flight has ended.
    pub(super) fn complete(&mut self, ended: Ended, pace: Pace, now: Instant) {
        let Some(running) = self.running.take() else {
            debug_assert!(false, "nothing was running");
            return;
        };
        // Termination was requested in the meantime: whatever the result of the sync, the next
        // phase is due.
        if self.phase != running.phase {
            self.due = Due::Now;
            return;
        }
        match (ended, self.phase) {
            (Ended::Failed(_), _) if running.cancelled => self.due = Due::Now,
            (Ended::Failed(backoff), _) => {
                let ceiling = backoff.ceiling_after(self.ceiling);
                self.failures = self.failures.saturating_add(1);
                self.ceiling = Some(ceiling);
                self.due = after(now, Some(backoff.delay(ceiling, pace.draw)));
            }
            (Ended::Settled | Ended::Done, Phase::Sync) => self.succeeded(now, pace.resync),
            (Ended::Again { after }, Phase::Sync) => self.succeeded(now, Some(after)),
            (Ended::Terminal, Phase::Sync) => self.enter(Phase::Terminating),
            // Remains have no snapshot to clean up with.
            (_, Phase::Terminating) if self.is_remains() => self.enter(Phase::Finished),
            (_, phase) => self.enter(phase.next()),
        }
        if self.pending.is_some() {
            self.due = Due::Now;
        }
    }

    fn succeeded(&mut self, now: Instant, again: Option<Duration>) {
        self.failures = 0;
        self.ceiling = None;
        self.due = after(now, again);
    }

    fn is_remains(&self) -> bool {
        self.pending.is_none() && self.active.is_none()
    }

    /// Whether nothing is left to do, or nothing ever was: the object waited for its turn and was
    /// terminated before it was started.
    pub(super) fn is_over(&self) -> bool {
        let untouched = self.origin == Origin::Waited && !self.started;
        self.running.is_none()
            && (self.phase == Phase::Finished || (untouched && self.phase > Phase::Sync))
    }

    pub(super) fn take_restart(&mut self) -> Option<S> {
        self.restart.take()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.presence == Presence::Gone
    }

    pub(super) fn was_started(&self) -> bool {
        self.started
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether nothing is in flight and nothing is due now.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        self.running.is_none()
            && match self.due {
                Due::Now => false,
                Due::At(due) => due > now,
                Due::Never => true,
            }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn config(&self) -> Config {
        match self.presence {
            Presence::Stored => Config::Desired,
            Presence::Replaced | Presence::Gone => Config::Orphan,
        }
    }

    pub(super) fn active(&self) -> Option<&S> {
        self.active.as_ref()
    }

    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    pub(super) fn deadline(&self) -> Deadline {
        self.deadline
    }
}

fn after(now: Instant, delay: Option<Duration>) -> Due {
    delay
        .and_then(|delay| now.checked_add(delay))
        .map_or(Due::Never, Due::At)
}
