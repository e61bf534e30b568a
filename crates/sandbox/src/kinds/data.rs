//! ConfigMaps and Secrets: keys, sizes, immutability.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::error::Cause;
use crate::meta;

/// Limit of the values of one object together, in bytes.
const LIMIT: usize = 1024 * 1024;
const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const FROZEN: &str = "field is immutable when `immutable` is set";

/// Secret types and the keys they need.
const NEEDS: &[(&str, &[&str])] = &[
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
];

fn map<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object
        .get(field)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

/// Defaults and validation of a new object.
pub(crate) fn prepare_create(resource: &str, object: &mut Value) -> Vec<Cause> {
    if resource == "secrets" {
        settle_secret(object);
    }
    check(resource, object)
}

/// Moves stringData to data, and sets a Secret's default type.
pub(crate) fn settle_secret(secret: &mut Value) {
    if meta::text(secret, &["type"]).is_empty() {
        secret["type"] = json!("Opaque");
    }
    let strings = secret.as_object_mut().and_then(|m| m.remove("stringData"));
    let Some(Value::Object(strings)) = strings else {
        return;
    };
    if !secret.get("data").is_some_and(Value::is_object) {
        secret["data"] = Value::Object(Map::new());
    }
    for (key, text) in strings {
        let text = text.as_str().unwrap_or_default();
        secret["data"][key] = json!(STANDARD.encode(text));
    }
}

fn check(resource: &str, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut size = 0;
    for field in ["data", "binaryData"] {
        for (key, value) in map(object, field) {
            let path = format!("{field}[{key}]");
            if let Some(why) = key_rule(key) {
                causes.push(Cause::invalid(&path, &format!("{key:?}"), why));
            }
            if field == "data"
                && object
                    .get("binaryData")
                    .is_some_and(|b| b.get(key).is_some())
            {
                let why = "duplicate of key present in binaryData";
                causes.push(Cause::invalid(&path, &format!("{key:?}"), why));
            }
            let length = value.as_str().map_or(0, str::len);
            let encoded = resource == "secrets" || field == "binaryData";
            size += if encoded { length / 4 * 3 } else { length };
        }
    }
    if size > LIMIT {
        causes.push(Cause {
            reason: "FieldValueTooLong".into(),
            message: format!("Too long: may not be more than {LIMIT} bytes"),
            field: if resource == "secrets" { "data" } else { "[]" }.into(),
        });
    }
    if resource == "secrets" {
        causes.extend(missing_keys(object));
    }
    causes
}

fn key_rule(key: &str) -> Option<&'static str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    match key {
        "." => Some("must not be '.'"),
        ".." => Some("must not be '..'"),
        key if key.len() > 253 => Some("must be no more than 253 characters"),
        "" => Some(KEY),
        key if key.bytes().all(plain) => None,
        _ => Some(KEY),
    }
}

fn missing_keys(secret: &Value) -> Vec<Cause> {
    let wanted = meta::text(secret, &["type"]);
    let needs = NEEDS.iter().find(|(name, _)| *name == wanted);
    let needs = needs.map_or(&[][..], |(_, keys)| keys);
    needs
        .iter()
        .filter(|key| secret.get("data").is_none_or(|d| d.get(**key).is_none()))
        .map(|key| Cause::required(&format!("data[{key}]"), ""))
        .collect()
}

/// All errors in an update.
pub(crate) fn check_update(resource: &str, old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if resource == "secrets" && old.get("type") != new.get("type") {
        let value = format!("{:?}", meta::text(new, &["type"]));
        causes.push(Cause::invalid("type", &value, "field is immutable"));
    }
    if old.get("immutable") == Some(&Value::Bool(true)) {
        if new.get("immutable") != Some(&Value::Bool(true)) {
            causes.push(Cause::forbidden("immutable", FROZEN));
        }
        for field in ["data", "binaryData"] {
            if old.get(field) != new.get(field) {
                causes.push(Cause::forbidden(field, FROZEN));
            }
        }
    }
    causes.extend(check(resource, new));
    causes
}
