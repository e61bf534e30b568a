//! Live reads of the pods of a namespace that are held by the pod-status finalizer, for all its
//! deleted workflows together (A8). A rule of [`row`](crate::row) asks for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hashbrown::HashSet;

use belayer_core::executor::Executor;
use belayer_core::http::{METADATA_ONLY_LIST, Pages, Request};
use belayer_core::informer::{Decoders, JsonDecoder, Page, Store};
use belayer_core::object::{Resource, Uid};
use belayer_core::queries::{LiveReader, Pace, Query, ReadError};
use belayer_core::slim::{Keep, ObjectMeta, OwnerMeta, Pod};
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
    decoders: Decoders<OwnerMeta>,
    pods: Option<Store<Pod>>,
}

impl PodsReader {
    /// Reads through `executor`; `pods` is the informer's store, if there is an informer.
    pub fn new(executor: Arc<Executor>, pods: Option<Store<Pod>>) -> Self {
        Self {
            executor,
            decoders: Decoders::new(decoder()),
            pods,
        }
    }

    async fn pods(&self, query: &PodsQuery) -> Result<PodsState, ReadError> {
        if let Some(pods) = &self.pods {
            let before = pods.resource_version();
            let mut pages = Pages::of(FIRST_PAGE);
            let mut first = self.page(&mut pages, |pages| query.list(pages)).await?;
            let now = first.resource_version;
            if !pages.turn(first.continue_token.take())? {
                let mut owners = HashSet::new();
                note_owners(&mut owners, first)?;
                return Ok(PodsState::HeldOf(Arc::new(owners)));
            }
            if pods.reaches_soon(now, before).await {
                return Ok(PodsState::StoreReached);
            }
        }
        self.listed(query).await
    }

    async fn listed(&self, query: &PodsQuery) -> Result<PodsState, ReadError> {
        let mut owners = HashSet::new();
        let mut pages = Pages::of(PAGE);
        loop {
            let mut page = self
                .page(&mut pages, |pages| query.list_of_workflows(pages))
                .await?;
            let next = page.continue_token.take();
            note_owners(&mut owners, page)?;
            if !pages.turn(next)? {
                return Ok(PodsState::HeldOf(Arc::new(owners)));
            }
        }
    }

    async fn page(
        &self,
        pages: &mut Pages,
        request: impl Fn(&Pages) -> Request,
    ) -> Result<Page<OwnerMeta>, ReadError> {
        let answer = self.executor.page(pages, request).await?;
        Ok(self.decoders.read_page(&answer)?)
    }
}

impl LiveReader<PodsQuery> for PodsReader {
    fn read<'a>(&'a self, query: &'a PodsQuery) -> BoxFuture<'a, Result<PodsState, ReadError>> {
        Box::pin(self.pods(query))
    }
}

fn decoder() -> JsonDecoder<OwnerMeta> {
    let keep = Keep::nothing().finalizers([names::POD_STATUS_HOLD]);
    JsonDecoder::new(keep.into())
}

/// Adds the owners of the held pods of a page. A pod that cannot be decoded may be held, so the page is then not an answer.
fn note_owners(owners: &mut HashSet<Uid>, page: Page<OwnerMeta>) -> Result<(), ReadError> {
    for pod in page.items {
        owners.extend(owner_if_held(&pod?.meta));
    }
    Ok(())
}

/// The controller of the pod, to which its result belongs, if it is held. A pod that only pod-recreation holds waits for
/// its node, and has no result that could be lost.
fn owner_if_held(pod: &ObjectMeta) -> Option<Uid> {
    let controller = pod.controller.as_ref();
    let held = pod.has_finalizer(names::POD_STATUS_HOLD);
    controller.filter(|_| held).map(|owner| owner.uid.clone())
}

#[cfg(test)]
mod tests {
    use belayer_core::informer::Decoder as _;
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
        let mut pod = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}});
        pod["metadata"]["finalizers"] = finalizers;
        pod["metadata"]["ownerReferences"] = owners;
        let owner = owner_if_held(
            &decoder()
                .decode_object(pod.to_string().as_bytes())
                .unwrap()
                .meta,
        );
        assert_eq!(owner.is_some_and(|uid| uid.as_str() == "u-1"), counts);
    }

    #[rstest]
    #[case::null(json!({"kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": "1"}, "items": null}), true)]
    #[case::empty(json!({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []}), true)]
    #[case::without_items(json!({"kind": "PodList", "metadata": {"resourceVersion": "1"}}), false)]
    #[case::no_list_at_all(json!({"kind": "Status", "metadata": {"resourceVersion": "1"}, "items": []}), false)]
    #[case::damaged_pod(json!({"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [{"metadata": {}}]}), false)]
    #[case::anything(json!({}), false)]
    fn only_a_complete_list_is_accepted(#[case] body: serde_json::Value, #[case] is: bool) {
        let read = decoder().decode_page(&body.to_string().into());
        let noted = read.map(|page| note_owners(&mut HashSet::new(), page));
        assert_eq!(noted.is_ok_and(|noted| noted.is_ok()), is);
    }
}
