//! The wire formats, in the order in which they are preferred.

use super::{Decoders, JsonDecoder, ProtobufDecoder};
use crate::slim::DecodeContext;
use crate::slim::json::SlimJson;
use crate::slim::protobuf::SlimProtobuf;

impl<K: SlimJson + SlimProtobuf> Decoders<K> {
    /// Protobuf, and JSON from a server that does not speak it. Both keep what `context` says.
    pub fn protobuf_or_json(context: DecodeContext) -> Self {
        Self::new(ProtobufDecoder::new(context.clone())).or(JsonDecoder::new(context))
    }
}
