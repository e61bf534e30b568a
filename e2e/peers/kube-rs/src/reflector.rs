//! Keeps all objects of a kind, and prints "synced" once the first list is complete.

use std::fmt::Debug;
use std::hash::Hash;
use std::pin::pin;

use anyhow::bail;
use futures::StreamExt as _;
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

pub(crate) async fn pods(client: Client) -> anyhow::Result<()> {
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::all(client);
    keep(pods, ()).await
}

/// Workflows with all their fields.
pub(crate) async fn workflows(client: Client) -> anyhow::Result<()> {
    let kind = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Workflow");
    let kind = ApiResource::from_gvk(&kind);
    let workflows: Api<kube::api::DynamicObject> = Api::all_with(client, &kind);
    keep(workflows, kind).await
}

async fn keep<K>(objects: Api<K>, kind: K::DynamicType) -> anyhow::Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Eq + Hash,
{
    let writer = reflector::store::Writer::new(kind);
    let reader = writer.as_reader();
    // Streaming lists, as Belayer and client-go request them.
    let events = watcher(objects, watcher::Config::default().streaming_lists());
    let watching = reflector(writer, events).default_backoff();
    let mut watching = pin!(watching);
    let mut told = false;
    while let Some(event) = watching.next().await {
        if let Ok(watcher::Event::InitDone) = event
            && !told
        {
            told = true;
            println!("synced: {} objects", reader.state().len());
        }
    }
    bail!("the watch ended")
}
