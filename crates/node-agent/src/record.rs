//! The parts of a `PodRecreation` that the agent reads: whether a node must be wiped, and of which pod.

use std::sync::Arc;

use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::slim::json::{JsonMeta, SlimJson};
use belayer_core::slim::{DecodeContext, DecodeError, ObjectMeta, Slim};
use serde::Deserialize;

/// The condition that the agent writes.
pub const STATE_WIPED: &str = "StateWiped";

/// The record kind as the API server serves it.
pub fn resource() -> Resource {
    Resource::new("belayer.dev", "v1alpha1", "PodRecreation", "podrecreations")
}

/// Phases of pod-recreation in which the rejected pod is known never to have run. In the others there is
/// nothing to wipe, or the pod may have run.
const PHASES: [&str; 6] = [
    "Rejected",
    "Deleting",
    "Waiting",
    "Creating",
    "Recreated",
    "Started",
];

/// Bytes of the first pod's UID in a record's name.
const UID_PART: usize = 8;

/// Longest name of a record, in bytes.
const NAME_LIMIT: usize = 253;

/// A record, reduced to what wiping needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Metadata.
    pub meta: ObjectMeta,
    /// `spec.firstUID`: the first pod of the chain.
    pub first_uid: Uid,
    /// `spec.podName`.
    pub pod_name: Arc<str>,
    /// `status.nodeName`: the node that rejected the pod.
    pub node: Option<Arc<str>>,
    /// `status.rejectedUID`: the rejected pod.
    pub rejected: Option<Uid>,
    /// Whether a wipe of that pod is requested.
    pub request: WipeRequest,
}

/// What a record requests for a pod on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WipeRequest {
    /// No wipe.
    #[default]
    None,
    /// A wipe.
    Wanted,
    /// A wipe, which is complete.
    Done,
}

impl Record {
    /// Namespace and name of the pod.
    pub fn pod(&self) -> ObjectKey {
        ObjectKey::new(
            Arc::clone(self.meta.key.shared_namespace()),
            Arc::clone(&self.pod_name),
        )
    }

    /// Whether its name is derived from the pod's name and the first pod's UID, as Belayer derives it.
    /// A record with any other name requests nothing (rule T1).
    fn is_well_named(&self) -> bool {
        let (Some(uid), Some((pod, tail))) = (
            self.first_uid.as_str().get(..UID_PART),
            self.meta.key.name().rsplit_once('-'),
        ) else {
            return false;
        };
        let room = NAME_LIMIT - UID_PART - 1;
        let cut = &self.pod_name[..self.pod_name.floor_char_boundary(room)];
        tail == uid && pod == cut.trim_end_matches(['-', '.'])
    }

    /// What the record requests for a pod on a node.
    pub fn wipe_request_for(&self, node: &str, pod: &Uid) -> WipeRequest {
        let asks = self.node.as_deref() == Some(node) && self.rejected.as_ref() == Some(pod);
        if asks && self.is_well_named() {
            self.request
        } else {
            WipeRequest::None
        }
    }
}

impl Slim for Record {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn differs(&self, older: &Self) -> bool {
        self.meta.differs(&older.meta)
            || self.node != older.node
            || self.rejected != older.rejected
            || self.request != older.request
    }
}

/// The JSON form of a record.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct JsonRecord<'a> {
    #[serde(borrow)]
    metadata: JsonMeta<'a>,
    spec: JsonSpec,
    status: Option<JsonStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonSpec {
    pod_name: String,
    #[serde(rename = "firstUID")]
    first_uid: String,
    policy: JsonPolicy,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JsonPolicy {
    wipe: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonStatus {
    phase: Option<String>,
    node_name: Option<String>,
    #[serde(rename = "rejectedUID")]
    rejected_uid: Option<String>,
    conditions: Option<Vec<JsonCondition>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JsonCondition {
    r#type: String,
    status: String,
}

impl JsonStatus {
    fn wipe_request(&self, policy: &JsonPolicy) -> WipeRequest {
        let required = policy.wipe.as_deref() == Some("required");
        let phase = self.phase.as_deref().unwrap_or_default();
        if !required || !PHASES.contains(&phase) {
            return WipeRequest::None;
        }
        let conditions = self.conditions.as_deref().unwrap_or_default();
        let done = |condition: &JsonCondition| {
            condition.r#type == STATE_WIPED && condition.status == "True"
        };
        if conditions.iter().any(done) {
            WipeRequest::Done
        } else {
            WipeRequest::Wanted
        }
    }
}

impl SlimJson for Record {
    type Json<'a> = JsonRecord<'a>;
    const METADATA_ONLY: bool = false;

    fn json_meta<'j, 'a>(json: &'j Self::Json<'a>) -> &'j JsonMeta<'a> {
        &json.metadata
    }

    fn from_json(json: &Self::Json<'_>, context: &DecodeContext) -> Result<Self, DecodeError> {
        if json.spec.pod_name.is_empty() {
            return Err(DecodeError::Missing("spec.podName"));
        }
        let status = json.status.as_ref();
        let non_empty = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
        Ok(Self {
            meta: json.metadata.to_meta(context)?,
            pod_name: json.spec.pod_name.as_str().into(),
            node: non_empty(status.and_then(|status| status.node_name.as_ref())).map(Arc::from),
            rejected: non_empty(status.and_then(|status| status.rejected_uid.as_ref()))
                .map(Uid::new),
            request: status.map_or(WipeRequest::None, |status| {
                status.wipe_request(&json.spec.policy)
            }),
            first_uid: Uid::new(json.spec.first_uid.as_str()),
        })
    }
}

#[cfg(test)]
mod tests {
    use belayer_core::informer::{Decoder as _, JsonDecoder};
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn read(wipe: &str, status: &Value) -> Result<Record, DecodeError> {
        let record = json!({
            "apiVersion": "belayer.dev/v1alpha1", "kind": "PodRecreation",
            "metadata": { "name": "web-12345678", "namespace": "shop", "uid": "r-1", "resourceVersion": "7" },
            "spec": { "podName": "web", "firstUID": "12345678-4e5f-6071-8293-a4b5c6d7e8f9", "policy": { "wipe": wipe }, "pod": { "spec": {} } },
            "status": status,
        });
        JsonDecoder::new(DecodeContext::default()).decode_object(record.to_string().as_bytes())
    }

    fn status(phase: &str, wiped: &str) -> Value {
        json!({
            "phase": phase, "nodeName": "n", "rejectedUID": "u-1",
            "conditions": [
                { "type": "PodRejected", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                { "type": "StateWiped", "status": wiped, "lastTransitionTime": "2026-01-01T00:00:00Z" },
            ],
        })
    }

    #[rstest]
    #[case::wanted("required", status("Rejected", "False"), WipeRequest::Wanted)]
    #[case::done("required", status("Rejected", "True"), WipeRequest::Done)]
    #[case::after_a_time_out("required", status("Recreated", "False"), WipeRequest::Wanted)]
    #[case::no_wipe_in_the_policy("none", status("Rejected", "False"), WipeRequest::None)]
    #[case::it_may_have_run("required", status("Ended", "False"), WipeRequest::None)]
    #[case::no_phase_yet("required", json!({ "nodeName": "n", "rejectedUID": "u-1" }), WipeRequest::None)]
    #[case::no_conditions("required", json!({ "phase": "Rejected", "nodeName": "n", "rejectedUID": "u-1", "conditions": null }), WipeRequest::Wanted)]
    fn a_record_requests_a_wipe_of_one_pod_on_one_node(
        #[case] wipe: &str,
        #[case] status: Value,
        #[case] expected: WipeRequest,
    ) {
        let record = read(wipe, &status).unwrap();
        let pod = Uid::new("u-1");
        assert_eq!(record.wipe_request_for("n", &pod), expected);
        assert_eq!(
            record.wipe_request_for("m", &pod),
            WipeRequest::None,
            "another node"
        );
        assert_eq!(
            record.wipe_request_for("n", &Uid::new("u-2")),
            WipeRequest::None,
            "another pod"
        );
        assert_eq!(record.pod(), ObjectKey::new("shop", "web"));
    }

    #[rstest]
    #[case::as_belayer_makes_it("web-12345678", "web", WipeRequest::Wanted)]
    #[case::another_pod("web-12345678", "db", WipeRequest::None)]
    #[case::another_chain("web-87654321", "web", WipeRequest::None)]
    #[case::no_uid("web", "web", WipeRequest::None)]
    #[case::more_than_the_uid("web-x-12345678", "web", WipeRequest::None)]
    fn t1_a_record_of_another_name_requests_nothing(
        #[case] name: &str,
        #[case] pod: &str,
        #[case] expected: WipeRequest,
    ) {
        let mut record = read("required", &status("Rejected", "False")).unwrap();
        record.meta.key = ObjectKey::new("shop", name);
        record.pod_name = pod.into();
        assert_eq!(record.wipe_request_for("n", &Uid::new("u-1")), expected);
    }

    #[test]
    fn t1_a_long_name_is_cut_as_belayer_cuts_it() {
        let mut record = read("required", &status("Rejected", "False")).unwrap();
        let pod = format!("{}-{}", "a".repeat(243), "b".repeat(9));
        record.meta.key = ObjectKey::new("shop", format!("{}-12345678", "a".repeat(243)));
        record.pod_name = pod.as_str().into();
        assert_eq!(
            record.wipe_request_for("n", &Uid::new("u-1")),
            WipeRequest::Wanted
        );
    }

    #[rstest]
    #[case::null(Value::Null)]
    #[case::empty(json!({}))]
    #[case::empty_texts(json!({ "phase": "Rejected", "nodeName": "", "rejectedUID": "" }))]
    fn a_record_without_status_requests_nothing(#[case] status: Value) {
        let record = read("required", &status).unwrap();
        assert_eq!((record.node, record.rejected), (None, None));
    }

    #[test]
    fn a_malformed_record_is_an_error() {
        assert!(read("required", &json!({ "conditions": 7 })).is_err());
    }
}
