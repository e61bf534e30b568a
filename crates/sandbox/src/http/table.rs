//! Tables, as `kubectl get` prints them.

mod builtin;
mod cells;
mod path;
mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::{Column, ResourceInfo};
use crate::wire::Partial;
use builtin::builtin;
use cells::{age, name, since};
use path::Path;

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
    let paths: Vec<Option<Path>> = custom.iter().map(|c| Path::parse(&c.path)).collect();
    let cells = |object: &&Value| {
        let mut cells = vec![name(object, now)];
        let found = paths.iter().map(|path| first(path.as_ref()?, object));
        let custom_cells = custom.iter().zip(found);
        cells.extend(custom_cells.map(|(column, found)| custom_cell(column, found, now)));
        if custom.is_empty() {
            cells.push(age(object, now));
        }
        cells
    };
    objects.iter().map(cells).collect()
}

/// A column shows the first of the values that its path leads to.
fn first<'a>(path: &Path, object: &'a Value) -> Option<&'a Value> {
    path.find(object)?.first().copied()
}

/// A value in the form of its column; nothing if it has another type.
fn custom_cell(column: &Column, found: Option<&Value>, now: Timestamp) -> Value {
    let whole = |number: f64| format!("{:.0}", number.trunc()).parse::<i64>().ok();
    match (column.kind.as_str(), found) {
        (_, None | Some(Value::Null)) => Value::Null,
        ("string", Some(Value::String(text))) => json!(text),
        ("string", Some(other)) => json!(other.to_string()),
        ("date", Some(Value::String(at))) => match at.parse::<Timestamp>() {
            Ok(_) => json!(since(at, now)),
            Err(_) => json!("<invalid>"),
        },
        ("integer", Some(Value::Number(number))) => match number.as_i64() {
            Some(number) => json!(number),
            None => json!(number.as_f64().and_then(whole)),
        },
        ("number", Some(number @ Value::Number(_))) => number.clone(),
        ("boolean", Some(flag @ Value::Bool(_))) => flag.clone(),
        _ => Value::Null,
    }
}
