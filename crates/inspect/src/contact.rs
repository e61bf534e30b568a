//! Whether the server answers, for commands that have to report that they wait for it (L6).

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use belayer_core::http::RequestError;

use crate::reader::explain;

/// When the server last gave a usable answer, and why it has given none since.
#[derive(Debug)]
pub struct Contact(watch::Sender<Known>);

#[derive(Debug, Clone)]
struct Known {
    /// The last usable answer; before the first, the beginning.
    at: Instant,
    answers: u64,
    trouble: Option<Trouble>,
}

/// Why a request had no usable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    reached: Reached,
    why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reached {
    /// The server or a proxy answers, with an error that may pass.
    Yes,
    No,
}

impl Trouble {
    /// In words, with the server's address once and the cause once.
    pub fn at(&self, address: &str) -> String {
        match self.reached {
            Reached::Yes => format!("{address} {}", self.why),
            Reached::No => format!("cannot reach {address}: {}", self.why),
        }
    }
}

impl From<&RequestError> for Trouble {
    fn from(error: &RequestError) -> Self {
        let reached = match error.api() {
            Some(_) => Reached::Yes,
            None => Reached::No,
        };
        Self {
            reached,
            why: explain(error),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Default for Contact {
    fn default() -> Self {
        Self(watch::Sender::new(Known {
            at: Instant::now(),
            answers: 0,
            trouble: None,
        }))
    }
}

impl Contact {
    /// The server gave a usable answer.
    pub fn heard(&self) {
        self.0.send_modify(|known| {
            known.at = Instant::now();
            known.answers += 1;
            known.trouble = None;
        });
    }

    /// A request failed. A permanent refusal is a usable answer too.
    pub fn failed(&self, error: &RequestError) {
        if error.api().is_some() && !error.class().is_transient() {
            return self.heard();
        }
        self.0
            .send_modify(|known| known.trouble = Some(Trouble::from(error)));
    }

    /// The time without an answer begins now.
    pub fn begin(&self) {
        self.0.send_modify(|known| known.at = Instant::now());
    }

    /// Whether there has been any usable answer.
    pub fn is_made(&self) -> bool {
        self.0.borrow().answers > 0
    }

    /// Why there has been none since the last one; `None` if nothing at all has come.
    pub fn trouble(&self) -> Option<Trouble> {
        self.0.borrow().trouble.clone()
    }

    /// Waits until there has been no usable answer for `limit`.
    pub async fn silence(&self, limit: Duration) {
        loop {
            let end = self.0.borrow().at + limit;
            if Instant::now() >= end {
                return;
            }
            sleep_until(end).await;
        }
    }

    /// Waits until there has been no usable answer for `first`, or for `later` if there has been one before.
    /// Returns which of the two it was.
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
        // The sender is ours, so that it does not end.
        let _ = known.wait_for(|known| known.answers > before).await;
    }
}

#[cfg(test)]
mod tests {
    use belayer_core::http::ApiError;

    use super::*;

    fn error(code: u16) -> RequestError {
        ApiError::from_answer(code, None, b"no").into()
    }

    #[tokio::test(start_paused = true)]
    async fn l6_silence_is_counted_from_the_last_usable_answer() {
        let (contact, begun) = (Contact::default(), Instant::now());
        let answers = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            contact.heard();
            tokio::time::sleep(Duration::from_secs(5)).await;
            contact.failed(&error(403));
            tokio::time::sleep(Duration::from_secs(5)).await;
            contact.failed(&error(503));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = answers => {}
            () = contact.silence(Duration::from_secs(8)) => {}
        }
        assert_eq!(begun.elapsed(), Duration::from_secs(18));
        assert!(contact.is_made());
        let trouble = contact.trouble().unwrap();
        assert_eq!(trouble.at("https://a"), "https://a answers 503: no");
    }

    #[test]
    fn l6_who_cannot_be_reached_is_named_once() {
        let timeout = RequestError::Timeout(Duration::from_secs(3));
        assert_eq!(
            Trouble::from(&timeout).at("https://a"),
            "cannot reach https://a: no complete answer within 3s"
        );
    }
}
