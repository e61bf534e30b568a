use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use jiff::Timestamp;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, de};

use crate::slim::DecodeError;

/// A string that borrows from the bytes unless it contains escapes. A field of a
/// [`Json`](crate::slim::json::SlimJson::Json), which is filled as in the [example](crate::slim).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text<'a>(Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor).map(Text)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// For `deserialize_with`: `null` means absent, because the API server writes it for empty values of many types. The fields of
/// [`JsonMeta`](crate::slim::json::JsonMeta), which the [example of slim objects](crate::slim) decodes, are read by it.
///
/// # Errors
///
/// If the value has another type.
pub fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Whether the value is anything but `null`.
pub(super) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<de::IgnoredAny>::deserialize(deserializer)?.is_some())
}

/// Calls `visit` with each item of a list without storing the list; `null` is an empty one.
pub(super) fn each<'de, D, T>(deserializer: D, visit: impl FnMut(T)) -> Result<(), D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_option(Each(visit, std::marker::PhantomData))
}

struct Each<F, T>(F, std::marker::PhantomData<T>);

impl<'de, F: FnMut(T), T: Deserialize<'de>> Visitor<'de> for Each<F, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element()? {
            (self.0)(item);
        }
        Ok(())
    }
}

/// A time as the API writes it; `None` if empty.
pub(super) fn timestamp(field: &'static str, text: &str) -> Result<Option<Timestamp>, DecodeError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|_| DecodeError::value(field, text))
}
