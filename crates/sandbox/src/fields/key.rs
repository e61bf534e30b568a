//! The elements of paths that identify items of lists.

use serde_json::{Map, Value};

use super::schema::{Keys, List};

/// The element of an item.
///
/// # Errors
/// When the item cannot be in such a list.
pub(super) fn of_item(list: &List<'_>, item: &Value) -> Result<String, String> {
    match &list.keys {
        Keys::Set => of_value(item),
        keys => of_object(keys, item),
    }
}

fn of_value(item: &Value) -> Result<String, String> {
    match item {
        Value::Object(_) => {
            Err("associative list without keys has an element that's a map type".into())
        }
        Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
        Value::Null => {
            Err("associative list without keys has an element that's an explicit null".into())
        }
        item => Ok(format!("v:{item}")),
    }
}

fn of_object(keys: &Keys<'_>, item: &Value) -> Result<String, String> {
    let Some(map) = item.as_object() else {
        let kind = if item.is_null() { "a null" } else { "non-map" };
        return Err(match kind {
            "a null" => "associative list with keys may not have a null element".into(),
            _ => "associative list with keys may not have non-map elements".to_owned(),
        });
    };
    let mut names = Vec::new();
    let mut found: Vec<(&str, String)> = Vec::new();
    keys.each(|name, default| {
        names.push(format!("{name:?}"));
        if let Some(value) = map.get(name).or(default.as_ref()) {
            found.push((name, value.to_string()));
        }
    });
    if found.is_empty() {
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    found.sort_unstable();
    let mut element = String::from("k:{");
    for (index, (name, value)) in found.iter().enumerate() {
        if index > 0 {
            element.push(',');
        }
        element.push('"');
        element.push_str(name);
        element.push_str("\":");
        element.push_str(value);
    }
    element.push('}');
    Ok(element)
}

/// An element as in error messages: `.spec`, `[name="a"]`, `[="x"]`, `[0]`.
pub(super) fn display(element: &str) -> String {
    let (kind, text) = element.split_once(':').unwrap_or(("", element));
    match kind {
        "f" => format!(".{text}"),
        "v" => format!("[={text}]"),
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
            format!("[{}]", keys.join(","))
        }
        _ => format!("[{text}]"),
    }
}
