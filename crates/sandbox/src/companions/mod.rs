//! The companions of the API server: what a real cluster runs beside it, small enough for a test.
//!
//! Each is one task that follows the cluster's log, keeps an index, and writes as an actor of its
//! own, so that the recorder tells who did what. All are level-triggered: started late, or cut off
//! from the log by a compaction, they find out from what is there. None draws on a clock other
//! than tokio's, so that paused time drives them all.

mod agenda;
mod driver;
mod events;
pub mod garbage_collector;
pub mod kubelet;
pub mod namespaces;
pub mod object;
pub mod pod_gc;
mod pods;
mod quantity;
pub mod scheduler;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeSet;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use self::kubelet::{
    KubeletConfig, KubeletScript, Kubelets, NodeSpec, PodPlan, Rejection, RejectionChance, RunFor,
    RunPlan,
};
pub use self::pod_gc::PodGcConfig;
pub use self::{
    agenda::Agenda,
    driver::{Change, Controller, Interest, Progress},
};
use crate::cluster::Cluster;

/// One of the companions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Companion {
    /// Deletes what has lost its owners: [`garbage_collector`].
    GarbageCollector,
    /// Empties namespaces that are being deleted: [`namespaces`].
    Namespaces,
    /// Runs pods on simulated nodes: [`kubelet`].
    Kubelet,
    /// Binds pods to nodes: [`scheduler`].
    Scheduler,
    /// Gives up pods whose node is gone: [`pod_gc`].
    PodGc,
}

impl Companion {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::GarbageCollector,
        Self::Namespaces,
        Self::Kubelet,
        Self::Scheduler,
        Self::PodGc,
    ];
}

/// Which companions run, and how.
#[derive(Debug, Clone)]
pub struct Companions {
    on: BTreeSet<Companion>,
    kubelet: KubeletConfig,
    pod_gc: PodGcConfig,
}

impl Default for Companions {
    fn default() -> Self {
        Self::all()
    }
}

impl Companions {
    /// All companions, with three nodes.
    #[must_use]
    pub fn all() -> Self {
        Self {
            on: Companion::ALL.into_iter().collect(),
            kubelet: KubeletConfig::default(),
            pod_gc: PodGcConfig::default(),
        }
    }

    /// None: the API server alone.
    #[must_use]
    pub fn none() -> Self {
        Self {
            on: BTreeSet::new(),
            ..Self::all()
        }
    }

    /// With this one.
    #[must_use]
    pub fn with(mut self, companion: Companion) -> Self {
        self.on.insert(companion);
        self
    }

    /// Without this one.
    #[must_use]
    pub fn without(mut self, companion: Companion) -> Self {
        self.on.remove(&companion);
        self
    }

    /// With kubelets that behave so.
    #[must_use]
    pub fn kubelet(self, kubelet: KubeletConfig) -> Self {
        Self { kubelet, ..self }.with(Companion::Kubelet)
    }

    /// With a pod GC that behaves so.
    #[must_use]
    pub fn pod_gc(self, pod_gc: PodGcConfig) -> Self {
        Self { pod_gc, ..self }.with(Companion::PodGc)
    }

    /// Whether this one runs.
    #[must_use]
    pub fn has(&self, companion: Companion) -> bool {
        self.on.contains(&companion)
    }

    /// Starts them as tasks of the current tokio runtime. Each stops when `cancel` is cancelled.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start(self, cluster: &Cluster, cancel: &CancellationToken) -> RunningCompanions {
        let (hosts, kubelets) = kubelet::Hosts::new(cluster.clone(), self.kubelet.clone());
        let mut hosts = Some(hosts);
        let mut tasks = vec![];
        for companion in &self.on {
            tasks.extend(match companion {
                Companion::GarbageCollector => {
                    let collector = garbage_collector::GarbageCollector::new(cluster.clone());
                    Some(spawn(cluster, collector, cancel))
                }
                Companion::Namespaces => Some(spawn(
                    cluster,
                    namespaces::Namespaces::new(cluster.clone()),
                    cancel,
                )),
                Companion::Kubelet => hosts.take().map(|hosts| spawn(cluster, hosts, cancel)),
                Companion::Scheduler => Some(spawn(
                    cluster,
                    scheduler::Scheduler::new(cluster.clone()),
                    cancel,
                )),
                Companion::PodGc => Some(spawn(
                    cluster,
                    pod_gc::PodGc::new(cluster.clone(), self.pod_gc),
                    cancel,
                )),
            });
        }
        RunningCompanions { kubelets, tasks }
    }
}

/// Starts one companion as a task of the current tokio runtime, one of your own too. It stops when
/// `cancel` is cancelled.
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn(
    cluster: &Cluster,
    controller: impl Controller,
    cancel: &CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(driver::drive(cluster.clone(), controller, cancel.clone()))
}

/// Companions at work.
#[derive(Debug)]
pub struct RunningCompanions {
    kubelets: Kubelets,
    tasks: Vec<JoinHandle<()>>,
}

impl RunningCompanions {
    /// The hand on the simulated nodes.
    #[must_use]
    pub fn kubelets(&self) -> &Kubelets {
        &self.kubelets
    }

    /// Waits until all have stopped, which they do when cancelled.
    pub async fn stopped(self) {
        for task in self.tasks {
            // A companion that panicked has stopped too.
            let _ = task.await;
        }
    }
}
