//! The durations of an election.

use std::time::Duration;

/// A standby waits up to this many retry periods longer than one, so that standbys do not send
/// requests in step; client-go's factor.
pub(super) const JITTER_FACTOR: f64 = 1.2;

/// The valid combination of the durations of an election. The [module's example](crate::election)
/// makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// An invalid combination of durations. The rules are client-go's, and the record's limits: it has
/// whole seconds. Returned by [`Timing::new`](crate::election::Timing::new); the [module's
/// example](crate::election) shows one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// A leader would write for longer than others wait.
    #[error("the lease duration must be longer than the renew deadline")]
    LeaseNotLonger,
    /// A leader would have no time for a second attempt.
    #[error("the renew deadline must be longer than 1.2 times the retry period")]
    DeadlineNotLonger,
    /// The record cannot have a shorter one.
    #[error("the lease duration must be at least 1s")]
    LeaseTooShort,
    /// The requests would have no pause.
    #[error("the retry period must be at least 10ms")]
    RetryTooShort,
    /// No standby would take over within a useful time.
    #[error("the lease duration must be at most 24h")]
    LeaseTooLong,
}

const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
const MIN_RETRY: Duration = Duration::from_millis(10);

impl Timing {
    /// Checks and combines the durations.
    ///
    /// # Errors
    ///
    /// If they are not a valid combination.
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
        // The check for `retry_period` prevents an overflow of the product.
        if retry_period > MAX_LEASE || renew_deadline <= retry_period.mul_f64(JITTER_FACTOR) {
            return Err(TimingError::DeadlineNotLonger);
        }
        Ok(Self {
            lease_duration,
            renew_deadline,
            retry_period,
        })
    }

    /// How long a standby waits after it saw the last renewal before it takes over.
    pub fn lease_duration(self) -> Duration {
        self.lease_duration
    }

    /// How long the leader may write after it sent the last successful renewal.
    pub fn renew_deadline(self) -> Duration {
        self.renew_deadline
    }

    /// How often the leader renews; standbys read at most as often.
    pub fn retry_period(self) -> Duration {
        self.retry_period
    }

    /// The lease duration in the record: whole seconds, rounded up.
    pub(super) fn recorded_seconds(self) -> i64 {
        let whole = self.lease_duration.as_secs();
        let up = u64::from(self.lease_duration.subsec_nanos() > 0);
        i64::try_from(whole + up).unwrap_or(i64::MAX)
    }

    /// Timeout of one request of the election: two fit into the renew deadline.
    pub(super) fn request_timeout(self) -> Duration {
        self.renew_deadline / 2
    }
}

impl Default for Timing {
    /// 15 s, 10 s and 2 s, the defaults of Kubernetes.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}
