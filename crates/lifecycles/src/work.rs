//! What a user of lifecycles brings: the three kinds of work.

use std::fmt;
use std::future::{Future, ready};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::object::{Deadline, Identity};
use super::step::End;
use belayer_core::workqueue::Backoff;

/// The work for one kind of object, in three phases.
///
/// For one name at most one of these futures is alive at a time, and none is ever dropped half way:
/// a run that is to stop is told so by its token, and what comes next waits until it has returned.
/// So a `sync` that leaves a process or a thread behind must wait for its end before it returns.
///
/// Every call may come again after a success (a resync, a restart of the process, a replay), so each
/// brings the world to a state rather than taking a step. A panic is caught, counted and treated
/// like an error.
pub trait Lifecycle: Send + Sync + 'static {
    /// What the work needs to know of an object.
    type Snapshot: Send + Sync + 'static;

    /// Why a run could not do its work. Logged in lower case after the object's name.
    type Error: fmt::Display + Send;

    /// Brings the world to what the snapshot asks for. Cancelled when the object has to stop; it
    /// should then return soon, with any result, for no result counts then.
    ///
    /// # Errors
    /// When it is to be tried again, with backoff. That the object has come to its end by itself is
    /// no error but [`Synced::Terminal`].
    fn sync(
        &self,
        object: &Identity,
        snapshot: &Self::Snapshot,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<Synced, Self::Error>> + Send;

    /// Brings to an end what runs for the object. When it returns `Ok`, nothing of it runs any more
    /// nor will. Cancelled when the deadline shrinks; the next run has the new one.
    ///
    /// # Errors
    /// When something still runs, or may: it is tried again, with backoff, without end.
    fn terminate(
        &self,
        object: &Identity,
        snapshot: &Self::Snapshot,
        deadline: Deadline,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Cleans up what the object left behind. Nothing but the end of the process cancels it.
    ///
    /// # Errors
    /// When something is left: it is tried again, with backoff, without end.
    fn terminated(
        &self,
        object: &Identity,
        snapshot: &Self::Snapshot,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Brings to an end what was found of an object of which nothing else is known; see
    /// [`Pass::found`](super::Pass::found). There is no cleanup after it. Needed by those alone who
    /// report such remains.
    ///
    /// # Errors
    /// When something is left: it is tried again, with backoff, without end.
    fn terminate_found(
        &self,
        object: &Identity,
        deadline: Deadline,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = (object, deadline, cancel);
        ready(Ok(()))
    }

    /// How long the object waits after this error. [`Backoff::ERROR`] unless said otherwise.
    fn backoff(&self, error: &Self::Error) -> Backoff {
        let _ = error;
        Backoff::ERROR
    }

    /// The work for this object has ended, and how. Called once per life, outside of every lock; it
    /// must not block. [`End::Restarting`] says that this was not the last of it.
    fn finished(&self, object: &Identity, end: End) {
        let _ = (object, end);
    }
}

/// What a sync came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Synced {
    /// Done for now: again at the next change, or at the resync.
    Settled,
    /// Done for now: again at the next change, or after this.
    Again {
        /// From now on.
        after: Duration,
    },
    /// The object has come to its end by itself and is to be terminated. Others see it as terminated
    /// only when its termination is complete.
    Terminal,
}
