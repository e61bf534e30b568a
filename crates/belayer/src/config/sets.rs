//! `--set KEY=VALUE`: sets any key of the file on the command line.

use std::str::FromStr;

use serde_json::{Map, Value};

use belayer_controller::config::yaml;

/// One `--set` flag.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    key: String,
    value: Value,
}

/// An invalid `--set` flag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseSetError {
    /// There is no `=`, or no key before it.
    #[error("invalid setting {0:?}: write KEY=VALUE (example: podFinalizer.workers=8)")]
    Form(String),
    /// The value is not YAML.
    #[error("invalid value of {0}: quote text with special characters")]
    Value(String),
}

impl FromStr for Set {
    type Err = ParseSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || ParseSetError::Form(text.to_owned());
        let (key, value) = text.split_once('=').ok_or_else(form)?;
        let good = !key.is_empty() && key.split('.').all(|part| !part.is_empty());
        if !good {
            return Err(form());
        }
        let value = if value.is_empty() {
            Value::String(String::new())
        } else {
            yaml::document::read(value).map_err(|_| ParseSetError::Value(key.to_owned()))?
        };
        Ok(Self {
            key: key.to_owned(),
            value,
        })
    }
}

impl Set {
    /// The key, such as `podFinalizer.workers`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether it sets this key, or one above or below it.
    pub(super) fn is_about(&self, key: &str) -> bool {
        let below = |inner: &str, outer: &str| {
            inner
                .strip_prefix(outer)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        below(key, &self.key) || below(&self.key, key)
    }

    /// Applies it to a document. Replaces lists as a whole.
    pub(super) fn apply(&self, document: &mut Value) {
        replace(document, &self.key, self.value.clone());
    }
}

/// Sets a key of a document, replacing values that are not maps.
pub(super) fn replace(document: &mut Value, key: &str, value: Value) {
    let mut place = document;
    for part in key.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(map) = place else { return };
        place = map.entry(part).or_insert(Value::Null);
    }
    *place = value;
}

/// Removes a key from a document.
pub(super) fn remove(document: &mut Value, key: &str) {
    let (around, name) = key.rsplit_once('.').unwrap_or(("", key));
    let place = around
        .split('.')
        .filter(|part| !part.is_empty())
        .try_fold(document, |place, part| place.get_mut(part));
    if let Some(Value::Object(map)) = place {
        map.remove(name);
    }
}

/// The value of a key in a document; null if it is omitted.
pub(super) fn at(document: &Value, key: &str) -> Value {
    let found = key
        .split('.')
        .try_fold(document, |place, part| place.get(part));
    found.cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case("a.b=8", json!({"x": 1, "a": {"b": 8, "c": 2}}))]
    #[case("a.b=10m", json!({"x": 1, "a": {"b": "10m", "c": 2}}))]
    #[case("a.b=[1, x]", json!({"x": 1, "a": {"b": [1, "x"], "c": 2}}))]
    #[case("a.b=", json!({"x": 1, "a": {"b": "", "c": 2}}))]
    #[case("a.b=k=v", json!({"x": 1, "a": {"b": "k=v", "c": 2}}))]
    #[case("new.key=true", json!({"x": 1, "a": {"b": 1, "c": 2}, "new": {"key": true}}))]
    #[case("x.y=1", json!({"x": {"y": 1}, "a": {"b": 1, "c": 2}}))]
    fn a_value_is_put_in_its_place(#[case] text: &str, #[case] expected: Value) {
        let mut document = json!({"x": 1, "a": {"b": 1, "c": 2}});
        text.parse::<Set>().unwrap().apply(&mut document);
        assert_eq!(document, expected);
    }

    #[rstest]
    #[case("workers")]
    #[case("=8")]
    #[case("a..b=8")]
    #[case("a=[1")]
    fn invalid_flags_are_rejected(#[case] text: &str) {
        text.parse::<Set>().unwrap_err();
    }
}
