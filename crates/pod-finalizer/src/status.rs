//! Rule 10: which nodes of a workflow are fulfilled, by a live read of the workflow's own status.
//!
//! With pod GC on completion Argo deletes pods without labelling them: then only the workflow shows that the result was
//! read. The status can be larger than 1 MB, so it is read once for all waiting pods of a workflow, and only while one
//! waits.
//!
//! ```
//! use belayer_pod_finalizer::status::ConsumedWhen;
//! use serde_json::json;
//!
//! let consumed = ConsumedWhen::parse("owner.status.phase == 'Succeeded'")?;
//! assert_eq!(consumed.is_true_for(&json!({"status": {"phase": "Succeeded"}})), Ok(true));
//! # Ok::<(), belayer_pod_finalizer::status::ConsumedWhenError>(())
//! ```

mod consumed_when;
mod nodes;
mod removed;
mod scan;
mod slots;
mod unpack;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use belayer_core::executor::{Class, Executor};
use belayer_core::http::{ErrorClass, Request, RequestError};
use belayer_core::index::PODS_BY_OWNER;
use belayer_core::informer::Store;
use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::queries::{LiveReader, Pace, Query, ReadError};
use belayer_core::slim::{ObjectMeta, Pod};

pub use consumed_when::{ConsumedWhen, ConsumedWhenError, NoValue, OWNER_LIMIT};
pub use nodes::{NodeRef, Nodes};
pub(crate) use removed::RemovedPod;
pub use removed::RemovedPods;
pub use unpack::{NODES_LIMIT, NODES_WITHIN};

use scan::ScanError;
use slots::Slots;

/// Annotation: the key of the pod's node in `status.nodes`.
pub const NODE_ID: &str = "workflows.argoproj.io/node-id";

/// Annotation: the name of the pod's node.
pub const NODE_NAME: &str = "workflows.argoproj.io/node-name";

/// The largest workflow that is read, in bytes (T3). The API server takes objects of up to 3 MiB.
pub const ANSWER_LIMIT: usize = 8 << 20;

/// Which node of its workflow is a pod's, by its annotations.
pub(crate) fn node_of(pod: &ObjectMeta) -> Option<NodeRef> {
    let annotation = |name| pod.annotations.get(name).filter(|value| !value.is_empty());
    match (annotation(NODE_ID), annotation(NODE_NAME)) {
        (Some(id), _) => Some(NodeRef::Id(id.into())),
        (None, Some(name)) => Some(NodeRef::Name(name.into())),
        (None, None) => None,
    }
}

/// Each workflow is read at most four times in three seconds, so that a pod is released within a
/// second after the status that releases it (A19). The [module's example](crate::status) is what a
/// user can configure in its place.
pub fn pace() -> Pace {
    Pace {
        min_interval: Duration::from_millis(750),
        ..Pace::default()
    }
}

/// Which nodes of this workflow are fulfilled? Or, for another kind of owner: is its expression
/// true? The [module's example](crate::status) is what a user can configure in its place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StatusQuery {
    resource: Resource,
    key: ObjectKey,
    uid: Uid,
    when: Option<ConsumedWhen>,
}

impl StatusQuery {
    /// The query for the owner with this UID under this key.
    pub fn new(resource: Resource, key: ObjectKey, uid: Uid) -> Self {
        Self {
            resource,
            key,
            uid,
            when: None,
        }
    }

    /// The same for an owner that fulfils all its pods once the expression is true.
    #[must_use]
    pub fn when(self, when: ConsumedWhen) -> Self {
        let when = Some(when);
        Self { when, ..self }
    }

    /// The kind of the owner.
    pub(crate) fn resource(&self) -> &Resource {
        &self.resource
    }
}

impl fmt::Display for StatusQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            key,
            uid,
            when,
        } = self;
        match when {
            None => write!(
                f,
                "which nodes of {resource} {key} (uid {uid}) are fulfilled"
            ),
            Some(when) => write!(f, "is {when} true for {resource} {key} (uid {uid})"),
        }
    }
}

/// The result of a live read of a workflow's status. The [module's example](crate::status) is what
/// a user can configure in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatusState {
    /// The nodes that were asked for could be read.
    Read(Arc<Nodes>),
    /// They exceed Belayer's size limit. That proves nothing, and will not change unless the workflow changes.
    TooLarge(Arc<str>),
    /// Argo has offloaded them to a database. That proves nothing, and lasts until the workflow has finished.
    Offloaded(Arc<str>),
    /// They cannot be read. That proves nothing.
    Unreadable(Arc<str>),
}

impl Query for StatusQuery {
    type Answer = StatusState;

    const NAME: &'static str = "status";

    fn outcome(answer: &StatusState) -> &'static str {
        match answer {
            StatusState::Read(_) => "read",
            StatusState::TooLarge(_) => "too_large",
            StatusState::Offloaded(_) | StatusState::Unreadable(_) => "unreadable",
        }
    }

    fn weight(answer: &StatusState) -> usize {
        match answer {
            StatusState::Read(nodes) => nodes.weight(),
            StatusState::TooLarge(why)
            | StatusState::Offloaded(why)
            | StatusState::Unreadable(why) => why.len(),
        }
    }
}

/// Why the nodes of a workflow were not read.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Unread {
    /// They exceed Belayer's size limit; the text names it.
    TooLarge(String),
    /// They are in a database.
    Offloaded,
    /// Another reason.
    Otherwise(String),
}

impl From<ScanError> for Unread {
    fn from(error: ScanError) -> Self {
        Self::Otherwise(format!("its nodes cannot be read: {error}"))
    }
}

impl From<Unread> for StatusState {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::TooLarge(why) => Self::TooLarge(why.into()),
            Unread::Offloaded => Self::Offloaded("its nodes are offloaded to a database".into()),
            Unread::Otherwise(why) => Self::Unreadable(why.into()),
        }
    }
}

/// Which nodes of a status are kept. The [module's example](crate::status) is what a user can
/// configure in its place.
#[derive(Debug, Clone)]
pub enum Asked {
    /// Those of all pods of the workflow that the store has when the live read begins, and of its removed pods. For a
    /// pod that is seen later that read is no evidence: see
    /// [`Consumption::prove_node_fulfilled`](crate::evidence::Consumption::prove_node_fulfilled).
    OfPods(Store<Pod>, RemovedPods),
    /// Exactly these nodes.
    These(Vec<NodeRef>),
}

impl Asked {
    fn nodes(&self, query: &StatusQuery) -> Vec<NodeRef> {
        match self {
            Self::OfPods(pods, removed) => {
                let pods = pods.by_index(PODS_BY_OWNER, query.uid.as_str());
                let pods = pods.unwrap_or_default();
                pods.iter()
                    .filter_map(|pod| node_of(&pod.object.meta))
                    .chain(removed.nodes(query))
                    .collect()
            }
            Self::These(nodes) => nodes.clone(),
        }
    }
}

/// Answers [`StatusQuery`]s by live GETs. Cheap to clone. The [module's example](crate::status) is
/// what a user can configure in its place.
#[derive(Debug, Clone)]
pub struct StatusReader {
    executor: Arc<Executor>,
    asked: Asked,
    slots: Arc<Slots>,
}

impl StatusReader {
    /// Reads through `executor`, and keeps the nodes that are `asked` for.
    pub fn new(executor: Arc<Executor>, asked: Asked) -> Self {
        Self {
            executor,
            asked,
            slots: Arc::new(Slots::new()),
        }
    }

    async fn status(&self, query: &StatusQuery) -> Result<StatusState, ReadError> {
        let StatusQuery {
            resource,
            key,
            uid,
            when,
        } = query;
        let _slot = self.slots.slot(key.shared_namespace()).await;
        let limit = when.as_ref().map_or(ANSWER_LIMIT, |_| OWNER_LIMIT);
        let request = Request::get(resource.object_path(key)).body_limit(limit);
        let error = match self.executor.read(&request, Class::Evidence).await {
            Ok(answer) => {
                let unpacking = &self.slots.unpack;
                let read = match when {
                    None => {
                        nodes::read(&answer.body, uid, self.asked.nodes(query), unpacking).await
                    }
                    Some(when) => nodes::read_owner(&answer.body, uid, when, unpacking).await,
                };
                return Ok(read.map_or_else(StatusState::from, |nodes| {
                    StatusState::Read(Arc::new(nodes))
                }));
            }
            Err(error) => error,
        };
        if let RequestError::TooLarge { limit } = error {
            let why = format!("it is larger than {} KiB", limit >> 10);
            return Ok(StatusState::TooLarge(why.into()));
        }
        match error.class() {
            ErrorClass::NotFound
            | ErrorClass::NotServed
            | ErrorClass::Forbidden
            | ErrorClass::Invalid
            | ErrorClass::Decode => Ok(StatusState::Unreadable(error.to_string().into())),
            _ => Err(ReadError::from(error)),
        }
    }
}

impl LiveReader<StatusQuery> for StatusReader {
    fn read<'a>(&'a self, query: &'a StatusQuery) -> BoxFuture<'a, Result<StatusState, ReadError>> {
        Box::pin(self.status(query))
    }

    /// The pods that have ended or are being deleted, and whose node has changed (A17).
    fn affected(
        &self,
        query: &StatusQuery,
        old: Option<&StatusState>,
        new: &StatusState,
    ) -> Vec<ObjectKey> {
        let Asked::OfPods(pods, _) = &self.asked else {
            return Vec::new();
        };
        let has_changed = |pod: &Pod| match (old, new) {
            (Some(StatusState::Read(old)), StatusState::Read(new)) => match &query.when {
                Some(_) => new.differs(old, &NodeRef::Owner),
                None => node_of(&pod.meta).is_some_and(|node| new.differs(old, &node)),
            },
            (old, new) => old != Some(new),
        };
        let pods = pods.by_index(PODS_BY_OWNER, query.uid.as_str());
        let pods = pods.unwrap_or_default().into_iter().map(|pod| pod.object);
        let waiting = pods.filter(|pod| pod.meta.is_deleting() || pod.is_ended());
        let affected = waiting.filter(|pod| has_changed(pod));
        affected.map(|pod| pod.meta.key.clone()).collect()
    }
}
