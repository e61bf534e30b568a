//! A decision table on `belayer-holds`: a ConfigMap is held by a finalizer until it was read.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use belayer_core::{
    Bounds, DecodeContext, Executor, Keep, ObjectMeta, OwnerMeta, PatchKind, Request, Resource,
    Stored, Waiter, Writes, client,
};
use belayer_holds::decision::{Decision, Evidence, Write};
use belayer_holds::runner::{self, Component};
use belayer_sandbox::{Gvr, Sandbox};
use tokio_util::sync::CancellationToken;

const HOLD: &str = "example.org/read";

belayer_holds::rules! {
    READ = 1, "read", "the label says that it was read";
    HELD = 2, "held", "not being deleted, and without the finalizer";
    WAIT = 3, "wait", "nothing to do";
}

#[derive(Debug)]
struct WasRead;

impl Evidence for WasRead {
    fn name(&self) -> &'static str {
        "WasRead"
    }
}

struct Reader;

impl Component<OwnerMeta> for Reader {
    type Snapshot = ObjectMeta;
    type Evidence = WasRead;
    type Query = Infallible;
    type Step = ();

    fn name(&self) -> &'static str {
        "reader"
    }

    fn hold(&self) -> &'static str {
        HOLD
    }

    fn observe(&self, object: &Stored<OwnerMeta>) -> ObjectMeta {
        object.object.meta.clone()
    }

    fn decide(seen: &ObjectMeta, _: jiff::Timestamp) -> Decision<WasRead, Infallible> {
        match (seen.has_finalizer(HOLD), seen.labels.get("read")) {
            (true, Some(_)) => Decision::write(READ, Write::Release(WasRead)),
            (false, None) if !seen.is_deleting() => Decision::write(HELD, Write::AddHold),
            _ => Decision::nothing(WAIT),
        }
    }

    fn ask(&self, query: Infallible, _: Waiter<'_>) {
        match query {}
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let sandbox = Sandbox::default();
    sandbox.load_yaml("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")?;
    let client = client::in_process(sandbox.service("external"), "external/1.0");
    let executor = Executor::new(client.clone(), "external", Bounds::default(), Writes::Sent);
    let context = DecodeContext::from(Keep::nothing().labels(["read"]));
    let (maps, stop) = (Resource::config_maps(), CancellationToken::new());
    let reader = runner::run(Arc::new(executor), maps, context, Reader, stop.clone());
    let reader = tokio::spawn(reader);

    let wait = |condition: fn(Option<&serde_json::Value>) -> bool| {
        sandbox.wait_until(
            &Gvr::CONFIGMAPS,
            "default",
            "a",
            Duration::from_secs(5),
            condition,
        )
    };
    wait(|map| map.is_some_and(|map| map["metadata"]["finalizers"][0] == HOLD)).await?;
    let path = "/api/v1/namespaces/default/configmaps/a";
    Request::delete(path, "{}").send(&client).await?;
    ensure!(
        wait(|_| true).await?.is_some(),
        "deleted before it was read"
    );
    let read = r#"{"metadata":{"labels":{"read":"true"}}}"#;
    Request::patch(path, PatchKind::Merge, read)
        .send(&client)
        .await?;
    wait(|map| map.is_none()).await?;
    println!("holds: a ConfigMap was kept until it was read");
    stop.cancel();
    Ok(reader.await?)
}
