//! How much the clock of a node differs from that of the API server.
//!
//! The proof that a pod never ran compares a time of the kubelet with a time of the API server. Both times are also in
//! the Lease of the node, which its kubelet renews every ten seconds.

use std::sync::Arc;

use belayer_core::http::{ErrorClass, RequestError};
use belayer_core::object::{ObjectKey, Resource};
use jiff::Timestamp;
use serde_json::Value;

use super::Execution;
use crate::component::NodeClock;
use crate::snapshot::ObservedPod;

/// The namespace of the Leases of nodes.
const LEASES: &str = "kube-node-lease";

impl Execution<'_> {
    /// Reads the Lease of the node that rejected the pod, unless that was done not long ago, and stores how much the clock
    /// of the node differs. Whether it was read: the decision was made without it.
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
        let key = ObjectKey::new(LEASES, Arc::clone(node));
        let clock = match self.live(&Resource::leases(), &key).await {
            Ok(answer) => answer.and_then(|answer| clock_of(&answer.json().ok()?)),
            Err(error) if error.class() == ErrorClass::Forbidden => None,
            Err(error) => return Err(error),
        };
        component.note_clock(node, clock);
        Ok(true)
    }

    /// Whether the state of the pod is not that of the decision any more: another worker may have read the clock of its node
    /// since then.
    pub(super) fn has_state_changed(&self) -> bool {
        let component = &self.it.parts.component;
        match (
            &self.snapshot.pod,
            component.observe_record(self.context.key).pod,
        ) {
            (ObservedPod::Present(before), ObservedPod::Present(now)) => before.state != now.state,
            _ => false,
        }
    }
}

/// The clock of a node, by the last renewal of its Lease: the renewal has the time of the kubelet, the entry
/// of `managedFields` that of the API server.
fn clock_of(lease: &Value) -> Option<NodeClock> {
    let time = |value: &Value| value.as_str()?.parse::<Timestamp>().ok();
    let entries = lease["metadata"]["managedFields"].as_array()?;
    let has = |entry: &Value, field: &str| !entry["fieldsV1"]["f:spec"][field].is_null();
    let renewing = entries.iter().filter(|entry| has(entry, "f:renewTime"));
    let written = match *renewing.collect::<Vec<_>>() {
        // The kubelet of k3s or MicroK8s has the name of that program. Another client that only renews the Lease is none.
        [entry] if has(entry, "f:holderIdentity") => entry,
        ref all => all.iter().find(|entry| entry["manager"] == "kubelet")?,
    };
    let (renewed, written) = (time(&lease["spec"]["renewTime"])?, time(&written["time"])?);
    Some(NodeClock {
        ahead: renewed.duration_since(written),
        renewed: written,
    })
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const HOLDS: &[&str] = &["f:holderIdentity", "f:renewTime"];
    const RENEWS: &[&str] = &["f:renewTime"];

    #[rstest]
    #[case::ahead("2026-01-01T00:01:30.250000Z", &[("kubelet", RENEWS)], Some(90_250))]
    #[case::behind("2025-12-31T23:59:00.000000Z", &[("kubelet", HOLDS)], Some(-60_000))]
    #[case::of_k3s("2026-01-01T00:01:30.000000Z", &[("k3s", HOLDS)], Some(90_000))]
    #[case::written_by_another_client("2026-01-01T00:01:30.000000Z", &[("kubectl-edit", RENEWS)], None)]
    #[case::of_k3s_and_written_by_another_client(
        "2026-01-01T00:01:30.000000Z",
        &[("k3s", HOLDS), ("kubectl-edit", RENEWS)],
        None
    )]
    #[case::also_written_by_another_client(
        "2026-01-01T00:01:30.000000Z",
        &[("kubectl-edit", HOLDS), ("kubelet", RENEWS)],
        Some(90_000)
    )]
    #[case::without_a_time("", &[("kubelet", RENEWS)], None)]
    fn r8_the_clock_of_a_node(
        #[case] renewed: &str,
        #[case] writers: &[(&str, &[&str])],
        #[case] expected: Option<i64>,
    ) {
        let mut entries = vec![json!({
            "manager": "kubelet", "time": "2020-01-01T00:00:00Z",
            "fieldsV1": { "f:metadata": {} },
        })];
        for (manager, fields) in writers {
            let fields: serde_json::Map<_, _> = fields
                .iter()
                .map(|field| ((*field).to_owned(), json!({})))
                .collect();
            entries.push(json!({
                "manager": manager, "time": "2026-01-01T00:00:00Z", "fieldsV1": { "f:spec": fields },
            }));
        }
        let lease = json!({
            "metadata": { "managedFields": entries },
            "spec": { "renewTime": renewed },
        });
        let expected = expected.map(SignedDuration::from_millis);
        let ahead = clock_of(&lease).map(|clock| clock.ahead);
        assert_eq!(ahead, expected);
    }
}
