//! What stands between us and the server, told once: when it begins, when it has another cause, and
//! when it is over. Every further try is news to nobody.

use std::time::Duration;

use tokio::time::Instant;

/// Causes of one failure_log that are told. A server that names a new one at every try is not believed
/// for ever.
const CAUSES: usize = 8;

/// Whether one thing that is tried again and again fails at present: the lists and watches of an
/// informer, the looks at one question.
#[derive(Debug, Default)]
pub(crate) struct FailureLog(Option<Failing>);

#[derive(Debug)]
struct Failing {
    since: Instant,
    tries: u64,
    /// What has been told.
    causes: Vec<String>,
    /// When the server last took a request, unless that failed later.
    answered: Option<Instant>,
}

/// What a failure is to those who read the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// It is the first.
    Begins,
    /// It has a cause that has not been told.
    OtherCause,
    /// It is known.
    None,
}

/// An failure_log that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Over {
    /// How long it lasted.
    pub(crate) lasted: Duration,
    /// How many requests failed.
    pub(crate) tries: u64,
}

impl FailureLog {
    /// A try failed.
    pub(crate) fn fails(&mut self, cause: &str) -> News {
        let Some(failing) = &mut self.0 else {
            self.0 = Some(Failing {
                since: Instant::now(),
                tries: 1,
                causes: vec![cause.to_owned()],
                answered: None,
            });
            return News::Begins;
        };
        failing.tries += 1;
        failing.answered = None;
        let known = failing.causes.iter().any(|told| told == cause);
        if known || failing.causes.len() >= CAUSES {
            return News::None;
        }
        failing.causes.push(cause.to_owned());
        News::OtherCause
    }

    /// Whether this cause has been told.
    pub(crate) fn has_told(&self, cause: &str) -> bool {
        let mut causes = self.0.iter().flat_map(|failing| &failing.causes);
        causes.any(|told| told == cause)
    }

    /// The server took a request. Whether it can keep what it began shows later.
    pub(crate) fn answered(&mut self) {
        if let Some(failing) = &mut self.0 {
            failing.answered.get_or_insert_with(Instant::now);
        }
    }

    /// It works: a list is complete, a watch tells of something new, a look has its answer.
    pub(crate) fn ends(&mut self) -> Option<Over> {
        let Failing {
            since,
            tries,
            answered,
            ..
        } = self.0.take()?;
        let end = answered.unwrap_or_else(Instant::now);
        Some(Over {
            lasted: end.duration_since(since),
            tries,
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
    async fn each_cause_is_news_once() {
        let mut failure_log = FailureLog::default();
        assert_eq!(failure_log.fails("refused"), News::Begins);
        assert_eq!(failure_log.fails("refused"), News::None);
        assert_eq!(failure_log.fails("forbidden"), News::OtherCause);
        assert_eq!(failure_log.fails("refused"), News::None);
        assert!(failure_log.ends().is_some());
        assert_eq!(failure_log.fails("refused"), News::Begins);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cause_that_is_another_at_every_try_is_not_told_for_ever() {
        let mut failure_log = FailureLog::default();
        let told = (0..100).filter(|n| failure_log.fails(&format!("try {n}")) != News::None);
        assert_eq!(told.count(), CAUSES);
    }

    #[tokio::test(start_paused = true)]
    async fn it_lasts_until_the_server_answers_for_good() {
        let mut failure_log = FailureLog::default();
        failure_log.answered();
        assert_eq!(failure_log.ends(), None);
        failure_log.fails("refused");
        tokio::time::sleep(seconds(5)).await;
        // It took the watch, and gave up on it.
        failure_log.answered();
        failure_log.fails("internal error");
        tokio::time::sleep(seconds(5)).await;
        failure_log.answered();
        tokio::time::sleep(seconds(60)).await;
        let lasted = seconds(10);
        assert_eq!(failure_log.ends(), Some(Over { lasted, tries: 2 }));
        assert_eq!(failure_log.ends(), None);
    }
}
