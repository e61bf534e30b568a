//! Kubernetes Events: what a person should be told, on the object it is about.
//!
//! Telling must never hinder releasing: notices stand in a bounded line, go last in the budget,
//! and are dropped, counted, when the line is full. The same reason on the same object is told
//! once in a while only, so that a settled cluster sees no write (invariant QUIET).

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::executor::{Class, Executor};
use crate::http::Request;
use crate::object::{ObjectKey, Resource, Uid};

/// How many notices may stand in line.
const LINE: usize = 1024;

/// The same reason on the same object is not told again within this time.
const REPEAT_AFTER: Duration = Duration::from_secs(30 * 60);

/// What is decided while an answer is awaited is told only if there is none within this time: the
/// answer may be the very reason that a person wants to know.
pub const UNANSWERED: Duration = Duration::from_secs(10);

/// Unless its words have changed: then after this time.
const CHANGED_AFTER: Duration = Duration::from_secs(5 * 60);

/// The memory of what was told is swept when it grows beyond this.
const REMEMBERED: usize = 16_384;

/// Something a person should be told: a Kubernetes Event on the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// `Normal` or `Warning`.
    pub severity: Severity,
    /// CamelCase reason.
    pub reason: &'static str,
    /// Text.
    pub message: Cow<'static, str>,
}

/// How bad a [`Notice`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// For information.
    Normal,
    /// Somebody should look.
    Warning,
}

/// The object that a notice is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Regarding {
    /// Its kind.
    pub resource: Resource,
    /// Its namespace and name.
    pub key: ObjectKey,
    /// Its identity.
    pub uid: Uid,
}

/// Takes notices; cheap to clone.
#[derive(Debug, Clone)]
pub struct EventRecorder {
    line: mpsc::Sender<(Regarding, Notice)>,
    told: Arc<Mutex<HashMap<(Uid, &'static str), Told>>>,
}

/// What became of a reason on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// It was told, in words of this hash.
    At(Instant, u64),
    /// It waits for an answer, since.
    Waits(Instant),
}

impl Told {
    fn since(self) -> Instant {
        let (Self::At(since, _) | Self::Waits(since)) = self;
        since
    }
}

/// How sure a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certainty {
    Known,
    /// An answer that may change its words is on its way.
    Awaited,
}

/// Sends what stands in line.
#[derive(Debug)]
pub struct EventSender {
    line: mpsc::Receiver<(Regarding, Notice)>,
    executor: Arc<Executor>,
}

/// A recorder and the task that sends for it.
pub fn recorder(executor: Arc<Executor>) -> (EventRecorder, EventSender) {
    let (sender, receiver) = mpsc::channel(LINE);
    (
        EventRecorder {
            line: sender,
            told: Arc::default(),
        },
        EventSender {
            line: receiver,
            executor,
        },
    )
}

impl EventRecorder {
    /// Tells `notice`, unless it was told lately or the line is full.
    pub fn tell(&self, regarding: &Regarding, notice: &Notice) {
        self.tell_as(Certainty::Known, regarding, notice);
    }

    /// The same for what an answer may put right that is on its way: told if the object is still
    /// decided so after [`UNANSWERED`].
    pub fn tell_unless_answered(&self, regarding: &Regarding, notice: &Notice) {
        self.tell_as(Certainty::Awaited, regarding, notice);
    }

    fn tell_as(&self, certainty: Certainty, regarding: &Regarding, notice: &Notice) {
        if !self.is_news(&regarding.uid, notice, certainty) {
            return;
        }
        match notice.severity {
            Severity::Normal => {
                tracing::info!(object = %regarding.key, reason = notice.reason, "{}", notice.message);
            }
            Severity::Warning => {
                tracing::warn!(object = %regarding.key, reason = notice.reason, "{}", notice.message);
            }
        }
        if self
            .line
            .try_send((regarding.clone(), notice.clone()))
            .is_err()
        {
            metrics::counter!(belayer_metrics::EVENTS_DROPPED).increment(1);
        }
    }

    fn is_news(&self, uid: &Uid, notice: &Notice, certainty: Certainty) -> bool {
        let words = hash(&notice.message);
        let now = Instant::now();
        let mut told = self.told.lock();
        if told.len() > REMEMBERED {
            told.retain(|_, told| now.duration_since(told.since()) < REPEAT_AFTER);
        }
        let told = told.entry((uid.clone(), notice.reason));
        let told = told.or_insert(Told::Waits(now));
        let passed = now.duration_since(told.since());
        let is_news = match (*told, certainty) {
            (Told::At(_, before), Certainty::Known) if before != words => passed >= CHANGED_AFTER,
            (Told::At(..), _) => passed >= REPEAT_AFTER,
            (Told::Waits(_), Certainty::Known) => true,
            (Told::Waits(_), Certainty::Awaited) => passed >= UNANSWERED,
        };
        if is_news {
            *told = Told::At(now, words);
        }
        is_news
    }
}

impl EventSender {
    /// Sends until `cancel` is cancelled or every recorder is gone.
    pub async fn run(mut self, cancel: CancellationToken) {
        loop {
            let next = tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                next = self.line.recv() => next,
            };
            let Some((regarding, notice)) = next else {
                return;
            };
            let reporter = self.executor.field_manager();
            let request = event(&regarding, &notice, reporter, crate::ambient::now());
            // An Event is for information: what cannot be told now is not worth a retry.
            if let Err(error) = self.executor.write(&request, Class::Notice).await {
                tracing::debug!(object = %regarding.key, reason = notice.reason, %error, "an Event was not written");
                metrics::counter!(belayer_metrics::EVENTS_DROPPED).increment(1);
            }
        }
    }
}

fn event(regarding: &Regarding, notice: &Notice, reporter: &str, now: Timestamp) -> Request {
    // Events of cluster-scoped objects live in `default`, as kubectl expects.
    let namespace = regarding.key.namespace().unwrap_or("default");
    let severity = match notice.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    // A name may have 253 characters. Not a `generateName`: the server refuses one that ends in
    // a dot, and the dot is what kubectl users know Events by.
    let object: String = regarding.key.name().chars().take(235).collect();
    let name = format!(
        "{}.{:016x}",
        object.trim_end_matches(['.', '-']),
        crate::ambient::bits()
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

/// The server refuses messages of more than 1,024 bytes.
fn truncated(message: &str) -> Cow<'_, str> {
    const LIMIT: usize = 1024;
    const CUT: &str = " …";
    if message.len() <= LIMIT {
        return message.into();
    }
    let kept = &message[..message.floor_char_boundary(LIMIT - CUT.len())];
    format!("{kept}{CUT}").into()
}

fn hash(words: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regarding() -> Regarding {
        Regarding {
            resource: Resource::pods(),
            key: ObjectKey::new("shop", "web-0"),
            uid: Uid::new("u-1"),
        }
    }

    fn notice() -> Notice {
        Notice {
            severity: Severity::Warning,
            reason: "ReleaseDenied",
            message: "x".repeat(2000).into(),
        }
    }

    fn line_of_notices() -> (EventRecorder, mpsc::Receiver<(Regarding, Notice)>) {
        let (line, receiver) = mpsc::channel(8);
        let told = Arc::default();
        (EventRecorder { line, told }, receiver)
    }

    #[test]
    fn an_event_names_its_object_and_fits_the_servers_limits() {
        let request = event(&regarding(), &notice(), "manager", Timestamp::UNIX_EPOCH);
        assert_eq!(request.path(), "/api/v1/namespaces/shop/events");
        let body: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(body["involvedObject"]["uid"], "u-1");
        assert_eq!(body["firstTimestamp"], "1970-01-01T00:00:00Z");
        let message = body["message"].as_str().unwrap();
        assert!(
            message.len() == 1024 && message.ends_with("x …"),
            "{message}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_is_told_once_in_a_while_only() {
        let (recorder, mut receiver) = line_of_notices();
        recorder.tell(&regarding(), &notice());
        recorder.tell(&regarding(), &notice());
        assert!(receiver.try_recv().is_ok());
        assert!(receiver.try_recv().is_err());
        tokio::time::advance(REPEAT_AFTER).await;
        recorder.tell(&regarding(), &notice());
        assert!(receiver.try_recv().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn other_words_are_told_sooner() {
        let (recorder, mut receiver) = line_of_notices();
        let used_by = |pods: &'static str| Notice {
            message: pods.into(),
            ..notice()
        };
        recorder.tell(&regarding(), &used_by("a, b"));
        receiver.try_recv().unwrap();
        recorder.tell(&regarding(), &used_by("b"));
        assert!(receiver.try_recv().is_err(), "too soon");
        tokio::time::advance(CHANGED_AFTER).await;
        recorder.tell(&regarding(), &used_by("a, b"));
        assert!(receiver.try_recv().is_err(), "nothing has changed");
        recorder.tell(&regarding(), &used_by("b"));
        receiver.try_recv().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_answer_may_put_right_waits_for_it() {
        let (recorder, mut receiver) = line_of_notices();
        let told = |message: &'static str| Notice {
            message: message.into(),
            ..notice()
        };
        recorder.tell_unless_answered(&regarding(), &told("to be found out"));
        assert!(receiver.try_recv().is_err());
        recorder.tell(&regarding(), &told("offloaded"));
        let (_, said) = receiver.try_recv().unwrap();
        assert_eq!(said.message, "offloaded");
        tokio::time::advance(UNANSWERED).await;
        recorder.tell_unless_answered(&regarding(), &told("to be found out"));
        assert!(receiver.try_recv().is_err(), "it was told already");
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_answers_is_told_after_a_while() {
        let (recorder, mut receiver) = line_of_notices();
        recorder.tell_unless_answered(&regarding(), &notice());
        tokio::time::advance(UNANSWERED / 2).await;
        recorder.tell_unless_answered(&regarding(), &notice());
        assert!(receiver.try_recv().is_err());
        tokio::time::advance(UNANSWERED / 2).await;
        recorder.tell_unless_answered(&regarding(), &notice());
        assert!(receiver.try_recv().is_ok());
    }
}
