//! Traces by OTLP: switched on by the standard OpenTelemetry environment variables, and without any cost
//! if they are not set.
//!
//! `belayer-holds` creates the span `reconcile`, `belayer-core` the spans `live read` and `request`; this module
//! exports them.

#[cfg_attr(feature = "otlp", path = "traces/otlp.rs")]
#[cfg_attr(not(feature = "otlp"), path = "traces/off.rs")]
mod exporter;

pub use exporter::Traces;

/// The environment names no usable collector.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The address of the collector is invalid.
    #[error("{variable}: invalid collector address {value:?}: {why}")]
    Endpoint {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// Cause.
        why: String,
    },
    /// The requested protocol is not gRPC.
    #[error("{variable}: unsupported protocol {value:?}: use grpc")]
    Protocol {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
}
