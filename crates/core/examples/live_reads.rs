//! Live reads: what a cache cannot prove is read from the server, once for all keys that wait for it.
//! `cargo run --package belayer-core --example live_reads`.
//!
//! A cache that does not contain a node may only be late. A read that began after the question is evidence.

use std::{fmt, sync::Arc};

use belayer_core::{
    LiveReads, ObjectKey, Pace, Priority, Query, QueryCache, ReadError, Request, Resource, Waiter,
    WorkQueue, client,
};
use belayer_sandbox::{Sandbox, Verb};
use futures::FutureExt as _;
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

async fn read(client: kube::Client, NodeExists(key): NodeExists) -> Result<bool, ReadError> {
    let nodes = Resource::nodes();
    match Request::get(nodes.object_path(&key)).send(&client).await {
        Ok(_) => Ok(true),
        // Only a 404 that names this object proves its absence.
        Err(error) if error.is_gone(&nodes, &key) => Ok(false),
        Err(error) => Err(ReadError::from(error)),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let sandbox = Sandbox::default();
    let client = client::in_process(sandbox.service("me"), "me/1.0");
    let reader = Arc::new(move |query| read(client.clone(), query).boxed());
    let queue = WorkQueue::new("pods");
    let woken = queue.clone();
    let enqueue = Arc::new(move |key| woken.add(key, Priority::Release));
    let (pace, reads, stop) = (
        Pace::default(),
        LiveReads::default(),
        CancellationToken::new(),
    );
    let cache = QueryCache::new(reader, enqueue, pace, reads, stop);

    // Three pods of a node that the informer does not contain.
    let query = NodeExists(ObjectKey::cluster("node-1"));
    for pod in ["web-0", "web-1", "web-2"] {
        cache.ask(query.clone(), Waiter::now(&ObjectKey::new("default", pod)));
    }
    for _ in 0..3 {
        let pod = queue.next().await;
        let pod = pod.as_ref().map(|pod| pod.key());
        let live = cache
            .get(&query)
            .map(|live| NodeExists::outcome(live.answer()));
        println!("{pod:?}: its node is {live:?}");
    }
    assert_eq!(sandbox.recorder().requests("me", Verb::Get, "nodes"), 1);
}
