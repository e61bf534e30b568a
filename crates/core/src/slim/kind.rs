//! Declares a kind by the paths of the fields that are read.
//!
//! ```
//! use belayer_core::slim::json::SlimJson as _;
//! use belayer_core::{DecodeContext, DecodeError};
//!
//! belayer_core::slim_kind! {
//!     /// A Deployment. The numbers are those of Kubernetes' `apps/v1/generated.proto`, and never change.
//!     pub struct Deployment {
//!         /// How many replicas are wanted; `None` means the default.
//!         pub wanted: Option<i64> = spec(2).replicas(1);
//!         /// How many are ready.
//!         pub ready: i64 = status(3).readyReplicas(7);
//!     }
//! }
//!
//! let json = r#"{"metadata":{"name":"web","namespace":"shop","uid":"u","resourceVersion":"4"},
//!     "spec":{"replicas":2}}"#;
//! let json = serde_json::from_str(json).map_err(DecodeError::from)?;
//! let web = Deployment::from_json(&json, &DecodeContext::default())?;
//! assert_eq!((web.wanted, web.ready), (Some(2), 0));
//! # Ok::<(), DecodeError>(())
//! ```

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::Deserialize;
use serde_json::Value;

use super::DecodeError;
use super::json::JsonMeta;
use super::protobuf::{Field, Fields};

/// Declares a struct with the metadata and these fields of a kind, and implements
/// [`Slim`](crate::slim::Slim), [`SlimProtobuf`](crate::slim::protobuf::SlimProtobuf) and
/// [`SlimJson`](crate::slim::json::SlimJson).
///
/// Each field has a type ([`FieldValue`](crate::slim::kind::FieldValue)) and a path: the names as in
/// JSON, each with its number in the kind's protobuf message. A field that the object does not have
/// has its type's default. Lists and maps need an implementation by hand. A path below `metadata` does not
/// compile: what is read of it is in [`ObjectMeta`](crate::ObjectMeta). In JSON, which only servers
/// and proxies without protobuf send, the whole object is decoded first. Of a kind without fields only the
/// metadata is requested.
///
/// See the [module's example](crate::slim::kind).
#[macro_export]
macro_rules! slim_kind {
    ($(#[$of_kind:meta])* $visible:vis struct $kind:ident {}) => {
        $crate::slim_kind! {
            @decoded_from $crate::slim::json::JsonObject<'a>, only metadata: true,
            $(#[$of_kind])* #[derive(Eq)] $visible struct $kind {}
        }
    };
    ($(#[$of_kind:meta])* $visible:vis struct $kind:ident { $($fields:tt)* }) => {
        $crate::slim_kind! {
            @decoded_from $crate::slim::kind::JsonFields<'a>, only metadata: false,
            $(#[$of_kind])* $visible struct $kind { $($fields)* }
        }
    };
    (@decoded_from $json:ty, only metadata: $metadata_only:literal,
        $(#[$of_kind:meta])* $visible:vis struct $kind:ident { $(
            $(#[$of_field:meta])* $shown:vis $field:ident: $type:ty
                = $first:ident($number:literal) $(.$name:ident($nested:literal))*;
        )* }
    ) => {
        $(#[$of_kind])*
        #[derive(Debug, Clone, PartialEq)]
        $visible struct $kind {
            /// The metadata.
            $visible meta: $crate::ObjectMeta,
            $($(#[$of_field])* $shown $field: $type,)*
        }

        const _: () = {
            $($crate::slim::kind::assert_beside_metadata(stringify!($first));)*
        };

        impl $crate::Slim for $kind {
            fn meta(&self) -> &$crate::ObjectMeta {
                &self.meta
            }

            fn differs(&self, older: &Self) -> bool {
                $(self.$field != older.$field ||)* self.meta.differs(&older.meta)
            }
        }

        impl $crate::SlimProtobuf for $kind {
            const METADATA_ONLY: bool = $metadata_only;

            fn from_protobuf(
                message: &[u8],
                context: &$crate::DecodeContext,
            ) -> ::core::result::Result<Self, $crate::DecodeError> {
                ::core::result::Result::Ok(Self {
                    meta: $crate::slim::protobuf::meta_of(message, context)?,
                    $($field: $crate::slim::kind::in_protobuf(
                        message,
                        &[($number, stringify!($first)) $(, ($nested, stringify!($name)))*],
                    )?,)*
                })
            }
        }

        impl $crate::SlimJson for $kind {
            type Json<'a> = $json;
            const METADATA_ONLY: bool = $metadata_only;

            fn json_meta<'j, 'a>(json: &'j Self::Json<'a>) -> &'j $crate::JsonMeta<'a> {
                &json.metadata
            }

            fn from_json(
                json: &Self::Json<'_>,
                context: &$crate::DecodeContext,
            ) -> ::core::result::Result<Self, $crate::DecodeError> {
                ::core::result::Result::Ok(Self {
                    meta: json.metadata.to_meta(context)?,
                    $($field: json.field(&[stringify!($first) $(, stringify!($name))*])?,)*
                })
            }
        }
    };
}

/// Fails to compile if the first name of a path is `metadata`: [`JsonFields`] reads that as a field with a type, so the
/// path would always be absent. [`slim_kind!`](crate::slim_kind) calls it. The [example](self) declares a kind.
///
/// ```compile_fail,E0080
/// belayer_core::slim_kind! {
///     pub struct Deployment {
///         pub generation: i64 = metadata(1).generation(7);
///     }
/// }
/// ```
///
/// # Panics
///
/// If the name is `metadata`.
pub const fn assert_beside_metadata(first: &str) {
    assert!(
        !matches!(first.as_bytes(), b"metadata"),
        "a path of slim_kind! cannot begin with metadata"
    );
}

/// The type of a field: `i64` for any integer, `bool`, `String`, and an [`Option`] of these if
/// absent is not the same as the default. See the [module's example](self).
pub trait FieldValue: Default + PartialEq + Debug {
    /// The value of a field of a protobuf message.
    ///
    /// # Errors
    ///
    /// If it has another type. `name` is the field's in the error.
    fn from_protobuf(field: &Field<'_>, name: &'static str) -> Result<Self, DecodeError>;

    /// The value in JSON; `None` if it has another type.
    fn from_json(value: &Value) -> Option<Self>;
}

impl FieldValue for i64 {
    fn from_protobuf(field: &Field<'_>, name: &'static str) -> Result<Self, DecodeError> {
        field.integer(name)
    }

    fn from_json(value: &Value) -> Option<Self> {
        value.as_i64()
    }
}

impl FieldValue for bool {
    fn from_protobuf(field: &Field<'_>, name: &'static str) -> Result<Self, DecodeError> {
        field.boolean(name)
    }

    fn from_json(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl FieldValue for String {
    fn from_protobuf(field: &Field<'_>, name: &'static str) -> Result<Self, DecodeError> {
        field.text(name).map(Into::into)
    }

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

impl<T: FieldValue> FieldValue for Option<T> {
    fn from_protobuf(field: &Field<'_>, name: &'static str) -> Result<Self, DecodeError> {
        T::from_protobuf(field, name).map(Some)
    }

    fn from_json(value: &Value) -> Option<Self> {
        T::from_json(value).map(Some)
    }
}

/// The field at a path of numbers and names; its default if it is absent.
/// [`slim_kind!`](crate::slim_kind) calls it. The [example](self) declares a kind.
///
/// # Errors
///
/// If the bytes are not such a message.
pub fn in_protobuf<T: FieldValue>(
    mut message: &[u8],
    path: &[(u32, &'static str)],
) -> Result<T, DecodeError> {
    let Some(((number, name), outer)) = path.split_last() else {
        return Ok(T::default());
    };
    for (number, name) in outer {
        match last(message, *number)? {
            Some(field) => message = field.bytes(name)?,
            None => return Ok(T::default()),
        }
    }
    match last(message, *number)? {
        Some(field) => T::from_protobuf(&field, name),
        None => Ok(T::default()),
    }
}

/// The last field of this number; an encoder writes a field once.
fn last(message: &[u8], number: u32) -> Result<Option<Field<'_>>, DecodeError> {
    let mut found = None;
    for field in Fields::of(message) {
        let field = field?;
        if field.number == number {
            found = Some(field);
        }
    }
    Ok(found)
}

/// A whole object in JSON. [`slim_kind!`](crate::slim_kind) reads its fields. The [example](self)
/// declares a kind.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct JsonFields<'a> {
    /// `metadata`.
    #[serde(borrow)]
    pub metadata: JsonMeta<'a>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

impl<'a> JsonFields<'a> {
    /// The field at a path of names; its default if it is absent or `null`.
    ///
    /// # Errors
    ///
    /// If it has another type.
    pub fn field<T: FieldValue>(&self, path: &[&'static str]) -> Result<T, DecodeError> {
        let found = path.split_first().and_then(|(first, nested)| {
            let first = self.others.get(*first)?;
            nested.iter().try_fold(first, |value, name| value.get(name))
        });
        match found {
            None | Some(Value::Null) => Ok(T::default()),
            Some(value) => T::from_json(value).ok_or_else(|| {
                DecodeError::value(path.last().copied().unwrap_or_default(), &value.to_string())
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::slim::json::SlimJson as _;
    use crate::slim::protobuf::SlimProtobuf as _;
    use crate::slim::{DecodeContext, DecodeError, Slim as _};

    crate::slim_kind! {
        struct Kind {
            wanted: Option<i64> = spec(2).replicas(1);
            paused: bool = spec(2).paused(7);
            ready: i64 = status(3).readyReplicas(7);
            note: String = note(4);
        }
    }

    fn from_json(text: &str) -> Result<Kind, DecodeError> {
        Kind::from_json(&serde_json::from_str(text)?, &DecodeContext::default())
    }

    const METADATA: &str = r#""metadata":{"name":"web","namespace":"a","uid":"u","resourceVersion":"4","labels":{"a":"b"}}"#;
    const METADATA_MESSAGE: &[u8] = b"\x0a\x0e\x0a\x03web\x1a\x01a\x2a\x01u\x32\x014";

    #[test]
    fn crates_informer_of_any_kind_in_protobuf() {
        let json = r#""spec":{"replicas":2,"paused":true,"template":{"spec":{}}},"status":{"readyReplicas":1},"note":"n""#;
        let from_json = from_json(&format!("{{{METADATA},{json}}}")).unwrap();
        let message = [
            METADATA_MESSAGE,
            b"\x12\x04\x08\x02\x38\x01\x1a\x02\x38\x01\x22\x01n",
        ]
        .concat();
        let from_protobuf = Kind::from_protobuf(&message, &DecodeContext::default()).unwrap();
        assert_eq!(from_protobuf, from_json);
        assert_eq!((from_json.wanted, from_json.paused), (Some(2), true));
        assert_eq!((from_json.ready, &*from_json.note), (1, "n"));
        let older = Kind {
            ready: 0,
            ..from_json.clone()
        };
        assert!(from_json.differs(&older) && !from_json.differs(&from_json.clone()));
    }

    #[test]
    fn a_field_that_is_absent_has_its_default() {
        let absent = from_json(&format!(
            r#"{{{METADATA},"spec":null,"status":{{"readyReplicas":null}}}}"#
        ));
        let absent = absent.unwrap();
        assert_eq!((absent.wanted, absent.ready, &*absent.note), (None, 0, ""));
        let from_protobuf = Kind::from_protobuf(METADATA_MESSAGE, &DecodeContext::default());
        assert_eq!(from_protobuf.unwrap(), absent);
    }

    #[test]
    fn a_field_of_another_type_is_an_error() {
        let error = from_json(&format!(r#"{{{METADATA},"spec":{{"replicas":"2"}}}}"#)).unwrap_err();
        assert_eq!(error.to_string(), r#"invalid replicas: "\"2\"""#);
        let message = [METADATA_MESSAGE, b"\x12\x03\x0a\x012"].concat();
        assert!(Kind::from_protobuf(&message, &DecodeContext::default()).is_err());
        let nested = [METADATA_MESSAGE, b"\x10\x02"].concat();
        assert!(Kind::from_protobuf(&nested, &DecodeContext::default()).is_err());
    }
}
