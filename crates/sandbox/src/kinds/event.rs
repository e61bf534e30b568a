//! Events.

use serde_json::Value;

use crate::error::Cause;
use crate::meta;

/// All errors in a new event.
pub(crate) fn check(event: &Value) -> Vec<Cause> {
    let about = meta::text(event, &["involvedObject", "namespace"]);
    let home = meta::field(event, "namespace");
    // Events about cluster-scoped objects are stored in the default namespace.
    if about == home || (about.is_empty() && home == "default") {
        return Vec::new();
    }
    let why = "does not match event.namespace";
    vec![Cause::invalid(
        "involvedObject.namespace",
        &format!("{about:?}"),
        why,
    )]
}
