//! Leader election by Lease: one of several replicas writes, the others are standbys with warm
//! caches.
//!
//! The Lease has the same record as client-go's, so that tools and dashboards can read it. As in
//! client-go, a replica measures by its local monotonic clock how long it has seen the record
//! unchanged. The times in the record are informational; clocks of different machines are never
//! compared.
//!
//! One rule is stricter than client-go's: a leader that cannot renew stops *writing* at its renew
//! deadline, counted from when the last successful renewal was **sent**, and requests in flight are
//! cancelled ([`Leadership`]). The next leader waits for the whole lease duration, counted from
//! when it **saw** that renewal, which is later. So two replicas never write at the same time, as
//! long as their clocks run equally fast within the margin between both durations. A Lease that was
//! deleted counts in the same way: the leader creates it again, and a standby that has seen it
//! waits for its duration.
//!
//! A leader in doubt keeps its state and keeps reading the Lease. If it finds its own record
//! unchanged, no other replica has led in the meantime, and it continues. If it finds the record of
//! another replica, it has lost the election and the process must end, because its in-memory state
//! is only valid for a leader.
//!
//! A standby reads the Lease every retry period or two, and also watches it. The watch shows at once
//! that the leader released the Lease; the standby then reads the Lease immediately. Without the
//! watch, for example because the permission is missing, it finds out with its next read.
//!
//! If the Lease's namespace does not exist, no replica can hold the Lease. A replica that finds
//! this works without the Lease and checks again with each round. Once another replica holds the
//! Lease, this one has lost the election.
//!
//! Election does not fence: a process that was frozen between its last check of the clock and the
//! network sends its requests late, at most as many as may be in flight at once. Therefore every
//! patch names the version and the UID, and every create is reserved first; the election only
//! prevents replicas from working against each other.
//!
//! The example [`election`](https://github.com/belayer/belayer/blob/main/crates/core/examples/election.rs) has two replicas.
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
mod watch;

#[cfg(test)]
mod tests;

pub use elector::{Elector, ElectorHealth, Ended, Settings, identity};
pub use leadership::{Leadership, LeaseGuard};
pub use machine::{AcquireReason, Action, Candidate, LeaseStatus, Local};
pub use record::{Lease, Record, Version};
pub use timing::{Timing, TimingError};
