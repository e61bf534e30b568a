//! Whether the server answers, for commands that have to report that they wait for it (rule L6).

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use belayer_core::http::{ErrorClass, RequestError};

/// How long requests have waited for a usable answer of the server, and the last error.
///
/// Only time in which a request waits counts, not a pause between two reads.
///
/// A [`Reader`](crate::Reader) has one.
#[derive(Debug, Default)]
pub struct Contact(watch::Sender<Known>);

#[derive(Debug, Clone, Default)]
struct Known {
    /// Requests that wait for an answer.
    waiting: usize,
    /// While requests wait: the start of the wait, or the last usable answer if that was later.
    since: Option<Instant>,
    /// How long requests waited before `since`, counted from the last usable answer.
    waited: Duration,
    answers: u64,
    trouble: Option<Trouble>,
}

impl Known {
    /// When requests will have waited for `limit` in total, if one waits now.
    fn silent_at(&self, limit: Duration) -> Option<Instant> {
        Some(self.since? + limit.saturating_sub(self.waited))
    }

    /// Starts to count the time without an answer anew.
    fn begin(&mut self) {
        self.waited = Duration::ZERO;
        self.since = (self.waiting > 0).then(Instant::now);
    }
}

/// Marks a request as waiting for its answer.
#[derive(Debug)]
#[must_use = "the request waits until this is dropped"]
pub struct Waiting<'a>(&'a Contact);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|known| {
            known.waiting -= 1;
            if known.waiting == 0
                && let Some(since) = known.since.take()
            {
                known.waited += since.elapsed();
            }
        });
    }
}

/// Why a request had no usable answer. Returned by [`Contact`](crate::reader::Contact), to which a
/// [`Reader`](crate::Reader) reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Whether the server or a proxy answers, with a transient error.
    reached: bool,
    why: String,
}

impl Trouble {
    /// The message, with the server's address once and the cause once.
    pub fn at(&self, address: &str) -> String {
        if self.reached {
            format!("{address} {}", self.why)
        } else {
            format!("cannot reach {address}: {}", self.why)
        }
    }
}

impl From<&RequestError> for Trouble {
    fn from(error: &RequestError) -> Self {
        Self {
            reached: error.api().is_some(),
            why: match error.class() {
                ErrorClass::Unauthorized => "does not accept the credentials".to_owned(),
                ErrorClass::Forbidden => "does not allow the request".to_owned(),
                // Only requests that every API server serves are needed.
                ErrorClass::NotServed => "is not a Kubernetes API server (404)".to_owned(),
                _ => explain(error),
            },
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Contact {
    /// The server gave a usable answer.
    fn heard(&self) {
        self.0.send_modify(|known| {
            known.begin();
            known.answers += 1;
            known.trouble = None;
        });
    }

    /// A request waits for its answer until what is returned is dropped: while it is sent, and between
    /// the attempts if it is sent several times.
    pub fn waiting(&self) -> Waiting<'_> {
        self.0.send_modify(|known| {
            known.waiting += 1;
            known.since.get_or_insert_with(Instant::now);
        });
        Waiting(self)
    }

    /// Waits for the answer to one request and records it.
    ///
    /// # Errors
    ///
    /// The error of the request.
    pub async fn asked<T>(
        &self,
        request: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, RequestError> {
        let _waiting = self.waiting();
        let answer = request.await;
        match &answer {
            Ok(_) => self.heard(),
            Err(error) => self.failed(error),
        }
        answer
    }

    /// A request failed. A permanent refusal is a usable answer too.
    fn failed(&self, error: &RequestError) {
        if error.api().is_some() && !error.class().is_transient() {
            return self.heard();
        }
        self.0
            .send_modify(|known| known.trouble = Some(Trouble::from(error)));
    }

    /// Starts to count the time without an answer anew.
    pub fn begin(&self) {
        self.0.send_modify(Known::begin);
    }

    /// Whether there has been any usable answer.
    pub fn is_made(&self) -> bool {
        self.0.borrow().answers > 0
    }

    /// The last error since the last usable answer; `None` if there was none.
    pub fn trouble(&self) -> Option<Trouble> {
        self.0.borrow().trouble.clone()
    }

    /// Waits until requests have had no usable answer for `limit`.
    pub async fn silence(&self, limit: Duration) {
        let mut known = self.0.subscribe();
        loop {
            let end = known.borrow_and_update().silent_at(limit);
            match end {
                Some(end) if Instant::now() >= end => return,
                // Meanwhile the end can only move later.
                Some(end) => sleep_until(end).await,
                // `self` has the sender, so the channel does not close.
                None => drop(known.wait_for(|known| known.waiting > 0).await),
            }
        }
    }

    /// Waits as [`silence`](Self::silence), for `later` if there has been a usable answer, else for `first`.
    /// Returns the limit that applied.
    pub async fn silence_from(&self, first: Duration, later: Duration) -> Duration {
        loop {
            let is_made = self.is_made();
            let limit = if is_made { later } else { first };
            self.silence(limit).await;
            // If the first answer has come in the meantime, the other limit applies.
            if self.is_made() == is_made {
                return limit;
            }
        }
    }

    /// Waits for the next usable answer.
    pub async fn answer(&self) {
        let mut known = self.0.subscribe();
        let before = known.borrow_and_update().answers;
        // `self` has the sender, so the channel does not close.
        let _ = known.wait_for(|known| known.answers > before).await;
    }
}

/// A short error message for people. The error is one of a [`Reader`](crate::Reader)'s requests.
pub fn explain(error: &RequestError) -> String {
    match error.class() {
        ErrorClass::Forbidden => "not allowed".to_owned(),
        ErrorClass::Unauthorized => "not authenticated".to_owned(),
        ErrorClass::NotServed | ErrorClass::NotFound => "not served".to_owned(),
        _ => match error.api() {
            Some(api) if !api.message.is_empty() => {
                format!("answers {}: {}", api.code, one_line(&api.message))
            }
            Some(api) => format!("answers {}", api.code),
            None => root_cause(error),
        },
    }
}

/// Why no answer came: the message of the operating system or of TLS.
fn root_cause(error: &RequestError) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    one_line(&cause.to_string())
}

/// Folds a text of several lines into one.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use belayer_core::http::ApiError;

    use super::*;

    fn error(code: u16) -> RequestError {
        ApiError::from_answer(code, None, b"no").into()
    }

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    async fn answer(contact: &Contact, after: u64, answer: Result<(), RequestError>) {
        let request = async {
            tokio::time::sleep(seconds(after)).await;
            answer
        };
        drop(contact.asked(request).await);
    }

    #[tokio::test(start_paused = true)]
    async fn l6_silence_is_counted_from_the_last_usable_answer() {
        let (contact, begun) = (Contact::default(), Instant::now());
        let answers = async {
            answer(&contact, 5, Ok(())).await;
            answer(&contact, 5, Err(error(403))).await;
            answer(&contact, 5, Err(error(503))).await;
            answer(&contact, 60, Ok(())).await;
        };
        tokio::select! {
            () = answers => {}
            () = contact.silence(seconds(8)) => {}
        }
        assert_eq!(begun.elapsed(), seconds(18));
        assert!(contact.is_made());
        let trouble = contact.trouble().unwrap();
        assert_eq!(trouble.at("https://a"), "https://a answers 503: no");
    }

    #[tokio::test(start_paused = true)]
    async fn l6_a_pause_without_waiting_requests_does_not_count() {
        let (contact, begun) = (Contact::default(), Instant::now());
        let answers = async {
            answer(&contact, 1, Ok(())).await;
            // One API is down for good, and its answer is the last before the pause.
            answer(&contact, 2, Err(error(503))).await;
            tokio::time::sleep(seconds(60)).await;
            answer(&contact, 60, Ok(())).await;
        };
        tokio::select! {
            () = answers => {}
            () = contact.silence(seconds(8)) => {}
        }
        assert_eq!(begun.elapsed(), seconds(1 + 2 + 60 + 6));
    }

    #[test]
    fn l6_the_server_address_is_named_once() {
        let timeout = RequestError::Timeout(Duration::from_secs(3));
        assert_eq!(
            Trouble::from(&timeout).at("https://a"),
            "cannot reach https://a: no complete response within 3s"
        );
    }
}
