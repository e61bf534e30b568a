//! A standby watches the Lease, so that it sees each renewal at once, and that the leader released
//! the Lease.
//!
//! The watch only tells since when a record is unchanged, and makes the next round begin earlier.
//! That round reads the Lease and decides, so the rules of the election are the same without a
//! watch.

use std::future::pending;
use std::time::Duration;

use kube::Client;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use super::record::{Lease, Version};
use crate::http::{AnswerStream, JSON, Request, RequestError};
use crate::informer::{Frame, Frames, Framing};
use crate::object::{ObjectKey, Resource};

/// The server ends the watch after this time.
const OPEN_FOR: Duration = Duration::from_secs(290);

/// No two waits end early within this time: a Lease that cannot be acquired must not cause a loop of requests.
const BETWEEN: Duration = Duration::from_secs(2);

/// A longer event is skipped.
const FRAME_LIMIT: usize = 256 << 10;

/// A watch of the one Lease. Errors only cost time: the election also reads the Lease regularly.
pub(super) struct LeaseWatch {
    client: Client,
    lease: ObjectKey,
    /// The watch is opened at most once within this time. It is closed after as long a silence,
    /// because a leader renews more often.
    period: Duration,
    last_opened: Option<Instant>,
    last_event: Instant,
    /// When a wait last ended early.
    woken: Option<Instant>,
    stream: Option<(AnswerStream, Frames)>,
}

#[derive(Deserialize)]
struct WatchEvent<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl LeaseWatch {
    /// A watch that is not open yet; `period` is the lease duration.
    pub(super) fn new(client: Client, lease: ObjectKey, period: Duration) -> Self {
        Self {
            client,
            lease,
            period,
            last_opened: None,
            last_event: Instant::now(),
            woken: None,
            stream: None,
        }
    }

    /// Waits for `pause`, or until the Lease was released or deleted after `since`. Calls `seen`
    /// with each Lease when it arrives.
    pub(super) async fn wait(
        &mut self,
        since: Option<&Version>,
        pause: Duration,
        mut seen: impl FnMut(Lease),
    ) {
        let now = Instant::now();
        let end = now + pause;
        let rested = self.woken.map_or(now, |at| at + BETWEEN).min(end);
        let mut vacant = false;
        while !vacant || Instant::now() < rested {
            let until = if vacant { rested } else { end };
            match timeout_at(until, self.next(since)).await {
                Ok(Event::Lease(lease)) => {
                    vacant = lease.record.holder.is_empty();
                    seen(lease);
                }
                Ok(Event::Deleted) => vacant = true,
                Err(_) => break,
            }
        }
        if vacant {
            self.woken = Some(Instant::now());
        }
    }

    /// The next event; waits forever if the Lease cannot be watched. Cancel-safe.
    async fn next(&mut self, since: Option<&Version>) -> Event {
        if self.last_event.elapsed() > self.period {
            self.close();
        }
        if self.stream.is_none()
            && let Some(since) = since
            && self.may_open()
            && let Err(error) = self.open(since).await
        {
            tracing::debug!(lease = %self.lease, %error, "could not watch the lease");
        }
        while let Some((answer, frames)) = &mut self.stream {
            match frames.next() {
                Some(Frame::Whole(frame)) => {
                    self.last_event = Instant::now();
                    match Event::read(&frame) {
                        Some(event) => return event,
                        None => self.close(),
                    }
                }
                Some(Frame::TooLong(_)) => {}
                None => match answer.chunk().await {
                    Ok(Some(chunk)) => frames.push(&chunk),
                    Ok(None) | Err(_) => self.close(),
                },
            }
        }
        pending().await
    }

    /// Ends the watch: a leader needs none.
    pub(super) fn close(&mut self) {
        self.stream = None;
    }

    fn may_open(&self) -> bool {
        self.last_opened
            .is_none_or(|last| last.elapsed() >= self.period)
    }

    async fn open(&mut self, since: &Version) -> Result<(), RequestError> {
        self.last_opened = Some(Instant::now());
        let answer = Request::get(Resource::leases().path(self.lease.namespace()))
            .query("watch", "true")
            .query(
                "fieldSelector",
                format!("metadata.name={}", self.lease.name()),
            )
            .query("resourceVersion", &since.resource_version)
            .query("timeoutSeconds", OPEN_FOR.as_secs().to_string())
            .accept(JSON)
            .timeout(self.period)
            .open(&self.client)
            .await?;
        self.last_event = Instant::now();
        self.stream = Some((answer, Frames::new(Framing::Lines, FRAME_LIMIT)));
        Ok(())
    }
}

/// An event of the watch.
enum Event {
    Lease(Lease),
    Deleted,
}

impl Event {
    /// Parses an event; `None` if it ends the watch.
    fn read(frame: &[u8]) -> Option<Self> {
        let event: WatchEvent<'_> = serde_json::from_slice(frame).ok()?;
        match event.r#type {
            "DELETED" => Some(Self::Deleted),
            "ADDED" | "MODIFIED" => {
                let lease = Lease::read(event.object.get().as_bytes()).ok()?;
                Some(Self::Lease(lease))
            }
            _ => None,
        }
    }
}
