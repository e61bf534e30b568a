//! Traces in a build without OTLP.

use super::TracesError;

/// Exports no spans in this build.
#[derive(Debug)]
pub struct Traces;

impl Traces {
    /// Exports no spans.
    pub fn off() -> Self {
        Self
    }

    /// Exports no spans.
    ///
    /// # Errors
    /// Never.
    pub fn start() -> Result<Self, TracesError> {
        Ok(Self)
    }

    pub(crate) fn layer(&self) -> Option<tracing_subscriber::layer::Identity> {
        None
    }

    /// Does nothing.
    pub async fn end(self) {}
}
