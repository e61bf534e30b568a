//! Limits the log of an operation that fails repeatedly: the first failure, each new cause and the
//! recovery are logged, repeated failures are not.

use std::time::Duration;

use tokio::time::Instant;

/// How many causes of one outage are logged. It bounds the log if the server names a new cause at
/// each attempt.
const MAX_CAUSES: usize = 8;

/// Whether a repeated operation fails at present: the lists and watches of an informer, the live
/// reads of one query.
#[derive(Debug, Default)]
pub(crate) struct FailureLog(Option<Failing>);

#[derive(Debug)]
struct Failing {
    since: Instant,
    attempts: u64,
    /// The causes that were logged.
    causes: Vec<String>,
    /// When the server last accepted a request, unless a later request failed.
    answered: Option<Instant>,
}

/// How a failure differs from those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The first failure.
    First,
    /// A cause that was not logged yet.
    NewCause,
    /// A known cause, or one cause too many: not to be logged.
    Repeated,
}

/// The end of an outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// How long the operation failed.
    pub(crate) lasted: Duration,
    /// How many requests failed.
    pub(crate) attempts: u64,
}

impl FailureLog {
    /// Records a failed attempt.
    pub(crate) fn failed(&mut self, cause: &str) -> Failure {
        let Some(failing) = &mut self.0 else {
            self.0 = Some(Failing {
                since: Instant::now(),
                attempts: 1,
                causes: vec![cause.to_owned()],
                answered: None,
            });
            return Failure::First;
        };
        failing.attempts += 1;
        failing.answered = None;
        let known = failing.causes.iter().any(|logged| logged == cause);
        if known || failing.causes.len() >= MAX_CAUSES {
            return Failure::Repeated;
        }
        failing.causes.push(cause.to_owned());
        Failure::NewCause
    }

    /// Whether this cause was logged.
    pub(crate) fn has_logged(&self, cause: &str) -> bool {
        let mut causes = self.0.iter().flat_map(|failing| &failing.causes);
        causes.any(|logged| logged == cause)
    }

    /// Records that the server accepted a request. The operation may still fail later.
    pub(crate) fn answered(&mut self) {
        if let Some(failing) = &mut self.0 {
            failing.answered.get_or_insert_with(Instant::now);
        }
    }

    /// Records that the operation works: a list is complete, a watch delivers a change, a live read
    /// has an answer. Returns the outage that ended.
    pub(crate) fn recovered(&mut self) -> Option<Recovered> {
        let Failing {
            since,
            attempts,
            answered,
            ..
        } = self.0.take()?;
        let end = answered.unwrap_or_else(Instant::now);
        Some(Recovered {
            lasted: end.duration_since(since),
            attempts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn each_cause_is_reported_once() {
        let mut failure_log = FailureLog::default();
        assert_eq!(failure_log.failed("refused"), Failure::First);
        assert_eq!(failure_log.failed("refused"), Failure::Repeated);
        assert_eq!(failure_log.failed("forbidden"), Failure::NewCause);
        assert_eq!(failure_log.failed("refused"), Failure::Repeated);
        assert!(failure_log.recovered().is_some());
        assert_eq!(failure_log.failed("refused"), Failure::First);
    }

    #[tokio::test(start_paused = true)]
    async fn changing_causes_are_reported_a_limited_number_of_times() {
        let mut failure_log = FailureLog::default();
        let logged =
            (0..100).filter(|n| failure_log.failed(&format!("cause {n}")) != Failure::Repeated);
        assert_eq!(logged.count(), MAX_CAUSES);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_lasts_until_the_server_answers_lastingly() {
        let mut failure_log = FailureLog::default();
        failure_log.answered();
        assert_eq!(failure_log.recovered(), None);
        failure_log.failed("refused");
        tokio::time::sleep(seconds(5)).await;
        // The server accepted the watch, then ended it with an error.
        failure_log.answered();
        failure_log.failed("internal error");
        tokio::time::sleep(seconds(5)).await;
        failure_log.answered();
        tokio::time::sleep(seconds(60)).await;
        let lasted = seconds(10);
        assert_eq!(
            failure_log.recovered(),
            Some(Recovered {
                lasted,
                attempts: 2
            })
        );
        assert_eq!(failure_log.recovered(), None);
    }
}
