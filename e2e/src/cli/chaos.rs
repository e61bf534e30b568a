//! `belayer-e2e chaos`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use belayer_core::duration;
use belayer_sandbox::Recording;
use clap::Args;

use super::run::{ProviderName, binary};
use crate::chaos::{self, Faults, Plan};
use crate::earlier;
use crate::harness::{Setting, on_new_cluster};
use crate::providers::{Provider, Sandbox};

/// In minutes. With fewer samples nothing could grow.
const SHORTEST: usize = 10;

/// Its record would keep every state of every object.
const SANDBOX: Sandbox = Sandbox {
    recording: Recording::Counts,
};

/// Each runs 110 pods.
const HOLLOW_NODES: usize = 2;

// No doc comment: clap would show it in place of the command's own.
#[derive(Debug, Args)]
struct Common {
    /// Decides the random choices, such as which pods are rejected; by default different in each run
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// The `belayer` binary; by default the one in the folder of this program
    #[arg(long, env = "BELAYER_BIN", value_name = "PATH")]
    belayer: Option<PathBuf>,
}

impl Common {
    /// The binary and the seed.
    fn resolve(self) -> Result<(PathBuf, u64)> {
        let seed = self.seed.unwrap_or_else(|| u64::from(std::process::id()));
        Ok((binary(self.belayer.as_deref())?, seed))
    }
}

/// Kill and interrupt Belayer and a real control plane while users work
///
/// Starts a control plane with two replicas of Belayer. Users delete pods, workflows and PVCs, and pods are rejected,
/// while replicas, kube-apiserver, etcd, kube-scheduler and kubelets are killed, frozen or cut off. Exit codes: 0 if
/// nothing got stuck, was lost or ran twice, 1 if not, 2 for an invalid command.
#[derive(Debug, Args)]
pub(super) struct Chaos {
    /// How many faults
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = super::count)]
    faults: usize,

    /// The time between the recovery from a fault and the next one
    #[arg(long, default_value = "3s", value_parser = duration::parse, value_name = "DURATION")]
    pause: Duration,

    /// Pods per second, of which 30 % are rejected
    #[arg(long, default_value_t = 1.0, value_name = "N")]
    rate: f64,

    #[command(flatten)]
    common: Common,
}

impl Chaos {
    pub(super) async fn execute(self) -> Result<ExitCode> {
        let (belayer, seed) = self.common.resolve()?;
        let Some(provider) = ProviderName::Local.with_hollow_nodes(&belayer, HOLLOW_NODES)? else {
            return Ok(ExitCode::SUCCESS);
        };
        let plan = Plan {
            faults: Faults::Every(self.faults),
            pause: self.pause,
            users: 2,
            rate: self.rate,
            rejected: 0.3,
            arguments: &[],
            other: None,
            seed,
        };
        execute(&*provider, &plan, belayer).await
    }
}

/// Run Belayer for hours, kill the leader every minute of the first half, and check that nothing grows
///
/// Starts the embedded API server with two replicas of Belayer. Users delete pods, workflows and PVCs, and pods that
/// request re-creation are created, of which 10 % are rejected. In the second half the replicas run on. Once a minute
/// their resident memory and file descriptors are measured. Exit codes: 0 if nothing grew, got stuck, was lost or ran
/// twice, 1 if not, 2 for an invalid command.
#[derive(Debug, Args)]
pub(super) struct Soak {
    /// How many minutes, at least 10; the 15 s after each kill, in which no replica leads, come on top
    #[arg(long, default_value_t = 120, value_name = "N", value_parser = super::count)]
    minutes: usize,

    /// Pods per second that request re-creation
    #[arg(long, default_value_t = 50.0, value_name = "N")]
    rate: f64,

    /// Users of each kind
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = super::count)]
    users: usize,

    #[command(flatten)]
    common: Common,
}

impl Soak {
    pub(super) async fn execute(self) -> Result<ExitCode> {
        let (belayer, seed) = self.common.resolve()?;
        ensure!(
            self.minutes >= SHORTEST,
            "--minutes {} is too short: growth shows after {SHORTEST} minutes or more",
            self.minutes
        );
        let plan = Plan {
            faults: Faults::Soak(self.minutes / 2),
            pause: Duration::from_secs(60),
            users: self.users,
            rate: self.rate,
            rejected: 0.1,
            // With the defaults, 100 requests per second, its work would wait.
            arguments: &[
                "--log-level=info",
                "--kube-api-qps=1000",
                "--kube-api-burst=2000",
            ],
            other: None,
            seed,
        };
        execute(&SANDBOX, &plan, belayer).await
    }
}

/// Run this build of Belayer and that of a commit on one Lease, and check that nothing gets stuck or lost
///
/// Starts the embedded API server with a replica of each build, and kills the leader again and again. Users delete pods,
/// workflows and PVCs, and pods are rejected and re-created, so that each build continues the records of the other. Exit
/// codes: 0 if nothing got stuck, was lost or ran twice, 1 if not, 2 for an invalid command.
#[derive(Debug, Args)]
pub(super) struct Skew {
    /// A commit or tag of this repository. Its Belayer is built once per machine, in some minutes
    #[arg(value_name = "COMMIT")]
    commit: String,

    /// How often the leader is killed
    #[arg(long, default_value_t = 30, value_name = "N", value_parser = super::count)]
    kills: usize,

    /// Pods per second that request re-creation, of which 30 % are rejected
    #[arg(long, default_value_t = 5.0, value_name = "N")]
    rate: f64,

    #[command(flatten)]
    common: Common,
}

impl Skew {
    pub(super) async fn execute(self) -> Result<ExitCode> {
        let (belayer, seed) = self.common.resolve()?;
        let other = earlier::find_or_build(&earlier::commit(&self.commit)?).await?;
        let plan = Plan {
            faults: Faults::LeaderKilled(self.kills),
            pause: Duration::from_secs(3),
            users: 4,
            rate: self.rate,
            rejected: 0.3,
            arguments: &[],
            other: Some(other),
            seed,
        };
        execute(&SANDBOX, &plan, belayer).await
    }
}

async fn execute(provider: &dyn Provider, plan: &Plan, belayer: PathBuf) -> Result<ExitCode> {
    let setting = Setting {
        belayer,
        quiet: Duration::ZERO,
        large: 0,
    };
    let report = on_new_cluster(provider, "chaos", setting, async |cluster| {
        chaos::run(&cluster, plan).await
    })
    .await?;
    anstream::println!("seed {}\n{report}", plan.seed);
    Ok(super::exit(report.is_good()))
}
