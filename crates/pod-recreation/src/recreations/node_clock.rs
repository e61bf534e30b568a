//! How much the clock of a node differs from that of the API server.
//!
//! The proof that a pod never ran compares a time of the kubelet with a time of the API server. Both times are also in
//! the last status that the kubelet wrote about its node.

use std::sync::Arc;

use belayer_core::http::{ErrorClass, RequestError};
use belayer_core::object::{ObjectKey, Resource};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::Execution;
use crate::snapshot::ObservedPod;

impl Execution<'_> {
    /// Reads the node that rejected the pod, unless that was done not long ago, and stores how much its clock differs.
    /// Whether it was read: the decision was made without it.
    pub(super) async fn read_clock(&self) -> Result<bool, RequestError> {
        let ObservedPod::Present(pod) = &self.snapshot.pod else {
            return Ok(false);
        };
        let component = &self.it.parts.component;
        let Some(node) = pod
            .node
            .as_ref()
            .filter(|node| !component.knows_clock(node))
        else {
            return Ok(false);
        };
        let key = ObjectKey::cluster(Arc::clone(node));
        let ahead = match self.live(&Resource::nodes(), &key).await {
            Ok(answer) => answer.and_then(|answer| ahead_by(&answer.json().ok()?)),
            Err(error) if error.class() == ErrorClass::Forbidden => None,
            Err(error) => return Err(error),
        };
        component.note_clock(node, ahead);
        Ok(true)
    }
}

/// How much the clock of a node is ahead, by its kubelet's last write of the node's status: the heartbeat has the time of
/// the kubelet, the entry of `managedFields` that of the API server.
fn ahead_by(node: &Value) -> Option<SignedDuration> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let time = |value: &Value| value.as_str()?.parse::<Timestamp>().ok();
    let ready = list(&node["status"]["conditions"]);
    let ready = ready
        .iter()
        .find(|condition| condition["type"] == "Ready")?;
    let entries = list(&node["metadata"]["managedFields"]);
    let written = entries
        .iter()
        .find(|entry| entry["manager"] == "kubelet" && entry["subresource"] == "status")?;
    let (heartbeat, written) = (time(&ready["lastHeartbeatTime"])?, time(&written["time"])?);
    Some(heartbeat.duration_since(written))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::ahead("2026-01-01T00:01:30Z", "kubelet", Some(90))]
    #[case::behind("2025-12-31T23:59:00Z", "kubelet", Some(-60))]
    #[case::written_by_another_component("2026-01-01T00:01:30Z", "node-problem-detector", None)]
    #[case::without_a_time("", "kubelet", None)]
    fn r8_the_clock_of_a_node(
        #[case] heartbeat: &str,
        #[case] manager: &str,
        #[case] expected: Option<i64>,
    ) {
        let node = json!({
            "metadata": { "managedFields": [
                { "manager": "kubelet", "time": "2020-01-01T00:00:00Z" },
                { "manager": manager, "subresource": "status", "time": "2026-01-01T00:00:00Z" },
            ] },
            "status": { "conditions": [
                { "type": "DiskPressure" }, { "type": "Ready", "lastHeartbeatTime": heartbeat },
            ] },
        });
        assert_eq!(ahead_by(&node), expected.map(SignedDuration::from_secs));
    }
}
