/// Why bytes cannot be decoded as an object of the expected kind. Returned by the methods of
/// [`SlimProtobuf`](crate::slim::protobuf::SlimProtobuf) and
/// [`SlimJson`](crate::slim::json::SlimJson); see the [example](crate::slim).
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Another format, or a field of another type than in the API.
    #[error("{0}")]
    Format(String),
    /// A required field is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// An invalid value.
    #[error("invalid {field}: {value:?}")]
    Value {
        /// Path of the field.
        field: &'static str,
        /// The value, truncated.
        value: String,
    },
    /// Larger than the limit.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
}

impl DecodeError {
    /// An invalid value; a long one is truncated.
    pub fn value(field: &'static str, value: &str) -> Self {
        Self::Value {
            field,
            value: value.chars().take(64).collect(),
        }
    }
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        Self::Format(error.to_string())
    }
}
