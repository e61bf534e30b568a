//! A controller as a decision table and a runner: `cargo run --package belayer-holds --example runner`.
//!
//! It keeps ConfigMaps with the label `keep` by a finalizer until they have the annotation `done`.

use std::{convert::Infallible, error::Error, sync::Arc};

use belayer_core::{
    Bounds, Executor, Keep, ObjectMeta, OwnerMeta, Resource, Stored, Waiter, Writes, client,
};
use belayer_holds::decision::{Decision, Evidence, Write};
use belayer_holds::runner::{self, Component};
use tokio_util::sync::CancellationToken;

#[path = "support/user.rs"]
mod user;

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
        user::HOLD
    }

    fn observe(&self, object: &Stored<OwnerMeta>) -> ObjectMeta {
        object.object.meta.clone()
    }

    /// A pure function of the snapshot: one arm per rule, at most one write.
    fn decide(seen: &ObjectMeta, _: jiff::Timestamp) -> Decision<Annotated, Infallible> {
        let (done, keep) = (seen.annotations.get("done"), seen.labels.get("keep"));
        match (seen.has_finalizer(user::HOLD), done, keep) {
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

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let sandbox = user::sandbox()?;
    let client = client::in_process(sandbox.service("keeper"), "keeper/1.0");
    let executor = Executor::new(client, "keeper", Bounds::default(), Writes::Sent);
    let keep = Keep::nothing().labels(["keep"]).annotations(["done"]);
    let (maps, stop) = (Resource::config_maps(), CancellationToken::new());
    let keeper = runner::run(Arc::new(executor), maps, keep.into(), Keeper, stop.clone());
    let keeper = tokio::spawn(keeper);
    user::delete_before_it_is_done(&sandbox).await?;
    stop.cancel();
    Ok(keeper.await?)
}
