//! Row 10: which nodes of a workflow are fulfilled, by the workflow's own status, asked live.
//!
//! Argo with pod GC on completion deletes pods without labelling them: then only the workflow says
//! that the result was taken. The status can be 1 MB and more, so it is fetched once for all pods
//! of a workflow that wait, and only while one waits.

mod nodes;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use belayer_core::executor::{Class, Executor};
use belayer_core::facts::{LookError, Oracle, Pace, Question};
use belayer_core::http::{ErrorClass, Request};
use belayer_core::object::{ObjectKey, OwnerReference, Resource, Uid};

pub use nodes::{NodeRef, Nodes};

/// Annotation: the key of the pod's node in `status.nodes`.
pub const NODE_ID: &str = "workflows.argoproj.io/node-id";

/// Annotation: the name of the pod's node.
pub const NODE_NAME: &str = "workflows.argoproj.io/node-name";

/// One workflow is looked at once a second at most.
pub fn pace() -> Pace {
    Pace {
        min_interval: Duration::from_secs(1),
        ..Pace::default()
    }
}

/// Which nodes of this workflow are fulfilled?
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StatusQuestion {
    resource: Resource,
    key: ObjectKey,
    uid: Uid,
}

impl StatusQuestion {
    /// A question about the owner that an object in `namespace` refers to, read as `resource`.
    pub fn new(resource: Resource, namespace: &Arc<str>, owner: &OwnerReference) -> Self {
        Self {
            resource,
            key: ObjectKey::new(Arc::clone(namespace), Arc::clone(&owner.name)),
            uid: owner.uid.clone(),
        }
    }
}

impl fmt::Display for StatusQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, key, uid } = self;
        write!(
            f,
            "which nodes of {resource} {key} (uid {uid}) are fulfilled"
        )
    }
}

/// What a live look at a workflow's status found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatusState {
    /// Its nodes can be read.
    Read(Arc<Nodes>),
    /// They cannot, which is no evidence of anything.
    Unreadable(Arc<str>),
}

impl Question for StatusQuestion {
    type Answer = StatusState;

    const NAME: &'static str = "status";

    fn outcome(answer: &StatusState) -> &'static str {
        match answer {
            StatusState::Read(_) => "read",
            StatusState::Unreadable(_) => "unreadable",
        }
    }
}

/// Answers [`StatusQuestion`]s by live GETs.
#[derive(Debug)]
pub struct StatusOracle {
    executor: Arc<Executor>,
}

impl StatusOracle {
    /// An oracle that asks through `executor`.
    pub fn new(executor: Arc<Executor>) -> Self {
        Self { executor }
    }

    async fn status(&self, question: &StatusQuestion) -> Result<StatusState, LookError> {
        let request = Request::get(question.resource.object_path(&question.key));
        let error = match self.executor.read(&request, Class::Evidence).await {
            Ok(answer) => return Ok(read(&answer.body, &question.uid)),
            Err(error) => error,
        };
        match error.class() {
            ErrorClass::NotFound
            | ErrorClass::NotServed
            | ErrorClass::Forbidden
            | ErrorClass::Invalid
            | ErrorClass::Decode => Ok(StatusState::Unreadable(error.to_string().into())),
            _ => Err(LookError::from(&error)),
        }
    }
}

impl Oracle<StatusQuestion> for StatusOracle {
    fn look<'a>(
        &'a self,
        question: &'a StatusQuestion,
    ) -> BoxFuture<'a, Result<StatusState, LookError>> {
        Box::pin(self.status(question))
    }
}

/// Reads a workflow. Whatever is wrong with it is no evidence, and said so.
fn read(body: &[u8], uid: &Uid) -> StatusState {
    nodes::read(body, uid).map_or_else(
        |why| StatusState::Unreadable(why.into()),
        |nodes| StatusState::Read(Arc::new(nodes)),
    )
}
