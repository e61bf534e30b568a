//! Traces by OTLP: switched on by the variables that every OpenTelemetry program reads, and
//! without any cost where they say nothing.
//!
//! Spans are made where the work is done (`reconcile`, `look`, `request` in `belayer-core`); here
//! is only where they go.

#[cfg_attr(feature = "otlp", path = "traces/otlp.rs")]
#[cfg_attr(not(feature = "otlp"), path = "traces/off.rs")]
mod exporter;

pub use exporter::Traces;

/// Traces cannot go where the environment says.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The address of the collector cannot be used.
    #[error("{variable}: invalid collector address {value:?}: {why}")]
    Endpoint {
        /// The variable that names it.
        variable: &'static str,
        /// What it says.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// Another protocol than gRPC is asked for.
    #[error("{variable}: {value:?} is not spoken: it is grpc")]
    Protocol {
        /// The variable that asks for it.
        variable: &'static str,
        /// What it says.
        value: String,
    },
}
