//! The user: creates the workflows, and deletes objects by hand.

use std::time::Duration;

use belayer_sandbox::{
    Actor, ApiError, Cluster, DeleteOptions, Gvr, Propagation, Reason, WriteOptions,
};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::objects::{self, WORKFLOWS};
use super::profile::Profile;
use super::{USER, WorkloadEvent};

/// Delay before a failed write is retried.
const RETRY: Duration = Duration::from_millis(100);

/// The user. All writes are by the actor [`USER`]. Returned by
/// [`Workload::user`](crate::Workload::user), for the workload of the [crate's example](crate).
#[derive(Debug, Clone)]
pub struct User {
    cluster: Cluster,
    actor: Actor,
}

impl User {
    /// A user of this cluster.
    #[must_use]
    pub fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            actor: Actor::new(USER),
        }
    }

    /// Installs the Workflow kind, unless it exists.
    ///
    /// # Errors
    /// What the API server answers.
    pub fn install_workflows(&self) -> Result<(), ApiError> {
        self.define(objects::workflow_crd())
    }

    /// Creates a CustomResourceDefinition, unless it exists.
    ///
    /// # Errors
    /// What the API server answers.
    pub fn define(&self, definition: Value) -> Result<(), ApiError> {
        self.ensure(&Gvr::CUSTOMRESOURCEDEFINITIONS, definition)
    }

    /// Creates a namespace, unless it exists.
    ///
    /// # Errors
    /// What the API server answers.
    pub fn create_namespace(&self, name: &str) -> Result<(), ApiError> {
        self.ensure(&Gvr::NAMESPACES, objects::namespace(name))
    }

    /// Creates an object in a namespace.
    ///
    /// # Errors
    /// What the API server answers.
    pub fn create(&self, gvr: &Gvr, namespace: &str, object: Value) -> Result<(), ApiError> {
        let options = WriteOptions::default();
        self.cluster
            .create(&self.actor, gvr, Some(namespace), object, &options)
            .map(drop)
    }

    /// Deletes a workflow.
    ///
    /// # Errors
    /// What the API server answers.
    pub fn delete_workflow(
        &self,
        namespace: &str,
        name: &str,
        propagation: Propagation,
    ) -> Result<(), ApiError> {
        let options = DeleteOptions {
            propagation_policy: Some(propagation),
            ..DeleteOptions::default()
        };
        self.cluster
            .delete(&self.actor, &WORKFLOWS, Some(namespace), name, &options)
            .map(drop)
    }

    /// Deletes a pod, with its own grace period or with this one in seconds.
    ///
    /// # Errors
    /// What the API server answers.
    pub fn delete_pod(
        &self,
        namespace: &str,
        name: &str,
        grace_period_seconds: Option<i64>,
    ) -> Result<(), ApiError> {
        let options = DeleteOptions {
            grace_period_seconds,
            ..DeleteOptions::default()
        };
        self.cluster
            .delete(&self.actor, &Gvr::PODS, Some(namespace), name, &options)
            .map(drop)
    }

    /// Deletes a namespace.
    ///
    /// # Errors
    /// What the API server answers.
    pub fn delete_namespace(&self, name: &str) -> Result<(), ApiError> {
        let options = DeleteOptions::default();
        self.cluster
            .delete(&self.actor, &Gvr::NAMESPACES, None, name, &options)
            .map(drop)
    }

    fn ensure(&self, gvr: &Gvr, object: Value) -> Result<(), ApiError> {
        let options = WriteOptions::default();
        match self
            .cluster
            .create(&self.actor, gvr, None, object, &options)
        {
            Err(error) if error.reason != Reason::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }
}

/// Runs a profile: creates everything in it at its time.
pub(crate) async fn play(
    user: User,
    profile: Profile,
    events: mpsc::UnboundedSender<WorkloadEvent>,
    cancel: CancellationToken,
) {
    let script = async {
        persist(|| user.install_workflows()).await;
        for namespace in &profile.namespaces {
            persist(|| user.create_namespace(namespace)).await;
        }
        let began = Instant::now();
        for number in 0..profile.workflows {
            tokio::time::sleep_until(began + profile.arrives_after(number)).await;
            let (namespace, name) = profile.workflow_name(number);
            let workflow = objects::workflow(namespace, &name, &profile.workflow_script());
            let created = persist(|| user.create(&WORKFLOWS, namespace, workflow.clone())).await;
            if created == Persisted::Done {
                let namespace = namespace.to_owned();
                // The receiver may be gone.
                let _ = events.send(WorkloadEvent::WorkflowCreated { namespace, name });
            }
        }
    };
    tokio::select! {
        biased;
        () = cancel.cancelled() => {}
        () = script => {}
    }
}

/// The result of a write that is retried until it succeeds or is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Persisted {
    Done,
    Refused,
}

/// Retries until the API server accepts or permanently refuses the write.
async fn persist(write: impl Fn() -> Result<(), ApiError>) -> Persisted {
    loop {
        match write() {
            Ok(()) => return Persisted::Done,
            Err(error) if matches!(error.code, 400 | 403 | 409 | 422) => {
                tracing::warn!(%error, "a write of the workload's user was refused");
                return Persisted::Refused;
            }
            Err(error) => {
                tracing::debug!(%error, "the workload's user will retry");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
