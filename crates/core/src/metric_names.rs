//! The names of the metrics that this crate records, by the facade of the crate `metrics`. A program that wants a prefix
//! adds it in its recorder.
//!
//! Queues, requests and elections have client-go's names: `workqueue_*`, `rest_client_*` and
//! `leader_election_master_status`.
//!
//! ```
//! use belayer_core::metric_names;
//!
//! assert_eq!(metric_names::INFORMER_OBJECTS, "informer_objects");
//! ```

/// Objects in the store of an informer, by `kind`.
pub const INFORMER_OBJECTS: &str = "informer_objects";
/// Time since an informer's last answer, by `kind`.
pub const INFORMER_LAG: &str = "informer_lag_seconds";
/// Lists of an informer, by `kind` and `cause`.
pub const INFORMER_RELISTS: &str = "informer_relists_total";
/// Objects that an informer could not decode, by `kind`.
pub const INFORMER_BAD_OBJECTS: &str = "informer_bad_objects_total";
/// Requests that wait for a permit, by `queue`.
pub const API_WAITING: &str = "api_waiting";
/// Live reads, by `question` and `answer`.
pub const QUERIES: &str = "facts_total";
/// Events that were not written: too many were queued or about one object, the request failed, or the process stopped before.
pub const EVENTS_DROPPED: &str = "events_dropped_total";
/// Panics that a worker caught, by `name`.
pub const WORKER_PANICS: &str = "worker_panics_total";

#[cfg(test)]
mod tests {
    use super::*;

    /// The exporter of `belayer-metrics` adds a prefix to each of them.
    #[test]
    fn crates_core_as_a_library_records_metrics_without_a_programs_prefix() {
        let (recorder, exporter) = belayer_metrics::Exporter::detached().unwrap();
        metrics::with_local_recorder(&recorder, || {
            for name in [INFORMER_OBJECTS, INFORMER_LAG, API_WAITING] {
                metrics::gauge!(name, "a" => "b").set(1.0);
            }
            for name in [
                INFORMER_RELISTS,
                INFORMER_BAD_OBJECTS,
                QUERIES,
                EVENTS_DROPPED,
                WORKER_PANICS,
            ] {
                metrics::counter!(name, "a" => "b").increment(1);
            }
        });
        let text = exporter.render();
        let mut recorded = text.lines().filter(|line| line.ends_with("{a=\"b\"} 1"));
        let known = |line: &str| {
            let name = line.split('{').next().unwrap_or_default();
            belayer_metrics::ALL
                .iter()
                .any(|metric| metric.name == name)
        };
        assert_eq!(recorded.clone().count(), 8, "{text}");
        assert!(recorded.all(known), "{text}");
    }
}
