//! Live reads: what a cache cannot prove is read from the server, once for all keys that wait for it.
//! `cargo run --package belayer-core --example live_reads`.
//!
//! A cache that does not contain a node may only be late. A read that began after the question is evidence.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use belayer_core::{
    LiveReader, LiveReads, LogicalTime, ObjectKey, Pace, Priority, Query, QueryCache, ReadError,
    Request, Resource, Waiter, WorkQueue, client,
};
use belayer_sandbox::Sandbox;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

/// Does this node exist?
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct NodeExists(ObjectKey);

impl fmt::Display for NodeExists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "does node {} exist?", self.0)
    }
}

impl Query for NodeExists {
    type Answer = bool;
    const NAME: &'static str = "node";

    fn outcome(exists: &bool) -> &'static str {
        if *exists { "exists" } else { "gone" }
    }
}

struct Nodes {
    client: kube::Client,
    requests: AtomicU32,
}

impl LiveReader<NodeExists> for Nodes {
    fn read<'a>(&'a self, query: &'a NodeExists) -> BoxFuture<'a, Result<bool, ReadError>> {
        async move {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let (nodes, key) = (Resource::nodes(), &query.0);
            match Request::get(nodes.object_path(key))
                .send(&self.client)
                .await
            {
                Ok(_) => Ok(true),
                // Only a 404 that names this object proves its absence.
                Err(error) if error.is_gone(&nodes, key) => Ok(false),
                Err(error) => Err(ReadError::from(&error)),
            }
        }
        .boxed()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let sandbox = Sandbox::default();
    let nodes = Arc::new(Nodes {
        client: client::in_process(sandbox.service("example"), "example/1.0"),
        requests: AtomicU32::new(0),
    });
    let queue = WorkQueue::new("pods");
    let woken = queue.clone();
    let cache = QueryCache::new(
        Arc::clone(&nodes) as Arc<dyn LiveReader<NodeExists>>,
        Arc::new(move |key| woken.add(key, Priority::Release)),
        Pace::default(),
        LiveReads::default(),
        CancellationToken::new(),
    );

    // Three pods of a node that the cache does not contain.
    let (query, observed) = (NodeExists(ObjectKey::cluster("node-1")), LogicalTime::now());
    let pods = ["web-0", "web-1", "web-2"].map(|name| ObjectKey::new("default", name));
    for key in &pods {
        let after = Duration::ZERO;
        cache.ask(
            query.clone(),
            Waiter {
                key,
                observed,
                after,
            },
        );
    }
    for _ in &pods {
        let Some(item) = queue.next().await else {
            return;
        };
        let Some(live) = cache.get(&query) else {
            continue;
        };
        assert!(live.begun() > observed);
        let answer = NodeExists::outcome(live.answer());
        println!("{}: its node is {answer}", item.key());
        item.succeeded();
    }
    let requests = nodes.requests.load(Ordering::Relaxed);
    println!("{} keys, {requests} request", pods.len());
    assert_eq!(requests, 1);
}
