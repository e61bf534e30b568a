//! What a check found, and the paths in its texts.

use serde_json::Value;

use crate::error::Cause;

/// The result of a check.
#[derive(Debug, Default)]
pub(crate) struct SchemaVerdict {
    pub(crate) causes: Vec<Cause>,
    /// Failed rules over values that the update does not change.
    pub(crate) warnings: Vec<String>,
}

/// The earlier state of a list's item, if the list has keys.
pub(super) fn earlier<'a>(schema: &Value, item: &Value, old: &'a Value) -> Option<&'a Value> {
    let keys = schema.get("x-kubernetes-list-map-keys")?.as_array()?;
    let same = |other: &&Value| {
        let mut keys = keys.iter().filter_map(Value::as_str);
        keys.all(|key| other.get(key) == item.get(key))
    };
    old.as_array()?.iter().find(same)
}

/// The name of a path in causes.
pub(super) fn name(path: &str) -> &str {
    if path.is_empty() { "<nil>" } else { path }
}

pub(super) fn inner(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}
