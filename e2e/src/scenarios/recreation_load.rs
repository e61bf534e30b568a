//! Re-creation under load: each pod runs exactly once, whatever happens to its leader.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::control_plane::STEP_IMAGE;
use crate::harness::{Cluster, Load, Scenario};
use crate::load::{self, Disruptor, Plan, Processes, Rejector};
use crate::providers::Capability::{Kubelet, PvcController};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "recreation-load-200",
            "R13: 200 pods, 30 % rejected, with kills of the leader: none is lost, none starts twice",
            two_hundred,
        )
        .needs([Kubelet])
        .with_load(Load::Heavy),
        Scenario::alone(
            "recreation-load-10000",
            "R13: the same with 10,000 pods",
            ten_thousand,
        )
        .needs([Kubelet, PvcController])
        .within(Duration::from_secs(3_600))
        .with_load(Load::Heavy)
        .nightly(),
    ]
}

/// The pods in the scenario's namespace, 30 % of them rejected.
pub(super) fn plan(cluster: &Cluster, pods: usize, rejector: Rejector) -> Plan {
    Plan {
        pods,
        rate: 15.0,
        at_once: None,
        namespaces: vec![cluster.namespace().to_owned()],
        rejected: 0.3,
        rejector,
        kill_leader: Some(Duration::from_secs(12)),
        disruptions: None,
        max_retries: 3,
        image: STEP_IMAGE.to_owned(),
        seed: 1,
        patience: Duration::from_secs(120),
        settle: Duration::from_secs(3),
    }
}

/// Runs the plan; the counts become a note of the scenario.
pub(super) async fn shown(
    cluster: &Cluster,
    plan: &Plan,
    leaders: &mut (dyn Disruptor + 'static),
) -> Result<()> {
    let summary = load::run(cluster.client(), plan, leaders, load::Keep::Nothing).await?;
    ensure!(summary.is_good(), "{summary}");
    // A run in which few pods are rejected, or no leader is killed, shows little.
    ensure!(summary.is_telling(plan), "{summary}");
    cluster.note(summary.line());
    Ok(())
}

async fn two_hundred(cluster: Cluster) -> Result<()> {
    let plan = Plan {
        // The 200 pods alone may have their fate before the second kill.
        disruptions: Some(2),
        ..plan(&cluster, 200, Rejector::Status)
    };
    of_processes(&cluster, &plan).await
}

async fn ten_thousand(cluster: Cluster) -> Result<()> {
    let plan = Plan {
        kill_leader: Some(Duration::from_secs(60)),
        ..plan(&cluster, 10_000, Rejector::Status)
    };
    of_processes(&cluster, &plan).await
}

async fn of_processes(cluster: &Cluster, plan: &Plan) -> Result<()> {
    let mut leaders = Processes::start(cluster, load::options(None)).await?;
    shown(cluster, plan, &mut leaders).await?;
    leaders.stop().await
}
