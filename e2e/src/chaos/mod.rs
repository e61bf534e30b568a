//! Kills and interruptions of Belayer and of its control plane while users work: nothing gets stuck or lost, nothing
//! runs twice, and finalizers of others stay.
//!
//! The judgement is made from what users see. Nothing that Belayer reports is read, except which replica leads.

mod disruptor;
mod fault;
mod growth;
mod replicas;
mod report;
mod users;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::ResourceExt as _;
use kube::api::ListParams;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::disruptor::Disruptor;
use self::replicas::Replicas;
use self::users::{Task, User};
use crate::control_plane::STEP_IMAGE;
use crate::harness::Cluster;
use crate::kinds;
use crate::load::{self, Keep, Rejector};

pub(crate) use self::report::Report;

/// The faults of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Faults {
    /// So many of every kind, in an order that the seed decides. They need a real control plane.
    Every(usize),
    /// The leader is killed so many times.
    LeaderKilled(usize),
    /// The same; after that the replicas run on, for as many pauses. Their growth is measured.
    Soak(usize),
}

/// What a run does.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// What happens to Belayer and the control plane.
    pub(crate) faults: Faults,
    /// The time from the recovery after a fault to the next one.
    pub(crate) pause: Duration,
    /// Users of each kind.
    pub(crate) users: usize,
    /// Pods per second that request re-creation.
    pub(crate) rate: f64,
    /// The share of these pods that is rejected, from 0 to 1.
    pub(crate) rejected: f64,
    /// Further arguments of Belayer.
    pub(crate) arguments: &'static [&'static str],
    /// The binary of the second replica, if it is another build.
    pub(crate) other: Option<PathBuf>,
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
            rejected: self.rejected,
            rejector: Rejector::Status,
            kill_leader: Some(self.pause),
            disruptions: Some(match self.faults {
                Faults::Every(faults) | Faults::LeaderKilled(faults) => faults,
                Faults::Soak(kills) => 2 * kills,
            }),
            max_retries: 3,
            image: STEP_IMAGE.to_owned(),
            seed: self.seed,
            patience: Duration::from_secs(300),
            settle: Duration::from_secs(10),
        }
    }
}

/// Starts Belayer on a cluster, and runs the plan. Removes nothing.
pub(crate) async fn run(cluster: &Cluster, plan: &Plan) -> Result<Report> {
    let replicas = Replicas::start(cluster, plan).await?;
    let mut disruptor = Disruptor::new(cluster, replicas, plan);
    let (stop, stopped) = watch::channel(false);
    let mut users = JoinSet::new();
    let nodes = kinds::nodes(cluster.client());
    let nodes = nodes.list(&ListParams::default()).await?.items;
    let node = nodes.first().context("the cluster has no node")?.name_any();
    for task in Task::ALL {
        for number in 0..plan.users {
            let user = User::new(cluster, &node, task, number, plan.seed);
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
    let (recoveries, growth, replicas) = disruptor.finish();
    let (ends, mut problems) = replicas.stop().await;
    problems.extend(growth.problems());
    let growth = matches!(plan.faults, Faults::Soak(_)).then_some(growth);
    Ok(Report::of(pods?, recoveries, growth, users, ends, problems))
}
