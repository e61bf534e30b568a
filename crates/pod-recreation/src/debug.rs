//! The part of pod-recreation in `/debug/holds`.

use serde_json::{Value, json};

use crate::PodRecreation;

/// The records that have not ended.
pub(crate) fn report(recreation: &PodRecreation) -> Value {
    let mut under_way = Vec::new();
    recreation.records().for_each(|record| {
        let status = &record.status;
        if status.phase.is_some_and(|phase| phase.is_final()) {
            return;
        }
        under_way.push(json!({
            "namespace": record.meta.key.namespace(),
            "name": record.meta.key.name(),
            "pod": record.pod_name,
            "phase": status.phase,
            "attempts": status.attempts,
            "maxRetries": record.policy.max_retries,
            "reason": status.reason,
        }));
    });
    json!({ "underWay": under_way, "records": recreation.records().len() })
}
