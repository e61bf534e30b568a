//! A load of pods of which a share is rejected: each has to run exactly once.
//!
//! The judgement is made from a watch of the pods. It does not depend on anything that Belayer reports.

mod clean_up;
mod judge;
mod leaders;
mod nodes;
mod plan;
mod requests;
mod run;
mod screen;
mod step;
mod summary;
mod watch;

use anyhow::Result;
use kube::Client;

use crate::harness::{BelayerOptions, Cluster, Installed};
use crate::providers::Capability;

pub(crate) use self::leaders::{Disruptor, Pods, Processes};
pub(crate) use self::plan::{Plan, Rejector};
pub(crate) use self::summary::Summary;

/// What remains of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Nothing.
    Nothing,
    /// Its pods and its nodes.
    All,
}

/// Runs the plan on a cluster with a running Belayer.
pub(crate) async fn run(
    client: &Client,
    plan: &Plan,
    leaders: &mut (dyn Disruptor + 'static),
    keep: Keep,
) -> Result<Summary> {
    clean_up::namespaces(client, plan).await?;
    let summary = run::run(client, plan, leaders).await;
    if keep == Keep::Nothing {
        let removed = clean_up::remove(client, plan).await;
        // The error of the run matters more.
        return summary.and_then(|summary| removed.map(|()| summary));
    }
    summary
}

/// Belayer without pauses and limits that would decide how long a run takes.
pub(crate) const UNLIMITED: &str = "\
podRecreation:
  backoff: {initial: 1s, factor: 1, jitter: 0}
  storm:
    perOwner: {perSecond: 1000, burst: 1000}
    perNamespace: {perSecond: 1000, burst: 1000}
    perNode: {perSecond: 1000, burst: 1000}
    cluster: {perSecond: 1000, burst: 1000}
    breaker: {rejections: 1000000, withinSeconds: 60, openSeconds: 30}
";

/// Starts Belayer on the cluster of a scenario, and runs the plan: on real nodes the shipped manifests, else two
/// processes with this configuration. Removes nothing.
/// Fails as [`run`] does, or when Belayer cannot be started or stopped.
pub(crate) async fn with_own_belayer(
    cluster: &Cluster,
    plan: &Plan,
    config: Option<&str>,
) -> Result<Summary> {
    let client = cluster.client();
    if cluster.can(Capability::RealNode) {
        let belayer = Installed::install(cluster).await?;
        return run(client, plan, &mut Pods::of(&belayer), Keep::All).await;
    }
    let mut leaders = Processes::start(cluster, options(config)).await?;
    let summary = run(client, plan, &mut leaders, Keep::All).await?;
    // After Ctrl-C the processes have ended, too.
    if summary.is_complete() {
        leaders.stop().await?;
    }
    Ok(summary)
}

/// The options of the processes, with this configuration or one without pauses and limits.
pub(crate) fn options(config: Option<&str>) -> BelayerOptions {
    BelayerOptions::default()
        .argument("--controllers=pod-recreation")
        .config(config.unwrap_or(UNLIMITED))
}
