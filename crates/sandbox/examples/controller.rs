//! An ordinary kube-rs controller, run against the sandbox. It uses only a client.
//!
//! Each ConfigMap with the label `copy: "true"` gets a Secret of the same name with the same data; a finalizer
//! deletes the Secret before the ConfigMap is removed.
//!
//! `cargo run --example controller`

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use belayer_sandbox::{Gvr, Sandbox};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};

const HOLD: &str = "example.dev/copy";
const SOON: Duration = Duration::from_secs(30);

struct Context {
    client: Client,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Finalizer(#[from] Box<kube::runtime::finalizer::Error<kube::Error>>),
}

async fn reconcile(map: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Error> {
    let namespace = map.namespace().unwrap_or_default();
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let done = finalizer(&maps, HOLD, map, |event| async {
        match event {
            Event::Apply(map) => copy(&secrets, &map).await,
            Event::Cleanup(map) => {
                match secrets
                    .delete(&map.name_any(), &DeleteParams::default())
                    .await
                {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {}
                    other => drop(other?),
                }
                Ok(Action::await_change())
            }
        }
    });
    Ok(done.await.map_err(Box::new)?)
}

async fn copy(secrets: &Api<Secret>, map: &ConfigMap) -> kube::Result<Action> {
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(map.name_any()),
            ..ObjectMeta::default()
        },
        string_data: map.data.clone(),
        ..Secret::default()
    };
    match secrets.create(&PostParams::default(), &secret).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let patch = Patch::Merge(&secret);
            let name = map.name_any();
            secrets
                .patch(&name, &PatchParams::default(), &patch)
                .await?;
        }
        other => drop(other?),
    }
    Ok(Action::await_change())
}

/// Runs until the future is dropped.
pub(crate) async fn run(client: Client) {
    let maps: Api<ConfigMap> = Api::all(client.clone());
    let copied = watcher::Config::default().labels("copy=true");
    Controller::new(maps, copied)
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            Arc::new(Context { client }),
        )
        .for_each(async |_| {})
        .await;
}

/// Exercises the controller and checks its results.
pub(crate) async fn story(sandbox: &Sandbox) -> anyhow::Result<()> {
    let controller = tokio::spawn(run(sandbox.client()));
    let maps: Api<ConfigMap> = Api::default_namespaced(sandbox.client());
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some("settings".into()),
            labels: Some(BTreeMap::from([("copy".into(), "true".into())])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("colour".into(), "blue".into())])),
        ..ConfigMap::default()
    };
    maps.create(&PostParams::default(), &map).await?;

    let held = |map: Option<&ConfigMap>| map.is_some_and(|map| map.finalizers() == [HOLD]);
    sandbox
        .wait_until_typed("default", "settings", SOON, held)
        .await?;
    let copied = |secret: Option<&serde_json::Value>| secret.is_some();
    sandbox
        .wait_until(&Gvr::SECRETS, "default", "settings", SOON, copied)
        .await?;

    maps.delete("settings", &DeleteParams::default()).await?;
    for gvr in [Gvr::SECRETS, Gvr::CONFIGMAPS] {
        sandbox
            .wait_until(&gvr, "default", "settings", SOON, |object| object.is_none())
            .await?;
    }
    controller.abort();
    Ok(())
}

#[allow(dead_code, reason = "a test runs the story without it")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let sandbox = Sandbox::default();
    story(&sandbox).await?;
    for write in sandbox.recorder().writes() {
        println!("{}", write.summary());
    }
    Ok(())
}
