//! What the agent asks of the API server about single objects, and the one thing that it writes.

use std::time::Duration;

use belayer_core::ambient;
use belayer_core::executor::{Class, Executor, Sent};
use belayer_core::http::{ErrorClass, PatchKind, Request, RequestError};
use belayer_core::informer::{Decoder as _, Decoders, JsonDecoder};
use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::slim::{DecodeContext, Pod};
use belayer_core::workqueue::Backoff;
use belayer_holds::names::FIELD_MANAGER;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::decide::Sight;
use crate::node_pods::NodePods;
use crate::record::{self, Record, STATE_WIPED, Wish};

/// How often a lost race is run again in place.
const TRIES: u32 = 5;

/// What the agent has to say about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The record that asks.
    pub record: ObjectKey,
    /// The pod that it asks about.
    pub pod: Uid,
    /// What is said.
    pub verdict: Verdict,
}

/// How a wipe stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing of the pod is left on the node.
    Wiped,
    /// Something is.
    Left {
        /// CamelCase word.
        reason: &'static str,
        /// What, in words.
        message: String,
    },
}

/// Why something could not be asked or said.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The answer makes no sense.
    #[error("the object in the answer cannot be read: {0}")]
    Decode(String),
    /// Others wrote the record again and again at the same time.
    #[error("the record {0} was changed by others each time that it was written")]
    Conflict(ObjectKey),
}

impl ApiError {
    /// How long it is waited before the next try.
    pub fn backoff(&self) -> Backoff {
        let Self::Request(error) = self else {
            return Backoff::CONFLICT;
        };
        match error.class() {
            ErrorClass::Forbidden | ErrorClass::Invalid => Backoff::DENIED,
            _ => Backoff::ERROR.at_least(error.retry_after().unwrap_or_default()),
        }
    }
}

/// Asks and says.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) executor: Executor,
    pub(crate) pod_decoders: Decoders<Pod>,
    node_pods: NodePods,
    pods: Resource,
    records: Resource,
    node: String,
}

impl Api {
    pub(crate) fn new(executor: Executor, pod_decoders: Decoders<Pod>, node: String) -> Self {
        Self {
            executor,
            node_pods: NodePods::new(&node, pod_decoders.clone()),
            pod_decoders,
            pods: Resource::pods(),
            records: record::resource(),
            node,
        }
    }

    /// The pod of a name as it is now; `None` if the server says that there is none.
    pub(crate) async fn live_pod(&self, key: &ObjectKey) -> Result<Option<Pod>, ApiError> {
        let request = Request::get(self.pods.object_path(key)).accept(
            self.pod_decoders
                .accept(belayer_core::informer::Reading::Object),
        );
        let answer = match self.executor.read(&request, Class::Evidence).await {
            Ok(answer) => answer,
            Err(error) if error.is_gone(&self.pods, key) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let pod = self.pod_decoders.read(&answer);
        pod.map(Some)
            .map_err(|error| ApiError::Decode(error.to_string()))
    }

    /// What the server shows now of the pod of a UID of which a record says that it had this name here: by
    /// a list of the pods of this node, which has it whatever its name is, and else by the name.
    pub(crate) async fn sight(&self, key: &ObjectKey, uid: &Uid) -> Result<Sight, ApiError> {
        if let Some(pod) = self.node_pods.find(&self.executor, uid).await? {
            return Ok(Sight::of(Some(&pod), key, uid, &self.node));
        }
        let named = self.live_pod(key).await?;
        Ok(Sight::of(named.as_ref(), key, uid, &self.node))
    }

    /// What a record says now about a pod of this node. A record that is gone says nothing.
    pub(crate) async fn wish(&self, record: &ObjectKey, pod: &Uid) -> Result<Wish, ApiError> {
        let request = Request::get(self.records.object_path(record));
        let answer = match self.executor.read(&request, Class::Evidence).await {
            Ok(answer) => answer,
            Err(error) if error.is_gone(&self.records, record) => return Ok(Wish::None),
            Err(error) => return Err(error.into()),
        };
        let decoder: JsonDecoder<Record> = JsonDecoder::new(DecodeContext::default());
        let record = decoder.decode_object(&answer.body);
        let record = record.map_err(|error| ApiError::Decode(error.to_string()))?;
        Ok(record.wish_for(&self.node, pod))
    }

    /// Writes the condition, if the record still asks about this pod on this node, and does not say the
    /// same already. The record's version makes it a conflict if anybody wrote it in between; then it is
    /// read again.
    ///
    /// A record that is gone, or asks about something else by now, has nobody left to be told.
    pub(crate) async fn report(&self, report: &Report) -> Result<(), ApiError> {
        let key = &report.record;
        let mut ceiling = None;
        for _ in 0..TRIES {
            let request = Request::get(self.records.object_path(key));
            let answer = match self.executor.read(&request, Class::Evidence).await {
                Ok(answer) => answer,
                Err(error) if error.is_gone(&self.records, key) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let live: Value = answer.json()?;
            let Some(patch) = patch(&live, &self.node, report, ambient::now()) else {
                return Ok(());
            };
            let path = self.records.subresource_path(key, "status");
            let request = Request::patch(path, PatchKind::Merge, patch.to_string())
                .query("fieldManager", FIELD_MANAGER);
            match self.executor.write(&request, Class::Write).await {
                Ok(Sent::Applied(_) | Sent::DryRun) => return Ok(()),
                Err(error) if error.is_gone(&self.records, key) => return Ok(()),
                Err(error) if error.class() == ErrorClass::Conflict => {
                    let next = Backoff::CONFLICT.ceiling_after(ceiling);
                    ceiling = Some(next);
                    let pause = Backoff::CONFLICT.delay(next, ambient::unit());
                    tokio::time::sleep(pause.max(Duration::from_millis(1))).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(ApiError::Conflict(key.clone()))
    }
}

/// The patch that writes a report, or nothing if there is nothing to write.
///
/// A merge patch replaces the list of conditions, so all others stand in it as they were read; the
/// version says that they still are.
fn patch(live: &Value, node: &str, report: &Report, now: Timestamp) -> Option<Value> {
    let status = &live["status"];
    let same_wish = status["rejectedUID"] == report.pod.as_str() && status["nodeName"] == node;
    if !same_wish || !live["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let (value, reason, message) = match &report.verdict {
        Verdict::Wiped => ("True", "Wiped", "nothing of the pod is left on the node"),
        Verdict::Left { reason, message } => ("False", *reason, message.as_str()),
    };
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let is_ours = |condition: &Value| condition["type"] == STATE_WIPED;
    let old = conditions.iter().find(|condition| is_ours(condition));
    let old = old.and_then(Value::as_object);
    // What is said once stays said: a wipe that is complete is not taken back.
    if old.is_some_and(|old| old.get("status") == Some(&json!("True"))) {
        return None;
    }
    let said = |field: &str, text: &str| {
        old.is_some_and(|old| old.get(field).and_then(Value::as_str) == Some(text))
    };
    let same_status = said("status", value);
    if same_status && said("reason", reason) && said("message", message) {
        return None;
    }
    let mut ours = old.cloned().unwrap_or_else(Map::new);
    ours.insert("type".into(), STATE_WIPED.into());
    ours.insert("status".into(), value.into());
    ours.insert("reason".into(), reason.into());
    ours.insert("message".into(), message.into());
    if !same_status || !ours.contains_key("lastTransitionTime") {
        let seconds = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        ours.insert("lastTransitionTime".into(), seconds.into());
    }
    conditions.retain(|condition| !is_ours(condition));
    conditions.push(Value::Object(ours));
    Some(json!({
        "metadata": {
            "uid": live["metadata"]["uid"],
            "resourceVersion": live["metadata"]["resourceVersion"],
        },
        "status": { "conditions": conditions },
    }))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn report(verdict: Verdict) -> Report {
        Report {
            record: ObjectKey::new("shop", "web-1"),
            pod: Uid::new("u-1"),
            verdict,
        }
    }

    fn left(message: &str) -> Verdict {
        Verdict::Left {
            reason: "NotComplete",
            message: message.into(),
        }
    }

    fn live(condition: Value) -> Value {
        let mut conditions = vec![json!({ "type": "Other", "status": "True", "extra": 1 })];
        if !condition.is_null() {
            conditions.insert(0, condition);
        }
        json!({
            "metadata": { "uid": "r", "resourceVersion": "9" },
            "status": { "rejectedUID": "u-1", "nodeName": "n", "attempts": 1, "conditions": conditions },
        })
    }

    fn wiped(status: &str, message: &str) -> Value {
        json!({
            "type": "StateWiped", "status": status, "reason": "NotComplete", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    }

    fn written(live: &Value, verdict: Verdict) -> Option<Value> {
        patch(live, "n", &report(verdict), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn the_condition_is_written_at_the_version_that_was_read_and_others_stay() {
        let patch = written(&live(wiped("False", "x")), Verdict::Wiped).unwrap();
        let expected = json!({
            "metadata": { "uid": "r", "resourceVersion": "9" },
            "status": { "conditions": [
                { "type": "Other", "status": "True", "extra": 1 },
                {
                    "type": "StateWiped", "status": "True", "reason": "Wiped",
                    "message": "nothing of the pod is left on the node",
                    "lastTransitionTime": "1970-01-01T00:00:00Z",
                },
            ] },
        });
        assert_eq!(patch, expected);
    }

    #[test]
    fn the_time_changes_only_with_the_status() {
        let patch = written(&live(wiped("False", "x")), left("y")).unwrap();
        let condition = &patch["status"]["conditions"][1];
        assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(condition["message"], "y");
    }

    #[rstest]
    #[case::the_same(live(wiped("False", "x")), left("x"))]
    #[case::done_is_not_taken_back(live(wiped("True", "x")), left("y"))]
    #[case::done_is_not_said_twice(live(wiped("True", "x")), Verdict::Wiped)]
    fn nothing_new_is_not_written(#[case] live: Value, #[case] verdict: Verdict) {
        assert_eq!(written(&live, verdict), None);
    }

    #[rstest]
    #[case::another_pod("rejectedUID", "u-2")]
    #[case::another_node("nodeName", "m")]
    fn a_record_that_asks_about_something_else_is_left_alone(
        #[case] field: &str,
        #[case] value: &str,
    ) {
        let mut live = live(Value::Null);
        live["status"][field] = value.into();
        assert_eq!(written(&live, Verdict::Wiped), None);
    }

    #[test]
    fn a_record_without_status_is_no_reason_to_panic() {
        assert_eq!(written(&json!({}), Verdict::Wiped), None);
        assert_eq!(written(&json!({ "status": null }), Verdict::Wiped), None);
        let mut odd = live(Value::Null);
        odd["status"]["conditions"] = json!({ "not": "a list" });
        assert!(written(&odd, Verdict::Wiped).is_some());
    }
}
