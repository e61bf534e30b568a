//! What the handler of owners does if a live answer was dropped to save memory.

use std::convert::Infallible;
use std::sync::atomic::AtomicUsize;

use bytes::Bytes;
use http_body_util::Full;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use belayer_core::executor::{Bounds, Executor, Writes};
use belayer_core::index::owner_of_pod;
use belayer_core::informer::{Decoders, Informer, JsonDecoder, Store, StreamingList};
use belayer_core::object::ResourceVersion;
use belayer_core::queries::{Budget, LiveReader, LiveReads, Pace, Query, QueryCache, ReadError};
use belayer_core::slim::DecodeContext;

use super::*;
use crate::status::{Asked, NODE_ID, StatusReader};

/// A pod that has ended, is being deleted and waits for its workflow.
fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "ci", "name": "step", "uid": "p-1", "resourceVersion": "5",
            "deletionTimestamp": "2026-11-21T12:00:00Z",
            "finalizers": [names::POD_STATUS_HOLD],
            "labels": { "workflows.argoproj.io/workflow": "build" },
            "annotations": { NODE_ID: "build-step" },
            "ownerReferences": [{
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "build", "uid": "w-1",
                "controller": true,
            }],
        },
        "status": { "phase": "Succeeded" },
    })
}

/// An API server with that pod and its workflow. Watches stay open. `reads` counts the reads of the workflow.
fn server(reads: Arc<AtomicUsize>) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let is_watch = request
            .uri()
            .query()
            .is_some_and(|it| it.contains("watch="));
        let body = match request.uri().path() {
            "/api/v1/pods" => json!({
                "apiVersion": "v1", "kind": "PodList",
                "metadata": { "resourceVersion": "9" }, "items": [pod()],
            }),
            path => {
                reads.fetch_add(usize::from(path.ends_with("/build")), Ordering::Relaxed);
                json!({ "metadata": { "uid": "w-1", "resourceVersion": "7" }, "status": {} })
            }
        };
        async move {
            if is_watch {
                std::future::pending::<()>().await;
            }
            let answer = http::Response::builder().header("content-type", "application/json");
            let body = Full::new(Bytes::from(body.to_string()));
            Ok::<_, Infallible>(answer.body(body).unwrap())
        }
    });
    Client::new(service, "default")
}

/// A reader that never answers.
struct NoReader;

impl<Q: Query> LiveReader<Q> for NoReader {
    fn read<'a>(&'a self, _: &'a Q) -> BoxFuture<'a, Result<Q::Answer, ReadError>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a19_a_change_is_read_if_the_last_answer_was_dropped() {
    let (reads, stop) = (Arc::<AtomicUsize>::default(), CancellationToken::new());
    let client = server(Arc::clone(&reads));
    let settings = Settings::default();
    let context = DecodeContext::from(keep_of_pods(&settings.profiles));
    let decoders = Decoders::new(JsonDecoder::<Pod>::new(context));
    let (informer, pods) = Informer::builder(client.clone(), Resource::pods(), decoders)
        .streaming_list(StreamingList::Never)
        .index(PODS_BY_OWNER, owner_of_pod)
        .build();
    tokio::spawn(informer.run(stop.clone()));
    pods.synced().await.unwrap();
    let decoders = Decoders::new(JsonDecoder::<Namespace>::new(DecodeContext::default()));
    let namespaces = Resource::namespaces();
    let (_, namespaces): (_, Store<Namespace>) =
        Informer::builder(client.clone(), namespaces, decoders).build();
    let executor = Executor::new(
        client,
        names::FIELD_MANAGER,
        Bounds::default(),
        Writes::Sent,
    );
    let removed = RemovedPods::default();
    let reader = StatusReader::new(
        Arc::new(executor),
        Asked::OfPods(pods.clone(), removed.clone()),
    );
    let woken: Arc<Mutex<Vec<ObjectKey>>> = Arc::default();
    let wakes = Arc::clone(&woken);
    let status_queries = QueryCache::within(
        Arc::new(reader),
        Arc::new(move |key| wakes.lock().push(key)),
        Pace::default(),
        LiveReads::default(),
        stop.clone(),
        // Each answer that is unused for a second is dropped once there is another one.
        &Budget::new(0),
    );
    let unused = || (Pace::default(), LiveReads::default(), stop.clone());
    fn never<Q: Query>((pace, reads, stop): (Pace, LiveReads, CancellationToken)) -> QueryCache<Q> {
        QueryCache::new(Arc::new(NoReader), Arc::new(|_| {}), pace, reads, stop)
    }
    let parts = Parts {
        pods,
        namespaces,
        owners: Vec::new(),
        records: None,
        owner_queries: never(unused()),
        namespace_queries: never(unused()),
        status_queries: status_queries.clone(),
        node_queries: never(unused()),
        removed,
        queue: WorkQueue::new("pods"),
        counted: Arc::default(),
    };
    let finalizer = PodFinalizer::<Cached>::new(&settings, parts);
    let query = |workflow: &str, uid: &str| {
        let key = ObjectKey::new("ci", workflow);
        StatusQuery::new(profile::argo::workflow(), key, Uid::new(uid))
    };
    let step = ObjectKey::new("ci", "step");
    let wait = || tokio::time::sleep(Duration::from_secs(5));

    status_queries.ask(query("build", "w-1"), Waiter::now(&step));
    wait().await;
    assert!(status_queries.get(&query("build", "w-1")).is_some());
    wait().await;
    status_queries.ask(query("other", "w-2"), Waiter::now(&step));
    wait().await;
    assert!(status_queries.get(&query("build", "w-1")).is_none());
    woken.lock().clear();
    assert_eq!(reads.load(Ordering::Relaxed), 1);

    let version = |version| {
        let (key, uid) = (ObjectKey::new("ci", "build"), Uid::new("w-1"));
        let meta = ObjectMeta::new(key, uid, ResourceVersion::new(version));
        Stored::fresh(Arc::new(OwnerMeta { meta }), LogicalTime::now())
    };
    let changed = Event::Updated {
        old: version(6),
        new: version(7),
    };
    finalizer.on_owner(&profile::argo::workflow(), &changed);
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(reads.load(Ordering::Relaxed), 1, "a standby");
    finalizer.begin_to_hold();
    finalizer.on_owner(&profile::argo::workflow(), &changed);
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(reads.load(Ordering::Relaxed), 2);
    assert_eq!(*woken.lock(), [step]);
    stop.cancel();
}
