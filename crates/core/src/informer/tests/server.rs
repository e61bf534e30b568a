//! A scripted server, and a handler that records the events of the informer.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::informer::{
    Decoders, Event, Informer, InformerBuilder, JsonDecoder, Store, Stored, StreamingList,
};
use crate::object::{ObjectKey, Resource};
use crate::slim::json::SlimJson;
use crate::slim::{DecodeContext, Keep, OwnerMeta, Slim};

/// One response of the server.
pub(super) enum Reply {
    Status(u16, &'static [(&'static str, &'static str)], String),
    Body(BoxStream<'static, io::Result<Bytes>>),
    /// The connection breaks before a response.
    Refuse,
    /// No response, ever.
    Hang,
}

pub(super) fn status(code: u16, body: &str) -> Reply {
    Reply::Status(code, &[], body.to_owned())
}

pub(super) fn body(text: String) -> Reply {
    Reply::Body(stream::iter([Ok(Bytes::from(text))]).boxed())
}

fn frames(events: &[String]) -> impl futures::Stream<Item = io::Result<Bytes>> + Send + 'static {
    let lines: Vec<_> = events
        .iter()
        .map(|e| Ok(Bytes::from(format!("{e}\n"))))
        .collect();
    stream::iter(lines)
}

/// A watch that sends these events and stays open in silence.
pub(super) fn watch(events: &[String]) -> Reply {
    Reply::Body(frames(events).chain(stream::pending()).boxed())
}

/// A watch that sends these events and ends.
pub(super) fn short_watch(events: &[String]) -> Reply {
    Reply::Body(frames(events).boxed())
}

/// A watch that sends these events, each after this many seconds, and stays open.
pub(super) fn slow_watch(events: &[(u64, String)]) -> Reply {
    let events = events.to_vec();
    let timed = stream::iter(events).then(|(seconds, event)| async move {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok(Bytes::from(format!("{event}\n")))
    });
    Reply::Body(timed.chain(stream::pending()).boxed())
}

pub(super) fn object(name: &str, uid: &str, version: u64) -> String {
    labelled(name, uid, version, "")
}

/// As [`object`], with a label that is kept, so that two states differ.
pub(super) fn labelled(name: &str, uid: &str, version: u64, label: &str) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"n","name":"{name}","uid":"{uid}","resourceVersion":"{version}","labels":{{"kept":"{label}","other":"x"}}}}}}"#
    )
}

pub(super) fn page(version: u64, items: &[String]) -> Reply {
    body(format!(
        r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#,
        items.join(",")
    ))
}

pub(super) fn page_before(version: u64, token: &str, items: &[String]) -> Reply {
    body(format!(
        r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{token}"}},"items":[{}]}}"#,
        items.join(",")
    ))
}

pub(super) fn event(kind: &str, object: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

pub(super) fn added(object: impl AsRef<str>) -> String {
    event("ADDED", object.as_ref())
}

pub(super) fn modified(object: impl AsRef<str>) -> String {
    event("MODIFIED", object.as_ref())
}

pub(super) fn deleted(object: impl AsRef<str>) -> String {
    event("DELETED", object.as_ref())
}

pub(super) fn bookmark(version: u64) -> String {
    event(
        "BOOKMARK",
        &format!(r#"{{"metadata":{{"resourceVersion":"{version}"}}}}"#),
    )
}

pub(super) fn list_end(version: u64) -> String {
    list_end_saying("true", version)
}

/// A bookmark whose annotation has the value `text`.
pub(super) fn list_end_saying(text: &str, version: u64) -> String {
    event(
        "BOOKMARK",
        &format!(
            r#"{{"metadata":{{"resourceVersion":"{version}","annotations":{{"k8s.io/initial-events-end":"{text}"}}}}}}"#
        ),
    )
}

pub(super) fn error_status(code: u16, reason: &str) -> String {
    format!(
        r#"{{"kind":"Status","status":"Failure","reason":"{reason}","message":"no","code":{code}}}"#
    )
}

/// The server: sends the responses in order, then hangs.
#[derive(Clone, Default)]
pub(super) struct Server {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    requests: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Server {
    pub(super) fn answers(replies: impl IntoIterator<Item = Reply>) -> Self {
        let server = Self::default();
        server.replies.lock().extend(replies);
        server
    }

    pub(super) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let server = server.clone();
            let uri = request.uri().to_string();
            async move { server.answer(uri).await }
        });
        Client::new(service, "default")
    }

    async fn answer(
        &self,
        uri: String,
    ) -> io::Result<http::Response<UnsyncBoxBody<Bytes, io::Error>>> {
        self.requests.lock().push((Instant::now(), uri));
        let reply = self.replies.lock().pop_front().unwrap_or(Reply::Hang);
        let mut answer = http::Response::builder().header("content-type", "application/json");
        let body = match reply {
            Reply::Refuse => return Err(io::Error::other("refused")),
            Reply::Hang => std::future::pending().await,
            Reply::Body(body) => body,
            Reply::Status(code, headers, text) => {
                answer = answer.status(code);
                for (name, value) in headers {
                    answer = answer.header(*name, *value);
                }
                stream::iter([Ok(Bytes::from(text))]).boxed()
            }
        };
        Ok(answer
            .body(StreamBody::new(body.map(|c| c.map(Frame::data))).boxed_unsync())
            .unwrap())
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.requests
            .lock()
            .iter()
            .map(|(_, uri)| uri.clone())
            .collect()
    }

    /// The times of the requests since the first.
    pub(super) fn times(&self) -> Vec<Duration> {
        let requests = self.requests.lock();
        let first = requests[0].0;
        requests.iter().map(|(at, _)| *at - first).collect()
    }

    /// Waits until this many requests have arrived.
    pub(super) async fn asked(&self, times: usize) {
        let enough = async {
            while self.requests.lock().len() < times {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = timeout(Duration::from_secs(7200), enough).await;
        assert!(waited.is_ok(), "only {:?}", self.requests());
    }
}

/// A running informer and the events of its handler.
pub(super) struct Run<K = OwnerMeta> {
    pub(super) server: Server,
    pub(super) store: Store<K>,
    pub(super) stop: CancellationToken,
    events: mpsc::UnboundedReceiver<String>,
}

pub(super) fn workflows() -> Resource {
    Resource::new("argoproj.io", "v1alpha1", "Workflow", "workflows")
}

pub(super) fn describe<K: SlimJson>(server: &Server) -> InformerBuilder<K> {
    let keep = Keep::nothing().labels(["kept"]);
    let decoder = JsonDecoder::new(DecodeContext {
        keep,
        ..DecodeContext::default()
    });
    Informer::builder(server.client(), workflows(), Decoders::new(decoder))
        .seed(1)
        .index("by-label", |o: &K, show| {
            o.meta().labels.get("kept").into_iter().for_each(show);
        })
}

/// Lists by pages only.
pub(super) fn by_pages(replies: impl IntoIterator<Item = Reply>) -> Run {
    start(replies, |informer| {
        informer.streaming_list(StreamingList::Never)
    })
}

/// Tries streaming lists.
pub(super) fn by_stream(replies: impl IntoIterator<Item = Reply>) -> Run {
    start(replies, |informer| informer)
}

pub(super) fn start<K: SlimJson>(
    replies: impl IntoIterator<Item = Reply>,
    with: impl FnOnce(InformerBuilder<K>) -> InformerBuilder<K>,
) -> Run<K> {
    let server = Server::answers(replies);
    let (sender, events) = mpsc::unbounded_channel();
    let handler = Arc::new(move |event: &Event<K>| {
        let _ = sender.send(say(event));
    });
    let (informer, store) = with(describe(&server)).handler(handler).build();
    let stop = CancellationToken::new();
    tokio::spawn(informer.run(stop.clone()));
    Run {
        server,
        store,
        stop,
        events,
    }
}

fn name<K: Slim>(stored: &Stored<K>) -> String {
    format!(
        "{}:{}@{}",
        stored.key().name(),
        stored.uid(),
        stored.resource_version()
    )
}

pub(super) fn say<K: Slim>(event: &Event<K>) -> String {
    match event {
        Event::Added {
            object,
            initial: true,
        } => format!("initial {}", name(object)),
        Event::Added {
            object,
            initial: false,
        } => format!("added {}", name(object)),
        Event::Updated { old, new } => format!("updated {} from {}", name(new), name(old)),
        Event::Deleted {
            last,
            final_state_known: true,
        } => format!("deleted {}", name(last)),
        Event::Deleted {
            last,
            final_state_known: false,
        } => format!("vanished {}", name(last)),
        Event::Skipped { key: Some(key) } => format!("skipped {}", key.name()),
        Event::Skipped { key: None } => "skipped something".to_owned(),
        Event::Advanced { resource_version } => format!("at {resource_version}"),
        Event::Synced => "synced".to_owned(),
        Event::Relisted { regressed: false } => "relisted".to_owned(),
        Event::Relisted { regressed: true } => "relisted, regressed".to_owned(),
        Event::Unserved => "unserved".to_owned(),
    }
}

impl<K: SlimJson> Run<K> {
    /// Asserts the next events of the handler, within two hours.
    pub(super) async fn expect_events(&mut self, expected: &[&str]) {
        let mut events = Vec::new();
        while events.len() < expected.len() {
            match timeout(Duration::from_secs(7200), self.events.recv()).await {
                Ok(Some(event)) => events.push(event),
                _ => break,
            }
        }
        assert_eq!(events, expected, "requests: {:#?}", self.server.requests());
    }

    /// Asserts that there is no event for this long.
    pub(super) async fn is_quiet_for(&mut self, time: Duration) {
        let events = timeout(time, self.events.recv()).await;
        assert!(events.is_err(), "events {events:?}");
    }

    pub(super) fn key(name: &str) -> ObjectKey {
        ObjectKey::new("n", name)
    }

    /// The version at which an object is stored.
    pub(super) fn version(&self, name: &str) -> Option<u64> {
        let found = self.store.lookup(&Self::key(name)).found();
        found.map(|stored| stored.resource_version().get())
    }
}
