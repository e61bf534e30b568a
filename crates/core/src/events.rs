//! Kubernetes Events: messages to users, on the object that they are about.
//!
//! Events must never delay releases. Notices wait in a bounded queue and have the lowest priority
//! for tokens. If the queue is full, a notice is dropped and counted: one of the namespace with the most
//! notices, so that one namespace drops no Events of others (L4). The same reason on the same
//! object is recorded only once in a while, so that a settled cluster sees no write (invariant
//! QUIET), and an object has at most 25 Events at once and one more every five minutes, as with client-go.
//!
//! ```
//! use belayer_core::Notice;
//!
//! let notice = Notice::warning("NodeGone", "its node does not exist");
//! assert_eq!(notice.reason, "NodeGone");
//! ```

mod queue;

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::election::Leadership;
use crate::executor::{Class, Executor};
use crate::http::{Request, RequestError};
use crate::object::{ObjectKey, Resource, Uid};
use crate::words::printable;

/// Capacity of the queue of notices.
const QUEUE: usize = 1024;

/// How long an Event that is being sent may take once the process stops.
const LAST_WITHIN: Duration = Duration::from_secs(2);

/// The same reason on the same object is not recorded again within this time.
const REPEAT_AFTER: Duration = Duration::from_secs(30 * 60);

/// A notice that a pending live answer may change is recorded only if there is no answer within
/// this time.
pub const UNANSWERED: Duration = Duration::from_secs(10);

/// A reason whose message has changed is recorded again after this time.
const REPEAT_CHANGED_AFTER: Duration = Duration::from_secs(5 * 60);

/// How many reasons on objects are remembered. Beyond that, the one that was considered least recently may be
/// recorded again too soon (L4).
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();

/// How many Events an object may have at once.
const BURST: u32 = 25;

/// How long until an object may have one more.
const REFILL: Duration = Duration::from_secs(5 * 60);

/// How many objects are remembered for that. Beyond that, the one with the least recent Event may have a burst again.
const SPAM_KEYS: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// A Kubernetes Event to be recorded on an object. The [module's example](crate::events) has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// `Normal` or `Warning`.
    pub severity: Severity,
    /// CamelCase reason.
    pub reason: &'static str,
    /// Text. It is recorded as [`printable`] makes it.
    pub message: Cow<'static, str>,
}

impl Notice {
    /// A notice of [`Severity::Normal`].
    pub fn normal(reason: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            severity: Severity::Normal,
            reason,
            message: message.into(),
        }
    }

    /// A notice of [`Severity::Warning`].
    pub fn warning(reason: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::normal(reason, message)
        }
    }
}

/// How bad a [`Notice`] is. The [module's example](crate::events) has a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Information.
    Normal,
    /// A user should check the object.
    Warning,
}

/// The object that a notice is about. The example of [`recorder`] names a
/// pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Regarding {
    /// Its kind.
    pub resource: Resource,
    /// Its namespace and name.
    pub key: ObjectKey,
    /// Its identity.
    pub uid: Uid,
}

/// Accepts notices. Cheap to clone. The example of [`recorder`] records
/// one.
#[derive(Debug, Clone)]
pub struct EventRecorder {
    queue: queue::Sender,
    memory: EventMemory,
    /// While it does not hold, no Event can be sent.
    leadership: Leadership,
}

/// What a recorder has recorded, and how many Events an object may have now. Clones share it, so that the recorders of a
/// process that replaces its controllers repeat no Event. An argument of
/// [`EventRecorder::with_memory`](crate::events::EventRecorder::with_memory).
#[derive(Debug, Clone)]
pub struct EventMemory {
    recorded: Arc<Mutex<LruCache<(Uid, &'static str), Recorded>>>,
    buckets: Arc<Mutex<LruCache<Uid, Bucket>>>,
}

impl Default for EventMemory {
    fn default() -> Self {
        Self {
            recorded: Arc::new(Mutex::new(LruCache::new(REMEMBERED))),
            buckets: Arc::new(Mutex::new(LruCache::new(SPAM_KEYS))),
        }
    }
}

/// How many Events an object may have now.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: u32,
    /// When it had that many.
    at: Instant,
}

impl Bucket {
    fn full() -> Self {
        Self {
            tokens: BURST,
            at: Instant::now(),
        }
    }

    /// Takes a token, if there is one.
    fn take(&mut self) -> bool {
        let refilled = self.at.elapsed().as_secs() / REFILL.as_secs();
        let refilled = u32::try_from(refilled).unwrap_or(BURST).min(BURST);
        if self.tokens + refilled >= BURST {
            *self = Self::full();
        } else {
            self.tokens += refilled;
            self.at += REFILL * refilled;
        }
        let has_one = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        has_one
    }
}

/// The state of one reason on one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recorded {
    /// Recorded at this time, with a message of this hash.
    At(Instant, u64),
    /// Waiting for a live answer since this time.
    Waits(Instant),
}

impl Recorded {
    fn since(self) -> Instant {
        let (Self::At(since, _) | Self::Waits(since)) = self;
        since
    }
}

/// Whether a pending live answer may change a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certainty {
    Known,
    /// A live answer that may change the message is pending.
    Awaited,
}

/// Sends the queued notices. [`recorder`] returns it; nothing is sent
/// before [`EventSender::run`](crate::events::EventSender::run) runs.
#[must_use = "no Event is sent before the sender runs"]
#[derive(Debug)]
pub struct EventSender {
    queue: queue::Receiver,
    executor: Arc<Executor>,
}

/// Returns a recorder and the task that sends its notices.
///
/// ```no_run
/// use std::sync::Arc;
/// use belayer_core::{Executor, Notice, ObjectKey, Regarding, Resource, events};
/// use tokio_util::sync::CancellationToken;
///
/// # async fn record(executor: Arc<Executor>, regarding: &Regarding) {
/// let (recorder, sender) = events::recorder(executor);
/// tokio::spawn(sender.run(CancellationToken::new()));
/// let notice = Notice::normal("Seen", "the controller has seen this object");
/// recorder.record(regarding, &notice);
/// # }
/// ```
pub fn recorder(executor: Arc<Executor>) -> (EventRecorder, EventSender) {
    let (sender, receiver) = queue::queue(QUEUE);
    (
        EventRecorder::new(sender, executor.leadership().clone()),
        EventSender {
            queue: receiver,
            executor,
        },
    )
}

impl EventRecorder {
    fn new(queue: queue::Sender, leadership: Leadership) -> Self {
        Self {
            queue,
            memory: EventMemory::default(),
            leadership,
        }
    }

    /// The same, with the memory of an earlier recorder.
    #[must_use]
    pub fn with_memory(self, memory: EventMemory) -> Self {
        Self { memory, ..self }
    }

    /// Records `notice`, unless it was recorded recently, its object has too many Events, the queue is full, or the
    /// executor may not write, because another process leads.
    pub fn record(&self, regarding: &Regarding, notice: &Notice) {
        self.record_as(Certainty::Known, regarding, notice);
    }

    /// Records a notice that a pending live answer may change: only if the object is still decided
    /// the same way after [`UNANSWERED`].
    pub fn record_unless_answered(&self, regarding: &Regarding, notice: &Notice) {
        self.record_as(Certainty::Awaited, regarding, notice);
    }

    fn record_as(&self, certainty: Certainty, regarding: &Regarding, notice: &Notice) {
        // The leader writes and logs it.
        if !self.leadership.may_write() || !self.is_due(&regarding.uid, notice, certainty) {
            return;
        }
        let mut buckets = self.memory.buckets.lock();
        let may = buckets
            .get_or_insert_mut(regarding.uid.clone(), Bucket::full)
            .take();
        drop(buckets);
        if !may {
            dropped(1);
            return;
        }
        let notice = Notice {
            message: printable(&notice.message).into_owned().into(),
            ..*notice
        };
        match notice.severity {
            Severity::Normal => {
                tracing::info!(object = %regarding.key, reason = notice.reason, "{}", notice.message);
            }
            Severity::Warning => {
                tracing::warn!(object = %regarding.key, reason = notice.reason, "{}", notice.message);
            }
        }
        if !self.queue.try_send(regarding.clone(), notice) {
            dropped(1);
        }
    }

    fn is_due(&self, uid: &Uid, notice: &Notice, certainty: Certainty) -> bool {
        let message_hash = hash(&notice.message);
        let now = Instant::now();
        let mut all = self.memory.recorded.lock();
        // These may be repeated anyway, and most of their objects are gone.
        while let Some((_, oldest)) = all.peek_lru()
            && now.duration_since(oldest.since()) >= REPEAT_AFTER
        {
            all.pop_lru();
        }
        let recorded = all.get_or_insert_mut((uid.clone(), notice.reason), || Recorded::Waits(now));
        let passed = now.duration_since(recorded.since());
        let is_due = match (*recorded, certainty) {
            (Recorded::At(_, before), Certainty::Known) if before != message_hash => {
                passed >= REPEAT_CHANGED_AFTER
            }
            (Recorded::At(..), _) => passed >= REPEAT_AFTER,
            (Recorded::Waits(_), Certainty::Known) => true,
            (Recorded::Waits(_), Certainty::Awaited) => passed >= UNANSWERED,
        };
        if is_due {
            *recorded = Recorded::At(now, message_hash);
        }
        is_due
    }
}

impl EventSender {
    /// Sends until `cancel` is cancelled or every recorder was dropped. Notices that still wait then count as dropped.
    pub async fn run(mut self, cancel: CancellationToken) {
        while let Some(Some((regarding, notice))) =
            cancel.run_until_cancelled(self.queue.recv()).await
        {
            let sending = self.send(&regarding, &notice, &cancel);
            tokio::pin!(sending);
            let is_sent = tokio::select! {
                is_sent = &mut sending => is_sent,
                () = cancel.cancelled() => timeout(LAST_WITHIN, sending).await.unwrap_or(false),
            };
            if !is_sent {
                dropped(1);
            }
        }
        dropped(self.queue.close());
    }

    /// False if the notice is lost.
    async fn send(
        &self,
        regarding: &Regarding,
        notice: &Notice,
        cancel: &CancellationToken,
    ) -> bool {
        let reporter = self.executor.field_manager();
        let request = event(regarding, notice, reporter, crate::clock::now());
        // An Event is only information: it is not retried, except that a pause does not drop all
        // Events behind it.
        let mut sent = self.executor.write(&request, Class::Notice).await;
        if let Some(pause) = sent.as_ref().err().and_then(RequestError::retry_after) {
            let pause = tokio::time::sleep(pause);
            if cancel.run_until_cancelled(pause).await.is_none() {
                return false;
            }
            sent = self.executor.write(&request, Class::Notice).await;
        }
        if let Err(error) = &sent {
            tracing::debug!(object = %regarding.key, reason = notice.reason, %error, "could not write an Event");
        }
        sent.is_ok()
    }
}

fn dropped(notices: u64) {
    metrics::counter!(crate::metric_names::EVENTS_DROPPED).increment(notices);
}

/// The namespace of the Events on an object: its own, or `default` for a cluster-scoped object, as kubectl expects.
///
/// ```
/// use belayer_core::events::namespace_of_events;
/// use belayer_core::object::ObjectKey;
///
/// assert_eq!(namespace_of_events(&ObjectKey::new("shop", "web-0")), "shop");
/// assert_eq!(namespace_of_events(&ObjectKey::cluster("shop")), "default");
/// ```
pub fn namespace_of_events(key: &ObjectKey) -> &str {
    key.namespace().unwrap_or("default")
}

fn event(regarding: &Regarding, notice: &Notice, reporter: &str, now: Timestamp) -> Request {
    let namespace = namespace_of_events(&regarding.key);
    let severity = match notice.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    // A name may have 253 characters. `generateName` is not used: the server refuses one that ends
    // in a dot, and Event names have the form `<object>.<suffix>`.
    let object: String = regarding.key.name().chars().take(235).collect();
    let name = format!(
        "{}.{:016x}",
        object.trim_end_matches(['.', '-']),
        crate::rng::bits()
    );
    let seconds = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": namespace },
        "involvedObject": {
            "apiVersion": regarding.resource.api_version(),
            "kind": &*regarding.resource.kind,
            "namespace": regarding.key.namespace(),
            "name": regarding.key.name(),
            "uid": regarding.uid.as_str(),
        },
        "type": severity,
        "reason": notice.reason,
        "message": truncated(&notice.message),
        "source": { "component": reporter },
        "reportingComponent": reporter,
        "firstTimestamp": seconds,
        "lastTimestamp": seconds,
        "count": 1,
    });
    let events = Resource::new("", "v1", "Event", "events");
    Request::post(events.path(Some(namespace)), body.to_string())
}

/// The message, cut to 1,024 bytes: the server refuses longer messages of Events, and a longer annotation [counts as
/// absent](crate::slim::Keep::annotations).
///
/// ```
/// use belayer_core::events::truncated;
///
/// assert_eq!(truncated("denied"), "denied");
/// assert_eq!(truncated(&"denied ".repeat(200)).len(), 1_024);
/// ```
pub fn truncated(message: &str) -> Cow<'_, str> {
    const LIMIT: usize = 1024;
    const CUT: &str = " …";
    if message.len() <= LIMIT {
        return message.into();
    }
    let kept = &message[..message.floor_char_boundary(LIMIT - CUT.len())];
    format!("{kept}{CUT}").into()
}

fn hash(message: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
