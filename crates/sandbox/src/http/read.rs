//! Decodes bodies: JSON or YAML, with duplicate fields, in the order of the text.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A body and the paths of its duplicate fields.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) value: Value,
    pub(super) duplicates: Vec<String>,
}

/// Decodes JSON.
///
/// # Errors
/// Why it is invalid.
pub(super) fn json(body: &[u8]) -> Result<Parsed, String> {
    let mut trail = Trail::default();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = Seed(&mut trail)
        .deserialize(&mut reader)
        .map_err(|e| e.to_string())?;
    reader.end().map_err(|e| e.to_string())?;
    Ok(Parsed {
        value,
        duplicates: trail.duplicates,
    })
}

/// Decodes one YAML document.
///
/// # Errors
/// Why it is invalid.
pub(super) fn yaml(body: &[u8]) -> Result<Parsed, String> {
    let text = std::str::from_utf8(body).map_err(|e| e.to_string())?;
    let value = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    Ok(Parsed {
        value,
        duplicates: Vec::new(),
    })
}

/// Sorts the paths of fields in the order of the body.
pub(super) fn in_order(body: &[u8], paths: &mut [String]) {
    if paths.len() < 2 {
        return;
    }
    let mut trail = Trail {
        all: Some(BTreeMap::new()),
        ..Trail::default()
    };
    let mut reader = serde_json::Deserializer::from_slice(body);
    // A body that cannot be decoded has been refused before.
    let _ = Seed(&mut trail).deserialize(&mut reader);
    let all = trail.all.unwrap_or_default();
    paths.sort_by_key(|path| all.get(path).copied().unwrap_or(usize::MAX));
}

#[derive(Debug, Default)]
struct Trail {
    path: String,
    duplicates: Vec<String>,
    all: Option<BTreeMap<String, usize>>,
}

struct Seed<'a>(&'a mut Trail);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        let length = self.0.path.len();
        loop {
            self.0.path.push_str(&format!("[{}]", list.len()));
            let next = items.next_element_seed(Seed(&mut *self.0))?;
            self.0.path.truncate(length);
            match next {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let length = self.0.path.len();
        while let Some(key) = entries.next_key::<String>()? {
            if length > 0 {
                self.0.path.push('.');
            }
            self.0.path.push_str(&key);
            if map.contains_key(&key) {
                self.0.duplicates.push(self.0.path.clone());
            }
            if let Some(all) = &mut self.0.all {
                let place = all.len();
                all.entry(self.0.path.clone()).or_insert(place);
            }
            let value = entries.next_value_seed(Seed(&mut *self.0))?;
            self.0.path.truncate(length);
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn duplicates_are_named_and_the_last_one_counts() {
        let parsed = json(br#"{"a": {"b": 1, "b": 2}, "l": [{"c": 1, "c": 1}]}"#).unwrap();
        assert_eq!(parsed.value, json!({"a": {"b": 2}, "l": [{"c": 1}]}));
        assert_eq!(parsed.duplicates, ["a.b", "l[0].c"]);
    }

    #[test]
    fn paths_are_sorted_in_the_order_of_the_body() {
        let mut paths = vec!["a.z".to_owned(), "x".to_owned()];
        in_order(br#"{"x": 1, "a": {"z": 2}}"#, &mut paths);
        assert_eq!(paths, ["x", "a.z"]);
    }

    #[test]
    fn trailing_data_is_refused() {
        assert!(json(b"{} {}").is_err());
        assert!(yaml(b"a: [").is_err());
    }
}
