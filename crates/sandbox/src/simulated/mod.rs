//! Simulated controllers: what a real cluster runs next to the API server, small enough for a test.
//!
//! Each is one task that follows the cluster's log, keeps an index, and writes as an actor of its
//! own, so that the recorder shows which controller wrote what. All are level-triggered: after a late
//! start or a compaction of the log they work from the objects that exist. All use tokio's clock,
//! so that paused time drives them.
//!
//! ```
//! use std::time::Duration;
//!
//! use belayer_sandbox::simulated::SimulatedControllers;
//! use belayer_sandbox::{Gvr, Sandbox};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let sandbox = Sandbox::builder().controllers(SimulatedControllers::all()).build();
//! let pod = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: main, image: web}]}}";
//! sandbox.load_yaml(pod)?;
//! let runs = |pod: Option<&serde_json::Value>| pod.is_some_and(|pod| pod["status"]["phase"] == "Running");
//! sandbox.wait_until(&Gvr::PODS, "default", "web", Duration::from_secs(60), runs).await?;
//! # Ok(())
//! # }
//! ```

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

/// One simulated controller.
/// [`SimulatedControllers::without`](crate::simulated::SimulatedControllers::without) removes one
/// of those in the [example](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimulatedController {
    /// Deletes objects whose owners are gone: [`garbage_collector`].
    GarbageCollector,
    /// Empties namespaces that are being deleted: [`namespaces`].
    Namespaces,
    /// Runs pods on simulated nodes: [`kubelet`].
    Kubelet,
    /// Binds pods to nodes: [`scheduler`].
    Scheduler,
    /// Fails and deletes pods whose node is gone: [`pod_gc`].
    PodGc,
}

impl SimulatedController {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::GarbageCollector,
        Self::Namespaces,
        Self::Kubelet,
        Self::Scheduler,
        Self::PodGc,
    ];
}

/// Which simulated controllers run, and their settings. The [module's example](self) runs all.
#[derive(Debug, Clone)]
pub struct SimulatedControllers {
    on: BTreeSet<SimulatedController>,
    kubelet: KubeletConfig,
    pod_gc: PodGcConfig,
}

impl Default for SimulatedControllers {
    fn default() -> Self {
        Self::all()
    }
}

impl SimulatedControllers {
    /// All controllers, with three nodes.
    #[must_use]
    pub fn all() -> Self {
        Self {
            on: SimulatedController::ALL.into_iter().collect(),
            kubelet: KubeletConfig::default(),
            pod_gc: PodGcConfig::default(),
        }
    }

    /// No controllers, only the API server.
    #[must_use]
    pub fn none() -> Self {
        Self {
            on: BTreeSet::new(),
            ..Self::all()
        }
    }

    /// Adds this controller.
    #[must_use]
    pub fn with(mut self, controller: SimulatedController) -> Self {
        self.on.insert(controller);
        self
    }

    /// Removes this controller.
    #[must_use]
    pub fn without(mut self, controller: SimulatedController) -> Self {
        self.on.remove(&controller);
        self
    }

    /// Sets the configuration of the kubelets.
    #[must_use]
    pub fn kubelet(self, kubelet: KubeletConfig) -> Self {
        Self { kubelet, ..self }.with(SimulatedController::Kubelet)
    }

    /// Sets the configuration of pod GC.
    #[must_use]
    pub fn pod_gc(self, pod_gc: PodGcConfig) -> Self {
        Self { pod_gc, ..self }.with(SimulatedController::PodGc)
    }

    /// Whether this controller runs.
    #[must_use]
    pub fn has(&self, controller: SimulatedController) -> bool {
        self.on.contains(&controller)
    }

    /// Starts the controllers as tasks of the current tokio runtime. Each stops when `cancel` is cancelled.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start(self, cluster: &Cluster, cancel: &CancellationToken) -> RunningControllers {
        let (hosts, kubelets) = kubelet::Hosts::new(cluster.clone(), self.kubelet.clone());
        let mut hosts = Some(hosts);
        let mut tasks = vec![];
        for controller in &self.on {
            tasks.extend(match controller {
                SimulatedController::GarbageCollector => {
                    let collector = garbage_collector::GarbageCollector::new(cluster.clone());
                    Some(spawn(cluster, collector, cancel))
                }
                SimulatedController::Namespaces => Some(spawn(
                    cluster,
                    namespaces::Namespaces::new(cluster.clone()),
                    cancel,
                )),
                SimulatedController::Kubelet => {
                    hosts.take().map(|hosts| spawn(cluster, hosts, cancel))
                }
                SimulatedController::Scheduler => Some(spawn(
                    cluster,
                    scheduler::Scheduler::new(cluster.clone()),
                    cancel,
                )),
                SimulatedController::PodGc => Some(spawn(
                    cluster,
                    pod_gc::PodGc::new(cluster.clone(), self.pod_gc),
                    cancel,
                )),
            });
        }
        RunningControllers { kubelets, tasks }
    }
}

/// Starts one controller as a task of the current tokio runtime; also for controllers of your own.
/// It stops when `cancel` is cancelled. The [module's example](self) starts only those of this
/// crate.
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

/// Running simulated controllers. [`Sandbox::controllers`](crate::Sandbox::controllers) returns
/// it, for those that run as in the [example](self).
#[derive(Debug)]
pub struct RunningControllers {
    kubelets: Kubelets,
    tasks: Vec<JoinHandle<()>>,
}

impl RunningControllers {
    /// Commands to the simulated nodes.
    #[must_use]
    pub fn kubelets(&self) -> &Kubelets {
        &self.kubelets
    }

    /// Waits until all have stopped. They stop when cancelled.
    pub async fn stopped(self) {
        for task in self.tasks {
            // A controller that panicked has stopped too.
            let _ = task.await;
        }
    }
}
