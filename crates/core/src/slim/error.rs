/// Why bytes of the server are no object of the kind that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not the format, or a field of another type than the API says.
    #[error("{0}")]
    Format(String),
    /// A field without which there is no object.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A value that means nothing.
    #[error("{field} is {value:?}")]
    Value {
        /// Path of the field.
        field: &'static str,
        /// What was there, shortened.
        value: String,
    },
    /// Larger than what is read.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// What is read, in bytes.
        limit: usize,
    },
}

impl DecodeError {
    /// A value that means nothing; of a long one only the beginning is kept.
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
