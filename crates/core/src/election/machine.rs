//! The election as a pure state machine: no clock, no client, no waiting.
//!
//! Local time comes in as the time since some local beginning, by the monotonic clock; wall time
//! only to be written into the record.

use std::time::Duration;

use jiff::Timestamp;

use super::record::{Lease, Record, Version};
use super::timing::Timing;

/// The largest `leaseTransitions` that a Lease can have.
const MOST_TRANSITIONS: i64 = i32::MAX as i64;

/// A moment by the local monotonic clock, counted from any local beginning.
pub type Local = Duration;

/// One who wants to lead.
#[derive(Debug, Clone)]
pub struct Candidate {
    identity: String,
    timing: Timing,
    /// The record as last seen or written, and since when it has not changed as seen from here.
    observed: Option<Observed>,
    /// The state of the Lease that the next write may be about.
    version: Option<Version>,
    state: LeaderState,
}

/// By what right we write, as far as time has not run out.
#[derive(Debug, Clone, Copy)]
enum LeaderState {
    /// None.
    None,
    /// The Lease is ours.
    Elected(Led),
    /// There could be no Lease, so that nobody else could have it.
    Alone {
        /// When the last request that showed it was sent.
        since: Local,
    },
}

#[derive(Debug, Clone)]
struct Observed {
    record: Record,
    since: Local,
}

/// What is known of our own leadership.
#[derive(Debug, Clone, Copy)]
struct Led {
    /// When the last renewal that succeeded was sent.
    renewed: Local,
    /// As the record counted when we began.
    transitions: i64,
}

/// What is to be asked of the server next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Read the Lease.
    Look,
    /// Create it with this record.
    Create(Record),
    /// Make it say this, if it is still at that version.
    Write(Record, Version),
    /// Nothing now: look again after this time at the latest.
    Wait(Duration),
    /// Nothing ever: another leads who was us before.
    GiveUp {
        /// Who leads; empty if nobody does.
        holder: String,
    },
}

/// How one stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseStatus {
    /// Another leads, or nobody.
    Standby,
    /// Leading, and may write until then.
    Leading {
        /// No write begins after this moment, and none is waited for.
        until: Local,
    },
    /// Nobody can hold the Lease, for its namespace does not exist; may write until then.
    Alone {
        /// No write begins after this moment, and none is waited for.
        until: Local,
    },
    /// Led or was alone, and could not show in time that it still is. Writes nothing, and does not
    /// know yet who leads.
    InDoubt,
}

impl LeaseStatus {
    /// For a log line.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Standby => "standby",
            Self::Leading { .. } => "leading",
            Self::Alone { .. } => "working without an election",
            Self::InDoubt => {
                "no longer leading, unless the lease can be renewed before another takes it"
            }
        }
    }

    /// Until when it may write; nothing if it may not.
    pub fn until(self) -> Option<Local> {
        match self {
            Self::Leading { until } | Self::Alone { until } => Some(until),
            Self::Standby | Self::InDoubt => None,
        }
    }
}

/// Why a lease was taken, for a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcquireReason {
    /// There was none.
    Absent,
    /// The one before gave it back.
    GivenBack,
    /// The one before did not renew for as long as it had promised.
    Expired,
    /// It is ours already.
    Ours,
}

impl AcquireReason {
    /// For a log line.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Absent => "there was no lease",
            Self::GivenBack => "the previous leader gave the lease back",
            Self::Expired => "the previous leader did not renew the lease in time",
            Self::Ours => "this replica held the lease already",
        }
    }
}

impl Candidate {
    /// One who has not looked yet.
    pub fn new(identity: impl Into<String>, timing: Timing) -> Self {
        Self {
            identity: identity.into(),
            timing,
            observed: None,
            version: None,
            state: LeaderState::None,
        }
    }

    /// The name in the record.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// How we stand at this moment.
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

    /// Who leads, as last seen; empty if nobody does.
    pub fn holder(&self) -> &str {
        self.observed
            .as_ref()
            .map_or("", |observed| &observed.record.holder)
    }

    /// What a round begins with: a leader that knows the version renews at once, everybody else
    /// looks first.
    pub fn begin(&self, now: Local, wall: Timestamp) -> Ask {
        match (self.status(now), &self.version) {
            (LeaseStatus::Leading { .. }, Some(version)) => {
                Ask::Write(self.renewal(wall), version.clone())
            }
            _ => Ask::Look,
        }
    }

    /// What follows from a look: `None` is that there is no Lease.
    pub fn seen(&mut self, lease: Option<Lease>, now: Local, wall: Timestamp) -> Ask {
        let Some(lease) = lease else {
            return self.seen_nothing(now, wall);
        };
        self.version = Some(lease.version.clone());
        self.observe(lease.record, now);
        match self.judge(now) {
            Judged::Ours => Ask::Write(self.renewal(wall), lease.version),
            // Another leads, or has led, while we took ourselves for the one.
            Judged::Free(_) | Judged::Held { .. } if self.is_in_office() => self.give_up(),
            Judged::Free(_) => Ask::Write(self.claim(wall), lease.version),
            Judged::Held { left } => Ask::Wait(left),
        }
    }

    /// How long the next request may take: a leader does not wait for an answer beyond its time.
    pub fn patience(&self, now: Local) -> Duration {
        let patience = self.timing.request_timeout();
        match self.status(now) {
            LeaseStatus::Leading { until } | LeaseStatus::Alone { until } => {
                patience.min(until.saturating_sub(now))
            }
            LeaseStatus::Standby | LeaseStatus::InDoubt => patience,
        }
    }

    /// Why the Lease as last seen is there to be taken, if it is.
    pub fn acquire_reason(&self, now: Local) -> Option<AcquireReason> {
        match (&self.observed, self.judge(now)) {
            (None, _) => Some(AcquireReason::Absent),
            (_, Judged::Free(acquire_reason)) => Some(acquire_reason),
            (_, Judged::Ours) => Some(AcquireReason::Ours),
            (_, Judged::Held { .. }) => None,
        }
    }

    /// A write of ours succeeded that was sent at `sent`.
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

    /// A create that was sent at `sent` found no namespace for the Lease: nobody can hold it, as
    /// when Belayer is run from somebody's machine. Whoever holds it later has won against us.
    pub fn is_alone(&mut self, sent: Local) {
        self.version = None;
        self.observed = None;
        self.state = LeaderState::Alone { since: sent };
    }

    /// A request failed, or its answer was lost: the next round looks first.
    pub fn failed(&mut self) {
        self.version = None;
    }

    /// How long to wait after a round. `chance` in `0..1` spreads standbys.
    pub fn pause(&self, now: Local, chance: f64) -> Duration {
        let period = self.timing.retry_period();
        match self.status(now) {
            // It looks up when its time is over, to say so.
            LeaseStatus::Leading { until } | LeaseStatus::Alone { until } => {
                return period.min(until.saturating_sub(now));
            }
            LeaseStatus::InDoubt => return period,
            LeaseStatus::Standby => {}
        }
        let jittered = period.mul_f64(1.0 + chance.clamp(0.0, 1.0) * super::timing::JITTER_FACTOR);
        // Whoever waits for an end that it knows is there when it comes.
        match self.judge(now) {
            Judged::Held { left } => jittered.min(left.max(period / 4)),
            Judged::Free(_) | Judged::Ours => jittered,
        }
    }

    /// The record that gives the lease back, and the state that it is written over; `None` if
    /// there is nothing of ours to give back.
    pub fn resignation(&self, now: Local, wall: Timestamp) -> Option<(Record, Version)> {
        let LeaseStatus::Leading { .. } = self.status(now) else {
            return None;
        };
        // A look may have found another meanwhile, and what is another's is not ours to give.
        let Judged::Ours = self.judge(now) else {
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

    fn seen_nothing(&mut self, now: Local, wall: Timestamp) -> Ask {
        self.version = None;
        match (self.state, self.status(now)) {
            // Somebody deleted it. Others may have made and led by a new one since.
            (LeaderState::Elected(_), LeaseStatus::InDoubt) => {
                self.observed = None;
                self.give_up()
            }
            (LeaderState::Elected(_), _) => Ask::Create(self.renewal(wall)),
            // For one who was alone there still is none, however long it could not ask.
            (LeaderState::None | LeaderState::Alone { .. }, _) => {
                self.observed = None;
                Ask::Create(self.claim(wall))
            }
        }
    }

    fn is_in_office(&self) -> bool {
        !matches!(self.state, LeaderState::None)
    }

    fn give_up(&self) -> Ask {
        Ask::GiveUp {
            holder: self.holder().to_owned(),
        }
    }

    /// The clock of a record starts when it is first seen to be different; what else changes about
    /// the Lease, its labels for example, is no sign of life.
    fn observe(&mut self, record: Record, now: Local) {
        let same = self
            .observed
            .as_ref()
            .is_some_and(|observed| observed.record == record);
        if !same {
            self.observed = Some(Observed { record, since: now });
        }
    }

    fn judge(&self, now: Local) -> Judged {
        let Some(Observed { record, since }) = &self.observed else {
            return Judged::Free(AcquireReason::Absent);
        };
        if record.holder.is_empty() {
            return Judged::Free(AcquireReason::GivenBack);
        }
        if record.holder == self.identity {
            // Ours without a break only if nobody has led in between.
            return match self.state {
                LeaderState::Elected(led) if led.transitions != record.transitions => {
                    Judged::Held {
                        left: Duration::ZERO,
                    }
                }
                _ => Judged::Ours,
            };
        }
        let promised = record.lease_duration(self.timing.lease_duration());
        let silent = now.saturating_sub(*since);
        match promised.checked_sub(silent) {
            Some(left) if !left.is_zero() => Judged::Held { left },
            _ => Judged::Free(AcquireReason::Expired),
        }
    }

    /// The record of one who begins to lead.
    fn claim(&self, wall: Timestamp) -> Record {
        let before = self.observed.as_ref().map(|observed| &observed.record);
        Record {
            holder: self.identity.clone(),
            lease_seconds: self.timing.recorded_seconds(),
            acquired: Some(wall),
            renewed: Some(wall),
            // The API's type has 32 bits: one more would be refused, and nobody would lead again.
            transitions: before.map_or(0, |record| {
                record.transitions.saturating_add(1).min(MOST_TRANSITIONS)
            }),
        }
    }

    /// The record of one who goes on.
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

enum Judged {
    Free(AcquireReason),
    Ours,
    Held { left: Duration },
}
