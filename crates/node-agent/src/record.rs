//! What the agent reads of a `PodRecreation`: whether a node is to be wiped, and of which pod.

use std::sync::Arc;

use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::slim::json::{JsonMeta, SlimJson};
use belayer_core::slim::{DecodeContext, DecodeError, ObjectMeta, Slim};
use serde::Deserialize;

/// The condition that the agent writes.
pub const STATE_WIPED: &str = "StateWiped";

/// The kind as the API serves it.
pub fn resource() -> Resource {
    Resource::new("belayer.dev", "v1alpha1", "PodRecreation", "podrecreations")
}

/// Where the state machine of pod-recreation stands in phases in which the rejected pod is known never
/// to have run. In the others there is nothing to wipe, or it is not known whether there is.
const PHASES: [&str; 6] = [
    "Rejected",
    "Deleting",
    "Waiting",
    "Creating",
    "Recreated",
    "Started",
];

/// How much of the first pod's UID is in a record's name.
const UID_PART: usize = 8;

/// The longest name of a record.
const NAME_LIMIT: usize = 253;

/// A record, as far as wiping goes.
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
    /// `status.rejectedUID`: the pod that it rejected.
    pub rejected: Option<Uid>,
    /// Whether the node is to be wiped of that pod.
    pub wish: Wish,
}

/// Whether a node is to be wiped of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Wish {
    /// Nobody asks for it.
    #[default]
    None,
    /// It is.
    Wanted,
    /// It is done.
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

    /// Whether its name follows from the pod's name and the first pod's UID, as that of every record that
    /// Belayer makes does: any other asks for nothing (row T1).
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

    /// What it says about a pod of a node.
    pub fn wish_for(&self, node: &str, pod: &Uid) -> Wish {
        let asks = self.node.as_deref() == Some(node) && self.rejected.as_ref() == Some(pod);
        if asks && self.is_well_named() {
            self.wish
        } else {
            Wish::None
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
            || self.wish != older.wish
    }
}

/// A record as it stands in the bytes.
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
    fn wish(&self, policy: &JsonPolicy) -> Wish {
        let required = policy.wipe.as_deref() == Some("required");
        let phase = self.phase.as_deref().unwrap_or_default();
        if !required || !PHASES.contains(&phase) {
            return Wish::None;
        }
        let conditions = self.conditions.as_deref().unwrap_or_default();
        let done = |condition: &JsonCondition| {
            condition.r#type == STATE_WIPED && condition.status == "True"
        };
        if conditions.iter().any(done) {
            Wish::Done
        } else {
            Wish::Wanted
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
        let said = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
        Ok(Self {
            meta: json.metadata.to_meta(context)?,
            pod_name: json.spec.pod_name.as_str().into(),
            node: said(status.and_then(|status| status.node_name.as_ref())).map(Arc::from),
            rejected: said(status.and_then(|status| status.rejected_uid.as_ref())).map(Uid::new),
            wish: status.map_or(Wish::None, |status| status.wish(&json.spec.policy)),
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
    #[case::wanted("required", status("Rejected", "False"), Wish::Wanted)]
    #[case::done("required", status("Rejected", "True"), Wish::Done)]
    #[case::after_a_time_out("required", status("Recreated", "False"), Wish::Wanted)]
    #[case::nobody_asks("none", status("Rejected", "False"), Wish::None)]
    #[case::it_may_have_run("required", status("Ended", "False"), Wish::None)]
    #[case::no_phase_yet("required", json!({ "nodeName": "n", "rejectedUID": "u-1" }), Wish::None)]
    #[case::no_conditions("required", json!({ "phase": "Rejected", "nodeName": "n", "rejectedUID": "u-1", "conditions": null }), Wish::Wanted)]
    fn a_record_says_whether_a_node_is_to_be_wiped(
        #[case] wipe: &str,
        #[case] status: Value,
        #[case] expected: Wish,
    ) {
        let record = read(wipe, &status).unwrap();
        let pod = Uid::new("u-1");
        assert_eq!(record.wish_for("n", &pod), expected);
        assert_eq!(record.wish_for("m", &pod), Wish::None, "another node");
        assert_eq!(
            record.wish_for("n", &Uid::new("u-2")),
            Wish::None,
            "another pod"
        );
        assert_eq!(record.pod(), ObjectKey::new("shop", "web"));
    }

    #[rstest]
    #[case::as_belayer_makes_it("web-12345678", "web", Wish::Wanted)]
    #[case::another_pod("web-12345678", "db", Wish::None)]
    #[case::another_chain("web-87654321", "web", Wish::None)]
    #[case::no_uid("web", "web", Wish::None)]
    #[case::more_than_the_uid("web-x-12345678", "web", Wish::None)]
    fn t1_a_record_of_another_name_asks_for_nothing(
        #[case] name: &str,
        #[case] pod: &str,
        #[case] expected: Wish,
    ) {
        let mut record = read("required", &status("Rejected", "False")).unwrap();
        record.meta.key = ObjectKey::new("shop", name);
        record.pod_name = pod.into();
        assert_eq!(record.wish_for("n", &Uid::new("u-1")), expected);
    }

    #[test]
    fn t1_a_long_name_is_cut_as_belayer_cuts_it() {
        let mut record = read("required", &status("Rejected", "False")).unwrap();
        let pod = format!("{}-{}", "a".repeat(243), "b".repeat(9));
        record.meta.key = ObjectKey::new("shop", format!("{}-12345678", "a".repeat(243)));
        record.pod_name = pod.as_str().into();
        assert_eq!(record.wish_for("n", &Uid::new("u-1")), Wish::Wanted);
    }

    #[rstest]
    #[case::null(Value::Null)]
    #[case::empty(json!({}))]
    #[case::empty_texts(json!({ "phase": "Rejected", "nodeName": "", "rejectedUID": "" }))]
    fn a_record_without_status_asks_for_nothing(#[case] status: Value) {
        let record = read("required", &status).unwrap();
        assert_eq!((record.node, record.rejected), (None, None));
    }

    #[test]
    fn a_record_that_makes_no_sense_is_no_record() {
        assert!(read("required", &json!({ "conditions": 7 })).is_err());
    }
}
