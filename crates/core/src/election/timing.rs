//! The three times of an election.

use std::time::Duration;

/// A standby waits between one and this many times the retry period more, so that standbys do not
/// ask in step; client-go's factor.
pub(super) const JITTER_FACTOR: f64 = 1.2;

/// The three times of an election, valid together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// Times that make no election. The rules are client-go's, and one of the record's: it counts
/// whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// A leader would write for longer than others wait.
    #[error("the lease duration must be longer than the renew deadline")]
    LeaseNotLonger,
    /// A leader would have no time for a second try.
    #[error("the renew deadline must be longer than 1.2 times the retry period")]
    DeadlineNotLonger,
    /// The record cannot say less.
    #[error("the lease duration must be at least 1s")]
    LeaseTooShort,
    /// The server would be asked without a pause.
    #[error("the retry period must be at least 10ms")]
    RetryTooShort,
    /// The record cannot say more, and nobody would ever take over.
    #[error("the lease duration must be at most 24h")]
    LeaseTooLong,
}

const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
const MIN_RETRY: Duration = Duration::from_millis(10);

impl Timing {
    /// Times that fit together.
    ///
    /// # Errors
    ///
    /// When they do not.
    pub fn new(
        lease_duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, TimingError> {
        if retry_period < MIN_RETRY {
            return Err(TimingError::RetryTooShort);
        }
        if lease_duration < Duration::from_secs(1) {
            return Err(TimingError::LeaseTooShort);
        }
        if lease_duration > MAX_LEASE {
            return Err(TimingError::LeaseTooLong);
        }
        if lease_duration <= renew_deadline {
            return Err(TimingError::LeaseNotLonger);
        }
        // Periods beyond the lease's bound are refused above or here; the product stays small.
        if retry_period > MAX_LEASE || renew_deadline <= retry_period.mul_f64(JITTER_FACTOR) {
            return Err(TimingError::DeadlineNotLonger);
        }
        Ok(Self {
            lease_duration,
            renew_deadline,
            retry_period,
        })
    }

    /// How long others wait, since they saw the last renewal, before they take over.
    pub fn lease_duration(self) -> Duration {
        self.lease_duration
    }

    /// How long the leader writes, since it sent the last renewal that succeeded.
    pub fn renew_deadline(self) -> Duration {
        self.renew_deadline
    }

    /// How often the leader renews; standbys look at most as often.
    pub fn retry_period(self) -> Duration {
        self.retry_period
    }

    /// The lease duration as the record says it: whole seconds, never less than it is.
    pub(super) fn recorded_seconds(self) -> i64 {
        let whole = self.lease_duration.as_secs();
        let up = u64::from(self.lease_duration.subsec_nanos() > 0);
        i64::try_from(whole + up).unwrap_or(i64::MAX)
    }

    /// How long one request of the election may take: two of them fit into the renew deadline.
    pub(super) fn request_timeout(self) -> Duration {
        self.renew_deadline / 2
    }
}

impl Default for Timing {
    /// 15 s, 10 s and 2 s, as everywhere in Kubernetes.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}
