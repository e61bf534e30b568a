//! Decodes JSON into slim structs, with borrowed strings and without allocations for skipped
//! fields.
//!
//! The API writes `null` for empty values of many types, so `null` always means absent.
//!
//! The [example of slim objects](crate::slim) decodes one.

mod fields;
mod meta;
mod pod;
mod sniff;

pub use fields::{Text, nullable};
pub use meta::{JsonMeta, JsonObject};
pub(super) use meta::{has_finalizers, has_spec};
pub use pod::JsonPod;
pub use sniff::{Identity, sniff};

use serde::Deserialize;

use super::{DecodeContext, DecodeError, Slim};

/// A slim kind that can be decoded from JSON.
///
/// Decoding has two steps, with one pass over the bytes: serde fills `Json`, which borrows from the
/// bytes and in which everything is optional; then the slim object is built from it. A bookmark in
/// a watch is such an incomplete object.
///
/// The [example of slim objects](crate::slim) decodes by it.
pub trait SlimJson: Slim + Sized {
    /// The fields that are read, as in the bytes.
    type Json<'a>: Deserialize<'a>;

    /// Whether only the metadata is read; then only the metadata is requested.
    const METADATA_ONLY: bool;

    /// The metadata in `json`.
    fn json_meta<'j, 'a>(json: &'j Self::Json<'a>) -> &'j JsonMeta<'a>;

    /// Builds the slim object.
    ///
    /// # Errors
    ///
    /// If a required field is missing or invalid.
    fn from_json(json: &Self::Json<'_>, context: &DecodeContext) -> Result<Self, DecodeError>;
}

#[cfg(test)]
mod tests;
