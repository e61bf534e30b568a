//! Runs kube-rs' reflector on the pods of all namespaces, says "synced" once its first list is
//! complete, and goes on watching until it is killed.

use std::pin::pin;

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, Config};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let argument = std::env::args().nth(1).unwrap_or_default();
    let path = argument
        .strip_prefix("--kubeconfig=")
        .context("usage: reflector --kubeconfig=FILE")?;
    let read = Kubeconfig::read_from(path)?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    let pods: Api<Pod> = Api::all(Client::try_from(config)?);
    let (reader, writer) = reflector::store();
    // Streaming lists, as Belayer and client-go ask for them.
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
