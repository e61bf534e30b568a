//! A scripted workload in the manner of Argo Workflows: workflows, their pods, and a stand-in for
//! the controller that consumes their results.
//!
//! A [`Profile`] says how much of everything; the same profile with the same seed makes the same
//! workload. Everything goes through [`Cluster`] under the actor names [`USER`] and [`ARGO`], so
//! that whatever guards the pods meets it as it would meet the real thing.
//!
//! The stand-in takes a result some time after a pod has ended ([`ArgoConfig::persist_delay`]): it
//! writes the workflow's `status.nodes`, and only then labels the pod as completed or deletes it.
//! A pod that vanishes before is a result lost: its node becomes `Error`, `pod deleted`, as in the
//! real controller. It can be stopped and started again, to see what happens while it is down.

mod argo;
mod flow;
mod objects;
mod profile;
mod script;
mod tally;
#[cfg(test)]
mod tests;
mod user;

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use self::argo::{Argo, ArgoConfig};
pub use self::objects::{WORKFLOWS, names, namespace, pod, workflow, workflow_crd};
pub use self::profile::{Arrival, Profile};
pub use self::script::{PodGc, PodScript, WorkflowScript};
pub use self::tally::Tally;
pub use self::user::User;
use crate::cluster::Cluster;
use crate::companions;

/// Who creates workflows, and deletes things by hand.
pub const USER: &str = "user";
/// Who creates the workflows' pods and consumes their results.
pub const ARGO: &str = "argo-standin";

/// What happened in the workload, as it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkloadEvent {
    /// A user created a workflow.
    WorkflowCreated {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The stand-in created a pod.
    PodCreated {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A pod has ended; its result waits to be taken.
    PodEnded {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// `Succeeded` or `Failed`.
        phase: String,
    },
    /// The stand-in has written a pod's result into its workflow.
    ResultTaken {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
        /// `Succeeded` or `Failed`.
        phase: String,
        /// How long the result waited, in cluster time.
        waited: Duration,
    },
    /// A pod vanished before its result was taken.
    ResultLost {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
    },
    /// A workflow is over.
    WorkflowFinished {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// `Succeeded`, `Failed` or `Error`.
        phase: String,
    },
    /// A workflow was deleted and is gone.
    WorkflowGone {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// A workload at work.
#[derive(Debug)]
pub struct Workload {
    argo: Argo,
    user: User,
    events: mpsc::UnboundedReceiver<WorkloadEvent>,
    tasks: Vec<JoinHandle<()>>,
}

impl Workload {
    /// Starts the workload as tasks of the current tokio runtime: installs the Workflow kind,
    /// creates the profile's namespaces and workflows, and consumes their results. Stops when
    /// `cancel` is cancelled.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn run(cluster: &Cluster, profile: Profile, cancel: &CancellationToken) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let config = ArgoConfig {
            persist_delay: profile.persist_delay,
        };
        let (standin, argo) = argo::Standin::new(cluster.clone(), config, sender.clone());
        let user = User::new(cluster.clone());
        let script = user::play(user.clone(), profile, sender, cancel.clone());
        let tasks = vec![
            companions::spawn(cluster, standin, cancel),
            tokio::spawn(script),
        ];
        Self {
            argo,
            user,
            events,
            tasks,
        }
    }

    /// The next thing that happens; `None` when the workload has stopped and all is told.
    /// Cancel safe.
    pub async fn next_event(&mut self) -> Option<WorkloadEvent> {
        self.events.recv().await
    }

    /// What has happened and was not asked for yet, without waiting.
    pub fn drain_events(&mut self) -> Vec<WorkloadEvent> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }

    /// The hand on the stand-in.
    #[must_use]
    pub fn argo(&self) -> &Argo {
        &self.argo
    }

    /// The user, for deleting things in the middle.
    #[must_use]
    pub fn user(&self) -> &User {
        &self.user
    }

    /// Waits until it has stopped, which it does when cancelled.
    pub async fn stopped(self) {
        for task in self.tasks {
            // A task that panicked has stopped too.
            let _ = task.await;
        }
    }
}
