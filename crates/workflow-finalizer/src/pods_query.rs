//! Whether any pod of a workflow is held by the pod-status finalizer, by a live list of its namespace.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Deserialize;

use belayer_core::executor::{Class, Executor};
use belayer_core::http::{Request, RequestError};
use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::queries::{LiveReader, Query, ReadError};
use belayer_holds::names;

/// Pods per page.
const PAGE: u32 = 500;

/// Longest label value. A longer workflow name cannot be the value of the pods' label.
const LONGEST_LABEL_VALUE: usize = 63;

/// Accept header for a list of metadata; a server that does not support it sends whole pods.
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Whether any pod of a workflow is held by the pod-status finalizer. Pods belong to the workflow by UID; the label
/// only narrows the list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodsQuery {
    workflow: ObjectKey,
    uid: Uid,
    label: Option<Arc<str>>,
}

impl PodsQuery {
    /// The query for the pods of `workflow`, which have its name as the value of `label`, if given.
    pub fn new(workflow: ObjectKey, uid: Uid, label: Option<Arc<str>>) -> Self {
        let label = label.filter(|_| workflow.name().len() <= LONGEST_LABEL_VALUE);
        Self {
            workflow,
            uid,
            label,
        }
    }

    fn request(&self, page: Option<&str>) -> Request {
        let pods = Resource::pods();
        let request =
            Request::list(pods.path(self.workflow.namespace()), PAGE, page).accept(METADATA_LIST);
        match &self.label {
            Some(label) => {
                request.query("labelSelector", format!("{label}={}", self.workflow.name()))
            }
            None => request,
        }
    }
}

impl fmt::Display for PodsQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workflow, uid, .. } = self;
        write!(f, "is any pod of {workflow} (uid {uid}) still held")
    }
}

/// The result of a live list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodsState {
    /// No pod of that UID is held.
    NoneHeld,
    /// At least one pod is held.
    SomeHeld,
}

impl Query for PodsQuery {
    type Answer = PodsState;

    const NAME: &'static str = "pods";

    fn outcome(answer: &PodsState) -> &'static str {
        match answer {
            PodsState::NoneHeld => "none",
            PodsState::SomeHeld => "some",
        }
    }
}

/// Answers [`PodsQuery`]s by live lists of metadata.
#[derive(Debug)]
pub struct PodsReader {
    executor: Arc<Executor>,
}

impl PodsReader {
    /// Reads through `executor`.
    pub fn new(executor: Arc<Executor>) -> Self {
        Self { executor }
    }

    async fn pods(&self, query: &PodsQuery) -> Result<PodsState, ReadError> {
        let mut page: Option<String> = None;
        loop {
            let request = query.request(page.as_deref());
            let answer = self.executor.read(&request, Class::Evidence).await;
            let list: List = answer
                .and_then(|answer| answer.json())
                .and_then(List::checked)
                .map_err(|error| ReadError::from(&error))?;
            let mut pods = list.items.iter().flatten();
            if pods.any(|pod| pod.is_held_pod_of(&query.uid)) {
                return Ok(PodsState::SomeHeld);
            }
            match list.metadata.next.filter(|next| !next.is_empty()) {
                Some(next) => page = Some(next),
                None => return Ok(PodsState::NoneHeld),
            }
        }
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
}

#[derive(Debug, Default, Deserialize)]
struct ListMeta {
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
    fn is_held_pod_of(&self, owner: &Uid) -> bool {
        let Metadata {
            finalizers,
            owner_references,
        } = &self.metadata;
        let owned = owner_references
            .iter()
            .flatten()
            .any(|have| have.uid == owner.as_str());
        let mut finalizers = finalizers.iter().flatten();
        // A pod that only pod-recreation holds waits for its node, and has no result that could be lost.
        owned && finalizers.any(|have| have == names::POD_STATUS_HOLD)
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
        assert_eq!(item.is_held_pod_of(&Uid::new("u-1")), counts);
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
        assert!(query("x".repeat(63)).label.is_some());
        assert!(query("x".repeat(64)).label.is_none());
    }
}
