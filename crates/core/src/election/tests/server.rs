//! A server that has one Lease.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use http::{Method, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::super::*;
use crate::client;
use crate::object::ObjectKey;

/// How the server behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Mood {
    Well,
    /// 503 to everything.
    Down,
    /// Never responds.
    Silent,
    /// 403 to everything.
    Forbids,
    /// The Lease's namespace does not exist.
    Homeless,
    /// Applies the writes, and their responses are lost.
    Mute,
    /// 403 to everything but reads.
    ReadOnly,
}

/// How the server serves watches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Watches {
    /// As Kubernetes does.
    Served,
    /// 403.
    Forbidden,
    /// The response never begins.
    Unanswered,
    /// Each ends at once.
    Cut,
    /// Open, without events.
    Silent,
    /// An error event, as for a version that is too old.
    Expired,
    /// Something that is not JSON.
    Garbage,
}

pub(super) struct World {
    lease: Option<Value>,
    version: u64,
    mood: Mood,
    watches: Watches,
    /// The watches that are open or were.
    watchers: Vec<UnboundedSender<String>>,
    /// Those that get no more events.
    lost: Vec<UnboundedSender<String>>,
    /// The identities that wrote the Lease, in order.
    pub(super) holders: Vec<String>,
    pub(super) requests: usize,
    /// How many of them were watches.
    pub(super) watch_requests: usize,
}

#[derive(Clone)]
pub(super) struct Server(pub(super) Arc<Mutex<World>>);

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

impl Server {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(World {
            lease: None,
            version: 0,
            mood: Mood::Well,
            watches: Watches::Served,
            watchers: Vec::new(),
            lost: Vec::new(),
            holders: Vec::new(),
            requests: 0,
            watch_requests: 0,
        })))
    }

    pub(super) fn mood(&self, mood: Mood) {
        self.0.lock().mood = mood;
    }

    pub(super) fn watches(&self, watches: Watches) {
        self.0.lock().watches = watches;
    }

    /// The connections of the open watches are lost, and no one notices.
    pub(super) fn silence_open_watches(&self) {
        let mut world = self.0.lock();
        let lost = std::mem::take(&mut world.watchers);
        world.lost.extend(lost);
    }

    /// How many watches are open.
    pub(super) fn open_watches(&self) -> usize {
        let world = self.0.lock();
        let open = world.watchers.iter().filter(|watcher| !watcher.is_closed());
        open.count()
    }

    /// Someone deletes the Lease.
    pub(super) fn deletes(&self) {
        let mut world = self.0.lock();
        world.version += 1;
        let mut lease = world.lease.take().unwrap();
        lease["metadata"]["resourceVersion"] = world.version.to_string().into();
        world.announce("DELETED", &lease);
    }

    /// Waits until the Lease has been written once more.
    pub(super) async fn next_write(&self) {
        let before = self.0.lock().holders.len();
        while self.0.lock().holders.len() == before {
            sleep(Duration::from_millis(1)).await;
        }
    }

    pub(super) fn holder(&self) -> String {
        let world = self.0.lock();
        let lease = world.lease.as_ref();
        lease.map_or(String::new(), |lease| {
            lease["spec"]["holderIdentity"].as_str().unwrap().to_owned()
        })
    }

    /// A client-go candidate acquires the lease.
    pub(super) fn taken_by(&self, holder: &str) {
        let mut world = self.0.lock();
        world.version += 1;
        let version = world.version.to_string();
        let lease = world
            .lease
            .get_or_insert_with(|| json!({ "metadata": { "uid": "u" } }));
        lease["spec"]["holderIdentity"] = holder.into();
        lease["spec"]["leaseTransitions"] = json!(7);
        lease["metadata"]["resourceVersion"] = version.into();
        let lease = lease.clone();
        world.announce("MODIFIED", &lease);
    }

    /// Changes something of the Lease other than the record.
    pub(super) fn touched(&self) {
        let mut world = self.0.lock();
        world.version += 1;
        let version = world.version.to_string();
        let lease = world.lease.as_mut().unwrap();
        lease["metadata"]["resourceVersion"] = version.into();
        let lease = lease.clone();
        world.announce("MODIFIED", &lease);
    }

    fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.handle(request).await) }
        });
        client::in_process(service, "test/1.0")
    }

    async fn handle(&self, request: http::Request<Body>) -> Answer {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let mood = {
            let mut world = self.0.lock();
            world.requests += 1;
            world.mood
        };
        match mood {
            Mood::Down => return status(503, "ServiceUnavailable"),
            Mood::Silent => std::future::pending().await,
            Mood::Forbids => return status(403, "Forbidden"),
            Mood::Homeless => return status(404, "NotFound"),
            Mood::ReadOnly if head.method != Method::GET => return status(403, "Forbidden"),
            Mood::Well | Mood::Mute | Mood::ReadOnly => {}
        }
        if let Some(query) = head.uri.query()
            && query.contains("watch=true")
        {
            return self.watch(query).await;
        }
        let answer = self.0.lock().apply(&head.method, &body);
        if mood == Mood::Mute && head.method != Method::GET {
            std::future::pending::<()>().await;
        }
        answer
    }

    async fn watch(&self, query: &str) -> Answer {
        assert!(
            query.contains("fieldSelector=metadata.name%3Dleader"),
            "{query}"
        );
        let (sender, events) = unbounded();
        let watches = {
            let mut world = self.0.lock();
            world.watch_requests += 1;
            world.watches
        };
        let last_words = match watches {
            Watches::Forbidden => return status(403, "Forbidden"),
            Watches::Unanswered => std::future::pending().await,
            Watches::Expired => Some(r#"{"type":"ERROR","object":{"code":410}}"#),
            Watches::Garbage => Some("garbage"),
            Watches::Served | Watches::Cut | Watches::Silent => None,
        };
        if let Some(words) = last_words {
            sender.unbounded_send(format!("{words}\n")).unwrap();
        }
        let mut world = self.0.lock();
        if watches == Watches::Served
            && let Some(lease) = &world.lease
        {
            // The changes since the version.
            let version = lease["metadata"]["resourceVersion"].as_str().unwrap();
            if !query.contains(&format!("resourceVersion={version}&")) {
                let event = json!({ "type": "MODIFIED", "object": lease });
                sender.unbounded_send(format!("{event}\n")).unwrap();
            }
        }
        if watches != Watches::Cut {
            world.watchers.push(sender);
        }
        let frames = events.map(|line| Ok(Frame::data(Bytes::from(line))));
        Response::new(UnsyncBoxBody::new(StreamBody::new(frames)))
    }

    /// One that does not run yet.
    pub(super) fn candidate(&self, name: &str, timing: Timing) -> (Elector, Leadership) {
        let settings = Settings {
            field_manager: "manager",
            lease: ObjectKey::new("ops", "leader"),
            identity: name.to_owned(),
            timing,
        };
        Elector::new(self.client(), settings)
    }

    pub(super) fn elector(&self, name: &str, timing: Timing) -> Running {
        let (elector, leadership) = self.candidate(name, timing);
        let resign = CancellationToken::new();
        Running {
            health: elector.health(),
            ended: tokio::spawn(elector.run(resign.clone())),
            leadership,
            resign,
        }
    }
}

impl World {
    fn announce(&self, change: &str, lease: &Value) {
        if self.watches == Watches::Served {
            let event = json!({ "type": change, "object": lease });
            for watcher in &self.watchers {
                // A watch may have been closed.
                let _ = watcher.unbounded_send(format!("{event}\n"));
            }
        }
    }

    fn apply(&mut self, method: &Method, body: &[u8]) -> Answer {
        if *method == Method::GET {
            return match &self.lease {
                Some(lease) => ok(lease),
                None => status(404, "NotFound"),
            };
        }
        let body: Value = serde_json::from_slice(body).unwrap();
        if *method == Method::POST {
            if self.lease.is_some() {
                return status(409, "AlreadyExists");
            }
        } else {
            let Some(lease) = &self.lease else {
                return status(404, "NotFound");
            };
            if lease["metadata"] != body["metadata"] {
                return status(409, "Conflict");
            }
        }
        self.version += 1;
        let spec = body["spec"].clone();
        self.holders
            .push(spec["holderIdentity"].as_str().unwrap().to_owned());
        let lease = json!({
            "metadata": { "uid": "u", "resourceVersion": self.version.to_string() },
            "spec": spec,
        });
        self.lease = Some(lease.clone());
        self.announce("MODIFIED", &lease);
        ok(&lease)
    }
}

fn ok(body: &Value) -> Answer {
    Response::new(whole(body))
}

fn status(code: u16, reason: &str) -> Answer {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": reason, "details": { "name": "leader", "group": "coordination.k8s.io", "kind": "leases" },
    });
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(whole(&body))
        .unwrap()
}

fn whole(body: &Value) -> UnsyncBoxBody<Bytes, Infallible> {
    UnsyncBoxBody::new(Full::new(Bytes::from(body.to_string())))
}

pub(super) struct Running {
    pub(super) ended: JoinHandle<Ended>,
    pub(super) leadership: Leadership,
    pub(super) resign: CancellationToken,
    pub(super) health: ElectorHealth,
}

impl Running {
    pub(super) async fn resigns(self) -> Ended {
        self.resign.cancel();
        self.ended.await.unwrap()
    }
}
