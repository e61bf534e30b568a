use std::fmt;

use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use crate::prefix::Prefixed;
use crate::table::{ALL, Kind, describe_all};

/// Renders the recorded metrics in Prometheus' text format.
///
/// It opens no socket: the HTTP server of `/metrics` calls [`Exporter::render`].
///
/// The [crate's example](crate) installs it and renders a counter.
pub struct Exporter {
    handle: PrometheusHandle,
    process: metrics_process::Collector,
}

/// Why the exporter cannot be installed. Returned by
/// [`Exporter::install`](crate::Exporter::install), as in the [crate's example](crate).
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The process has a recorder already; a process can have only one.
    #[error("this process already has a metrics recorder")]
    AlreadyInstalled,
    /// A histogram of the table has no buckets.
    #[error("the metric {0} has no buckets")]
    NoBuckets(&'static str),
}

impl Exporter {
    /// Installs the exporter as the recorder of the process and describes every metric.
    ///
    /// # Errors
    /// If the process has a recorder already.
    pub fn install() -> Result<Self, InstallError> {
        let (recorder, exporter) = Self::detached()?;
        metrics::set_global_recorder(recorder).map_err(|_| InstallError::AlreadyInstalled)?;
        describe_all();
        Ok(exporter)
    }

    /// A recorder that is not installed, with its exporter: for tests, with
    /// `metrics::with_local_recorder`.
    ///
    /// # Errors
    /// If a histogram of the table has no buckets.
    pub fn detached() -> Result<(Prefixed<PrometheusRecorder>, Self), InstallError> {
        let mut builder = PrometheusBuilder::new();
        for metric in ALL {
            if let Kind::Histogram(buckets) = metric.kind {
                builder = builder
                    .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)
                    .map_err(|_| InstallError::NoBuckets(metric.name))?;
            }
        }
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        Ok((
            Prefixed::new(recorder),
            Self {
                handle,
                process: metrics_process::Collector::default(),
            },
        ))
    }

    /// All metrics recorded so far, with the current process metrics.
    pub fn render(&self) -> String {
        self.process.collect();
        self.handle.render()
    }

    /// Adds observations of histograms to their buckets. Without scrapes they would accumulate, so
    /// call it every few seconds.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").finish_non_exhaustive()
    }
}
