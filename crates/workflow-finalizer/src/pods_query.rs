//! Live reads of the pods of a namespace that are held by the pod-status finalizer, for all its
//! deleted workflows together (A8). A rule of [`row`](crate::row) asks for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hashbrown::HashSet;
use serde::Deserialize;

use belayer_core::executor::{Class, Executor};
use belayer_core::http::{METADATA_ONLY_LIST, Pages, Request, RequestError};
use belayer_core::informer::Store;
use belayer_core::object::{Resource, ResourceVersion, Uid};
use belayer_core::queries::{LiveReader, Pace, Query, ReadError};
use belayer_core::slim::Pod;
use belayer_holds::names;

/// Pods per page.
const PAGE: u32 = 500;

/// Pods of the first page: if the namespace has no more, it is the whole answer, and the store need not be waited for. A
/// store of pods that do not change never reaches the version of a server on which other kinds change.
const FIRST_PAGE: u32 = 100;

/// The pods of a namespace are read at most once per second. A rule of [`row`](crate::row) asks
/// for it.
pub fn pace() -> Pace {
    Pace {
        min_interval: Duration::from_secs(1),
        ..Pace::default()
    }
}

/// Which workflows of a namespace have held pods. Pods belong to a workflow by UID; the label only
/// narrows a list. A rule of [`row`](crate::row) asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodsQuery {
    namespace: Arc<str>,
    /// A label that all pods of workflows have.
    label: Option<Arc<str>>,
}

impl PodsQuery {
    /// The query for this namespace.
    pub fn new(namespace: Arc<str>, label: Option<Arc<str>>) -> Self {
        Self { namespace, label }
    }

    /// A page of metadata of pods. The pods of a cluster-scoped owner may be in any namespace.
    fn list(&self, pages: &Pages) -> Request {
        let namespace = Some(&*self.namespace).filter(|name| !name.is_empty());
        let path = Resource::pods().path(namespace);
        pages.request(path).accept(METADATA_ONLY_LIST)
    }

    /// A page of the pods of workflows.
    fn list_of_workflows(&self, pages: &Pages) -> Request {
        let request = self.list(pages);
        match &self.label {
            Some(label) => request.query("labelSelector", label.to_string()),
            None => request,
        }
    }
}

impl fmt::Display for PodsQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => f.write_str("which cluster-scoped owners have held pods"),
            namespace => write!(f, "which workflows of namespace {namespace} have held pods"),
        }
    }
}

/// The result of a live read. A rule of [`row`](crate::row) asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodsState {
    /// The UIDs of all owners of held pods.
    HeldOf(Arc<HashSet<Uid>>),
    /// The pod store has reached the version that the server was at: its index gives the answer.
    StoreReached,
}

impl PodsState {
    /// No pod is held.
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

/// Answers [`PodsQuery`]s by live lists of metadata. A rule of [`row`](crate::row) asks for it.
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
        if let Some(pods) = &self.pods {
            let before = pods.resource_version();
            let mut pages = Pages::of(FIRST_PAGE);
            let mut first = self.page(&mut pages, |pages| query.list(pages)).await?;
            if !pages.turn(first.metadata.next.take())? {
                return Ok(PodsState::HeldOf(Arc::new(first.owners().collect())));
            }
            if pods.reaches_soon(first.version()?, before).await {
                return Ok(PodsState::StoreReached);
            }
        }
        self.listed(query).await
    }

    async fn listed(&self, query: &PodsQuery) -> Result<PodsState, ReadError> {
        let mut owners = HashSet::new();
        let mut pages = Pages::of(PAGE);
        loop {
            let page = self
                .page(&mut pages, |pages| query.list_of_workflows(pages))
                .await?;
            owners.extend(page.owners());
            if !pages.turn(page.metadata.next)? {
                return Ok(PodsState::HeldOf(Arc::new(owners)));
            }
        }
    }

    /// A page, with half as many pods as long as it is too large.
    async fn page(
        &self,
        pages: &mut Pages,
        request: impl Fn(&Pages) -> Request,
    ) -> Result<List, ReadError> {
        let answer = loop {
            match self.executor.read(&request(pages), Class::Evidence).await {
                Err(error) if pages.halve(&error) => {}
                answer => break answer,
            }
        };
        answer
            .and_then(|answer| answer.json())
            .and_then(List::checked)
            .map_err(ReadError::from)
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

    /// The owners of the held pods of this page.
    fn owners(&self) -> impl Iterator<Item = Uid> {
        self.items.iter().flatten().flat_map(Item::owners_if_held)
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
    #[serde(default)]
    controller: Option<bool>,
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
        // As the index of the store: the pod's result belongs to its controller.
        let owners = owner_references.iter().flatten();
        let owners = owners.filter(move |owner| held && owner.controller == Some(true));
        owners.map(|owner| Uid::new(owner.uid.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::held_and_owned(json!(["belayer.dev/pod-status"]), json!([{"uid": "u-1", "controller": true}]), true)]
    #[case::of_another_uid(json!(["belayer.dev/pod-status"]), json!([{"uid": "u-2", "controller": true}]), false)]
    #[case::of_another_controller(json!(["belayer.dev/pod-status"]), json!([{"uid": "u-1", "controller": false}]), false)]
    #[case::orphaned(json!(["belayer.dev/pod-status"]), json!(null), false)]
    #[case::foreign_finalizers_only(json!(["x/y"]), json!([{"uid": "u-1", "controller": true}]), false)]
    #[case::not_held(json!(null), json!([{"uid": "u-1", "controller": true}]), false)]
    #[case::a7_held_for_its_recreation_alone(json!(["belayer.dev/pod-recreation"]), json!([{"uid": "u-1", "controller": true}]), false)]
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
}
