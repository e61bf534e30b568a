//! Values of objects as rules see them.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use chrono::{DateTime, NaiveDate, NaiveTime};
use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, Map};
use serde_json::Value;

use super::super::{INT_OR_STRING, flag, is_typed, property};

/// A value by its schema. Fields without a schema do not exist for rules; of metadata, only the names do.
pub(super) fn of(schema: &Value, value: &Value, whole: bool) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(is_true) => Cel::Bool(*is_true),
        Value::Number(number) => {
            let real = schema.get("type").and_then(Value::as_str) == Some("number");
            match number.as_i64().filter(|_| !real) {
                Some(whole) => Cel::Int(whole),
                None => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
            }
        }
        Value::String(text) => of_text(schema, text),
        Value::Array(items) => {
            let item_schema = schema.get("items").unwrap_or(&Value::Null);
            let items = items.iter().map(|item| of(item_schema, item, false));
            Cel::List(Arc::new(items.collect()))
        }
        Value::Object(map) => {
            let others = schema.get("additionalProperties").filter(|a| a.is_object());
            let whole = whole || flag(schema, "x-kubernetes-embedded-resource");
            let mut fields = HashMap::with_capacity(map.len());
            for (field, value) in map {
                let (name, value) = match (property(schema, field), others) {
                    _ if whole && is_typed(field) => (Some(field.clone()), typed(value)),
                    (Some(schema), _) => (escape(field), of(schema, value, false)),
                    (None, Some(schema)) => (Some(field.clone()), of(schema, value, false)),
                    (None, None) => continue,
                };
                if let Some(name) = name {
                    fields.insert(Key::String(Arc::new(name)), value);
                }
            }
            Cel::Map(Map {
                map: Arc::new(fields),
            })
        }
    }
}

/// `apiVersion`, `kind` and the visible part of `metadata`.
fn typed(value: &Value) -> Cel {
    let Some(metadata) = value.as_object() else {
        return Cel::String(Arc::new(value.as_str().unwrap_or_default().to_owned()));
    };
    let names = ["name", "generateName"].iter().filter_map(|name| {
        let text = metadata.get(*name)?.as_str()?;
        let key = Key::String(Arc::new((*name).to_owned()));
        Some((key, Cel::String(Arc::new(text.to_owned()))))
    });
    Cel::Map(Map {
        map: Arc::new(names.collect()),
    })
}

fn of_text(schema: &Value, text: &str) -> Cel {
    let format = schema.get("format").and_then(Value::as_str);
    let special = match format.filter(|_| !flag(schema, INT_OR_STRING)) {
        Some("date-time") => DateTime::parse_from_rfc3339(text).ok().map(Cel::Timestamp),
        Some("date") => {
            let day: Option<NaiveDate> = text.parse().ok();
            day.map(|day| Cel::Timestamp(day.and_time(NaiveTime::MIN).and_utc().fixed_offset()))
        }
        Some("duration") => duration(text).map(Cel::Duration),
        Some("byte") => {
            let engine = base64::engine::general_purpose::STANDARD;
            engine
                .decode(text)
                .ok()
                .map(|bytes| Cel::Bytes(Arc::new(bytes)))
        }
        _ => None,
    };
    special.unwrap_or_else(|| Cel::String(Arc::new(text.to_owned())))
}

/// Go's durations: `1h30m`, `-1.5s`.
fn duration(text: &str) -> Option<chrono::Duration> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut nanos = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let scale = match unit {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 6e10,
            "h" => 3.6e12,
            _ => return None,
        };
        nanos += number.parse::<f64>().ok()? * scale;
        rest = after;
    }
    (!text.is_empty()).then(|| chrono::Duration::nanoseconds((sign * nanos) as i64))
}

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// A property's name in rules; `None` if rules cannot name it.
pub(super) fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let identifier = |c: char| c.is_ascii_alphanumeric() || "_.-/".contains(c);
    if name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(identifier) {
        return None;
    }
    let name = name.replace("__", "__underscores__");
    let name = name.replace('.', "__dot__").replace('-', "__dash__");
    Some(name.replace('/', "__slash__"))
}

/// The length of the longest list or map in a value.
pub(super) fn longest(value: &Value) -> u64 {
    match value {
        Value::Array(items) => {
            let inside = items.iter().map(longest).max();
            inside.unwrap_or(0).max(items.len() as u64)
        }
        Value::Object(map) => {
            let inside = map.values().map(longest).max();
            inside.unwrap_or(0).max(map.len() as u64)
        }
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_by_the_real_server() {
        let cases = [
            ("a_b", Some("a_b")),
            ("a__b", Some("a__underscores__b")),
            ("a-b.c/d", Some("a__dash__b__dot__c__slash__d")),
            ("namespace", Some("__namespace__")),
            ("1st", None),
            ("$x", None),
        ];
        for (name, expected) in cases {
            assert_eq!(escape(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn durations_are_gos() {
        assert_eq!(duration("1h30m"), Some(chrono::Duration::minutes(90)));
        assert_eq!(
            duration("-1.5s"),
            Some(chrono::Duration::milliseconds(-1500))
        );
        assert_eq!(duration("5"), None);
    }
}
