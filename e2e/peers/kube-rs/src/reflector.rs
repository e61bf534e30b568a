//! Keeps the pods of all namespaces and prints "synced" once the first list is complete.

use std::pin::pin;

use anyhow::bail;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client};

pub(crate) async fn run(client: Client) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::all(client);
    let (reader, writer) = reflector::store();
    // Streaming lists, as Belayer and client-go request them.
    let events = watcher(pods, watcher::Config::default().streaming_lists());
    let watching = reflector(writer, events).default_backoff();
    let mut watching = pin!(watching);
    let mut told = false;
    while let Some(event) = watching.next().await {
        if let Ok(watcher::Event::InitDone) = event
            && !told
        {
            told = true;
            println!("synced: {} pods", reader.state().len());
        }
    }
    bail!("the watch ended")
}
