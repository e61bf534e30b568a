//! The agent's requests for single objects, and its only write: a record's condition.

mod node_pods;

use std::time::Duration;

use belayer_core::executor::{Class, Executor, Sent};
use belayer_core::http::{ErrorClass, PatchKind, Request, RequestError};
use belayer_core::informer::{Decoder as _, Decoders, JsonDecoder};
use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::slim::{DecodeContext, Pod};
use belayer_core::workqueue::Backoff;
use belayer_core::{clock, rng};
use belayer_holds::names::FIELD_MANAGER;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::decide::PodState;
use crate::record::{self, Record, STATE_WIPED, WipeRequest};
use node_pods::NodePods;

/// Attempts of a status write, conflicts included.
const TRIES: u32 = 5;

/// The result of a wipe, to be written into a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The record that requested the wipe.
    pub record: ObjectKey,
    /// The pod that the record names.
    pub pod: Uid,
    /// The result.
    pub verdict: Verdict,
}

/// The result of a wipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The node has no file of the pod any more.
    Wiped,
    /// Files are left.
    Left {
        /// Condition reason in CamelCase.
        reason: &'static str,
        /// Condition message.
        message: String,
    },
}

/// Why a read or a report failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The response cannot be decoded.
    #[error("cannot decode the object in the response: {0}")]
    Decode(String),
    /// Every attempt conflicted with a write of another client.
    #[error("gave up writing the status of record {0} after {TRIES} conflicts")]
    Conflict(ObjectKey),
}

impl ApiError {
    /// Delay before the next attempt.
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

/// Reads pods and records, and reports results.
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

    /// Live read of a pod by name; `None` if the API server returns 404 for it.
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

    /// Live state of the pod with this UID for a record that names `key` on this node: from a list of the
    /// pods of this node, which includes it under any name, otherwise from a read of the name.
    pub(crate) async fn pod_state(&self, key: &ObjectKey, uid: &Uid) -> Result<PodState, ApiError> {
        if let Some(pod) = self.node_pods.find(&self.executor, uid).await? {
            return Ok(PodState::of(Some(&pod), key, uid, &self.node));
        }
        let named = self.live_pod(key).await?;
        Ok(PodState::of(named.as_ref(), key, uid, &self.node))
    }

    /// Live read of what a record requests for a pod of this node: nothing if the record is deleted.
    pub(crate) async fn wipe_request(
        &self,
        record: &ObjectKey,
        pod: &Uid,
    ) -> Result<WipeRequest, ApiError> {
        let request = Request::get(self.records.object_path(record));
        let answer = match self.executor.read(&request, Class::Evidence).await {
            Ok(answer) => answer,
            Err(error) if error.is_gone(&self.records, record) => return Ok(WipeRequest::None),
            Err(error) => return Err(error.into()),
        };
        let decoder: JsonDecoder<Record> = JsonDecoder::new(DecodeContext::default());
        let record = decoder.decode_object(&answer.body);
        let record = record.map_err(|error| ApiError::Decode(error.to_string()))?;
        Ok(record.wipe_request_for(&self.node, pod))
    }

    /// Writes the condition if the record still names this pod on this node and does not have the same
    /// condition already. The patch contains the resource version; after a conflict the record is read again.
    ///
    /// Does nothing if the record is deleted or names another pod.
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
            let Some(patch) = patch(&live, &self.node, report, clock::now()) else {
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
                    let pause = Backoff::CONFLICT.delay(next, rng::unit());
                    tokio::time::sleep(pause.max(Duration::from_millis(1))).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(ApiError::Conflict(key.clone()))
    }
}

/// The patch that writes a report; `None` if there is nothing to write.
///
/// A merge patch replaces the list of conditions, so the patch repeats all others as read; the resource
/// version guarantees that they are unchanged.
fn patch(live: &Value, node: &str, report: &Report, now: Timestamp) -> Option<Value> {
    let status = &live["status"];
    let same_request = status["rejectedUID"] == report.pod.as_str() && status["nodeName"] == node;
    if !same_request || !live["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let (value, reason, message) = match &report.verdict {
        Verdict::Wiped => ("True", "Wiped", "nothing of the pod is left on the node"),
        Verdict::Left { reason, message } => ("False", *reason, message.as_str()),
    };
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let is_state_wiped = |condition: &Value| condition["type"] == STATE_WIPED;
    let old = conditions
        .iter()
        .find(|condition| is_state_wiped(condition));
    let old = old.and_then(Value::as_object);
    // A complete wipe is final.
    if old.is_some_and(|old| old.get("status") == Some(&json!("True"))) {
        return None;
    }
    let has = |field: &str, text: &str| {
        old.is_some_and(|old| old.get(field).and_then(Value::as_str) == Some(text))
    };
    let same_status = has("status", value);
    if same_status && has("reason", reason) && has("message", message) {
        return None;
    }
    let mut condition = old.cloned().unwrap_or_else(Map::new);
    condition.insert("type".into(), STATE_WIPED.into());
    condition.insert("status".into(), value.into());
    condition.insert("reason".into(), reason.into());
    condition.insert("message".into(), message.into());
    if !same_status || !condition.contains_key("lastTransitionTime") {
        let seconds = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        condition.insert("lastTransitionTime".into(), seconds.into());
    }
    conditions.retain(|condition| !is_state_wiped(condition));
    conditions.push(Value::Object(condition));
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
    #[case::a_complete_wipe_is_final(live(wiped("True", "x")), left("y"))]
    #[case::a_complete_wipe_is_written_once(live(wiped("True", "x")), Verdict::Wiped)]
    fn an_unchanged_condition_is_not_written(#[case] live: Value, #[case] verdict: Verdict) {
        assert_eq!(written(&live, verdict), None);
    }

    #[rstest]
    #[case::another_pod("rejectedUID", "u-2")]
    #[case::another_node("nodeName", "m")]
    fn a_record_of_another_pod_or_node_is_not_changed(#[case] field: &str, #[case] value: &str) {
        let mut live = live(Value::Null);
        live["status"][field] = value.into();
        assert_eq!(written(&live, Verdict::Wiped), None);
    }

    #[test]
    fn a_malformed_status_does_not_panic() {
        assert_eq!(written(&json!({}), Verdict::Wiped), None);
        assert_eq!(written(&json!({ "status": null }), Verdict::Wiped), None);
        let mut odd = live(Value::Null);
        odd["status"]["conditions"] = json!({ "not": "a list" });
        assert!(written(&odd, Verdict::Wiped).is_some());
    }
}
