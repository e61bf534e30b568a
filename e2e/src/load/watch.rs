//! A watch of the run's pods that survives its own interruptions.

use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use tokio::sync::mpsc;

use super::judge::Seen;
use crate::kinds::{self, Objects};

const AFTER_ERROR: Duration = Duration::from_millis(500);

/// What the watch shows.
#[derive(Debug)]
pub(super) enum Observed {
    /// A pod was added or has changed.
    Seen(Seen),
    /// A pod was removed.
    Removed(Seen),
    /// A new list was necessary, so changes may be missing.
    Listed(Vec<Seen>),
}

/// Sends what happens to the selected pods until the receiver is dropped.
pub(super) async fn follow(
    client: Client,
    selector: String,
    sender: mpsc::UnboundedSender<Observed>,
) {
    let pods = kinds::all_pods(&client);
    let mut version = String::new();
    while !sender.is_closed() {
        let followed = if version.is_empty() {
            list(&pods, &selector, &mut version, &sender).await
        } else {
            changes(&pods, &selector, &mut version, &sender).await
        };
        if followed.is_err() {
            tokio::time::sleep(AFTER_ERROR).await;
        }
    }
}

async fn list(
    pods: &Objects,
    selector: &str,
    version: &mut String,
    sender: &mpsc::UnboundedSender<Observed>,
) -> Result<()> {
    let listed = pods.list(&ListParams::default().labels(selector)).await?;
    let seen = listed.items.iter().map(Seen::of).collect();
    sender.send(Observed::Listed(seen))?;
    *version = listed.metadata.resource_version.unwrap_or_default();
    Ok(())
}

/// Follows the changes after `version` until the watch ends.
async fn changes(
    pods: &Objects,
    selector: &str,
    version: &mut String,
    sender: &mpsc::UnboundedSender<Observed>,
) -> Result<()> {
    let params = WatchParams::default().labels(selector);
    let mut events = std::pin::pin!(pods.watch(&params, version).await?);
    while let Some(event) = events.next().await {
        let (pod, observed) = match event? {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                let seen = Seen::of(&pod);
                (pod, Observed::Seen(seen))
            }
            WatchEvent::Deleted(pod) => {
                let seen = Seen::of(&pod);
                (pod, Observed::Removed(seen))
            }
            WatchEvent::Bookmark(bookmark) => {
                *version = bookmark.metadata.resource_version;
                continue;
            }
            WatchEvent::Error(status) => {
                // The version is too old: a new list is necessary.
                if status.code == 410 {
                    version.clear();
                }
                bail!("the watch ended: {}", status.message);
            }
        };
        *version = pod.resource_version().unwrap_or_default();
        sender.send(observed)?;
    }
    Ok(())
}
