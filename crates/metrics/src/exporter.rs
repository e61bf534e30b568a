use std::fmt;

use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use crate::table::{ALL, Kind, describe_all};

/// Renders what the process has recorded in Prometheus' text format.
///
/// It opens no socket: whoever serves `/metrics` calls [`Exporter::render`].
pub struct Exporter {
    handle: PrometheusHandle,
    process: metrics_process::Collector,
}

/// The exporter cannot record for this process.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The process has a recorder already; there is one per process.
    #[error("the process already records its metrics elsewhere")]
    AlreadyInstalled,
    /// A histogram of the table has no buckets.
    #[error("the metric {0} has no buckets")]
    NoBuckets(&'static str),
}

impl Exporter {
    /// Makes the exporter the recorder of the whole process and describes every metric.
    ///
    /// # Errors
    /// If the process has a recorder already.
    pub fn install() -> Result<Self, InstallError> {
        let (recorder, exporter) = Self::detached()?;
        metrics::set_global_recorder(recorder).map_err(|_| InstallError::AlreadyInstalled)?;
        describe_all();
        Ok(exporter)
    }

    /// A recorder that is not installed, with its exporter: for tests, by
    /// `metrics::with_local_recorder`.
    ///
    /// # Errors
    /// If a histogram of the table has no buckets.
    pub fn detached() -> Result<(PrometheusRecorder, Self), InstallError> {
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
            recorder,
            Self {
                handle,
                process: metrics_process::Collector::default(),
            },
        ))
    }

    /// Everything recorded so far, and the process as it is now.
    pub fn render(&self) -> String {
        self.process.collect();
        self.handle.render()
    }

    /// Folds observations of histograms into their buckets. Without scrapes nothing else does,
    /// and they would pile up: call it every few seconds.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").finish_non_exhaustive()
    }
}
