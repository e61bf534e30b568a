#![doc = include_str!("../README.md")]

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

use belayer_sandbox::{Cluster, companions};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use argo::{Argo, ArgoConfig};
pub use objects::{WORKFLOWS, names, namespace, pod, workflow, workflow_crd};
pub use profile::{Arrival, Profile};
pub use script::{PodGc, PodScript, WorkflowScript};
pub use tally::Tally;
pub use user::User;

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
