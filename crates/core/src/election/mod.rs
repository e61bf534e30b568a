//! Leader election by Lease: of several replicas one writes, the others stand by with warm caches.
//!
//! The record in the Lease is the one that client-go writes, so that its tools and dashboards read
//! ours. Time is judged as client-go does: by how long the record has not changed as seen from
//! here, by the local monotonic clock. The times in the record are for people; no clock is ever
//! compared with another.
//!
//! What is stricter than client-go: a leader that cannot renew stops *writing* at its renew
//! deadline, counted from the moment at which the last good renewal was **sent**, and what is then
//! in flight is given up ([`Leadership`]). Whoever comes next waits for the whole lease duration,
//! counted from the moment at which it **saw** that renewal, which is later. So the two never
//! write at once, as long as local clocks run equally fast within the margin between both times.
//!
//! A leader in doubt does not throw its knowledge away: it goes on asking, and when it finds its
//! own record untouched, nobody else has led meanwhile, and it goes on where it stopped. When it
//! finds another's, it has lost, and the process is to end: everything in memory that was found
//! out as a leader ends with it.
//!
//! Where the Lease's namespace does not exist, nobody can hold the Lease: whoever finds that out
//! works without, for as long as it finds it out again and again. Once there is a Lease and another
//! holds it, that is a loss like any other.
//!
//! Election does not fence: a process that was frozen between its last look at the clock and the
//! network sends late what was on its way, at most as many requests as may be under way at once.
//! That is why every patch names the version and the UID, and every create is reserved first; the
//! election only keeps the replicas from working against each other.
//!
//! ```
//! use std::time::Duration;
//! use belayer_core::election::{Timing, TimingError};
//!
//! assert_eq!(Timing::default().lease_duration(), Duration::from_secs(15));
//! let seconds = Duration::from_secs;
//! assert_eq!(
//!     Timing::new(seconds(10), seconds(10), seconds(2)),
//!     Err(TimingError::LeaseNotLonger),
//! );
//! ```

mod elector;
mod leadership;
mod machine;
mod record;
mod timing;

#[cfg(test)]
mod tests;

pub use elector::{Elector, ElectorHealth, Ended, Settings, identity};
pub use leadership::{Leadership, LeaseGuard};
pub use machine::{AcquireReason, Ask, Candidate, LeaseStatus, Local};
pub use record::{Lease, Record, Version};
pub use timing::{Timing, TimingError};
