//! Tables, as `kubectl get` prints them.

mod builtin;
mod cells;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::{Column, ResourceInfo};
use crate::wire::Partial;
use builtin::builtin;
use cells::{age, name, since};

/// The table of these objects, without `apiVersion` and `metadata`.
pub(super) fn table(
    info: &ResourceInfo,
    version: &str,
    objects: &[&Value],
    include_object: &str,
    now: Timestamp,
) -> Value {
    let custom = info
        .version(version)
        .map_or(&[][..], |v| v.columns.as_slice());
    let (columns, rows) = if info.custom {
        (custom_columns(custom), custom_rows(custom, objects, now))
    } else {
        let columns = builtin(&info.resource);
        let cells = |o: &Value| {
            columns
                .iter()
                .map(|(.., cell)| cell(o, now))
                .collect::<Vec<_>>()
        };
        let rows = objects.iter().map(|o| cells(o)).collect();
        let defs = columns.iter().map(|(name, kind, format, priority, _)| {
            json!({"name": name, "type": kind, "format": format, "description": "", "priority": priority})
        });
        (defs.collect(), rows)
    };
    let rows: Vec<Value> = rows
        .into_iter()
        .zip(objects)
        .map(|(cells, object)| row(cells, object, include_object))
        .collect();
    json!({"kind": "Table", "columnDefinitions": Value::Array(columns), "rows": rows})
}

fn row(cells: Vec<Value>, object: &Value, include_object: &str) -> Value {
    let mut row = json!({"cells": cells});
    row["object"] = match include_object {
        "None" => return row,
        "Object" => object.clone(),
        _ => serde_json::to_value(Partial(object)).unwrap_or_default(),
    };
    row
}

fn custom_columns(custom: &[Column]) -> Vec<Value> {
    let mut columns = vec![json!({
        "name": "Name", "type": "string", "format": "name", "description": "", "priority": 0,
    })];
    columns.extend(custom.iter().map(|c| {
        json!({
            "name": c.name, "type": c.kind, "format": c.format, "description": c.description,
            "priority": c.priority,
        })
    }));
    if custom.is_empty() {
        columns.push(json!({
            "name": "Age", "type": "date", "format": "", "description": "", "priority": 0,
        }));
    }
    columns
}

fn custom_rows(custom: &[Column], objects: &[&Value], now: Timestamp) -> Vec<Vec<Value>> {
    let cells = |object: &&Value| {
        let mut cells = vec![name(object, now)];
        cells.extend(custom.iter().map(|c| custom_cell(c, object, now)));
        if custom.is_empty() {
            cells.push(age(object, now));
        }
        cells
    };
    objects.iter().map(cells).collect()
}

/// Evaluates a simple JSON path (`.a.b[0].c`); other expressions give an empty cell.
fn custom_cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    let mut found = Some(object);
    for part in column.path.split(['.', '[']).filter(|p| !p.is_empty()) {
        found = found.and_then(|value| match part.strip_suffix(']') {
            Some(index) => match index.parse::<usize>() {
                Ok(index) => value.get(index),
                Err(_) => value.get(index.trim_matches(['\'', '"'])),
            },
            None => value.get(part),
        });
    }
    match (found, column.kind.as_str()) {
        (None, _) => Value::Null,
        (Some(Value::String(at)), "date") => json!(since(at, now)),
        (Some(value @ (Value::String(_) | Value::Number(_) | Value::Bool(_))), _) => value.clone(),
        (Some(other), _) => json!(other.to_string()),
    }
}
