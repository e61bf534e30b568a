//! The lower bound: the same PATCHes, sent in parallel by a program that has all of them in advance
//! and decides nothing.

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::api::ListParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::json;

use belayer_core::http::{METADATA_ONLY_AS_PROTOBUF, PatchKind, Request};
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

    /// Sends it. Returns the response time.
    pub(crate) async fn send(&self, client: &Client) -> Result<Duration> {
        let request = Request::patch(self.path.clone(), PatchKind::Merge, self.body.clone())
            .accept(METADATA_ONLY_AS_PROTOBUF);
        let started = Instant::now();
        request.send(client).await?;
        Ok(started.elapsed())
    }
}

/// Polling interval of the list.
const POLL: Duration = Duration::from_millis(20);
/// Timeout of everything.
const DEADLINE: Duration = Duration::from_secs(900);

/// Sends all of them, this many in parallel. Returns the time until a list is empty, as for the
/// controllers.
pub(crate) async fn release_all<K>(
    client: &Client,
    api: &Api<K>,
    releases: &[Release],
    parallel: usize,
) -> Result<Duration>
where
    K: Clone + DeserializeOwned + Debug,
{
    let started = Instant::now();
    futures::try_join!(send_all(client, releases, parallel), until_gone(api))?;
    Ok(started.elapsed())
}

/// Waits until a list is empty. Polling costs the API server something, so all subjects are awaited
/// in this way. Fails if objects remain after a quarter of an hour.
pub(crate) async fn until_gone<K>(api: &Api<K>) -> Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    let started = Instant::now();
    let one = ListParams::default().limit(1);
    while !api.list_metadata(&one).await?.items.is_empty() {
        ensure!(
            started.elapsed() < DEADLINE,
            "objects remain after {DEADLINE:?}"
        );
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

async fn send_all(client: &Client, releases: &[Release], parallel: usize) -> Result<()> {
    let next = AtomicUsize::new(0);
    let sender = || async {
        while let Some(release) = releases.get(next.fetch_add(1, Ordering::Relaxed)) {
            release.send(client).await?;
        }
        anyhow::Ok(())
    };
    futures::future::try_join_all((0..parallel).map(|_| sender())).await?;
    Ok(())
}
