//! Live reads of the pods that are held by the pod-status finalizer: of one workflow, or, if many workflows are
//! deleted at once, of a whole namespace for all of them together (A8).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hashbrown::HashSet;
use serde::Deserialize;

use belayer_core::executor::{Class, Executor};
use belayer_core::http::{Request, RequestError};
use belayer_core::informer::Store;
use belayer_core::object::{ObjectKey, Resource, ResourceVersion, Uid};
use belayer_core::queries::{LiveReader, Pace, Query, ReadError};
use belayer_core::slim::Pod;
use belayer_holds::names;
use belayer_holds::selection::is_label_value;

/// Pods per page.
const PAGE: u32 = 500;

/// How long the pod store may take to reach the version that the server is at. After that the pods are listed.
const STORE_WITHIN: Duration = Duration::from_millis(250);

/// Accept header for a list of metadata; a server that does not support it sends whole pods.
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// The pods of a namespace are read at most once per second.
pub fn pace() -> Pace {
    Pace {
        min_interval: Duration::from_secs(1),
        ..Pace::default()
    }
}

/// Whose held pods are read. Pods belong to a workflow by UID; the label only narrows a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PodsQuery {
    /// Those of one workflow.
    Workflow {
        /// Namespace and name of the workflow.
        workflow: ObjectKey,
        /// Its UID.
        uid: Uid,
        /// The label of its pods whose value is its name.
        label: Option<Arc<str>>,
    },
    /// Those of all workflows of a namespace.
    Namespace {
        /// The namespace.
        name: Arc<str>,
        /// A label that all pods of workflows have.
        label: Option<Arc<str>>,
    },
}

impl PodsQuery {
    /// The query for the pods of `workflow`, which have its name as the value of `label`, if given.
    pub fn new(workflow: ObjectKey, uid: Uid, label: Option<Arc<str>>) -> Self {
        let label = label.filter(|_| is_label_value(workflow.name()));
        Self::Workflow {
            workflow,
            uid,
            label,
        }
    }

    /// The query for the pods of all workflows in the namespace of `workflow`.
    pub fn of_namespace(workflow: &ObjectKey, label: Option<Arc<str>>) -> Self {
        Self::Namespace {
            name: Arc::clone(workflow.shared_namespace()),
            label,
        }
    }

    fn namespace(&self) -> Option<&str> {
        match self {
            Self::Workflow { workflow, .. } => workflow.namespace(),
            Self::Namespace { name, .. } => Some(name),
        }
    }

    /// A page of metadata of pods.
    fn list(&self, limit: u32, page: Option<&str>) -> Request {
        let path = Resource::pods().path(self.namespace());
        Request::list(path, limit, page).accept(METADATA_LIST)
    }

    /// A page of the pods that are asked for.
    fn request(&self, page: Option<&str>) -> Request {
        let selector = match self {
            Self::Workflow {
                workflow,
                label: Some(label),
                ..
            } => Some(format!("{label}={}", workflow.name())),
            Self::Namespace {
                label: Some(label), ..
            } => Some(label.to_string()),
            Self::Workflow { label: None, .. } | Self::Namespace { label: None, .. } => None,
        };
        let request = self.list(PAGE, page);
        match selector {
            Some(selector) => request.query("labelSelector", selector),
            None => request,
        }
    }
}

impl fmt::Display for PodsQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workflow { workflow, uid, .. } => {
                write!(f, "is any pod of {workflow} (uid {uid}) still held")
            }
            Self::Namespace { name, .. } => {
                write!(f, "which workflows of namespace {name} have held pods")
            }
        }
    }
}

/// The result of a live read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodsState {
    /// The UIDs of all owners of held pods, of those that were asked for.
    HeldOf(Arc<HashSet<Uid>>),
    /// The pod store has reached the version that the server was at: its index gives the answer.
    StoreReached,
}

impl PodsState {
    /// No pod of those that were asked for is held.
    pub fn none_held() -> Self {
        Self::HeldOf(Arc::default())
    }

    /// Whether no pod of this workflow is held; `indexed` is the number of them in the index, read after this
    /// answer.
    pub fn shows_none_of(&self, workflow: &Uid, indexed: Option<usize>) -> bool {
        match self {
            Self::HeldOf(owners) => !owners.contains(workflow),
            Self::StoreReached => indexed == Some(0),
        }
    }
}

impl Query for PodsQuery {
    type Answer = PodsState;

    const NAME: &'static str = "pods";

    fn outcome(answer: &PodsState) -> &'static str {
        match answer {
            PodsState::HeldOf(owners) if owners.is_empty() => "none",
            PodsState::HeldOf(_) => "some",
            PodsState::StoreReached => "store",
        }
    }

    fn weight(answer: &PodsState) -> usize {
        match answer {
            PodsState::HeldOf(owners) => owners.capacity() * size_of::<Uid>(),
            PodsState::StoreReached => 0,
        }
    }
}

/// Answers [`PodsQuery`]s by live lists of metadata.
#[derive(Debug)]
pub struct PodsReader {
    executor: Arc<Executor>,
    pods: Option<Store<Pod>>,
}

impl PodsReader {
    /// Reads through `executor`; `pods` is the informer's store, if there is an informer.
    pub fn new(executor: Arc<Executor>, pods: Option<Store<Pod>>) -> Self {
        Self { executor, pods }
    }

    async fn pods(&self, query: &PodsQuery) -> Result<PodsState, ReadError> {
        match query {
            PodsQuery::Namespace { .. } if self.store_reaches(query).await? => {
                Ok(PodsState::StoreReached)
            }
            PodsQuery::Namespace { .. } | PodsQuery::Workflow { .. } => self.listed(query).await,
        }
    }

    /// Whether the pod store reaches the version that the server is at.
    async fn store_reaches(&self, query: &PodsQuery) -> Result<bool, ReadError> {
        let Some(pods) = &self.pods else {
            return Ok(false);
        };
        let version = self.page(&query.list(1, None)).await?.version()?;
        let reached = tokio::time::timeout(STORE_WITHIN, pods.wait_for(version)).await;
        // A store that could not decode some pod does not show all held pods.
        Ok(matches!(reached, Ok(Ok(()))) && pods.unreadable() == 0)
    }

    async fn listed(&self, query: &PodsQuery) -> Result<PodsState, ReadError> {
        let mut owners = HashSet::new();
        let mut next: Option<String> = None;
        loop {
            let page = self.page(&query.request(next.as_deref())).await?;
            for pod in page.items.iter().flatten() {
                owners.extend(pod.owners_if_held().filter(|owner| match query {
                    PodsQuery::Workflow { uid, .. } => owner == uid,
                    PodsQuery::Namespace { .. } => true,
                }));
            }
            next = page.metadata.next.filter(|next| !next.is_empty());
            let answered = matches!(query, PodsQuery::Workflow { .. }) && !owners.is_empty();
            if next.is_none() || answered {
                return Ok(PodsState::HeldOf(Arc::new(owners)));
            }
        }
    }

    async fn page(&self, request: &Request) -> Result<List, ReadError> {
        let answer = self.executor.read(request, Class::Evidence).await;
        answer
            .and_then(|answer| answer.json())
            .and_then(List::checked)
            .map_err(|error| ReadError::from(&error))
    }
}

impl LiveReader<PodsQuery> for PodsReader {
    fn read<'a>(&'a self, query: &'a PodsQuery) -> BoxFuture<'a, Result<PodsState, ReadError>> {
        Box::pin(self.pods(query))
    }
}

#[derive(Debug, Deserialize)]
struct List {
    kind: String,
    #[serde(default)]
    metadata: ListMeta,
    /// The API server writes `null` for an empty list of metadata. A body without the field is not a list.
    #[serde(deserialize_with = "Option::deserialize")]
    items: Option<Vec<Item>>,
}

impl List {
    /// Fails if the body is not a list, so that it is not treated as an empty one.
    fn checked(self) -> Result<Self, RequestError> {
        if self.kind.ends_with("List") {
            return Ok(self);
        }
        Err(RequestError::Decode(format!(
            "expected a list of pods, got kind {:?}",
            self.kind
        )))
    }

    /// The version at which the server answered.
    fn version(&self) -> Result<ResourceVersion, ReadError> {
        let text = &self.metadata.resource_version;
        ResourceVersion::parse(text).ok_or_else(|| {
            ReadError::unusable(format!(
                "invalid resourceVersion {text:?} of a list of pods"
            ))
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    finalizers: Option<Vec<String>>,
    #[serde(default)]
    owner_references: Option<Vec<Owner>>,
}

#[derive(Debug, Deserialize)]
struct Owner {
    uid: String,
}

impl Item {
    /// The owners of the pod, if it is held.
    fn owners_if_held(&self) -> impl Iterator<Item = Uid> {
        let Metadata {
            finalizers,
            owner_references,
        } = &self.metadata;
        let mut finalizers = finalizers.iter().flatten();
        // A pod that only pod-recreation holds waits for its node, and has no result that could be lost.
        let held = finalizers.any(|have| have == names::POD_STATUS_HOLD);
        let owners = owner_references.iter().flatten().filter(move |_| held);
        owners.map(|owner| Uid::new(owner.uid.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::held_and_owned(json!(["belayer.dev/pod-status"]), json!([{"uid": "u-1"}]), true)]
    #[case::of_another_uid(json!(["belayer.dev/pod-status"]), json!([{"uid": "u-2"}]), false)]
    #[case::orphaned(json!(["belayer.dev/pod-status"]), json!(null), false)]
    #[case::foreign_finalizers_only(json!(["x/y"]), json!([{"uid": "u-1"}]), false)]
    #[case::not_held(json!(null), json!([{"uid": "u-1"}]), false)]
    #[case::a7_held_for_its_recreation_alone(json!(["belayer.dev/pod-recreation"]), json!([{"uid": "u-1"}]), false)]
    fn a_pod_counts_by_uid_and_pod_status_finalizer(
        #[case] finalizers: serde_json::Value,
        #[case] owners: serde_json::Value,
        #[case] counts: bool,
    ) {
        let item: Item = serde_json::from_value(
            json!({"metadata": {"finalizers": finalizers, "ownerReferences": owners}}),
        )
        .unwrap();
        assert_eq!(
            item.owners_if_held().any(|owner| owner.as_str() == "u-1"),
            counts
        );
    }

    #[rstest]
    #[case::null(json!({"kind": "PartialObjectMetadataList", "metadata": {}, "items": null}), true)]
    #[case::empty(json!({"kind": "PodList", "metadata": {}, "items": []}), true)]
    #[case::without_items(json!({"kind": "PodList", "metadata": {}}), false)]
    #[case::no_list_at_all(json!({"kind": "Status", "metadata": {}}), false)]
    #[case::anything(json!({}), false)]
    fn only_a_list_is_accepted(#[case] body: serde_json::Value, #[case] is: bool) {
        let read = serde_json::from_value::<List>(body);
        assert_eq!(read.is_ok_and(|list| list.checked().is_ok()), is);
    }

    #[test]
    fn a_name_too_long_for_a_label_lists_the_whole_namespace() {
        let query = |name: String| {
            PodsQuery::new(
                ObjectKey::new("ci", name),
                Uid::new("u"),
                Some("workflow".into()),
            )
        };
        let narrowed = |query| matches!(query, PodsQuery::Workflow { label: Some(_), .. });
        assert!(narrowed(query("x".repeat(63))));
        assert!(!narrowed(query("x".repeat(64))));
    }
}
