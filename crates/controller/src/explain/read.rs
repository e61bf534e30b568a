//! Reads the object that is to be explained.

use belayer_core::http::Request;
use belayer_core::informer::{Decoder as _, JsonDecoder};
use belayer_core::slim::json::SlimJson;
use belayer_inspect::reader::{Reader, explain};

/// Reads the object at `request`; `what` names it in the error.
///
/// # Errors
/// A message, if it cannot be read.
pub async fn read<K: SlimJson>(
    reader: &Reader,
    request: &Request,
    decoder: &JsonDecoder<K>,
    what: &str,
) -> Result<K, String> {
    let answer = reader.read(request).await;
    let answer = answer.map_err(|error| format!("{what}: {}", explain(&error)))?;
    let object = decoder.decode_object(&answer.body);
    object.map_err(|error| format!("{what}: {error}"))
}
