//! The limit that nobody can beat: the same PATCHes, sent in parallel by a program that knows all
//! of them in advance and decides nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use kube::Client;
use serde_json::json;

use belayer_core::http::{METADATA_ONLY, PatchKind, Request};
use belayer_core::object::{ObjectKey, Resource};

/// One release, ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Release {
    path: String,
    body: String,
}

impl Release {
    /// The patch that leaves `finalizers` on an object, as Belayer would send it.
    pub(crate) fn new(
        resource: &Resource,
        key: &ObjectKey,
        uid: &str,
        resource_version: &str,
        finalizers: &[&str],
    ) -> Self {
        let body = json!({ "metadata": {
            "uid": uid, "resourceVersion": resource_version, "finalizers": finalizers,
        } });
        Self {
            path: resource.object_path(key),
            body: body.to_string(),
        }
    }

    /// Sends it. How long the answer took.
    ///
    /// # Errors
    /// When the server refuses.
    pub(crate) async fn send(&self, client: &Client) -> Result<Duration> {
        let request = Request::patch(self.path.clone(), PatchKind::Merge, self.body.clone())
            .accept(METADATA_ONLY);
        let started = Instant::now();
        request.send(client).await?;
        Ok(started.elapsed())
    }
}

/// Sends all of them, so many at a time. How long it took.
///
/// # Errors
/// When the server refuses one.
pub(crate) async fn send_all(
    client: &Client,
    releases: &[Release],
    parallel: usize,
) -> Result<Duration> {
    let started = Instant::now();
    let next = AtomicUsize::new(0);
    let sender = || async {
        while let Some(release) = releases.get(next.fetch_add(1, Ordering::Relaxed)) {
            release.send(client).await?;
        }
        anyhow::Ok(())
    };
    futures::future::try_join_all((0..parallel).map(|_| sender())).await?;
    Ok(started.elapsed())
}
