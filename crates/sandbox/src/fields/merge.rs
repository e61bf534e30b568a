//! Merges an applied configuration into an object, and removes fields from it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::key;
use super::schema::{Form, List, Shape};
use super::set::{Set, below, is_member, of_field};

/// The object with the fields of the configuration.
pub(crate) fn merge(shape: Shape<'_>, live: &Value, config: &Value) -> Value {
    // A null takes the form of what it meets.
    let form = shape.form(if config.is_null() { live } else { config });
    match (form, live, config) {
        (Form::Map, Value::Object(live), Value::Object(config)) => {
            let mut merged = live.clone();
            for (name, value) in config {
                let (inner, _) = shape.field(name).unwrap_or((Shape::Free, false));
                let value = match live.get(name) {
                    Some(live) => merge(inner, live, value),
                    None => value.clone(),
                };
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        (Form::List(list), Value::Array(live), Value::Array(config)) => {
            Value::Array(merge_lists(&list, live, config))
        }
        (Form::Map, Value::Object(map), Value::Null) if !map.is_empty() => live.clone(),
        (Form::List(_), Value::Array(list), Value::Null) if !list.is_empty() => live.clone(),
        _ => config.clone(),
    }
}

/// Items keep the order of the configuration; others stay before the items that followed them.
fn merge_lists(list: &List<'_>, live: &[Value], config: &[Value]) -> Vec<Value> {
    let elements = |items: &[Value]| -> Vec<String> {
        let element = |item| key::of_item(list, item).unwrap_or_default();
        items.iter().map(element).collect()
    };
    let (left, right) = (elements(live), elements(config));
    let mut before: BTreeMap<&str, Option<&Value>> = BTreeMap::new();
    for (element, item) in left.iter().zip(live) {
        let place = before.entry(element).or_insert(Some(item));
        if place.is_some_and(|first| !std::ptr::eq(first, item)) {
            // Duplicates are replaced.
            *place = None;
        }
    }
    let wanted: BTreeSet<&str> = right.iter().map(String::as_str).collect();
    let shared = right.iter().map(String::as_str);
    let mut shared: VecDeque<&str> = shared.filter(|e| before.contains_key(e)).collect();
    let mut next = shared.pop_front();
    let merged_item = |element: &str, item: &Value| match before.get(element) {
        Some(Some(live)) => merge(list.item, live, item),
        _ => item.clone(),
    };
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if let (Some(this), Some(that)) = (left.get(l), right.get(r)) {
            if this == that {
                done.insert(this);
                out.push(merged_item(that, &config[r]));
                (l, r) = (l + 1, r + 1);
                next = shared.pop_front();
                continue;
            }
            if wanted.contains(this.as_str()) && next.is_some_and(|next| next != this) {
                l += 1;
                continue;
            }
        }
        if let Some(this) = left.get(l) {
            if !wanted.contains(this.as_str()) {
                out.push(live[l].clone());
                l += 1;
                continue;
            }
            if done.contains(this.as_str()) {
                l += 1;
            }
        }
        if let Some(that) = right.get(r) {
            done.insert(that);
            out.push(merged_item(that, &config[r]));
            r += 1;
            if next == Some(that) {
                next = shared.pop_front();
            }
        }
    }
    out
}

/// The value without the fields of a set. A map or list that becomes empty is null.
pub(super) fn without(shape: Shape<'_>, value: &Value, set: &Set) -> Value {
    let left = match (shape.form(value), value) {
        (Form::Map, Value::Object(map)) => {
            let left = map_without(shape, map, set);
            (!left.is_empty()).then_some(Value::Object(left))
        }
        (Form::List(list), Value::Array(items)) => {
            let left = list_without(&list, items, set);
            (!left.is_empty()).then_some(Value::Array(left))
        }
        // Atomic maps and lists vanish as the real library lets them.
        (Form::Leaf, Value::Object(_) | Value::Array(_)) => None,
        (_, value) => Some(value.clone()),
    };
    left.unwrap_or(Value::Null)
}

fn map_without(shape: Shape<'_>, map: &Map<String, Value>, set: &Set) -> Map<String, Value> {
    let mut left = Map::new();
    for (name, value) in map {
        let element = of_field(name);
        if set.get(&element).is_some_and(is_member) {
            continue;
        }
        let value = match below(set, &element) {
            Some(set) => {
                let (inner, _) = shape.field(name).unwrap_or((Shape::Free, false));
                without(inner, value, set)
            }
            None => value.clone(),
        };
        left.insert(name.clone(), value);
    }
    left
}

fn list_without(list: &List<'_>, items: &[Value], set: &Set) -> Vec<Value> {
    let mut left = Vec::new();
    for item in items {
        let element = key::of_item(list, item).unwrap_or_default();
        if set.get(&element).is_some_and(is_member) {
            continue;
        }
        left.push(match below(set, &element) {
            Some(set) => without(list.item, item, set),
            None => item.clone(),
        });
    }
    left
}
