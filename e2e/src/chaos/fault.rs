//! What can happen to Belayer and its control plane.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result};
use belayer_sandbox::simulated::kubelet::fingerprint;

use super::replicas::Replicas;
use crate::harness::Cluster;

/// Longer than a Lease lasts.
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_secs(3);

/// The kubelets of the cluster.
const KUBELETS: [&str; 2] = ["hollow-0", "hollow-1"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    LeaderKilled,
    StandbyKilled,
    BothKilled,
    LeaderFrozen,
    LeaderCutOff,
    LeaderUnanswered,
    StandbyCutOff,
    ApiServerKilled,
    ApiServerDown,
    EtcdKilled,
    EtcdDown,
    EtcdCompacted,
    SchedulerKilled,
    KubeletsKilled,
    AllKilled,
}

impl Fault {
    pub(super) const ALL: [Self; 15] = [
        Self::LeaderKilled,
        Self::StandbyKilled,
        Self::BothKilled,
        Self::LeaderFrozen,
        Self::LeaderCutOff,
        Self::LeaderUnanswered,
        Self::StandbyCutOff,
        Self::ApiServerKilled,
        Self::ApiServerDown,
        Self::EtcdKilled,
        Self::EtcdDown,
        Self::EtcdCompacted,
        Self::SchedulerKilled,
        Self::KubeletsKilled,
        Self::AllKilled,
    ];

    /// The fault of this number: each round has every fault, in an order that the seed decides.
    pub(super) fn of(seed: u64, number: usize) -> Self {
        let round = number / Self::ALL.len();
        let mut order = Self::ALL;
        order.sort_by_key(|fault| fingerprint(&format!("{seed}/{round}/{fault}")));
        order
            .get(number % Self::ALL.len())
            .copied()
            .unwrap_or(Self::LeaderKilled)
    }

    /// Causes it, and ends it if it lasts.
    pub(super) async fn cause(self, cluster: &Cluster, replicas: &mut Replicas) -> Result<()> {
        let (leader, standby) = replicas.leader_and_standby().await?;
        let backend = cluster.backend();
        match self {
            Self::LeaderKilled => replicas.kill(leader).await,
            Self::StandbyKilled => replicas.kill(standby).await,
            Self::BothKilled => {
                replicas.kill(standby).await?;
                replicas.kill(leader).await
            }
            Self::LeaderFrozen => replicas.get(leader)?.freeze(LONG).await,
            Self::LeaderCutOff => cut(replicas, leader, LONG).await,
            Self::StandbyCutOff => cut(replicas, standby, SHORT).await,
            Self::LeaderUnanswered => {
                let wire = &replicas.get(leader)?.wire;
                wire.silence();
                tokio::time::sleep(LONG).await;
                wire.restore();
                Ok(())
            }
            Self::ApiServerKilled => backend.restart("kube-apiserver", Duration::ZERO).await,
            Self::ApiServerDown => backend.restart("kube-apiserver", LONG).await,
            Self::EtcdKilled => backend.restart("etcd", Duration::ZERO).await,
            Self::EtcdDown => backend.restart("etcd", LONG).await,
            Self::EtcdCompacted => {
                let compact = backend.compactor().context("etcd cannot be compacted")?;
                compact().await?;
                // A watch that reconnects after this finds that its version is gone.
                cut(replicas, leader, Duration::ZERO).await?;
                cut(replicas, standby, Duration::ZERO).await
            }
            Self::SchedulerKilled => backend.restart("kube-scheduler", Duration::ZERO).await,
            Self::KubeletsKilled => {
                for kubelet in KUBELETS {
                    backend.restart(kubelet, SHORT).await?;
                }
                Ok(())
            }
            Self::AllKilled => {
                replicas.kill(leader).await?;
                backend.restart("kube-apiserver", Duration::ZERO).await?;
                backend.restart("etcd", Duration::ZERO).await?;
                replicas.kill(standby).await
            }
        }
    }
}

/// Closes all connections of a replica for a while.
async fn cut(replicas: &Replicas, at: usize, time: Duration) -> Result<()> {
    let wire = &replicas.get(at)?.wire;
    wire.cut();
    tokio::time::sleep(time).await;
    wire.restore();
    Ok(())
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::LeaderKilled => "leader killed",
            Self::StandbyKilled => "standby killed",
            Self::BothKilled => "both replicas killed",
            Self::LeaderFrozen => "leader frozen past its Lease",
            Self::LeaderCutOff => "leader cut off past its Lease",
            Self::LeaderUnanswered => "leader without answers past its Lease",
            Self::StandbyCutOff => "standby cut off",
            Self::ApiServerKilled => "kube-apiserver killed",
            Self::ApiServerDown => "kube-apiserver down for 20 s",
            Self::EtcdKilled => "etcd killed",
            Self::EtcdDown => "etcd down for 20 s",
            Self::EtcdCompacted => "etcd compacted, connections closed",
            Self::SchedulerKilled => "kube-scheduler killed",
            Self::KubeletsKilled => "kubelets killed",
            Self::AllKilled => "replicas, kube-apiserver and etcd killed",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_round_has_every_fault_and_another_order() {
        let round = |number: usize| {
            let from = number * Fault::ALL.len();
            (from..from + Fault::ALL.len()).map(|at| Fault::of(7, at))
        };
        let all: BTreeSet<_> = Fault::ALL.into_iter().collect();
        assert_eq!(round(0).collect::<BTreeSet<_>>(), all);
        assert_eq!(round(3).collect::<BTreeSet<_>>(), all);
        assert_ne!(round(0).collect::<Vec<_>>(), round(1).collect::<Vec<_>>());
    }
}
