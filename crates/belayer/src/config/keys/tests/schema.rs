//! The schema of `config:` in the Helm chart's values, made of the table of keys.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;
use rstest::rstest;
use serde_json::{Map, Value, json};

use super::{arguments, nested};
use crate::config::keys::{Key, Reload, all};
use crate::config::{API_VERSION, Source};
use crate::feature_gates::FeatureGate;
use crate::kubeconfig::Sources;
use crate::logging::LogArguments;
use crate::options::Settings;

/// Keys that the chart sets itself.
const OF_THE_CHART: &[&str] = &[
    "apiVersion",
    "kind",
    "controllers",
    "endpoints.metricsBindAddress",
    "endpoints.healthProbeBindAddress",
    "leaderElection.resourceNamespace",
    "logging.format",
    "nodeAgent.hostRoot",
    "nodeAgent.roots",
];

/// The node agent has a separate file.
const NODE_AGENT: &str = "nodeAgent.";

fn is_in_the_chart(key: &Key) -> bool {
    !OF_THE_CHART.contains(&key.path) && !key.path.starts_with(NODE_AGENT)
}

/// The values of a key. What the schema does not express, Belayer checks: rules across keys, kinds and expressions.
fn accepts(takes: &str) -> Value {
    let text = |pattern: &str| json!({ "type": ["string", "number"], "pattern": pattern });
    match takes {
        "true or false" => json!({ "type": "boolean" }),
        "number above 0" => json!({ "type": "number", "exclusiveMinimum": 0 }),
        "seconds" => json!({ "type": "integer", "minimum": 0 }),
        "argo" => json!({ "enum": ["argo"] }),
        "name" => text("^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"),
        "address" => text("^0$|:[0-9]+$"),
        "levels" => text(&format!("^ *{LEVEL} *(, *{LEVEL} *)*$")),
        "pods or percent" | "workflows or percent" => text("^([0-9]+|0*(100|[0-9]{1,2})%)$"),
        _ if takes.starts_with("duration") => duration(takes),
        _ if takes.starts_with("list") => list(takes),
        _ if takes.contains(": ") => map(takes),
        _ => number_or_word(takes),
    }
}

/// An item of `--log-level`, which ignores case.
const LEVEL: &str = "([-A-Za-z0-9_:.]+=)?([oO][fF][fF]|[eE][rR][rR][oO][rR]|[wW][aA][rR][nN]|[iI][nN][fF][oO]|\
                     [dD][eE][bB][uU][gG]|[tT][rR][aA][cC][eE])";

/// Every number has a unit. The least value is a power of ten, so that shorter durations have fewer digits.
fn duration(takes: &str) -> Value {
    let mut schema = json!({
        "type": "string",
        "pattern": r"^(P.+|([0-9]+([.,][0-9]+)?\s*[A-Za-zµ]+,?\s*)+)$",
    });
    let least = takes.strip_prefix("duration, ");
    let least = least.and_then(|rest| rest.strip_suffix(" or more"));
    let shorter = match least {
        None => return schema,
        Some("10ms") => r"[0-9]\s*ms",
        Some("1s") => r"[0-9]{1,3}\s*ms",
        Some("10s") => r"[0-9]{1,4}\s*ms|[0-9]\s*s",
        Some(other) => panic!("{other}"),
    };
    schema["not"] = json!({ "pattern": format!(r"^(0+\s*[A-Za-z]+|{shorter})$") });
    schema
}

fn list(takes: &str) -> Value {
    let mut schema = json!({ "type": "array" });
    if takes.ends_with(", not empty") {
        schema["minItems"] = json!(1);
    }
    if takes == "list of finalizers" {
        schema["items"] = json!({ "type": "string", "pattern": "^[^/]+/[^/]+$" });
    }
    schema
}

/// `NAME: VALUE`; only features have a fixed set of names.
fn map(takes: &str) -> Value {
    let (name, value) = takes.split_once(": ").unwrap();
    let plain = value.trim_end_matches(", not empty");
    let of = match plain {
        "value" => json!({ "type": "string" }),
        plain => accepts(plain),
    };
    let mut schema = json!({ "type": "object", "additionalProperties": of });
    if plain != value {
        schema["minProperties"] = json!(1);
    }
    if name == "name" {
        let names = FeatureGate::ALL.iter().map(|gate| gate.name());
        schema["propertyNames"] = json!({ "enum": names.collect::<Vec<_>>() });
    }
    schema
}

fn number_or_word(takes: &str) -> Value {
    let (kind, bounds) = match takes.strip_prefix("number, ") {
        Some(bounds) => ("number", bounds),
        None => ("integer", takes.trim_start_matches("seconds, ")),
    };
    let number = |text: &str| text.parse::<u32>().ok();
    let range = bounds.split_once(" to ");
    let range = range.and_then(|(least, most)| Some((number(least)?, number(most)?)));
    let least = bounds.strip_suffix(" or more").and_then(number);
    let words: Vec<&str> = takes
        .split(" or ")
        .flat_map(|part| part.split(", "))
        .collect();
    match (range, least) {
        (Some((least, most)), _) => json!({ "type": kind, "minimum": least, "maximum": most }),
        (None, Some(least)) => json!({ "type": kind, "minimum": least }),
        (None, None) if words.len() > 1 => json!({ "enum": words }),
        (None, None) => json!({ "type": ["string", "number"] }),
    }
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
    let keys = all().filter(|key| is_in_the_chart(key));
    schema_of(
        "The configuration file of Belayer, without the keys that the chart sets itself.",
        keys.map(|key| (key.path, key)),
    )
}

fn schema_of_the_node_agent() -> Value {
    let keys = all().filter(|key| !OF_THE_CHART.contains(&key.path));
    schema_of(
        "The section `nodeAgent` of the configuration file, without the keys that the chart sets itself.",
        keys.filter_map(|key| Some((key.path.strip_prefix(NODE_AGENT)?, key))),
    )
}

fn schema_of<'a>(about: &str, keys: impl Iterator<Item = (&'a str, &'a Key)>) -> Value {
    let mut root =
        json!({ "type": "object", "additionalProperties": false, "properties": Map::new() });
    root["description"] = json!(about);
    for (path, key) in keys {
        let mut leaf = accepts(key.takes);
        leaf["description"] = json!(key.about);
        add(&mut root, &path.split('.').collect::<Vec<_>>(), leaf);
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
    for (section, wanted) in [
        ("/properties", wanted.clone()),
        (
            "/properties/nodeAgent/properties",
            schema_of_the_node_agent(),
        ),
    ] {
        let section = chart.pointer_mut(section).unwrap();
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() && section["config"] != wanted {
            section["config"] = wanted.clone();
            let text = serde_json::to_string_pretty(&chart).unwrap();
            std::fs::write(&path, format!("{text}\n")).unwrap();
            continue;
        }
        assert!(
            section["config"] == wanted,
            "deploy/charts/belayer/values.schema.json differs from the table of keys"
        );
    }
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

/// The chart restarts the pods when one of these sections changes: all keys that need it, and no others.
#[test]
fn the_chart_restarts_for_keys_that_are_read_at_the_start() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy/charts/belayer/templates/_deployment.tpl");
    let text = std::fs::read_to_string(path).unwrap();
    let picked = text.split("pick .Values.config ").nth(1).unwrap();
    let picked = picked.split(" }}").next().unwrap();
    let picked: BTreeSet<&str> = picked.split(' ').map(|key| key.trim_matches('"')).collect();
    for key in all().filter(|key| is_in_the_chart(key)) {
        let section = key.path.split('.').next().unwrap();
        let restarts = matches!(key.reload, Reload::Restart);
        assert_eq!(picked.contains(section), restarts, "{}", key.path);
    }
}

/// Whether the schema allows the value: of what `schema` makes.
fn allows(schema: &Value, value: &Value) -> bool {
    let types = match &schema["type"] {
        Value::Null => Vec::new(),
        Value::Array(several) => several.clone(),
        one => vec![one.clone()],
    };
    let is = |kind: &Value| match kind.as_str().unwrap() {
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other}"),
    };
    let number = |name: &str| schema[name].as_f64();
    let size = value.as_array().map(Vec::len);
    let size = size.or_else(|| value.as_object().map(Map::len));
    let too_few = |name: &str| {
        let least = schema[name].as_u64();
        least
            .zip(size)
            .is_some_and(|(least, size)| (size as u64) < least)
    };
    let matches = |pattern: &Value| {
        let pattern = pattern.as_str().map(|text| Regex::new(text).unwrap());
        pattern
            .zip(value.as_str())
            .is_none_or(|(pattern, text)| pattern.is_match(text))
    };
    let member = |(name, value): (&String, &Value)| {
        let named =
            schema["propertyNames"].is_null() || allows(&schema["propertyNames"], &json!(name));
        named
            && match (&schema["properties"][name], &schema["additionalProperties"]) {
                (Value::Null, Value::Bool(may)) => *may,
                (Value::Null, Value::Null) => true,
                (Value::Null, other) => allows(other, value),
                (known, _) => allows(known, value),
            }
    };
    (types.is_empty() || types.iter().any(is))
        && schema["enum"]
            .as_array()
            .is_none_or(|all| all.contains(value))
        && number("minimum")
            .zip(value.as_f64())
            .is_none_or(|(least, value)| value >= least)
        && number("maximum")
            .zip(value.as_f64())
            .is_none_or(|(most, value)| value <= most)
        && number("exclusiveMinimum")
            .zip(value.as_f64())
            .is_none_or(|(least, value)| value > least)
        && !too_few("minItems")
        && !too_few("minProperties")
        && matches(&schema["pattern"])
        && (schema["not"].is_null() || !allows(&schema["not"], value))
        && value
            .as_object()
            .is_none_or(|members| members.iter().all(member))
        && value.as_array().is_none_or(|items| {
            schema["items"].is_null() || items.iter().all(|item| allows(&schema["items"], item))
        })
}

#[test]
fn the_schema_of_the_chart_allows_every_default() {
    for key in all().filter(|key| is_in_the_chart(key) && !key.default.is_empty()) {
        let value: Value = serde_saphyr::from_str(key.default).unwrap();
        let leaf = accepts(key.takes);
        assert!(allows(&leaf, &value), "{}: {value} by {leaf}", key.path);
    }
}

/// Whether Belayer accepts a file with these keys.
fn is_accepted(keys: &Value) -> bool {
    let mut file = keys.clone();
    file["apiVersion"] = json!(API_VERSION);
    let source = Source::parse(Path::new("b.yaml"), file.to_string());
    source.is_ok_and(|source| {
        source.logging(&LogArguments::default()).is_ok()
            && Settings::resolve(&arguments(), &source, &Sources::default()).is_ok()
    })
}

/// What Belayer refuses at its start, Helm refuses before it changes anything.
#[rstest]
#[case::finalizer("pvcProtection.finalizer", json!("foo"))]
#[case::resync("podFinalizer.resync", json!("9s"))]
#[case::resync_in_milliseconds("podFinalizer.resync", json!("9999ms"))]
#[case::no_unit("podFinalizer.resync", json!("1h30"))]
#[case::percent("podFinalizer.maxUnselected", json!("101%"))]
#[case::no_profile("podFinalizer.profiles", json!([]))]
#[case::built_in("podFinalizer.profiles", json!([{ "builtIn": "foo" }]))]
#[case::name("podFinalizer.profiles", json!([{ "builtIn": "argo", "name": "A" }]))]
#[case::release_after("podFinalizer.profiles", json!([{ "builtIn": "argo", "releaseAfter": "0s" }]))]
#[case::adopt("podFinalizer.profiles", json!([{ "builtIn": "argo", "adopt": ["kubernetes"] }]))]
#[case::backlog("podFinalizer.backlogThreshold", json!(0))]
#[case::resync_of_workflows("workflowFinalizer.resync", json!("500ms"))]
#[case::no_owner("workflowFinalizer.owners", json!([]))]
#[case::lease("leaderElection.resourceName", json!("A_b"))]
#[case::retry("leaderElection.retryPeriod", json!("0s"))]
#[case::retry_in_milliseconds("leaderElection.retryPeriod", json!("9ms"))]
#[case::class("podRecreation.classes", json!({ "X": "foo" }))]
#[case::no_label("podRecreation.selectors", json!([{ "matchLabels": {} }]))]
#[case::seconds("podRecreation.recordTtlSeconds", json!("1h"))]
#[case::level("logging.level", json!("foo"))]
#[case::level_of_a_target("logging.level", json!("info,belayer_core=foo"))]
#[case::qps("limits.qps", json!(0))]
#[case::burst("limits.burst", json!("many"))]
#[case::gate("featureGates", json!({ "Foo": true }))]
#[case::address("endpoints.debugBindAddress", json!("foo"))]
fn the_schema_of_the_chart_refuses_what_belayer_refuses(#[case] path: &str, #[case] value: Value) {
    let keys = nested(path, value);
    assert!(!is_accepted(&keys), "{keys}");
    assert!(!allows(&schema(), &keys), "{keys}");
}

#[rstest]
#[case::words("podFinalizer.resync", json!("1 hour, 30 minutes"))]
#[case::in_milliseconds("podFinalizer.resync", json!("10000ms"))]
#[case::fraction("podFinalizer.resync", json!("1.5h"))]
#[case::iso("podFinalizer.resync", json!("PT5M"))]
#[case::short("leaderElection.retryPeriod", json!("10ms"))]
#[case::percent("podFinalizer.maxUnselected", json!("100%"))]
#[case::count("podFinalizer.maxUnselected", json!(1000))]
#[case::count_as_text("podFinalizer.maxUnselected", json!("1000"))]
#[case::lease("leaderElection.resourceName", json!("a-b.c"))]
#[case::levels("logging.level", json!("Info, belayer_core::informer=debug"))]
#[case::off("endpoints.debugBindAddress", json!("0"))]
#[case::all_addresses("endpoints.debugBindAddress", json!(":8081"))]
#[case::version_6("endpoints.debugBindAddress", json!("[::1]:8081"))]
#[case::class("podRecreation.classes", json!({ "X": "race" }))]
#[case::gate("featureGates", json!({ "PodCleanup": true }))]
#[case::in_place("pvcProtection.finalizer", json!("kubernetes.io/pvc-protection"))]
#[case::adopt("podFinalizer.profiles", json!([{ "builtIn": "argo", "adopt": ["a.example/b"] }]))]
fn the_schema_of_the_chart_allows_what_belayer_accepts(#[case] path: &str, #[case] value: Value) {
    let keys = nested(path, value);
    assert!(is_accepted(&keys), "{keys}");
    assert!(allows(&schema(), &keys), "{keys}");
}
