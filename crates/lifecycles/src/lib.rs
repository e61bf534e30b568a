#![doc = include_str!("../README.md")]
//!
//! # Guarantees
//!
//! - **One at a time.** Work is serialised by namespace and name, and identified by UID. For one
//!   name at most one future of a [`Lifecycle`] is alive. Work on a new object of a name begins only
//!   after all work of the older UID has finished; that the name has a new object proves that the
//!   older one was deleted, and ends its work.
//! - **One direction.** [`Phase`]s go sync → terminating → terminated → finished, and the next phase
//!   is run at once. Termination cancels the sync in flight, and no later update undoes it. Deadlines
//!   only shrink; a shorter one cancels the termination in flight, which is run again with it.
//! - **The last observation counts.** Each object has one pending slot: a newer observation replaces
//!   an older one that was not used yet, and the last one is always used. Readers
//!   [see](View::snapshot) only the one in use.
//! - **No work is lost.** The work continues with the last snapshot until it is finished, even if the
//!   object has vanished from the store. The next [`reconcile`](Lifecycles::reconcile) detects a
//!   missed deletion.
//! - **Once.** A UID whose work has finished is kept as a tombstone until it is deleted from the
//!   store: late updates of it are dropped, its deletion removes the tombstone. If it is *created*
//!   again, by a server that reuses UIDs or a store that went back, the creation is stored during its
//!   termination and begins afterwards.
//! - **No needless runs.** An object that waits for its name and must terminate before it was begun
//!   ends without a run.
//! - **Errors** back off per object, with full jitter; a change is acted on at once nevertheless. A
//!   cancelled run is not an error, nor is [`Synced::Terminal`]. A panic is caught and counted.
//! - **Resync** is per object: each settled one is synced again on its own, after one to one and a
//!   half times the interval. There is no sweep over all of them, and a change delays the resync.
//!
//! # Requirements
//!
//! Observations of one name must be in the order of the store, as the handler of an
//! [informer](belayer_core::informer) receives them: after the deletion of a UID the table has no
//! entry of it, so a late update would begin it again, until the next pass ends it. And
//! [`reconcile`](Lifecycles::reconcile) must be called every few seconds.
//!
//! All times are tokio's, so tests can pause them; [`Deadline`]s are points in time, all others are
//! a [`Duration`](std::time::Duration).
//!
//! There is no limit on how many names are worked on at once: a name that hangs must not prevent
//! others from ending. Work that needs a limit can hold a semaphore.
//!
//! # Design
//!
//! [`Slot`] is the state of one name as a pure state table: observations in, [`Effects`] and
//! [`Step`]s out, without I/O, clock or randomness, so that tests can enumerate its states. All
//! slots are under one lock, and each name with work has one task. [`Lifecycles`] combines them.

mod driver;
mod meters;
mod object;
mod phase;
mod shared;
mod slot;
mod slots;
mod status;
mod step;
mod sync;
mod work;
mod worker;

#[cfg(test)]
mod tests;

pub use driver::{Known, Lifecycles, Options, Pass};
pub use object::{Deadline, Identity};
pub use phase::{Config, Phase};
pub use slot::{Activity, Slot, View};
pub use step::{Effects, End, Ended, Finished, Observation, Pace, Run, Step, Work};
pub use work::{Lifecycle, Synced};
