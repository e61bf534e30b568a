//! A controller as a decision table and a runner: `cargo run --package belayer-holds --example runner`.
//!
//! It keeps ConfigMaps with the label `keep` by a finalizer until somebody writes the annotation `done`.

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use belayer_core::{
    Bounds, DecodeContext, Decoders, Executor, Informer, Keep, ObjectMeta, OwnerMeta, PatchKind,
    Priority, Request, Resource, Stored, Waiter, WorkQueue, Writes, client, clock, events,
};
use belayer_holds::decision::{Decision, Evidence, Write};
use belayer_holds::holding::HoldSwitch;
use belayer_holds::runner::{Change, Component, Executed, Observer, Parts, Runner};
use belayer_sandbox::{Gvr, Sandbox};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

const HOLD: &str = "example.com/keeper";

belayer_holds::rules! {
    DONE = 1, "done", "the annotation exists";
    ADD_HOLD = 2, "add-hold", "labelled, not being deleted, and without the finalizer";
    WAIT = 3, "wait", "nothing to do";
}

/// The annotation was read. Without a value of this type no release can be decided.
#[derive(Debug)]
struct Annotated;

impl Evidence for Annotated {
    fn name(&self) -> &'static str {
        "Annotated"
    }
}

struct Keeper;

impl Component<OwnerMeta> for Keeper {
    type Snapshot = ObjectMeta;
    type Evidence = Annotated;
    type Query = Infallible;
    type Step = ();

    fn name(&self) -> &'static str {
        "keeper"
    }

    fn hold(&self) -> &'static str {
        HOLD
    }

    fn interest(&self, change: &Change<'_, OwnerMeta>) -> Option<Priority> {
        change.new.map(|_| Priority::Normal)
    }

    fn observe(&self, object: &Stored<OwnerMeta>) -> ObjectMeta {
        object.object.0.clone()
    }

    /// A pure function of the snapshot: one arm per rule, at most one write.
    fn decide(seen: &ObjectMeta, _: Timestamp) -> Decision<Annotated, Infallible> {
        let held = seen.has_finalizer(HOLD);
        match (held, seen.annotations.get("done"), seen.labels.get("keep")) {
            (true, Some(_), _) => Decision::write(DONE, Write::Release(Annotated)),
            (false, None, Some(_)) if !seen.is_deleting() => {
                Decision::write(ADD_HOLD, Write::AddHold)
            }
            _ => Decision::nothing(WAIT),
        }
    }

    fn ask(&self, query: Infallible, _: Waiter<'_>) {
        match query {}
    }
}

struct Printed;

impl Observer for Printed {
    fn executed(&self, executed: &Executed<'_>) {
        println!(
            "{}: rule {}: {:?}",
            executed.key, executed.by.row, executed.what
        );
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let sandbox = Sandbox::default();
    sandbox.load_yaml(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: results, labels: {keep: ''}}}",
    )?;
    let client = client::in_process(sandbox.service("keeper"), "keeper/1.0");

    let keep = Keep::nothing().labels(["keep"]).annotations(["done"]);
    let decoders = Decoders::<OwnerMeta>::protobuf_or_json(DecodeContext {
        keep,
        ..DecodeContext::default()
    });
    let maps = Resource::config_maps();
    let (mut informer, store) =
        Informer::builder(client.clone(), maps.clone(), decoders.clone()).build();
    let executor = Executor::new(client.clone(), "keeper", Bounds::default(), Writes::Sent);
    let executor = Arc::new(executor);
    let (events, sender) = events::recorder(Arc::clone(&executor));
    let runner = Runner::builder(Parts {
        resource: maps,
        ours: &[HOLD],
        store,
        queue: WorkQueue::new("configmaps"),
        executor,
        decoders,
        events,
        clock: Arc::new(clock::now),
        observer: Arc::new(Printed),
        switch: HoldSwitch::default(),
    })
    .component(Arc::new(Keeper))
    .build();
    informer.add_handler(Arc::new(runner.clone()));
    let stop = CancellationToken::new();
    tokio::spawn(informer.run(stop.clone()));
    tokio::spawn(sender.run(stop.clone()));
    let workers = runner.work(2);

    // A user deletes the ConfigMap; it stays until its result was read.
    let gvr = Gvr::CONFIGMAPS;
    let wait = |condition: fn(Option<&serde_json::Value>) -> bool| {
        let soon = Duration::from_secs(5);
        sandbox.wait_until(&gvr, "default", "results", soon, condition)
    };
    wait(|map| map.is_some_and(|map| map["metadata"]["finalizers"][0] == HOLD)).await?;
    let path = "/api/v1/namespaces/default/configmaps/results";
    Request::delete(path, "{}").send(&client).await?;
    println!(
        "deleted by a user, and still there: {}",
        wait(|map| map.is_some()).await?.is_some()
    );
    let done = r#"{"metadata":{"annotations":{"done":""}}}"#;
    Request::patch(path, PatchKind::Merge, done)
        .send(&client)
        .await?;
    wait(|map| map.is_none()).await?;
    stop.cancel();
    workers.shutdown().await;
    Ok(())
}
