//! Decodes Kubernetes' protobuf into slim structs.
//!
//! Built-in kinds, and the metadata of all kinds, are requested as protobuf: it costs the API
//! server an eighth of the CPU time of JSON, and the client even less. A slim kind declares the
//! numbers of the fields that it reads; all others are skipped without an allocation. The numbers
//! are part of the API, published in each group's `generated.proto`, and never change.
//!
//! [`Fields`] iterates over a message without copying. If copying does not matter, a message
//! derived by `prost` with only the needed fields works too:
//!
//! ```
//! use belayer_core::slim::protobuf::{SlimProtobuf, meta};
//! use belayer_core::slim::{DecodeContext, DecodeError, ObjectMeta, Slim};
//! use prost::Message;
//!
//! /// A Lease: who holds it.
//! #[derive(Debug)]
//! struct Lease {
//!     meta: ObjectMeta,
//!     holder: String,
//! }
//!
//! impl Slim for Lease {
//!     fn meta(&self) -> &ObjectMeta {
//!         &self.meta
//!     }
//!     fn differs(&self, older: &Self) -> bool {
//!         self.holder != older.holder || self.meta.differs(&older.meta)
//!     }
//! }
//!
//! #[derive(Message)]
//! struct LeaseMessage {
//!     #[prost(bytes = "vec", tag = "1")]
//!     metadata: Vec<u8>,
//!     #[prost(message, optional, tag = "2")]
//!     spec: Option<LeaseSpec>,
//! }
//!
//! #[derive(Message)]
//! struct LeaseSpec {
//!     #[prost(string, tag = "1")]
//!     holder_identity: String,
//! }
//!
//! impl SlimProtobuf for Lease {
//!     const METADATA_ONLY: bool = false;
//!
//!     fn from_protobuf(message: &[u8], context: &DecodeContext) -> Result<Self, DecodeError> {
//!         let message = LeaseMessage::decode(message)
//!             .map_err(|error| DecodeError::Format(error.to_string()))?;
//!         Ok(Self {
//!             meta: meta(&message.metadata, context)?,
//!             holder: message.spec.unwrap_or_default().holder_identity,
//!         })
//!     }
//! }
//!
//! let wire = LeaseMessage {
//!     metadata: b"\x0a\x05belay\x1a\x03ops\x2a\x02u1\x32\x0242".to_vec(),
//!     spec: Some(LeaseSpec { holder_identity: "me".to_owned() }),
//! };
//! let lease = Lease::from_protobuf(&wire.encode_to_vec(), &DecodeContext::default())?;
//! assert_eq!((lease.key().to_string().as_str(), lease.holder.as_str()), ("ops/belay", "me"));
//! # Ok::<(), DecodeError>(())
//! ```
//!
//! An [`Informer`](crate::informer::Informer) decodes it by a
//! [`ProtobufDecoder`](crate::informer::ProtobufDecoder), together with the JSON decoder for
//! servers that support JSON only. For numbers and texts [`slim_kind!`](crate::slim_kind) implements
//! all three traits.

mod envelope;
mod fields;
mod meta;
mod pod;

pub use envelope::{Envelope, MAGIC, PROTOBUF};
pub use fields::{Field, Fields, Value};
pub(crate) use meta::{annotation, version_and_finalizers, version_of};
pub use meta::{identity, meta};

use super::{DecodeContext, DecodeError, ObjectMeta, Slim};

/// A slim kind that can be decoded from Kubernetes' protobuf. The [module's
/// example](crate::slim::protobuf) implements it for a Lease.
pub trait SlimProtobuf: Slim + Sized {
    /// Whether only the metadata is read; then only the metadata is requested.
    const METADATA_ONLY: bool;

    /// Builds the slim object from a message of its kind. In the message of every kind field 1 is
    /// the metadata.
    ///
    /// # Errors
    ///
    /// If the bytes are not such a message, or a required field is missing or invalid.
    fn from_protobuf(message: &[u8], context: &DecodeContext) -> Result<Self, DecodeError>;
}

/// The metadata in the message of any kind. The [module's example](crate::slim::protobuf) reads those of a Lease.
///
/// # Errors
///
/// As [`meta`].
pub fn meta_of(message: &[u8], context: &DecodeContext) -> Result<ObjectMeta, DecodeError> {
    let mut metadata: &[u8] = &[];
    for field in Fields::of(message) {
        let field = field?;
        if field.number == 1 {
            metadata = field.bytes("metadata")?;
        }
    }
    meta(metadata, context)
}

#[cfg(test)]
mod tests;
