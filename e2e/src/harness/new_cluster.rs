//! A cluster for steps that are no scenario.

use std::future::Future;

use anyhow::Result;

use super::cluster::{Cluster, Setting, Shared};
use crate::providers::Provider;

/// Runs steps on a new cluster, outside of a scenario. Nothing is cleaned up, as the cluster ends with the steps.
/// If they fail, the logs are kept.
pub async fn on_new_cluster<T, F>(
    provider: &dyn Provider,
    name: &str,
    setting: Setting,
    steps: impl FnOnce(Cluster) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let files = tempfile::Builder::new().prefix("belayer-e2e-").tempdir()?;
    let backend = provider.start().await?;
    let dir = files.path().to_owned();
    let cluster = Cluster::new(backend, setting, Shared::None, name, dir).await?;
    let done = steps(cluster).await;
    if done.is_err() {
        anstream::eprintln!("logs: {}", files.keep().display());
    }
    done
}
