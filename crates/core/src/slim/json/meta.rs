use std::sync::Arc;

use jiff::Timestamp;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::fields::{Text, each, nullable, timestamp};
use crate::object::{ObjectKey, OwnerReference, ResourceVersion, Uid};
use crate::slim::limits::{self, Finalizers};
use crate::slim::{DecodeContext, DecodeError, Interner, Labels, ObjectMeta};

/// An object of which only the metadata is read. It is [`OwnerMeta`](crate::slim::OwnerMeta) in
/// JSON, which the [example](crate::slim) decodes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct JsonObject<'a> {
    /// `metadata`.
    #[serde(borrow, deserialize_with = "nullable")]
    pub metadata: JsonMeta<'a>,
}

/// `metadata` as in the bytes. The [example of slim objects](crate::slim) decodes it as a part of
/// [`OwnerMeta`](crate::slim::OwnerMeta).
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct JsonMeta<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    name: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    namespace: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    uid: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    resource_version: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    creation_timestamp: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    deletion_timestamp: Text<'a>,
    deletion_grace_period_seconds: Option<i64>,
    #[serde(borrow, deserialize_with = "nullable")]
    finalizers: Vec<Text<'a>>,
    #[serde(borrow, deserialize_with = "controller")]
    owner_references: Option<JsonOwner<'a>>,
    // Decoded later, only the kept ones: mostly none.
    #[serde(borrow)]
    labels: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
    // Decoded only for a failed pod, and for annotations that depend on who created the object.
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JsonOwner<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    api_version: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    kind: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    name: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    uid: Text<'a>,
    #[serde(deserialize_with = "nullable")]
    controller: bool,
}

/// Keeps only the reference with `controller: true`.
fn controller<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<JsonOwner<'a>>, D::Error> {
    let mut found = None;
    each(deserializer, |owner: JsonOwner<'a>| {
        if owner.controller && found.is_none() {
            found = Some(owner);
        }
    })?;
    Ok(found)
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct JsonManagedFields<'a> {
    #[serde(borrow, deserialize_with = "nullable")]
    manager: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    subresource: Text<'a>,
    #[serde(borrow, deserialize_with = "nullable")]
    time: Text<'a>,
    #[serde(borrow)]
    fields_v1: Option<&'a RawValue>,
}

/// All entries; `null` is an empty list.
#[derive(Deserialize, Default)]
#[serde(transparent)]
struct ManagedFields<'a>(
    #[serde(borrow, deserialize_with = "nullable")] Vec<JsonManagedFields<'a>>,
);

/// Whether the JSON of a `fieldsV1` contains fields of the spec.
pub(in crate::slim) fn has_spec(fields: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Fields {
        #[serde(rename = "f:spec")]
        spec: Option<IgnoredAny>,
    }
    serde_json::from_slice(fields).is_ok_and(|fields: Fields| fields.spec.is_some())
}

/// Whether the JSON of a `fieldsV1` contains finalizers. Unreadable fields may.
pub(in crate::slim) fn has_finalizers(fields: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Fields {
        #[serde(rename = "f:metadata", default)]
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    struct Metadata {
        #[serde(rename = "f:finalizers")]
        finalizers: Option<IgnoredAny>,
    }
    serde_json::from_slice(fields)
        .map_or(true, |fields: Fields| fields.metadata.finalizers.is_some())
}

impl<'a> JsonMeta<'a> {
    /// When it was created; `None` also if the time cannot be parsed.
    pub fn created(&self) -> Option<Timestamp> {
        self.creation_timestamp.parse().ok()
    }

    /// The slim metadata.
    ///
    /// # Errors
    ///
    /// If name, UID or resourceVersion are missing, or a version or time is invalid.
    pub fn to_meta(&self, context: &DecodeContext) -> Result<ObjectMeta, DecodeError> {
        if self.name.is_empty() {
            return Err(DecodeError::Missing("metadata.name"));
        }
        if self.uid.is_empty() {
            return Err(DecodeError::Missing("metadata.uid"));
        }
        let interner = &context.interner;
        let keep = &context.keep;
        let mut finalizers = Finalizers::new(context);
        self.finalizers.iter().for_each(|name| finalizers.add(name));
        Ok(ObjectMeta {
            key: ObjectKey::new(interner.intern(&self.namespace), &*self.name),
            uid: Uid::new(&*self.uid),
            resource_version: self.resource_version()?,
            deletion_timestamp: timestamp("metadata.deletionTimestamp", &self.deletion_timestamp)
                .unwrap_or(Some(Timestamp::MAX)),
            deletion_grace_period: self.deletion_grace_period_seconds,
            finalizers: finalizers.finish(),
            controller: self
                .owner_references
                .as_ref()
                .map(|owner| owner.to_reference(interner)),
            labels: kept(self.labels, keep.label_names(), interner)?,
            annotations: kept(self.annotations, keep.annotation_names(), interner)?
                .of_creator(keep, |manager| self.is_created_by(manager)),
        })
    }

    /// `metadata.resourceVersion`.
    ///
    /// # Errors
    ///
    /// If it is missing or not a number.
    pub fn resource_version(&self) -> Result<ResourceVersion, DecodeError> {
        if self.resource_version.is_empty() {
            return Err(DecodeError::Missing("metadata.resourceVersion"));
        }
        ResourceVersion::parse(&self.resource_version)
            .ok_or_else(|| DecodeError::value("metadata.resourceVersion", &self.resource_version))
    }

    /// `metadata.name`; empty in a bookmark.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of one annotation, whether it is kept or not.
    pub fn annotation(&self, name: &str) -> Option<Arc<str>> {
        let names = [Arc::from(name)];
        let found = kept(self.annotations, &names, &Interner::default()).ok()?;
        found.get(name).map(Arc::from)
    }

    /// When the kubelet last wrote the status; if it never did, when any component last did.
    pub fn status_written(&self) -> Option<Timestamp> {
        let (mut kubelet, mut any) = (None, None);
        for entry in self.managed_fields() {
            if &*entry.subresource != "status" {
                continue;
            }
            // An invalid time counts as missing.
            let time = entry.time.parse().ok();
            any = any.max(time);
            if &*entry.manager == "kubelet" {
                kubelet = kubelet.max(time);
            }
        }
        kubelet.or(any)
    }

    /// When the field managers that own finalizers last wrote; `None` if one has no time, or none owns any.
    pub fn finalizers_written(&self) -> Option<Timestamp> {
        let entries = self.managed_fields().into_iter();
        let owners = entries.filter(|entry| {
            let fields = entry.fields_v1.map(|fields| fields.get().as_bytes());
            fields.is_some_and(has_finalizers)
        });
        let times = owners.map(|entry| entry.time.parse().ok());
        times.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Whether this field manager wrote a field of the spec. Without any managers, it may have.
    fn is_created_by(&self, manager: &str) -> bool {
        let entries = self.managed_fields();
        entries.is_empty()
            || entries.iter().any(|entry| {
                &*entry.manager == manager
                    && entry.subresource.is_empty()
                    && entry
                        .fields_v1
                        .is_some_and(|fields| has_spec(fields.get().as_bytes()))
            })
    }

    fn managed_fields(&self) -> Vec<JsonManagedFields<'a>> {
        let decoded = self
            .managed_fields
            .map(|raw| serde_json::from_str(raw.get()));
        let decoded: Option<ManagedFields<'a>> = decoded.and_then(Result::ok);
        decoded.unwrap_or_default().0
    }
}

impl JsonOwner<'_> {
    // All pods of one owner have the same reference.
    fn to_reference(&self, interner: &Interner) -> Arc<OwnerReference> {
        interner.intern_owner(OwnerReference {
            api_version: interner.intern(limits::any_name(&self.api_version)),
            kind: interner.intern(limits::name(&self.kind)),
            name: interner.intern(limits::any_name(&self.name)),
            uid: Uid::new(limits::name(&self.uid)),
        })
    }
}

fn kept(
    raw: Option<&RawValue>,
    names: &[Arc<str>],
    interner: &Interner,
) -> Result<Labels, DecodeError> {
    let Some(raw) = raw.filter(|_| !names.is_empty()) else {
        return Ok(Labels::default());
    };
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    let pairs = Kept { names, interner }.deserialize(&mut deserializer)?;
    Ok(if pairs.is_empty() {
        Labels::default()
    } else {
        pairs.into_iter().collect()
    })
}

/// Decodes a map of strings and keeps the wanted names.
struct Kept<'k> {
    names: &'k [Arc<str>],
    interner: &'k Interner,
}

impl<'de> DeserializeSeed<'de> for Kept<'_> {
    type Value = Vec<(Arc<str>, Arc<str>)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Kept<'_> {
    type Value = Vec<(Arc<str>, Arc<str>)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(name) = map.next_key::<Text<'de>>()? {
            match self.names.binary_search_by(|have| (**have).cmp(&*name)) {
                Ok(found) => {
                    let value: Option<Text<'de>> = map.next_value()?;
                    let value = value.unwrap_or_default();
                    if value.len() <= limits::VALUE {
                        let value = self.interner.intern(&value);
                        pairs.push((Arc::clone(&self.names[found]), value));
                    }
                }
                Err(_) => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(pairs)
    }
}
