//! Objects as bytes.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// As JSON.
pub(crate) fn encode(value: &impl Serialize) -> Vec<u8> {
    // Values always serialize: keys are strings and numbers are finite.
    serde_json::to_vec(value).unwrap_or_default()
}

/// `PartialObjectMetadata` of an object, without copying it.
pub(crate) struct Partial<'a>(pub(crate) &'a Value);

impl Serialize for Partial<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("kind", "PartialObjectMetadata")?;
        map.serialize_entry("apiVersion", "meta.k8s.io/v1")?;
        map.serialize_entry("metadata", self.0.get("metadata").unwrap_or(&Value::Null))?;
        map.end()
    }
}

/// An object with another resourceVersion, without copying it.
pub(crate) struct Versioned<'a>(pub(crate) &'a Value, pub(crate) u64);

impl Serialize for Versioned<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(fields) = self.0.as_object() else {
            return self.0.serialize(serializer);
        };
        let mut map = serializer.serialize_map(Some(fields.len()))?;
        for (field, value) in fields {
            match field.as_str() {
                "metadata" => map.serialize_entry(field, &VersionedMetadata(value, self.1))?,
                _ => map.serialize_entry(field, value)?,
            }
        }
        map.end()
    }
}

/// `PartialObjectMetadata` of an object with another resourceVersion.
pub(crate) struct VersionedPartial<'a>(pub(crate) &'a Value, pub(crate) u64);

impl Serialize for VersionedPartial<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let metadata = self.0.get("metadata").unwrap_or(&Value::Null);
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("kind", "PartialObjectMetadata")?;
        map.serialize_entry("apiVersion", "meta.k8s.io/v1")?;
        map.serialize_entry("metadata", &VersionedMetadata(metadata, self.1))?;
        map.end()
    }
}

struct VersionedMetadata<'a>(&'a Value, u64);

impl Serialize for VersionedMetadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(fields) = self.0.as_object() else {
            return self.0.serialize(serializer);
        };
        let mut map = serializer.serialize_map(Some(fields.len()))?;
        for (field, value) in fields {
            match field.as_str() {
                "resourceVersion" => map.serialize_entry(field, &self.1.to_string())?,
                _ => map.serialize_entry(field, value)?,
            }
        }
        map.end()
    }
}
