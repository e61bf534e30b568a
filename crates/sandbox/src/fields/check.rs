//! Checks that an applied configuration fits its schema.

use std::collections::BTreeSet;

use serde_json::Value;

use super::key;
use super::schema::{Form, Shape};
use crate::kinds::types::Node;

/// The errors of a configuration, each with its path.
pub(super) fn check(shape: Shape<'_>, value: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    walk(shape, value, &mut String::new(), &mut errors);
    errors
}

fn report(path: &str, why: &str, errors: &mut Vec<String>) {
    errors.push(if path.is_empty() {
        why.to_owned()
    } else {
        format!("{path}: {why}")
    });
}

fn inside(
    element: &str,
    path: &mut String,
    errors: &mut Vec<String>,
    walk: impl FnOnce(&mut String, &mut Vec<String>),
) {
    let length = path.len();
    path.push_str(&key::display(element));
    walk(path, errors);
    path.truncate(length);
}

fn walk(shape: Shape<'_>, value: &Value, path: &mut String, errors: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    if let Some(why) = wrong_type(shape, value) {
        return report(path, &why, errors);
    }
    match (shape.form(value), value) {
        (Form::List(list), Value::Array(items)) => {
            let mut seen = BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                let element = match key::of_item(&list, item) {
                    Ok(element) => element,
                    Err(why) => return report(path, &format!("element {index}: {why}"), errors),
                };
                if !seen.insert(element.clone()) {
                    let key = key::display(&element);
                    report(path, &format!("duplicate entries for key {key}"), errors);
                }
                inside(&element, path, errors, |path, errors| {
                    walk(list.item, item, path, errors);
                });
            }
        }
        (_, Value::Array(items)) => {
            let (item, _) = shape.at("i:");
            for (index, value) in items.iter().enumerate() {
                let element = format!("i:{index}");
                inside(&element, path, errors, |path, errors| {
                    walk(item, value, path, errors);
                });
            }
        }
        (_, Value::Object(map)) => {
            for (name, value) in map {
                let field = shape.field(name);
                inside(
                    &format!("f:{name}"),
                    path,
                    errors,
                    |path, errors| match field {
                        Some((inner, _)) => walk(inner, value, path, errors),
                        None => report(path, "field not declared in schema", errors),
                    },
                );
            }
        }
        _ => {}
    }
}

fn wrong_type(shape: Shape<'_>, value: &Value) -> Option<String> {
    let wanted = match shape {
        Shape::Free | Shape::Leaf => return None,
        Shape::BuiltIn(node, _) => of_node(node)?,
        Shape::Custom(custom) => custom.primitive()?,
    };
    let fits = match wanted {
        "map" => value.is_object(),
        "list" => value.is_array(),
        "numeric (int or float)" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        _ => !value.is_object() && !value.is_array(),
    };
    (!fits).then(|| format!("expected {wanted}, got {}", shown(wanted, value)))
}

fn of_node(node: &Node) -> Option<&'static str> {
    Some(match node {
        Node::Any => return None,
        Node::Text | Node::Bytes => "string",
        Node::Integer | Node::Number => "numeric (int or float)",
        Node::Boolean => "boolean",
        Node::Time | Node::Quantity | Node::IntOrText => "any scalar",
        Node::List(_) => "list",
        Node::Map(_) | Node::Type(_) => "map",
    })
}

/// A value as Go prints it in these messages.
fn shown(wanted: &str, value: &Value) -> String {
    match (wanted, value) {
        ("numeric (int or float)", Value::String(_)) => "string".into(),
        ("numeric (int or float)", Value::Bool(_)) => "bool".into(),
        ("string", value) => format!("&value.valueUnstructured{{Value:{}}}", in_go_syntax(value)),
        (_, value) => format!("&{{{}}}", in_go_words(value)),
    }
}

/// As `%#v`.
fn in_go_syntax(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(in_go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let fields: Vec<String> = map
                .iter()
                .map(|(name, value)| format!("{name:?}:{}", in_go_syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// As `%v`.
fn in_go_words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(in_go_words).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(map) => {
            let fields: Vec<String> = map
                .iter()
                .map(|(name, value)| format!("{name}:{}", in_go_words(value)))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}
