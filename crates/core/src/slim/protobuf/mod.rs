//! Kubernetes' protobuf into slim structs.
//!
//! Built-in kinds, and the metadata of all kinds, travel as protobuf: it costs the API server an
//! eighth of what JSON costs it, and the reader less still. A slim kind declares the numbers of
//! the fields that it reads and skips all others; nothing is allocated for what is skipped. The
//! numbers are facts of the API, published in each group's `generated.proto`, and never change.
//!
//! [`Fields`] walks a message without copying. Where that does not matter a message derived by
//! `prost`, with only the needed fields, does as well:
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
//! An [`Informer`](crate::informer::Informer) reads it by a
//! [`ProtobufDecoder`](crate::informer::ProtobufDecoder), beside the JSON one for servers that
//! speak JSON only. The example `nodes` is the whole of it for a kind that this crate does not know:
//! both formats, an index, a handler, run with `cargo run --package belayer-core --example nodes`.

mod envelope;
mod fields;
mod meta;
mod pod;

pub use envelope::{Envelope, MAGIC, PROTOBUF};
pub use fields::{Field, Fields, Value};
pub(crate) use meta::{annotation, object_version, version_of};
pub use meta::{identity, meta};

use super::{Claim, DecodeContext, DecodeError, Namespace, OwnerMeta, Slim};

/// A slim kind that can be read from Kubernetes' protobuf.
pub trait SlimProtobuf: Slim + Sized {
    /// Whether the metadata is all that is read; then it is all that the server is asked for.
    const METADATA_ONLY: bool;

    /// Makes the slim object of one message of its kind. In the message of every kind field 1 is
    /// the metadata.
    ///
    /// # Errors
    ///
    /// When the bytes are no such message, or something is missing without which there is no
    /// object, or means nothing.
    fn from_protobuf(message: &[u8], context: &DecodeContext) -> Result<Self, DecodeError>;
}

impl SlimProtobuf for OwnerMeta {
    const METADATA_ONLY: bool = true;

    fn from_protobuf(message: &[u8], context: &DecodeContext) -> Result<Self, DecodeError> {
        only_meta(message, context).map(Self)
    }
}

impl SlimProtobuf for Namespace {
    const METADATA_ONLY: bool = true;

    fn from_protobuf(message: &[u8], context: &DecodeContext) -> Result<Self, DecodeError> {
        let meta = only_meta(message, context)?;
        Ok(Self { meta })
    }
}

impl SlimProtobuf for Claim {
    const METADATA_ONLY: bool = true;

    fn from_protobuf(message: &[u8], context: &DecodeContext) -> Result<Self, DecodeError> {
        let meta = only_meta(message, context)?;
        Ok(Self { meta })
    }
}

fn only_meta(message: &[u8], context: &DecodeContext) -> Result<super::ObjectMeta, DecodeError> {
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
