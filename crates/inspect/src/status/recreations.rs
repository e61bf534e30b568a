//! The records that pod-recreation keeps: of re-creations in progress, and of those that ended lately.

use std::cmp::Reverse;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use belayer_core::http::{ErrorClass, RequestError};
use belayer_core::object::Resource;

use crate::reader::Reader;

/// How many records are listed.
const LISTED: usize = 200;

/// The kind of the records. The crate of its controller depends on this one.
pub(super) fn kind() -> Resource {
    Resource::new("belayer.dev", "v1alpha1", "PodRecreation", "podrecreations")
}

/// Re-creations of rejected pods. Part of a [status page](crate::status::Page).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Recreations {
    /// How many records there are.
    pub total: usize,
    /// At most 200 of them: those in progress first, the oldest at the top, then the others, the last one that ended
    /// first.
    pub listed: Vec<Recreation>,
}

/// The record of a pod and its re-creations. Part of a [status page](crate::status::Page).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Recreation {
    /// Namespace of the pod and its record.
    pub namespace: String,
    /// Name of the pod.
    pub pod_name: String,
    /// Maximum number of re-creations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u64>,
    /// When the record was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>", extend("format" = "date-time")))]
    pub creation_timestamp: Option<Timestamp>,
    /// How far it is.
    #[serde(flatten)]
    pub progress: Progress,
}

/// A part of the status of a record, with the same names. Part of a [status page](crate::status::Page).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The state of the state machine; absent if Belayer has not begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Number of reserved re-creations.
    #[serde(default)]
    pub attempts: u64,
    /// The node that rejected the pod last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Why the node rejected it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the record ended, or what blocks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it ended; absent while it is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>", extend("format" = "date-time")))]
    pub finished_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Record {
    metadata: Metadata,
    spec: Spec,
    status: Option<Progress>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: String,
    creation_timestamp: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    pod_name: String,
    #[serde(default)]
    policy: Policy,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Policy {
    max_retries: Option<u64>,
}

/// The re-creations in one namespace or in all; `None` if their kind is not installed.
///
/// # Errors
///
/// As [`Reader::all`].
pub(super) async fn recreations(
    reader: &Reader,
    namespace: Option<&str>,
) -> Result<Option<Recreations>, RequestError> {
    let records: Vec<Record> = match reader.all(&kind().path(namespace)).await {
        Err(error) if error.class() == ErrorClass::NotServed => return Ok(None),
        read => read?,
    };
    let total = records.len();
    let mut listed: Vec<Recreation> = records.into_iter().map(Recreation::from).collect();
    listed.sort_by_key(|one| {
        let ended = one.progress.finished_at;
        (ended.is_some(), Reverse(ended), one.creation_timestamp)
    });
    listed.truncate(LISTED);
    Ok(Some(Recreations { total, listed }))
}

impl From<Record> for Recreation {
    fn from(record: Record) -> Self {
        Self {
            namespace: record.metadata.namespace,
            pod_name: record.spec.pod_name,
            max_retries: record.spec.policy.max_retries,
            creation_timestamp: record.metadata.creation_timestamp,
            progress: record.status.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use belayer_core::executor::Bounds;
    use belayer_sandbox::{Answer, Fault, Match, Sandbox, Verb};
    use serde_json::{Value, json};

    use super::*;
    use crate::status::tests::query;
    use crate::status::{Page, page};

    const CRD: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../deploy/manifests/crd-pod-recreation.yaml"
    );

    fn sandbox() -> Sandbox {
        let sandbox = Sandbox::builder().build();
        let crd = std::fs::read_to_string(CRD).unwrap();
        sandbox.load_yaml(&crd).unwrap();
        sandbox
            .load_yaml("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
            .unwrap();
        sandbox
    }

    fn record(sandbox: &Sandbox, namespace: &str, pod: &str, status: &Value) {
        let uid = "60e00000-0000-4000-8000-000000000000";
        let record = json!({
            "apiVersion": "belayer.dev/v1alpha1", "kind": "PodRecreation",
            "metadata": { "name": format!("{pod}-60e00000"), "namespace": namespace },
            "spec": { "podName": pod, "firstUID": uid, "policy": { "maxRetries": 3 }, "pod": {} },
            "status": status,
        });
        sandbox.load_yaml(&record.to_string()).unwrap();
    }

    async fn read(sandbox: &Sandbox, namespace: Option<&str>) -> Page {
        let reader = Reader::new(sandbox.client(), Bounds::default());
        let query = query(namespace);
        page(&reader, &query, || Timestamp::UNIX_EPOCH)
            .await
            .unwrap()
    }

    fn names(page: &Page) -> Vec<&str> {
        let listed = &page.recreations.as_ref().unwrap().listed;
        listed.iter().map(|one| one.pod_name.as_str()).collect()
    }

    #[tokio::test]
    async fn a_recreation_shows_its_state_attempts_node_and_reason() {
        let sandbox = sandbox();
        let status = json!({
            "phase": "Waiting", "attempts": 1, "nodeName": "node-1", "reason": "OutOfcpu", "message": "the quota",
        });
        record(&sandbox, "shop", "web", &status);
        record(&sandbox, "shop", "new", &Value::Null);
        let page = read(&sandbox, None).await;
        let mut found = serde_json::to_value(&page.recreations).unwrap();
        found["listed"]
            .as_array_mut()
            .unwrap()
            .sort_by_key(|one| one["podName"].to_string());
        for one in found["listed"].as_array_mut().unwrap() {
            let created = one.as_object_mut().unwrap().remove("creationTimestamp");
            assert!(created.is_some_and(|at| at.is_string()), "{one}");
        }
        let expected = json!({ "total": 2, "listed": [
            { "namespace": "shop", "podName": "new", "maxRetries": 3, "attempts": 0 },
            { "namespace": "shop", "podName": "web", "maxRetries": 3, "attempts": 1, "phase": "Waiting",
              "nodeName": "node-1", "reason": "OutOfcpu", "message": "the quota" },
        ] });
        assert_eq!(found, expected);
    }

    #[tokio::test]
    async fn recreations_in_progress_come_first_then_the_one_that_ended_last() {
        let sandbox = sandbox();
        for (pod, at) in [
            ("b-earlier", "2026-01-01T00:01:00Z"),
            ("a-last", "2026-01-01T00:02:00Z"),
        ] {
            let status = json!({ "phase": "Started", "attempts": 1, "finishedAt": at });
            record(&sandbox, "shop", pod, &status);
        }
        let waiting = json!({ "phase": "Waiting", "attempts": 0 });
        record(&sandbox, "default", "z-waits", &waiting);
        let page = read(&sandbox, None).await;
        assert_eq!(names(&page), ["z-waits", "a-last", "b-earlier"]);
        let page = read(&sandbox, Some("default")).await;
        assert_eq!(names(&page), ["z-waits"]);
    }

    #[tokio::test]
    async fn the_list_of_recreations_is_bounded_and_their_number_is_not() {
        let sandbox = sandbox();
        for number in 0..=LISTED {
            record(&sandbox, "shop", &format!("web-{number}"), &Value::Null);
        }
        let page = read(&sandbox, None).await;
        assert_eq!(names(&page).len(), LISTED);
        assert_eq!(page.recreations.unwrap().total, LISTED + 1);
    }

    #[tokio::test]
    async fn without_their_kind_there_is_no_table_of_recreations() {
        let page = read(&Sandbox::builder().build(), None).await;
        assert_eq!(page.recreations, None);
        assert_eq!(page.status.unknown, Vec::<String>::new());
    }

    #[tokio::test]
    async fn recreations_that_may_not_be_listed_are_unknown() {
        let sandbox = sandbox();
        let lists = Match::verb(Verb::List).resource("podrecreations");
        let no = Fault::on(lists).answer(Answer::forbidden("no"));
        let _no = sandbox.faults().inject(no);
        let page = read(&sandbox, None).await;
        assert_eq!(page.recreations, None);
        let says = "which pods are re-created: podrecreations.belayer.dev: not allowed";
        assert_eq!(page.status.unknown, [says]);
    }
}
