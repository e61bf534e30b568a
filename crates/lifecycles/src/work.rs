//! The work that users of lifecycles implement.

use std::fmt;
use std::future::{Future, ready};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::object::{Deadline, Identity};
use super::step::End;
use belayer_core::workqueue::Backoff;

/// The work for one kind of object, in three phases.
///
/// For one name at most one of these futures is alive at a time, and none is dropped before it
/// returns: a run is stopped by its token, and the next one waits until it has returned. So a
/// `sync` that starts a process or a thread must wait for its end before it returns.
///
/// Every call may be repeated after a success (by a resync, a restart of the process, a replay), so
/// each one must be idempotent. A panic is caught, counted and treated like an error.
///
/// The [crate's example](crate) implements it for volumes.
pub trait Lifecycle: Send + Sync + 'static {
    /// The input of the work for an object.
    type Snapshot: Send + Sync + 'static;

    /// Why a run failed. Logged in lower case after the object's name.
    type Error: fmt::Display + Send;

    /// Brings the object to the state of the snapshot. Cancelled when the object must terminate; it
    /// should then return soon. Its result is ignored then.
    ///
    /// # Errors
    /// If it must be retried, with backoff. An object that has ended by itself is not an error but
    /// [`Synced::Terminal`].
    fn sync(
        &self,
        object: &Identity,
        snapshot: &Self::Snapshot,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<Synced, Self::Error>> + Send;

    /// Stops what runs for the object. When it returns `Ok`, nothing of the object runs, now or
    /// later. Cancelled when the deadline shrinks; the next run gets the new one.
    ///
    /// # Errors
    /// If something still runs, or may run: it is retried, with backoff, without a limit.
    fn terminate(
        &self,
        object: &Identity,
        snapshot: &Self::Snapshot,
        deadline: Deadline,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Cleans up the state that the object left behind. Cancelled only by the end of the process.
    ///
    /// # Errors
    /// If something is left: it is retried, with backoff, without a limit.
    fn terminated(
        &self,
        object: &Identity,
        snapshot: &Self::Snapshot,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Stops what was found of an object that is otherwise unknown; see
    /// [`Pass::found`](super::Pass::found). There is no cleanup after it. Only needed by
    /// implementations that report such remains.
    ///
    /// # Errors
    /// If something is left: it is retried, with backoff, without a limit.
    fn terminate_found(
        &self,
        object: &Identity,
        deadline: Deadline,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = (object, deadline, cancel);
        ready(Ok(()))
    }

    /// The backoff of the object after this error; [`Backoff::ERROR`] by default.
    fn backoff(&self, error: &Self::Error) -> Backoff {
        let _ = error;
        Backoff::ERROR
    }

    /// Called when the work for this object has ended, once per life and outside of every lock. It
    /// must not block. After [`End::Restarting`] the next life begins.
    fn finished(&self, object: &Identity, end: End) {
        let _ = (object, end);
    }
}

/// The result of a sync. [`Lifecycle::sync`](crate::Lifecycle::sync) returns it, as in the
/// [crate's example](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Synced {
    /// Done for now: the next sync is at the next change, or at the resync.
    Settled,
    /// Done for now: the next sync is at the next change, or after this time.
    Again {
        /// From now on.
        after: Duration,
    },
    /// The object has ended by itself and is to be terminated. Readers see it as terminated only
    /// when its termination is complete.
    Terminal,
}
