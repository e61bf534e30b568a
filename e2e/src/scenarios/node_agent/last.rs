//! The list of wipes is durable: it outlives the record, and restarts of the agent (rules R6, R7 and T6).

use anyhow::{Result, ensure};

use super::site::{Busy, Site, wiped_message};
use crate::harness::{Belayer, Cluster, SOON, eventually, finalizers};

async fn pending(agent: &Belayer, expected: f64) -> Result<()> {
    eventually("belayer_wipes_pending is right", SOON, async || {
        let pending = agent.metric("belayer_wipes_pending", &[]).await?;
        ensure!((pending - expected).abs() < f64::EPSILON, "{pending}");
        Ok(())
    })
    .await
}

pub(super) async fn rejection(cluster: Cluster) -> Result<()> {
    let site = Site::new(&cluster, "one").await?;
    let config = "podRecreation:\n  maxRetries: 0\n  recordTtlSeconds: 30\n";
    let belayer = site.controllers_with(config).await?;
    let agent = site.agent().await?;
    let uid = site.pod("web").await?;
    site.leave_state(&uid)?;
    let busy = Busy::mount(&site.dir(&uid).join("mnt"))?;
    site.reject("web").await?;
    site.in_phase("Exhausted").await?;
    eventually("its hold leaves at once", SOON, async || {
        let pod = cluster.pods().get("web").await?;
        ensure!(finalizers(&pod).is_empty(), "{:?}", finalizers(&pod));
        Ok(())
    })
    .await?;
    eventually("the record has the report", SOON, async || {
        let status = site.record().await?.data["status"].clone();
        let message = wiped_message(&status);
        ensure!(message.contains("/mnt is a mount in use"), "{status}");
        Ok(())
    })
    .await?;
    pending(&agent, 1.0).await?;
    eventually("the record is deleted after its TTL", SOON, async || {
        let all = site.records().list(&Default::default()).await?;
        ensure!(all.items.is_empty(), "it exists");
        Ok(())
    })
    .await?;
    agent.kill().await?;
    cluster.pods().delete("web", &Default::default()).await?;
    eventually("pod-recreation reports that it waits", SOON, async || {
        let oldest = belayer.metric("belayer_oldest_wipe_seconds", &[]).await?;
        ensure!(oldest > 0.0, "{oldest}");
        Ok(())
    })
    .await?;
    let agent = site.agent().await?;
    pending(&agent, 1.0).await?;
    ensure!(site.listed().await? == [uid.clone()], "the entry is lost");
    ensure!(busy.is_there(), "the mount was unmounted by force");
    busy.release();
    site.is_wiped(&uid).await?;
    site.is_forgotten(&uid).await?;
    pending(&agent, 0.0).await?;
    agent.stop().await?;
    belayer.stop().await
}
