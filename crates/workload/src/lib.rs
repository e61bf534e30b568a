#![doc = include_str!("../README.md")]

mod argo;
pub mod model;
mod objects;
mod profile;
mod script;
mod tally;
#[cfg(test)]
mod tests;
mod user;

use std::time::Duration;

use belayer_sandbox::{Cluster, simulated};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::model::Rules;

pub use argo::Argo;
pub use objects::{WORKFLOWS, names, namespace, pod, workflow, workflow_crd};
pub use profile::{Arrival, Profile};
pub use script::{PodGc, PodScript, WorkflowScript};
pub use tally::Tally;
pub use user::User;

/// The actor that creates workflows and deletes objects by hand.
pub const USER: &str = "user";
/// The actor that creates the workflows' pods and consumes their results.
pub const ARGO: &str = "argo-standin";
/// The actor that retries workflows.
pub const ARGO_SERVER: &str = "argo-server";

/// An event of the workload. [`Workload::next_event`](crate::Workload::next_event) returns it; the
/// [crate's example](crate) counts them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkloadEvent {
    /// A user created a workflow.
    WorkflowCreated {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The simulated workflow controller created a pod.
    PodCreated {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A pod has ended; its result waits to be consumed.
    PodEnded {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// `Succeeded` or `Failed`.
        phase: String,
    },
    /// The simulated workflow controller has written a pod's result into its workflow.
    ResultTaken {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
        /// The phase of its node: `Succeeded`, `Failed` or `Error`.
        phase: String,
        /// How long the result waited, in cluster time.
        waited: Duration,
    },
    /// A pod was removed before its result was consumed.
    ResultLost {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
    },
    /// A workflow has finished.
    WorkflowFinished {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// `Succeeded`, `Failed` or `Error`.
        phase: String,
    },
    /// A workflow was deleted and is removed.
    WorkflowGone {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// A running workload. The [crate's example](crate) runs one.
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
        let rules = Rules {
            requeue: profile.persist_delay,
            archives: profile.archives,
            ..Rules::default()
        };
        let (controller, argo) = argo::SimulatedArgo::new(cluster.clone(), rules, sender.clone());
        let user = User::new(cluster.clone());
        let script = user::play(user.clone(), profile, sender, cancel.clone());
        let tasks = vec![
            simulated::spawn(cluster, controller, cancel),
            tokio::spawn(script),
        ];
        Self {
            argo,
            user,
            events,
            tasks,
        }
    }

    /// The next event; `None` after the workload has stopped and all events are read.
    /// Cancel safe.
    pub async fn next_event(&mut self) -> Option<WorkloadEvent> {
        self.events.recv().await
    }

    /// All events that have not been read yet, without waiting.
    pub fn drain_events(&mut self) -> Vec<WorkloadEvent> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }

    /// Handle of the simulated workflow controller.
    #[must_use]
    pub fn argo(&self) -> &Argo {
        &self.argo
    }

    /// The user, for deleting objects.
    #[must_use]
    pub fn user(&self) -> &User {
        &self.user
    }

    /// Waits until it has stopped. It stops when cancelled.
    pub async fn stopped(self) {
        for task in self.tasks {
            // A task that panicked has stopped too.
            let _ = task.await;
        }
    }
}
