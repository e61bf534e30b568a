//! JSON into slim structs: borrowed strings, nothing allocated for what is skipped.
//!
//! The API writes `null` for empty values of many types, so `null` always counts as absent.

mod fields;
mod meta;
mod pod;
mod sniff;

pub use fields::Text;
pub use meta::{JsonMeta, JsonObject};
pub use pod::JsonPod;
pub use sniff::{Identity, sniff};

use serde::Deserialize;

use super::{Claim, DecodeContext, DecodeError, Namespace, OwnerMeta, Slim};

/// A slim kind that can be read from JSON.
///
/// In two steps, so that one pass over the bytes is enough: serde fills `Json`, which borrows
/// from them and in which everything is optional; then the slim object is made of it. A bookmark
/// in a watch is such a half-empty object.
pub trait SlimJson: Slim + Sized {
    /// The fields that are read, as they stand in the bytes.
    type Json<'a>: Deserialize<'a>;

    /// Whether the metadata is all that is read; then it is all that the server is asked for.
    const METADATA_ONLY: bool;

    /// The metadata in `json`.
    fn json_meta<'j, 'a>(json: &'j Self::Json<'a>) -> &'j JsonMeta<'a>;

    /// Makes the slim object.
    ///
    /// # Errors
    ///
    /// When something is missing without which there is no object, or means nothing.
    fn from_json(json: &Self::Json<'_>, context: &DecodeContext) -> Result<Self, DecodeError>;
}

impl SlimJson for OwnerMeta {
    type Json<'a> = JsonObject<'a>;
    const METADATA_ONLY: bool = true;

    fn json_meta<'j, 'a>(json: &'j Self::Json<'a>) -> &'j JsonMeta<'a> {
        &json.metadata
    }

    fn from_json(json: &Self::Json<'_>, context: &DecodeContext) -> Result<Self, DecodeError> {
        json.metadata.to_meta(context).map(Self)
    }
}

impl SlimJson for Namespace {
    type Json<'a> = JsonObject<'a>;
    const METADATA_ONLY: bool = true;

    fn json_meta<'j, 'a>(json: &'j Self::Json<'a>) -> &'j JsonMeta<'a> {
        &json.metadata
    }

    fn from_json(json: &Self::Json<'_>, context: &DecodeContext) -> Result<Self, DecodeError> {
        Ok(Self {
            meta: json.metadata.to_meta(context)?,
        })
    }
}

impl SlimJson for Claim {
    type Json<'a> = JsonObject<'a>;
    const METADATA_ONLY: bool = true;

    fn json_meta<'j, 'a>(json: &'j Self::Json<'a>) -> &'j JsonMeta<'a> {
        &json.metadata
    }

    fn from_json(json: &Self::Json<'_>, context: &DecodeContext) -> Result<Self, DecodeError> {
        Ok(Self {
            meta: json.metadata.to_meta(context)?,
        })
    }
}

#[cfg(test)]
mod tests;
