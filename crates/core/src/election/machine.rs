//! The election as a pure state machine, without clock, client and waiting.
//!
//! Local time is the time since some local start, by the monotonic clock; wall-clock time is only
//! written into the record.

use std::time::Duration;

use jiff::Timestamp;

use super::record::{Lease, Record, Version};
use super::timing::Timing;
use crate::object::ResourceVersion;

/// The largest `leaseTransitions` that a Lease can have.
const MAX_TRANSITIONS: i64 = i32::MAX as i64;

/// A point in time by the local monotonic clock, counted from any local start. The times of a
/// [`Candidate`](crate::election::Candidate).
pub type Local = Duration;

/// A replica that takes part in an election.
///
/// [`Elector`](crate::election::Elector) drives one; tests and models can do so without a server.
///
/// ```
/// use std::time::Duration;
/// use belayer_core::election::{Action, Candidate, Timing};
///
/// let now = Duration::ZERO;
/// let mut candidate = Candidate::new("host-1", Timing::default());
/// // There is no Lease: this replica creates it.
/// let action = candidate.seen(None, now, jiff::Timestamp::UNIX_EPOCH);
/// assert!(matches!(action, Action::Create(_)));
/// ```
#[derive(Debug, Clone)]
pub struct Candidate {
    identity: String,
    timing: Timing,
    /// The record as last read or written, and since when it is unchanged as seen by this process.
    observed: Option<Observed>,
    /// The version of the Lease that the next write expects.
    version: Option<Version>,
    state: LeaderState,
}

/// Why this process may write, until its deadline.
#[derive(Debug, Clone, Copy)]
enum LeaderState {
    /// It may not.
    None,
    /// It holds the Lease.
    Elected(Led),
    /// The Lease could not exist, so no other replica could hold it.
    Alone {
        /// When the last request that confirmed it was sent.
        since: Local,
    },
}

#[derive(Debug, Clone)]
struct Observed {
    record: Record,
    since: Local,
}

/// The leadership of this process.
#[derive(Debug, Clone, Copy)]
struct Led {
    /// When the last successful renewal was sent.
    renewed: Local,
    /// `leaseTransitions` when this leadership began.
    transitions: i64,
}

/// The next action of the driver. Returned by the methods of
/// [`Candidate`](crate::election::Candidate).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read the Lease.
    Read,
    /// Create the Lease with this record.
    Create(Record),
    /// Write this record if the Lease is still at that version.
    Write(Record, Version),
    /// Nothing now: read again after this time at the latest.
    Wait(Duration),
    /// Stop: this process led, and another one leads now.
    GiveUp {
        /// Identity of the leader; empty if there is none.
        holder: String,
    },
}

/// Whether this process is the leader. Returned by
/// [`Candidate::status`](crate::election::Candidate::status).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseStatus {
    /// Another replica leads, or no leader exists.
    Standby,
    /// Leading, and may write until then.
    Leading {
        /// No write begins after this time, and writes under way are cancelled.
        until: Local,
    },
    /// No replica can hold the Lease because its namespace does not exist; this one may write until
    /// then.
    Alone {
        /// No write begins after this time, and writes under way are cancelled.
        until: Local,
    },
    /// Led or worked alone, and could not confirm in time that it still may. Writes nothing, and
    /// does not know the leader.
    InDoubt,
}

impl LeaseStatus {
    /// The status for a log line.
    pub fn message(self) -> &'static str {
        match self {
            Self::Standby => "standby",
            Self::Leading { .. } => "leading",
            Self::Alone { .. } => "working without an election",
            Self::InDoubt => {
                "no longer leading, unless the lease can be renewed before another replica takes it"
            }
        }
    }

    /// Until when this process may write; `None` if it may not.
    pub fn until(self) -> Option<Local> {
        match self {
            Self::Leading { until } | Self::Alone { until } => Some(until),
            Self::Standby | Self::InDoubt => None,
        }
    }
}

/// Why a lease was acquired, for a log line. Returned by
/// [`Candidate::acquire_reason`](crate::election::Candidate::acquire_reason).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcquireReason {
    /// There was no lease.
    Absent,
    /// The previous leader released it.
    Released,
    /// The previous leader did not renew it within the lease duration of its record.
    Expired,
    /// This replica holds it already.
    AlreadyHeld,
}

impl AcquireReason {
    /// The reason for a log line.
    pub fn message(self) -> &'static str {
        match self {
            Self::Absent => "there was no lease",
            Self::Released => "the previous leader released the lease",
            Self::Expired => "the previous leader did not renew the lease in time",
            Self::AlreadyHeld => "this replica held the lease already",
        }
    }
}

impl Candidate {
    /// A candidate that has not read the Lease yet.
    pub fn new(identity: impl Into<String>, timing: Timing) -> Self {
        Self {
            identity: identity.into(),
            timing,
            observed: None,
            version: None,
            state: LeaderState::None,
        }
    }

    /// The holder identity in the record.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The status at `now`.
    pub fn status(&self, now: Local) -> LeaseStatus {
        let deadline = self.timing.renew_deadline();
        let status = match self.state {
            LeaderState::None => return LeaseStatus::Standby,
            LeaderState::Elected(led) => LeaseStatus::Leading {
                until: led.renewed + deadline,
            },
            LeaderState::Alone { since } => LeaseStatus::Alone {
                until: since + deadline,
            },
        };
        match status.until() {
            Some(until) if now < until => status,
            _ => LeaseStatus::InDoubt,
        }
    }

    /// Identity of the leader as last seen; empty if there is none.
    pub fn holder(&self) -> &str {
        self.observed
            .as_ref()
            .map_or("", |observed| &observed.record.holder)
    }

    /// The version of the Lease as last seen; `None` if the last request failed.
    pub(super) fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    /// The first action of a round: a leader that has the version renews at once, any other
    /// candidate reads first.
    pub fn begin(&self, now: Local, wall: Timestamp) -> Action {
        match (self.status(now), &self.version) {
            (LeaseStatus::Leading { .. }, Some(version)) => {
                Action::Write(self.renewal(wall), version.clone())
            }
            _ => Action::Read,
        }
    }

    /// The next action after a read; `None` means that there is no Lease.
    pub fn seen(&mut self, lease: Option<Lease>, now: Local, wall: Timestamp) -> Action {
        let Some(lease) = lease else {
            return self.seen_nothing(now, wall);
        };
        self.version = Some(lease.version.clone());
        self.observe(lease.record, now);
        match self.holder_at(now) {
            Holder::ThisReplica => Action::Write(self.renewal(wall), lease.version),
            // This process took itself for the leader, and another replica leads or has led.
            Holder::Vacant(_) | Holder::Held { .. } if self.has_led() => self.give_up(),
            Holder::Vacant(_) => Action::Write(self.acquisition(wall), lease.version),
            Holder::Held { left } => Action::Wait(left),
        }
    }

    /// Records a Lease that a watch reported at `now` to a standby: its time starts now, and not
    /// with the next read. An event that is not newer than the last read Lease says nothing.
    pub(super) fn watched(&mut self, lease: Lease, now: Local) {
        let number = |version: &Version| ResourceVersion::parse(&version.resource_version);
        let known = self.version.as_ref().and_then(number);
        if known.is_some() && number(&lease.version) > known {
            self.version = Some(lease.version);
            self.observe(lease.record, now);
        }
    }

    /// Timeout of the next request: a leader does not wait for a response beyond its deadline.
    pub fn patience(&self, now: Local) -> Duration {
        let patience = self.timing.request_timeout();
        match self.status(now) {
            LeaseStatus::Leading { until } | LeaseStatus::Alone { until } => {
                patience.min(until.saturating_sub(now))
            }
            LeaseStatus::Standby | LeaseStatus::InDoubt => patience,
        }
    }

    /// Why the Lease as last seen can be acquired; `None` if it cannot.
    pub fn acquire_reason(&self, now: Local) -> Option<AcquireReason> {
        match (&self.observed, self.holder_at(now)) {
            (None, _) => Some(AcquireReason::Absent),
            (_, Holder::Vacant(acquire_reason)) => Some(acquire_reason),
            (_, Holder::ThisReplica) => Some(AcquireReason::AlreadyHeld),
            (_, Holder::Held { .. }) => None,
        }
    }

    /// Records a successful write that was sent at `sent`.
    pub fn wrote(&mut self, record: Record, version: Option<Version>, sent: Local) {
        let transitions = record.transitions;
        self.observed = Some(Observed {
            record,
            since: sent,
        });
        self.version = version;
        self.state = LeaderState::Elected(Led {
            renewed: sent,
            transitions,
        });
    }

    /// Records that a create sent at `sent` found no namespace for the Lease. Then no replica can
    /// hold it, as when the controller runs on a developer's machine. A replica that holds it later takes
    /// precedence over this one.
    pub fn found_no_namespace(&mut self, sent: Local) {
        self.version = None;
        self.observed = None;
        self.state = LeaderState::Alone { since: sent };
    }

    /// Records that a request failed or its response was lost: the next round reads first.
    pub fn failed(&mut self) {
        self.version = None;
    }

    /// How long to wait after a round. `jitter` in `0..1` spreads the standbys.
    pub fn pause(&self, now: Local, jitter: f64) -> Duration {
        let period = self.timing.retry_period();
        match self.status(now) {
            // Wakes up at the deadline, to report it.
            LeaseStatus::Leading { until } | LeaseStatus::Alone { until } => {
                return period.min(until.saturating_sub(now));
            }
            LeaseStatus::InDoubt => return period,
            LeaseStatus::Standby => {}
        }
        let jittered = period.mul_f64(1.0 + jitter.clamp(0.0, 1.0) * super::timing::JITTER_FACTOR);
        // A standby that knows when the lease expires wakes up then.
        match self.holder_at(now) {
            Holder::Held { left } => jittered.min(left.max(period / 4)),
            Holder::Vacant(_) | Holder::ThisReplica => jittered,
        }
    }

    /// The record that releases the lease and the version that it replaces; `None` if this
    /// process does not hold the lease.
    ///
    /// It may hold the lease without leading: it has not read the answer to the write that acquired it, or
    /// it could not renew in time.
    pub fn resignation(&self, now: Local, wall: Timestamp) -> Option<(Record, Version)> {
        let Holder::ThisReplica = self.holder_at(now) else {
            return None;
        };
        let record = Record {
            holder: String::new(),
            lease_seconds: 1,
            acquired: Some(wall),
            renewed: Some(wall),
            transitions: self.observed.as_ref()?.record.transitions,
        };
        Some((record, self.version.clone()?))
    }

    fn seen_nothing(&mut self, now: Local, wall: Timestamp) -> Action {
        self.version = None;
        match (self.state, self.status(now)) {
            // The Lease was deleted. Another replica may have created a new one and led since.
            (LeaderState::Elected(_), LeaseStatus::InDoubt) => {
                self.observed = None;
                self.give_up()
            }
            (LeaderState::Elected(_), _) => Action::Create(self.renewal(wall)),
            // A process that worked alone may still create it, however long it could not reach the
            // server.
            (LeaderState::None | LeaderState::Alone { .. }, _) => match self.holder_at(now) {
                // The holder may write until its deadline, and creates the Lease again.
                Holder::Held { left } => Action::Wait(left),
                Holder::Vacant(_) | Holder::ThisReplica => {
                    self.observed = None;
                    Action::Create(self.acquisition(wall))
                }
            },
        }
    }

    fn has_led(&self) -> bool {
        !matches!(self.state, LeaderState::None)
    }

    fn give_up(&self) -> Action {
        Action::GiveUp {
            holder: self.holder().to_owned(),
        }
    }

    /// The time of a record starts when a change of it is first seen. Other changes of the Lease,
    /// of its labels for example, are not renewals.
    fn observe(&mut self, record: Record, now: Local) {
        let same = self
            .observed
            .as_ref()
            .is_some_and(|observed| observed.record == record);
        if !same {
            self.observed = Some(Observed { record, since: now });
        }
    }

    fn holder_at(&self, now: Local) -> Holder {
        let Some(Observed { record, since }) = &self.observed else {
            return Holder::Vacant(AcquireReason::Absent);
        };
        if record.holder.is_empty() {
            return Holder::Vacant(AcquireReason::Released);
        }
        if record.holder == self.identity {
            // The holder may be this process, but another one has led in between if the transitions
            // differ.
            return match self.state {
                LeaderState::Elected(led) if led.transitions != record.transitions => {
                    Holder::Held {
                        left: Duration::ZERO,
                    }
                }
                _ => Holder::ThisReplica,
            };
        }
        let promised = record.lease_duration(self.timing.lease_duration());
        let unchanged = now.saturating_sub(*since);
        match promised.checked_sub(unchanged) {
            Some(left) if !left.is_zero() => Holder::Held { left },
            _ => Holder::Vacant(AcquireReason::Expired),
        }
    }

    /// The record of a candidate that acquires the lease.
    fn acquisition(&self, wall: Timestamp) -> Record {
        let before = self.observed.as_ref().map(|observed| &observed.record);
        Record {
            holder: self.identity.clone(),
            lease_seconds: self.timing.recorded_seconds(),
            acquired: Some(wall),
            renewed: Some(wall),
            // The API's type has 32 bits: a larger number would be refused, and no replica could
            // lead again.
            transitions: before.map_or(0, |record| {
                record.transitions.saturating_add(1).min(MAX_TRANSITIONS)
            }),
        }
    }

    /// The record of a renewal.
    fn renewal(&self, wall: Timestamp) -> Record {
        let before = self.observed.as_ref().map(|observed| &observed.record);
        Record {
            holder: self.identity.clone(),
            lease_seconds: self.timing.recorded_seconds(),
            acquired: before.and_then(|record| record.acquired).or(Some(wall)),
            renewed: Some(wall),
            transitions: before.map_or(0, |record| record.transitions),
        }
    }
}

enum Holder {
    Vacant(AcquireReason),
    ThisReplica,
    Held { left: Duration },
}
