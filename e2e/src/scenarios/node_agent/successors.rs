//! After a wipe: late updates of the old pod, and further pods of its name.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::site::{Busy, Site, Timeout};
use crate::harness::{Belayer, Cluster, SOON, eventually, throughout};

/// A finalizer that keeps a terminating pod in the API.
const FOREIGN: &str = "e2e.belayer.dev/keep";

/// An agent whose handler creates a directory for each pod and logs the UID.
async fn preparing(site: &Site) -> Result<Belayer> {
    let config = format!(
        "nodeAgent:\n  roots: [{root}]\n  handlers:\n  - name: prepare\n    command: [/bin/sh, -c, \
         'mkdir -p \"$POD_PATHS\" && touch \"$POD_PATHS/prepared\" && echo \"$POD_UID\" >> {notes}']\n",
        root = site.root().display(),
        notes = site.sibling("notes").display(),
    );
    let options = site.agent_options().config(&config);
    let cluster = site.cluster();
    cluster.start_belayer_with(&options).await
}

fn times(site: &Site, uid: &str) -> usize {
    let notes = fs::read_to_string(site.sibling("notes")).unwrap_or_default();
    notes.lines().filter(|line| *line == uid).count()
}

async fn is_prepared(site: &Site, uid: &str) -> Result<()> {
    eventually("its directory is prepared", SOON, async || {
        ensure!(
            site.dir(uid).join("prepared").exists(),
            "it is not prepared"
        );
        ensure!(times(site, uid) == 1, "{} times", times(site, uid));
        Ok(())
    })
    .await
}

pub(super) async fn late_update(cluster: Cluster) -> Result<()> {
    let site = Site::new(&cluster, "one").await?;
    site.allow_handlers().await?;
    let belayer = site.controllers(Timeout::Never).await?;
    let agent = preparing(&site).await?;
    let uid = site.pod("web").await?;
    is_prepared(&site, &uid).await?;
    let patched = async |patch: Value| -> Result<()> {
        let patch = Patch::Merge(patch);
        let pods = cluster.pods();
        pods.patch("web", &PatchParams::default(), &patch).await?;
        Ok(())
    };
    let pod = cluster.pods().get("web").await?;
    let mut all: Vec<String> = pod.finalizers().to_vec();
    all.push(FOREIGN.into());
    patched(json!({ "metadata": { "finalizers": all } })).await?;
    site.reject("web").await?;
    site.is_wiped(&uid).await?;
    eventually("its deletion has begun", SOON, async || {
        let pod = cluster.pods().get("web").await?;
        ensure!(
            pod.metadata.deletion_timestamp.is_some(),
            "it is not being deleted"
        );
        Ok(())
    })
    .await?;
    // Late updates of the old pod, as from a disconnected kubelet that reports it as running.
    for round in 0..5 {
        site.report(
            "web",
            json!({ "phase": "Pending", "message": round.to_string() }),
        )
        .await?;
        patched(json!({ "metadata": { "annotations": { "late": round.to_string() } } })).await?;
    }
    throughout(
        "nothing is created again",
        Duration::from_secs(4),
        async || {
            ensure!(!site.dir(&uid).exists(), "its directory was created again");
            ensure!(times(&site, &uid) == 1, "its handler ran again");
            Ok(())
        },
    )
    .await?;
    site.reject("web").await?;
    let pod = cluster.pods().get("web").await?;
    let kept: Vec<&String> = pod.finalizers().iter().filter(|f| *f != FOREIGN).collect();
    patched(json!({ "metadata": { "finalizers": kept } })).await?;
    let second = site.successor("web", &uid).await?;
    let second = second.uid().context("no uid")?;
    site.bind("web").await?;
    is_prepared(&site, &second).await?;
    eventually("the agent has dropped the old pod", SOON, async || {
        let desired = agent
            .metric("belayer_workers_desired", &[("controller", "node-agent")])
            .await?;
        ensure!(
            (desired - 1.0).abs() < f64::EPSILON,
            "the agent has {desired} pods"
        );
        Ok(())
    })
    .await?;
    agent.stop().await?;
    belayer.stop().await
}

pub(super) async fn restarted(cluster: Cluster) -> Result<()> {
    let site = Site::new(&cluster, "one").await?;
    site.allow_handlers().await?;
    let belayer = site.controllers(Timeout::Never).await?;
    let agent = preparing(&site).await?;
    let running = site.pod("running").await?;
    let pending = site.pod("pending").await?;
    is_prepared(&site, &running).await?;
    is_prepared(&site, &pending).await?;
    let main = json!({
        "name": "main", "image": "busybox", "imageID": "", "ready": true, "restartCount": 0, "started": true,
        "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } },
    });
    site.report(
        "running",
        json!({ "phase": "Running", "containerStatuses": [main] }),
    )
    .await?;
    agent.stop().await?;
    let agent = preparing(&site).await?;
    eventually("its handler runs again", SOON, async || {
        ensure!(times(&site, &pending) == 2, "{}", times(&site, &pending));
        Ok(())
    })
    .await?;
    throughout("the other's does not", Duration::from_secs(2), async || {
        ensure!(times(&site, &running) == 1, "its handler ran again");
        Ok(())
    })
    .await?;
    agent.stop().await?;
    belayer.stop().await
}

pub(super) async fn same_name(cluster: Cluster) -> Result<()> {
    let site = Site::new(&cluster, "one").await?;
    site.allow_handlers().await?;
    let belayer = site.controllers(Timeout::Proceed(3)).await?;
    let agent = preparing(&site).await?;
    let first = site.pod("web").await?;
    is_prepared(&site, &first).await?;
    let busy = Busy::mount(&site.dir(&first).join("mnt"))?;
    site.reject("web").await?;
    let second = site.successor("web", &first).await?;
    let second = second.uid().context("no uid")?;
    // Its affinity keeps schedulers from doing this; a manual binding is not checked.
    site.bind("web").await?;
    throughout(
        "the new pod's handler waits",
        Duration::from_secs(5),
        async || {
            ensure!(times(&site, &second) == 0, "the handler ran");
            ensure!(busy.is_there(), "the mount was unmounted by force");
            Ok(())
        },
    )
    .await?;
    // Another rejection, so that there are three pods of one name.
    busy.release();
    is_prepared(&site, &second).await?;
    ensure!(
        !site.dir(&first).exists(),
        "the older pod's files still exist"
    );
    site.reject("web").await?;
    let third = site.successor("web", &second).await?;
    let third = third.uid().context("no uid")?;
    site.bind("web").await?;
    is_prepared(&site, &third).await?;
    // A handler starts only after the wipe of earlier pods of its name, which may take longer than the re-creation waits.
    ensure!(
        !site.dir(&second).exists(),
        "the second pod's files still exist"
    );
    agent.stop().await?;
    belayer.stop().await
}
