//! Leases.

use serde_json::Value;

use crate::error::Cause;
use crate::meta;

/// All errors in a lease.
pub(crate) fn check(lease: &Value) -> Vec<Cause> {
    let number = |field: &str| meta::at(lease, &["spec", field]).and_then(Value::as_i64);
    let mut causes = Vec::new();
    if let Some(seconds) = number("leaseDurationSeconds").filter(|s| *s <= 0) {
        let path = "spec.leaseDurationSeconds";
        causes.push(Cause::invalid(
            path,
            &seconds.to_string(),
            "must be greater than 0",
        ));
    }
    if let Some(count) = number("leaseTransitions").filter(|n| *n < 0) {
        let path = "spec.leaseTransitions";
        causes.push(Cause::invalid(
            path,
            &count.to_string(),
            "must be greater than or equal to 0",
        ));
    }
    causes
}
