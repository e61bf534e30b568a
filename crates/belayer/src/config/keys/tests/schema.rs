//! The schema of `config:` in the Helm chart's values, made of the table of keys.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::config::keys::{Key, all};

/// Keys that the chart sets itself, and those of the node agent, which reads no file there.
const OF_THE_CHART: &[&str] = &[
    "apiVersion",
    "kind",
    "controllers",
    "endpoints.metricsBindAddress",
    "endpoints.healthProbeBindAddress",
    "leaderElection.resourceNamespace",
    "logging.format",
];

fn is_in_the_chart(key: &Key) -> bool {
    !OF_THE_CHART.contains(&key.path) && !key.path.starts_with("nodeAgent.")
}

/// The values of a key. What the schema does not express, Belayer checks: units, names and expressions.
fn accepts(takes: &str) -> Value {
    let (kind, bounds) = match takes.strip_prefix("number, ") {
        Some(bounds) => ("number", bounds),
        None => ("integer", takes),
    };
    let number = |text: &str| text.parse::<u32>().ok();
    let range = bounds.split_once(" to ");
    let range = range.and_then(|(least, most)| Some((number(least)?, number(most)?)));
    let least = bounds.strip_suffix(" or more").and_then(number);
    let words: Vec<&str> = takes
        .split(" or ")
        .flat_map(|part| part.split(", "))
        .collect();
    match takes {
        "true or false" => json!({ "type": "boolean" }),
        "name: true or false" => map(json!({ "type": "boolean" })),
        "number above 0" => json!({ "type": "number", "exclusiveMinimum": 0 }),
        "duration" => json!({ "type": "string" }),
        _ if takes.starts_with("duration,") => json!({ "type": "string" }),
        _ if takes.starts_with("list") => json!({ "type": "array" }),
        _ if takes.contains(": ") => map(json!({ "type": "string" })),
        _ if range.is_some() => {
            json!({ "type": kind, "minimum": range.map(|of| of.0), "maximum": range.map(|of| of.1) })
        }
        _ if least.is_some() => json!({ "type": kind, "minimum": least }),
        // Values of an enumeration, not of a unit.
        _ if words.len() > 1 && !takes.contains("percent") => json!({ "enum": words }),
        _ => json!({ "type": ["string", "number"] }),
    }
}

fn map(of: Value) -> Value {
    json!({ "type": "object", "additionalProperties": of })
}

/// Adds a key below an object of the schema.
fn add(object: &mut Value, path: &[&str], leaf: Value) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    let (name, is_list) = match first.strip_suffix("[]") {
        Some(name) => (name, true),
        None => (*first, false),
    };
    let members = object["properties"].as_object_mut().unwrap();
    let closed = || json!({ "type": "object", "additionalProperties": false, "properties": {} });
    let slot = members.entry(name.to_owned()).or_insert_with(|| {
        if rest.is_empty() {
            leaf.clone()
        } else if is_list {
            json!({ "type": "array" })
        } else {
            closed()
        }
    });
    if rest.is_empty() {
        return;
    }
    if is_list {
        let slot = slot.as_object_mut().unwrap();
        add(slot.entry("items").or_insert_with(closed), rest, leaf);
    } else {
        add(slot, rest, leaf);
    }
}

fn schema() -> Value {
    let mut root =
        json!({ "type": "object", "additionalProperties": false, "properties": Map::new() });
    root["description"] =
        json!("The configuration file of Belayer, without the keys that the chart sets itself.");
    for key in all().filter(|key| is_in_the_chart(key)) {
        let mut leaf = accepts(key.takes);
        leaf["description"] = json!(key.about);
        add(&mut root, &key.path.split('.').collect::<Vec<_>>(), leaf);
    }
    root
}

/// After a change of a key, renew the schema:
/// `UPDATE_SNAPSHOTS=1 cargo test --workspace --lib -- the_schema_of_the_chart`.
#[test]
fn the_schema_of_the_chart_matches_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy/charts/belayer/values.schema.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut chart: Value = serde_json::from_str(&text).unwrap();
    let wanted = schema();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() && chart["properties"]["config"] != wanted {
        chart["properties"]["config"] = wanted.clone();
        let text = serde_json::to_string_pretty(&chart).unwrap();
        std::fs::write(&path, format!("{text}\n")).unwrap();
    }
    assert!(
        chart["properties"]["config"] == wanted,
        "deploy/charts/belayer/values.schema.json differs from the table of keys"
    );
    let key = |path: &str| {
        wanted
            .pointer(path)
            .unwrap_or_else(|| panic!("{path}"))
            .clone()
    };
    let profiles = "/properties/podFinalizer/properties/profiles/items/properties";
    assert_eq!(
        key(&format!("{profiles}/mode/enum")),
        json!(["enforce", "observe"])
    );
    assert_eq!(key(&format!("{profiles}/capture/type")), "boolean");
    assert_eq!(
        key("/properties/limits/properties/concurrentReleases/maximum"),
        1024
    );
}

/// Whether the schema of a key has the value: of what `accepts` makes.
fn allows(leaf: &Value, value: &Value) -> bool {
    let types = match &leaf["type"] {
        Value::Array(several) => several.clone(),
        one => vec![one.clone()],
    };
    let is = |kind: &Value| match kind.as_str() {
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64(),
        Some("number") => value.is_number(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => leaf["enum"]
            .as_array()
            .is_some_and(|all| all.contains(value)),
    };
    let bound = |name: &str| leaf[name].as_f64().zip(value.as_f64());
    types.iter().any(is)
        && bound("minimum").is_none_or(|(least, value)| value >= least)
        && bound("exclusiveMinimum").is_none_or(|(least, value)| value > least)
        && bound("maximum").is_none_or(|(most, value)| value <= most)
}

#[test]
fn the_schema_of_the_chart_allows_every_default() {
    for key in all().filter(|key| is_in_the_chart(key) && !key.default.is_empty()) {
        let value: Value = serde_saphyr::from_str(key.default).unwrap();
        let leaf = accepts(key.takes);
        assert!(allows(&leaf, &value), "{}: {value} by {leaf}", key.path);
    }
}
