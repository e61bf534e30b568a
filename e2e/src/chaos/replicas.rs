//! Two replicas of Belayer. As in a Deployment, one that ends is started again.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;

use super::Plan;
use super::growth::Growth;
use crate::harness::{Belayer, BelayerOptions, Cluster, Proxy, eventually};
use crate::load;

/// Until all replicas work after a fault.
const RECOVERY: Duration = Duration::from_secs(300);

/// Each connects to the API server through a proxy.
pub(super) struct Replicas {
    cluster: Cluster,
    all: Vec<Replica>,
    /// How often a replica has ended by itself, for example because it had lost the Lease.
    ends: usize,
}

pub(super) struct Replica {
    options: BelayerOptions,
    belayer: Belayer,
    pub(super) wire: Proxy,
}

impl Replicas {
    pub(super) async fn start(cluster: &Cluster, plan: &Plan) -> Result<Self> {
        let server = cluster.server_address()?;
        let mut all = Vec::new();
        for (name, binary) in [("a", None), ("b", plan.other.as_ref())] {
            let wire = Proxy::start(server).await?;
            let mut options = BelayerOptions::holding_pvcs()
                .config(&format!("{}  recordTtlSeconds: 60\n", load::UNLIMITED))
                .through(wire.address())
                .replica(name);
            for argument in plan.arguments {
                options = options.argument(argument);
            }
            if let Some(binary) = binary {
                options = options.binary(binary);
            }
            let belayer = cluster.start_belayer_with(&options).await?;
            all.push(Replica {
                options,
                belayer,
                wire,
            });
        }
        let cluster = cluster.clone();
        Ok(Self {
            cluster,
            all,
            ends: 0,
        })
    }

    /// Waits until both are ready and one leads. Starts those again that have ended.
    pub(super) async fn recovered(&mut self) -> Result<()> {
        let give_up = Instant::now() + RECOVERY;
        loop {
            self.start_ended()?;
            let Err(state) = self.works().await else {
                return Ok(());
            };
            if Instant::now() > give_up {
                bail!("Belayer does not work {RECOVERY:?} after the last fault: {state:#}");
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn start_ended(&mut self) -> Result<()> {
        for replica in &mut self.all {
            if replica.belayer.check_running().is_err() {
                self.ends += 1;
                replica.belayer = self.cluster.spawn_belayer(&replica.options)?;
            }
        }
        Ok(())
    }

    async fn works(&self) -> Result<()> {
        for replica in &self.all {
            replica.belayer.probe("/readyz").await?;
        }
        self.leader_now().await.map(drop)
    }

    async fn leader_now(&self) -> Result<usize> {
        for (at, replica) in self.all.iter().enumerate() {
            if replica.belayer.leads().await.unwrap_or(false) {
                return Ok(at);
            }
        }
        bail!("no replica leads")
    }

    /// The replica that leads, and the other one.
    pub(super) async fn leader_and_standby(&self) -> Result<(usize, usize)> {
        let leader = eventually("a replica leads", RECOVERY, async || {
            self.leader_now().await
        })
        .await?;
        Ok((leader, 1 - leader))
    }

    pub(super) fn get(&self, at: usize) -> Result<&Replica> {
        self.all.get(at).context("no such replica")
    }

    /// Kills a replica without warning, and starts it again.
    pub(super) async fn kill(&mut self, at: usize) -> Result<()> {
        let replica = self.all.get_mut(at).context("no such replica")?;
        replica.belayer.signal(Signal::KILL)?;
        replica.belayer.ended(Duration::from_secs(10)).await?;
        replica.belayer = self.cluster.spawn_belayer(&replica.options)?;
        Ok(())
    }

    /// Measures the leader, or both replicas once they run on.
    pub(super) async fn measure(
        &self,
        both: bool,
        at: Duration,
        growth: &mut Growth,
    ) -> Result<()> {
        let (leader, standby) = self.leader_and_standby().await?;
        if both {
            growth.add(
                "the leader, running on",
                at,
                self.get(leader)?.belayer.usage()?,
            );
            growth.add(
                "the standby, running on",
                at,
                self.get(standby)?.belayer.usage()?,
            );
        } else {
            growth.add(
                "each leader, before it is killed",
                at,
                self.get(leader)?.belayer.usage()?,
            );
        }
        Ok(())
    }

    /// Stops both. Returns how often one had ended by itself, and what went wrong.
    pub(super) async fn stop(self) -> (usize, Vec<String>) {
        let mut problems = Vec::new();
        for replica in self.all {
            // This also looks for panics in the log, which contains those of all processes before it.
            if let Err(error) = replica.belayer.stop().await {
                problems.push(format!("{error:#}"));
            }
        }
        (self.ends, problems)
    }
}

impl Replica {
    /// Stops the process with SIGSTOP for this time, then continues it.
    pub(super) async fn freeze(&self, time: Duration) -> Result<()> {
        self.belayer.signal(Signal::STOP)?;
        tokio::time::sleep(time).await;
        self.belayer.signal(Signal::CONT)
    }
}
