//! What the real server refuses in the schema of a CRD, or warns of.

use serde_json::Value;

use super::children;
use super::{format, list_type};
use crate::error::Cause;

/// The errors of a CRD's schema: patterns that do not compile, and rules.
pub(crate) fn refuse(schema: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let place = Place {
        path: path.to_owned(),
        root: true,
        spine: true,
        correlatable: true,
    };
    walk(schema, &place, &mut causes);
    causes
}

struct Place {
    path: String,
    #[cfg_attr(not(feature = "cel"), expect(dead_code, reason = "only rules read it"))]
    root: bool,
    /// False inside `allOf` and the like, where no rules are allowed.
    spine: bool,
    /// Whether values have an earlier state: not in lists without keys.
    correlatable: bool,
}

fn walk(schema: &Value, place: &Place, causes: &mut Vec<Cause>) {
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
        && format::regex(pattern).is_none()
    {
        let shown = Value::from(pattern).to_string();
        let why = "must be a valid regular expression, but isn't: error parsing regexp";
        let path = format!("{}.pattern", place.path);
        causes.push(Cause::invalid(&path, &shown, why));
    }
    if schema.get("x-kubernetes-validations").is_some() && !place.spine {
        let path = format!("{}.x-kubernetes-validations", place.path);
        causes.push(Cause::forbidden(&path, "must be empty to be structural"));
    }
    #[cfg(feature = "cel")]
    if place.spine {
        let rules = super::rules::Refusal {
            schema,
            path: &place.path,
            root: place.root,
            correlatable: place.correlatable,
        };
        causes.extend(rules.causes());
    }
    children(schema, |name, child| {
        let keyed = list_type(schema) == Some("map");
        let on_spine = name.starts_with("properties[")
            || matches!(name.as_str(), "items" | "additionalProperties");
        let inner = Place {
            path: format!("{}.{name}", place.path),
            root: false,
            spine: place.spine && on_spine,
            correlatable: place.correlatable && (name != "items" || keyed),
        };
        walk(child, &inner, causes);
    });
}

/// The formats that the server ignores, each once.
pub(crate) fn unrecognized_formats(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(schema, &mut found);
    found
}

fn collect(schema: &Value, found: &mut Vec<String>) {
    if let Some(name) = schema.get("format").and_then(Value::as_str)
        && format::supported(schema).is_none()
        && !found.iter().any(|known| known == name)
    {
        found.push(name.to_owned());
    }
    children(schema, |_, child| collect(child, found));
}
