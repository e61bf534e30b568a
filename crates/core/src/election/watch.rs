//! A standby watches the Lease, so that it learns at once that the leader released the Lease.
//!
//! The watch only makes the next round begin earlier. That round reads the Lease and decides, so
//! the rules of the election are the same without a watch.

use std::future::pending;
use std::time::Duration;

use kube::Client;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};

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

    /// Waits for `pause`, or until the Lease was released or deleted after `since`.
    pub(super) async fn wait(&mut self, since: Option<&Version>, pause: Duration) {
        let rest = self.woken.map(|at| BETWEEN.saturating_sub(at.elapsed()));
        let rest = rest.unwrap_or_default().min(pause);
        if !rest.is_zero() {
            sleep(rest).await;
        }
        if timeout(pause - rest, self.vacated(since)).await.is_ok() {
            self.woken = Some(Instant::now());
        }
    }

    /// Waits until the Lease is vacant; forever if it cannot be watched. Cancel-safe.
    async fn vacated(&mut self, since: Option<&Version>) {
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
                Some(Frame::Whole(event)) => {
                    self.last_event = Instant::now();
                    match is_vacant(&event) {
                        Some(true) => return,
                        Some(false) => {}
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
        pending::<()>().await;
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

/// Whether no replica holds the Lease after this event; `None` if the event ends the watch.
fn is_vacant(event: &[u8]) -> Option<bool> {
    let event: WatchEvent<'_> = serde_json::from_slice(event).ok()?;
    match event.r#type {
        "DELETED" => Some(true),
        "ADDED" | "MODIFIED" => {
            let lease = Lease::read(event.object.get().as_bytes()).ok()?;
            Some(lease.record.holder.is_empty())
        }
        _ => None,
    }
}
