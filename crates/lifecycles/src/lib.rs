#![doc = include_str!("../README.md")]
//!
//! # What it guarantees
//!
//! - **One at a time.** Work is serialised by namespace and name, and identified by UID. For one
//!   name at most one future of a [`Lifecycle`] is alive. A new object of a name is not worked on
//!   until all work of the older UID has finished; that a name has a new object is itself the proof
//!   that the older one is gone, and ends its work.
//! - **One way.** [`Phase`]s go sync → terminating → terminated → finished, and the next phase is run
//!   at once. Termination cancels the sync in flight, and no later update undoes it. Deadlines only
//!   shrink; one that shrinks cancels the termination in flight, which is run again with the new one.
//! - **The last word is heard.** Each object has one pending slot: a newer observation replaces an
//!   older one that nobody has acted on, and the last one is always acted on. Others
//!   [see](View::snapshot) only what is being acted on.
//! - **Nothing is left behind.** The work goes on until it is finished, with the last snapshot, even
//!   if the object has vanished from the store. A delete that was missed is found by the next
//!   [`reconcile`](Lifecycles::reconcile).
//! - **Once.** A UID whose work has finished is remembered until it is gone from the store: late
//!   updates of it are dropped, its deletion gets through. If it is *created* again, by somebody who
//!   uses UIDs twice or by a store that was rewound, that is remembered during its termination and
//!   begins afterwards.
//! - **Nothing for nothing.** An object that waits for its name and has to stop before it was begun
//!   ends without a run.
//! - **Errors** back off per object, with full jitter; a change is acted on at once all the same. A
//!   cancelled run is no error. [`Synced::Terminal`] is none either. A panic is caught and counted.
//! - **Resync** is per object: each settled one is looked at again by itself, after one to one and a
//!   half times the interval. There is no sweep over all of them, and a change puts the resync off.
//!
//! # What it asks for
//!
//! Observations of one name are to be told in the order of the store, as an
//! [informer](belayer_core::informer)'s handler gets them: after the deletion of a UID the table knows
//! nothing of it any more, so a late update would begin it anew, until the next pass ends it. And
//! [`reconcile`](Lifecycles::reconcile) is to be called every few seconds.
//!
//! All times are tokio's, so tests can pause them; [`Deadline`]s are moments, everything else is a
//! [`Duration`](std::time::Duration).
//!
//! There is no limit on how many names are worked on at once: a name that hangs must not keep others
//! from ending. Work that needs a limit holds a semaphore.
//!
//! # How it is made
//!
//! [`Slot`] is the state of one name as a pure table: observations in, [`Effects`] and [`Step`]s out,
//! without I/O, clock or chance, so that its states can be enumerated. All slots are under one lock,
//! and each name that has something to do has one task. [`Lifecycles`] is all of it together.

mod driver;
mod gate;
mod meters;
mod object;
mod phase;
mod shared;
mod slot;
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
