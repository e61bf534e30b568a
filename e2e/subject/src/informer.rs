//! Belayer's informer of pods alone.

use std::path::Path;

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio_util::sync::CancellationToken;

use belayer_core::client;
use belayer_core::informer::Informer;

use super::memory;

/// The line printed once the first list is complete.
pub const SYNCED: &str = "synced";

/// Watches the pods of a cluster until it is killed; prints a line when the first list is complete.
pub async fn watch(kubeconfig: &Path) -> Result<()> {
    let read = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    let builder = Informer::builder(
        client::connect(config, belayer_holds::names::USER_AGENT)?,
        memory::resource(),
        memory::decoders(),
    );
    let (informer, store) = memory::pods(builder).build();
    let running = tokio::spawn(informer.run(CancellationToken::new()));
    store.synced().await.context("the informer ended")?;
    anstream::println!("{SYNCED}: {} pods", store.len());
    running.await.context("the informer ended")
}
