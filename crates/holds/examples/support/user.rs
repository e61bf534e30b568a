//! The user of the example `runner`, who deletes a ConfigMap before its result was read.

use std::error::Error;
use std::time::Duration;

use belayer_core::{PatchKind, Request, client};
use belayer_sandbox::{Gvr, Sandbox, WaitError};
use serde_json::Value;

pub(crate) const HOLD: &str = "example.com/keeper";
const PATH: &str = "/api/v1/namespaces/default/configmaps/results";

/// A server with the ConfigMap.
pub(crate) fn sandbox() -> Result<Sandbox, Box<dyn Error>> {
    let sandbox = Sandbox::default();
    sandbox.load_yaml(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: results, labels: {keep: ''}}}",
    )?;
    Ok(sandbox)
}

/// It stays until its result was read.
pub(crate) async fn delete_before_it_is_done(sandbox: &Sandbox) -> Result<(), Box<dyn Error>> {
    let client = client::in_process(sandbox.service("user"), "user/1.0");
    wait(sandbox, |map| {
        map.is_some_and(|map| map["metadata"]["finalizers"][0] == HOLD)
    })
    .await?;
    Request::delete(PATH, "{}").send(&client).await?;
    let map = wait(sandbox, |map| map.is_some()).await?;
    assert!(
        map.is_some(),
        "deleted by a user, and gone before its result was read"
    );
    println!("deleted by a user, and still there");
    let done = r#"{"metadata":{"annotations":{"done":""}}}"#;
    Request::patch(PATH, PatchKind::Merge, done)
        .send(&client)
        .await?;
    wait(sandbox, |map| map.is_none()).await?;
    Ok(())
}

async fn wait(
    sandbox: &Sandbox,
    condition: fn(Option<&Value>) -> bool,
) -> Result<Option<Value>, WaitError> {
    let (gvr, soon) = (Gvr::CONFIGMAPS, Duration::from_secs(5));
    let found = sandbox
        .wait_until(&gvr, "default", "results", soon, condition)
        .await?;
    Ok(found.map(|map| (*map).clone()))
}
