//! Kills and interruptions of Belayer and of its control plane while users work: nothing gets stuck or lost, nothing
//! runs twice, and finalizers of others stay.
//!
//! The judgement is made from what users see. Nothing that Belayer reports is read, except which replica leads.

mod disruptor;
mod fault;
mod replicas;
mod report;
mod users;

use std::time::Duration;

use anyhow::Result;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::disruptor::Disruptor;
use self::replicas::Replicas;
use self::users::{Task, User};
use crate::control_plane::STEP_IMAGE;
use crate::harness::Cluster;
use crate::load::{self, Keep, Rejector};

pub(crate) use self::report::Report;

/// Users of each kind.
const USERS: usize = 2;

/// What a run does.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// How many faults.
    pub(crate) faults: usize,
    /// The time from the recovery after a fault to the next one.
    pub(crate) pause: Duration,
    /// Pods per second, of which 30 % are rejected.
    pub(crate) rate: f64,
    /// Decides which faults occur, and which pods are rejected.
    pub(crate) seed: u64,
}

impl Plan {
    fn load(&self, cluster: &Cluster) -> load::Plan {
        load::Plan {
            pods: 1,
            rate: self.rate,
            at_once: None,
            namespaces: vec![cluster.namespace().to_owned()],
            rejected: 0.3,
            rejector: Rejector::Status,
            kill_leader: Some(self.pause),
            disruptions: Some(self.faults),
            max_retries: 3,
            image: STEP_IMAGE.to_owned(),
            seed: self.seed,
            patience: Duration::from_secs(300),
            settle: Duration::from_secs(10),
        }
    }
}

/// Starts Belayer on a cluster, and runs the plan. Removes nothing.
///
/// # Errors
/// When a fault cannot be caused, or the cluster does not recover from one.
pub(crate) async fn run(cluster: &Cluster, plan: &Plan) -> Result<Report> {
    let replicas = Replicas::start(cluster).await?;
    let mut disruptor = Disruptor::new(cluster, replicas, plan.seed);
    let (stop, stopped) = watch::channel(false);
    let mut users = JoinSet::new();
    for task in Task::ALL {
        for number in 0..USERS {
            let user = User::new(cluster, task, number, plan.seed);
            users.spawn(user.work_until(stopped.clone()));
        }
    }
    let pods = load::run(
        cluster.client(),
        &plan.load(cluster),
        &mut disruptor,
        Keep::All,
    )
    .await;
    // Users finish what they have begun, also if the run has failed.
    stop.send_replace(true);
    let users = tokio::select! {
        users = users.join_all() => users,
        failed = disruptor.keep_running() => return Err(failed),
    };
    let (recoveries, replicas) = disruptor.finish();
    let (ends, problems) = replicas.stop().await;
    Ok(Report::of(pods?, recoveries, users, ends, problems))
}
