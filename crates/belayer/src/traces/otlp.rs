//! Export of spans to a collector.

use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use super::TracesError;

/// Variables that name a collector: for traces only, and for everything.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];

/// Default share of sampled traces: one in ten.
const RATIO: f64 = 0.1;

/// Longest time to send the last spans.
const END_WITHIN: Duration = Duration::from_secs(3);

/// Exports spans, or none by default.
#[derive(Debug)]
pub struct Traces(Option<SdkTracerProvider>);

impl Traces {
    /// Exports no spans.
    pub fn off() -> Self {
        Self(None)
    }

    /// Exports spans as the environment configures. Call it within the async runtime, which the exporter
    /// uses.
    ///
    /// # Errors
    /// If the environment names no usable collector.
    pub fn start() -> Result<Self, TracesError> {
        let variable = |name: &str| std::env::var(name).ok();
        let Some((name, value)) = endpoint(variable) else {
            return Ok(Self::off());
        };
        if let Some(refusal) = refusal((name, &value), variable) {
            return Err(refusal);
        }
        let exporter = SpanExporter::builder()
            .with_tonic()
            .build()
            .map_err(|error| TracesError::Endpoint {
                variable: name,
                value,
                why: error.to_string(),
            })?;
        let mut resource = Resource::builder();
        let named = variable("OTEL_SERVICE_NAME").is_some()
            || variable("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|it| it.contains("service.name="));
        if !named {
            resource = resource.with_service_name("belayer");
        }
        let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let mut provider = SdkTracerProvider::builder()
            .with_resource(resource.with_attribute(version).build())
            .with_batch_exporter(exporter);
        if variable("OTEL_TRACES_SAMPLER").is_none() {
            let ratio = Sampler::TraceIdRatioBased(RATIO);
            provider = provider.with_sampler(Sampler::ParentBased(Box::new(ratio)));
        }
        Ok(Self(Some(provider.build())))
    }

    /// The layer that exports spans; `None` if traces are off.
    pub(crate) fn layer<S>(&self) -> Option<impl Layer<S> + use<S>>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let tracer = self.0.as_ref()?.tracer("belayer");
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false);
        Some(layer.with_filter(filter_fn(is_belayers)))
    }

    /// Sends the remaining spans.
    pub async fn end(self) {
        let Some(provider) = self.0 else { return };
        let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(END_WITHIN));
        if let Ok(Err(error)) = ended.await {
            tracing::debug!(%error, "could not send the last spans");
        }
    }
}

/// Belayer's own spans, and the log events in them.
fn is_belayers(metadata: &Metadata<'_>) -> bool {
    let level = if metadata.is_span() {
        Level::DEBUG
    } else {
        Level::INFO
    };
    metadata.target().starts_with("belayer") && *metadata.level() <= level
}

/// The variable that names the collector, and its value; `None` if there is none, or if traces are
/// switched off.
fn endpoint(variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    let value_of = |name: &str| variable(name).filter(|value| !value.is_empty());
    let is_off = value_of("OTEL_SDK_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"))
        || value_of("OTEL_TRACES_EXPORTER").as_deref() == Some("none");
    if is_off {
        return None;
    }
    ENDPOINTS
        .into_iter()
        .find_map(|name| Some((name, value_of(name)?)))
}

/// Rejects settings with which the exporter would fail later, at every span.
fn refusal(
    (name, value): (&'static str, &str),
    variable: impl Fn(&str) -> Option<String>,
) -> Option<TracesError> {
    for asks in [
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
    ] {
        match variable(asks).filter(|protocol| !protocol.is_empty()) {
            Some(protocol) if protocol == "grpc" => break,
            Some(value) => {
                return Some(TracesError::Protocol {
                    variable: asks,
                    value,
                });
            }
            None => {}
        }
    }
    let why = match value.parse::<http::Uri>() {
        Ok(uri) if uri.scheme_str() == Some("https") => {
            "TLS is not supported: use a collector in the cluster that forwards"
        }
        Ok(uri) if uri.scheme_str() != Some("http") || uri.host().is_none() => {
            "write it as http://HOST:PORT"
        }
        Ok(_) => return None,
        Err(_) => "write it as http://HOST:PORT",
    };
    Some(TracesError::Endpoint {
        variable: name,
        value: value.to_owned(),
        why: why.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn variable<'a>(set: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + Copy + 'a {
        move |name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        }
    }

    const ALL: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4317");
    const TRACES: (&str, &str) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b:4317");

    #[rstest]
    #[case::nothing_said(&[], None)]
    #[case::empty_is_nothing(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")], None)]
    #[case::for_all_signals(&[ALL], Some("http://a:4317"))]
    #[case::for_traces(&[ALL, TRACES], Some("http://b:4317"))]
    #[case::switched_off(&[ALL, ("OTEL_SDK_DISABLED", "true")], None)]
    #[case::exported_to_nowhere(&[ALL, ("OTEL_TRACES_EXPORTER", "none")], None)]
    fn the_environment_configures_the_collector(
        #[case] set: &[(&str, &str)],
        #[case] expected: Option<&str>,
    ) {
        let found = endpoint(variable(set)).map(|(_, value)| value);
        assert_eq!(found.as_deref(), expected);
    }

    #[rstest]
    #[case::good("http://collector.observability:4317", &[], None)]
    #[case::grpc_by_name("http://a:4317", &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], None)]
    #[case::tls("https://a:4317", &[], Some("TLS is not supported"))]
    #[case::no_scheme("a:4317", &[], Some("write it as http://HOST:PORT"))]
    #[case::no_address("not an address", &[], Some("write it as http://HOST:PORT"))]
    #[case::http("http://a:4318", &[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")], Some("use grpc"))]
    fn unusable_settings_are_rejected_at_the_start(
        #[case] value: &str,
        #[case] set: &[(&str, &str)],
        #[case] says: Option<&str>,
    ) {
        let refusal = refusal((ENDPOINTS[1], value), variable(set)).map(|it| it.to_string());
        match says {
            None => assert_eq!(refusal, None),
            Some(says) => assert!(refusal.as_deref().unwrap().contains(says), "{refusal:?}"),
        }
    }
}
