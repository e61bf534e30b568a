//! The wire formats in order of preference.

use super::{Decoders, JsonDecoder, ProtobufDecoder};
use crate::slim::DecodeContext;
use crate::slim::json::SlimJson;
use crate::slim::protobuf::SlimProtobuf;

impl<K: SlimJson + SlimProtobuf> Decoders<K> {
    /// Protobuf, and JSON if the server does not support protobuf. Both keep what `context`
    /// selects.
    pub fn protobuf_or_json(context: DecodeContext) -> Self {
        Self::new(ProtobufDecoder::new(context.clone())).or(JsonDecoder::new(context))
    }
}
