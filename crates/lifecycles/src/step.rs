//! What goes into the state table and what comes out of it.

use std::time::Duration;

use tokio::time::Instant;

use super::object::Deadline;
use belayer_core::object::Uid;
use belayer_core::workqueue::Backoff;

/// What somebody saw of an object, or wants of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Observation<S> {
    /// It came into being, as far as the observer knows.
    Created(S),
    /// It is there and wanted.
    Updated(S),
    /// It is there and must stop, such as an object with a deletion timestamp.
    Terminating {
        /// The object as it is now.
        snapshot: S,
        /// Until when it may take its time.
        deadline: Deadline,
    },
    /// It must stop, whatever the store says: an order, as by an eviction. Of an object that is not
    /// known it means nothing, for there is nothing to stop it with.
    Kill {
        /// Until when it may take its time.
        deadline: Deadline,
    },
    /// It is gone from the store.
    Deleted,
}

/// One piece of work, with what it is to be done on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Work<S> {
    /// Bring the world to the snapshot.
    Sync {
        /// The object as it was observed last.
        snapshot: S,
    },
    /// Bring to an end what runs.
    Terminate {
        /// The object as it was observed last.
        snapshot: S,
        /// Until when that may take its time.
        deadline: Deadline,
    },
    /// Bring to an end what was found of an object that the store knows nothing of. A variant of its
    /// own, so that nobody takes remains for an object.
    TerminateFound {
        /// Until when that may take its time.
        deadline: Deadline,
    },
    /// Clean up what it left behind.
    CleanUp {
        /// The object as it was observed last.
        snapshot: S,
    },
}

/// What a worker is to do next for a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Run<S> {
    /// For which object of that name.
    pub uid: Uid,
    /// What.
    pub work: Work<S>,
    /// How often this phase's work has failed in a row.
    pub failures: u32,
}

/// The answer to "what is to be done for this name?".
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step<S> {
    /// This. Nothing else is handed out for the name until it was [completed](super::Slot::complete).
    Run(Run<S>),
    /// Nothing before this moment, unless something is observed.
    Sleep(Instant),
    /// Nothing, unless something is observed.
    Rest,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    /// A sync is done for now; the next comes at the resync.
    Settled,
    /// A sync is done for now and asks to be looked at again.
    Again {
        /// From now on.
        after: Duration,
    },
    /// A sync found that the object has come to its end by itself. Not an error.
    Terminal,
    /// A termination or a cleanup is complete.
    Done,
    /// Not done: to be tried again. If the run was cancelled that is no failure, and the retry is
    /// at once.
    Failed(Backoff),
}

/// What chance and configuration add to the end of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// When a settled object is looked at again, jitter included; `None` is never.
    pub resync: Option<Duration>,
    /// From 0 to 1, for the backoff.
    pub draw: f64,
}

/// How the work for an object ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// All of it is done.
    Done,
    /// It was never started: it waited behind an older object of its name, and was terminated or
    /// replaced before its turn came.
    Unstarted,
    /// This life is done, and the next one of the very same UID begins: it was created again
    /// meanwhile.
    Restarting,
}

/// The work for an object has ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Finished {
    /// Which.
    pub uid: Uid,
    /// How.
    pub end: End,
}

/// What an event asks of whoever drives the table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
#[must_use]
pub struct Effects {
    /// There may be something to do: ask for the next [`Step`].
    pub wake: bool,
    /// Cancel the run in flight.
    pub cancel: bool,
    /// Objects whose work has ended.
    pub finished: Vec<Finished>,
    /// Objects that were created again, under the same UID, before their work had finished.
    pub restarts: u64,
    /// Objects that turned out to have vanished without anybody having said so, or of which remains
    /// were found.
    pub orphans: u64,
    /// Observations that came too late: their object's work has finished.
    pub dropped: u64,
}
