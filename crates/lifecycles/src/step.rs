//! The inputs and outputs of the state table.

use std::time::Duration;

use tokio::time::Instant;

use super::object::Deadline;
use belayer_core::object::Uid;
use belayer_core::workqueue::Backoff;

/// An observation of an object, or an order for it. [`Slot::observe`](crate::Slot::observe) takes
/// it, as in the example there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Observation<S> {
    /// It was created, as far as the observer knows.
    Created(S),
    /// It exists and is desired.
    Updated(S),
    /// It exists and must terminate, for example because it has a deletion timestamp.
    Terminating {
        /// The object in its current state.
        snapshot: S,
        /// Until when the termination may be graceful.
        deadline: Deadline,
    },
    /// It must terminate, whatever its state in the store: an order, such as an eviction. Ignored
    /// for an unknown object, because there is no snapshot to terminate it with.
    Kill {
        /// Until when the termination may be graceful.
        deadline: Deadline,
    },
    /// It was deleted from the store.
    Deleted,
}

/// One piece of work with its input. Part of a [`Run`](crate::Run), which a [`Slot`](crate::Slot)
/// begins.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Work<S> {
    /// Sync the object.
    Sync {
        /// The object as last observed.
        snapshot: S,
    },
    /// Terminate what runs.
    Terminate {
        /// The object as last observed.
        snapshot: S,
        /// Until when the termination may be graceful.
        deadline: Deadline,
    },
    /// Terminate what was found of an object that is not in the store. A separate variant, so that
    /// remains are not taken for an object.
    TerminateFound {
        /// Until when the termination may be graceful.
        deadline: Deadline,
    },
    /// Clean up the state that the object left behind.
    CleanUp {
        /// The object as last observed.
        snapshot: S,
    },
}

/// The next run of a worker. Part of a [`Step`](crate::Step). See [`Slot`](crate::Slot), whose
/// example drives the state table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Run<S> {
    /// The UID of the object.
    pub uid: Uid,
    /// The work.
    pub work: Work<S>,
    /// Consecutive failures of this phase's work.
    pub failures: u32,
}

/// What to do next for a name. Returned by [`Slot::begin`](crate::Slot::begin), as in the example
/// there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step<S> {
    /// This run. No other run is handed out for the name until it was
    /// [completed](super::Slot::complete).
    Run(Run<S>),
    /// Nothing before this time, unless there is an observation.
    Sleep(Instant),
    /// Nothing, unless there is an observation.
    Rest,
}

/// How a run ended. [`Slot::complete`](crate::Slot::complete) takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    /// A sync is done for now; the next one is the resync.
    Settled,
    /// A sync is done for now and requests another one.
    Again {
        /// From now on.
        after: Duration,
    },
    /// A sync found that the object has ended by itself. Not an error.
    Terminal,
    /// A termination or a cleanup is complete.
    Done,
    /// Not done: to be retried. If the run was cancelled this is not a failure, and the retry is at
    /// once.
    Failed(Backoff),
}

/// The random and configured delays after a run. [`Slot::complete`](crate::Slot::complete) takes
/// it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// When a settled object is synced again, including jitter; `None` means never.
    pub resync: Option<Duration>,
    /// From 0 to 1, for the backoff.
    pub draw: f64,
}

/// How the work for an object ended. Part of [`Finished`](crate::Finished). See
/// [`Slot`](crate::Slot), whose example drives the state table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// All work is done.
    Done,
    /// It was never started: it waited behind an older object of its name, and was terminated or
    /// replaced before its turn.
    Unstarted,
    /// This life is done, and the next one with the same UID begins: the object was created again
    /// in the meantime.
    Restarting,
}

/// The work for an object has ended. [`Lifecycle::finished`](crate::Lifecycle::finished) receives
/// it. See [`Slot`](crate::Slot), whose example drives the state table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Finished {
    /// The UID of the object.
    pub uid: Uid,
    /// How the work ended.
    pub end: End,
}

/// What the driver must do after an event. Returned by the methods of a [`Slot`](crate::Slot).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
#[must_use]
pub struct Effects {
    /// There may be something to do: get the next [`Step`].
    pub wake: bool,
    /// Cancel the run in flight.
    pub cancel: bool,
    /// Objects whose work has ended.
    pub finished: Vec<Finished>,
    /// Objects that were created again, with the same UID, before their work had finished.
    pub restarts: u64,
    /// Objects that vanished without an observed deletion, or whose remains were found.
    pub orphans: u64,
    /// Observations that were too late: the work of their object has finished.
    pub dropped: u64,
}
