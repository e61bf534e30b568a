use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::object::{ObjectKey, ResourceVersion, Uid};

/// The identifying fields of an object that could not be decoded. Returned by
/// [`sniff`](crate::slim::json::sniff).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// `type` of the watch event around it.
    pub event: Option<String>,
    /// `metadata.namespace`.
    pub namespace: Option<String>,
    /// `metadata.name`.
    pub name: Option<String>,
    /// `metadata.uid`.
    pub uid: Option<String>,
    /// `metadata.resourceVersion`.
    pub resource_version: Option<String>,
}

impl Identity {
    /// The key, if at least the name could be decoded.
    pub fn key(&self) -> Option<ObjectKey> {
        let name = self.name.as_deref().filter(|name| !name.is_empty())?;
        Some(ObjectKey::new(
            self.namespace.as_deref().unwrap_or_default(),
            name,
        ))
    }

    /// The UID, if it could be decoded.
    pub fn uid(&self) -> Option<Uid> {
        self.uid
            .as_deref()
            .filter(|uid| !uid.is_empty())
            .map(Uid::new)
    }

    /// The version, if it could be decoded.
    pub fn resource_version(&self) -> Option<ResourceVersion> {
        self.resource_version
            .as_deref()
            .and_then(ResourceVersion::parse)
    }
}

/// Reads the identifying fields of a bad object, or of the object in a bad watch event, as far as
/// possible: the bytes may be truncated, and any field may be of any type.
///
/// ```
/// use belayer_core::slim::json::sniff;
///
/// let identity = sniff(br#"{"metadata":{"name":"web-0","namespace":"shop","labels":7}}"#);
/// assert_eq!(identity.name.as_deref(), Some("web-0"));
/// ```
pub fn sniff(bytes: &[u8]) -> Identity {
    let mut identity = Identity::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    // An error is ignored: the fields before it are used.
    let _ = Node(&mut identity, Place::Top).deserialize(&mut deserializer);
    identity
}

#[derive(Clone, Copy)]
enum Place {
    /// A watch event or an object: the fields of both are searched.
    Top,
    Object,
    Metadata,
    Event,
    Namespace,
    Name,
    Uid,
    ResourceVersion,
}

struct Node<'i>(&'i mut Identity, Place);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        // No valid value is longer.
        if text.len() > 512 {
            return Ok(());
        }
        let place = match self.1 {
            Place::Top | Place::Object | Place::Metadata => return Ok(()),
            Place::Event => &mut self.0.event,
            Place::Namespace => &mut self.0.namespace,
            Place::Name => &mut self.0.name,
            Place::Uid => &mut self.0.uid,
            Place::ResourceVersion => &mut self.0.resource_version,
        };
        *place = Some(text.to_owned());
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            let place = match (self.1, name.as_str()) {
                (Place::Top, "object") => Place::Object,
                (Place::Top, "type") => Place::Event,
                (Place::Top | Place::Object, "metadata") => Place::Metadata,
                (Place::Metadata, "namespace") => Place::Namespace,
                (Place::Metadata, "name") => Place::Name,
                (Place::Metadata, "uid") => Place::Uid,
                (Place::Metadata, "resourceVersion") => Place::ResourceVersion,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            map.next_value_seed(Node(&mut *self.0, place))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}
