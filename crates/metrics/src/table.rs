//! The table of metrics.

use metrics::Unit;

use crate::buckets;
use crate::values::{
    CODES, METHODS, cause, config, lifecycle, outcome, priority, recreation, unread, waiting, wipe,
};

/// The definition of a metric.
///
/// ```
/// use belayer_metrics::{ALL, RELEASES};
///
/// let releases = ALL.iter().find(|metric| metric.name == RELEASES);
/// assert_eq!(releases.map(|metric| metric.labels.len()), Some(2));
/// ```
#[derive(Debug)]
pub struct Metric {
    /// The name, including unit and `_total`, as scraped.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// The unit of its values.
    pub unit: Unit,
    /// The text of `# HELP`.
    pub help: &'static str,
    /// The labels of each of its series.
    pub labels: &'static [Label],
}

/// Type of a metric. Part of a [`Metric`](crate::Metric).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Only rises; starts at 0 with the process.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts observations below each of these upper bounds.
    Histogram(&'static [f64]),
}

/// A label and its possible values. Part of a [`Metric`](crate::Metric).
#[derive(Debug)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// The values it can take.
    pub values: Values,
}

/// The possible values of a label. There is no variant for free text: names that users choose (of
/// pods, profiles) are never labels, and only a limited number of namespaces are. Part of a
/// [`Label`](crate::Label), for all metrics in the [table](crate::Metric).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Values {
    /// Exactly these, written as zeros from the start.
    Fixed(&'static [&'static str]),
    /// At most these. The server determines which of them occur, so no zeros are written.
    Within(&'static [&'static str]),
    /// Names of namespaces: the first [`NAMESPACES`](crate::NAMESPACES) that occur, `other` for the
    /// rest.
    Namespaces,
    /// Names that the program knows after it has read its configuration.
    Known(Known),
}

/// Lists of names that are known when the program starts. An argument of
/// [`KnownValues::with`](crate::KnownValues::with), as in the [crate's example](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Known {
    /// Controllers, such as `pod-finalizer`.
    Controller,
    /// Kinds of evidence of one controller, such as `OwnerGone`.
    Evidence,
    /// Workqueues.
    Queue,
    /// Watched kinds, such as `Pod`.
    Kind,
    /// Types of live queries.
    Query,
    /// Answers to one type of query.
    Answer,
    /// Belayer's version.
    Version,
    /// The Lease of the leader election.
    Lease,
}

const CONTROLLER: Label = known("controller", Known::Controller);
const QUEUE: Label = known("name", Known::Queue);
const KIND: Label = known("kind", Known::Kind);
const CODE: Label = Label {
    name: "code",
    values: Values::Within(CODES),
};
const POD_NAMESPACE: Label = Label {
    name: "pod_namespace",
    values: Values::Namespaces,
};

const fn known(name: &'static str, known: Known) -> Label {
    Label {
        name,
        values: Values::Known(known),
    }
}

const fn fixed(name: &'static str, values: &'static [&'static str]) -> Label {
    Label {
        name,
        values: Values::Fixed(values),
    }
}

use Kind::{Counter, Gauge, Histogram};
use Unit::{Bytes, Count, Seconds};

/// Declares metrics: a constant with the name of each, so that a misspelt one does not compile, and the table. The
/// comment of a metric is its `# HELP`.
macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $constant:ident = $name:literal: $kind:expr, $unit:expr, $labels:expr;)+) => {
        $(// As code: it is not Markdown.
        #[doc = concat!("``", $($help),+, " ``")]
        pub const $constant: &str = $name;)+

        /// Every metric of this version.
        pub const ALL: &[Metric] = &[$(Metric {
            name: $name,
            kind: $kind,
            unit: $unit,
            help: concat!($($help),+).trim_ascii_start(),
            labels: &$labels,
        }),+];
    };
}

metrics! {
    /// Keys ready to be worked on, by priority.
    WORKQUEUE_DEPTH = "workqueue_depth": Gauge, Count, [QUEUE, fixed("priority", priority::ALL)];
    /// Keys added to the queue; merged duplicates are not counted.
    WORKQUEUE_ADDS = "workqueue_adds_total": Counter, Count, [QUEUE];
    /// How long a key waited in the queue before a worker took it.
    WORKQUEUE_QUEUE_DURATION = "workqueue_queue_duration_seconds": Histogram(buckets::WORKQUEUE), Seconds, [QUEUE];
    /// How long a worker spent on a key.
    WORKQUEUE_WORK_DURATION = "workqueue_work_duration_seconds": Histogram(buckets::WORKQUEUE), Seconds, [QUEUE];
    /// Seconds of work in progress, over all workers. Large values mean stuck workers.
    WORKQUEUE_UNFINISHED_WORK = "workqueue_unfinished_work_seconds": Gauge, Seconds, [QUEUE];
    /// How long the longest running worker has been on its key.
    WORKQUEUE_LONGEST_RUNNING = "workqueue_longest_running_processor_seconds": Gauge, Seconds, [QUEUE];
    /// Keys that were added again with backoff.
    WORKQUEUE_RETRIES = "workqueue_retries_total": Counter, Count, [QUEUE];
    /// Requests to the API server by status code and method; <error> means no response.
    REST_REQUESTS = "rest_client_requests_total": Counter, Count, [CODE, fixed("method", METHODS)];
    /// Time from sending a request to the headers of its response.
    REST_REQUEST_DURATION = "rest_client_request_duration_seconds": Histogram(buckets::REQUEST), Seconds,
        [fixed("verb", METHODS)];
    /// Objects that have a finalizer of the controller (a hold).
    HOLDS = "belayer_holds": Gauge, Count, [CONTROLLER];
    /// Holds that were added.
    HOLDS_ADDED = "belayer_holds_added_total": Counter, Count, [CONTROLLER];
    /// Holds that were released, by the evidence that allowed it.
    RELEASES = "belayer_releases_total": Counter, Count, [CONTROLLER, known("evidence", Known::Evidence)];
    /// Time from when the evidence existed, and this replica was the leader, to the release.
    RELEASE_DURATION = "belayer_release_duration_seconds": Histogram(buckets::RELEASE), Seconds, [CONTROLLER];
    /// Releases that the API server refused, by status code. Retried slowly.
    RELEASE_DENIED = "belayer_release_denied_total": Counter, Count, [CONTROLLER, CODE];
    /// Objects that are being deleted and still have the controller's hold; of pvc-protection also PVCs that it only
    /// reports.
    WAITING = "belayer_waiting": Gauge, Count, [CONTROLLER];
    /// Age of the oldest deletion that still waits for the controller; 0 if none does.
    OLDEST_WAITING = "belayer_oldest_waiting_seconds": Gauge, Seconds, [CONTROLLER];
    /// Selected objects whose deletion began before they could be held.
    MISSED_HOLDS = "belayer_missed_holds_total": Counter, Count, [CONTROLLER];
    /// 1 while the backlog limit is reached and no holds are added in any namespace, else 0.
    BACKLOG_GATE = "belayer_backlog_gate": Gauge, Count, [CONTROLLER];
    /// Namespaces whose backlog limit is reached, so that no holds are added there.
    BACKLOG_NAMESPACES = "belayer_backlog_namespaces_closed": Gauge, Count, [CONTROLLER];
    /// Holds kept although no profile selects their object any more, because releasing that many at once is probably a
    /// mistake.
    UNSELECTED_KEPT = "belayer_unselected_kept": Gauge, Count, [CONTROLLER];
    /// How long no owner of this kind has changed in one namespace while pods of such owners there have ended, are
    /// being deleted and are held: the longest time of all namespaces; 0 if there are no such pods. Their consumer may
    /// be down.
    CONSUMER_SILENT = "belayer_consumer_silent_seconds": Gauge, Seconds, [KIND];
    /// Objects in observe mode that vanished before their result was read.
    OBSERVED_LOSSES = "belayer_observed_losses_total": Counter, Count, [CONTROLLER];
    /// Pods of Argo Workflows that were released, or were deleted in observe mode, although no result had been read;
    /// Undecided pods stay held, or were deleted in observe mode and the status of their owner could not be read.
    UNREAD_PODS = "belayer_unread_pods_total": Counter, Count,
        [fixed("judgement", unread::JUDGEMENTS), fixed("mode", unread::MODES), POD_NAMESPACE];
    /// Pods deleted by the cleanup that their own annotation requests, or because they were re-created after their record
    /// was deleted.
    CLEANUPS = "belayer_cleanups_total": Counter, Count, [CONTROLLER];
    /// Records of pods' outcomes: written, already written, incomplete because the node is lost or the pod was released
    /// before its end, or refused by the API server.
    OUTCOMES = "belayer_outcome_records_total": Counter, Count, [CONTROLLER, fixed("result", outcome::ALL)];
    /// Pods that still have a hold while the deletion of their owner waits for them.
    PODS_REMAINING = "belayer_pods_remaining": Gauge, Count, [CONTROLLER];
    /// Steps of the re-creation of rejected pods, by the kubelet's reason and by result.
    RECREATIONS = "belayer_recreations_total": Counter, Count,
        [fixed("reason", recreation::REASONS), fixed("outcome", recreation::OUTCOMES)];
    /// Rejected pods of which every allowed re-creation was rejected too.
    RECREATION_BUDGET_EXHAUSTED = "belayer_recreation_budget_exhausted_total": Counter, Count, [];
    /// Open circuit breakers; re-creations of pods that their nodes rejected wait.
    BREAKER_OPEN = "belayer_breaker_open": Gauge, Count, [fixed("scope", recreation::SCOPES)];
    /// How long the oldest requested wipe has waited that no node agent has reported as complete; 0 if there is none.
    OLDEST_WIPE = "belayer_oldest_wipe_seconds": Gauge, Seconds, [];
    /// Events that were not written: too many were queued or about one object, the request failed, or the process
    /// stopped before.
    EVENTS_DROPPED = "belayer_events_dropped_total": Counter, Count, [];
    /// Panics that a worker caught.
    WORKER_PANICS = "belayer_worker_panics_total": Counter, Count, [QUEUE];
    /// Objects that have a worker, by the phase of its work and by whether the store still contains the object
    /// (desired) or not (orphan).
    WORKERS = "belayer_workers": Gauge, Count,
        [CONTROLLER, fixed("lifecycle", lifecycle::ALL), fixed("config", config::ALL)];
    /// Objects that the store contains, including those whose work has finished.
    WORKERS_DESIRED = "belayer_workers_desired": Gauge, Count, [CONTROLLER];
    /// Objects for which something may run: their work is not known to be terminated.
    WORKERS_ACTIVE = "belayer_workers_active": Gauge, Count, [CONTROLLER];
    /// Objects that were created again before the work of their own UID had finished.
    WORKER_RESTARTS = "belayer_worker_restarts_total": Counter, Count, [CONTROLLER];
    /// Objects that were removed from the store without an observed deletion, and remains of objects that the store does
    /// not contain.
    WORKER_ORPHANS = "belayer_worker_orphans_total": Counter, Count, [CONTROLLER];
    /// Attempts of the node agent to wipe the remains of a rejected pod from its node.
    WIPE_TRIES = "belayer_wipe_tries_total": Counter, Count, [fixed("state", wipe::ALL)];
    /// Time from when the node agent first saw the request for a wipe to its completion.
    WIPE_DURATION = "belayer_wipe_duration_seconds": Histogram(buckets::RELEASE), Seconds, [];
    /// Files and directories that the node agent removed.
    WIPE_REMOVED = "belayer_wipe_removed_total": Counter, Count, [];
    /// Rejected pods whose remains the node agent still has to wipe from its node.
    WIPES_PENDING = "belayer_wipes_pending": Gauge, Count, [];
    /// Objects in the store.
    INFORMER_OBJECTS = "belayer_informer_objects": Gauge, Count, [KIND];
    /// Time since the API server last sent something to the store, including bookmarks.
    INFORMER_LAG = "belayer_informer_lag_seconds": Gauge, Seconds, [KIND];
    /// Lists that filled or replaced the store, by cause.
    INFORMER_RELISTS = "belayer_informer_relists_total": Counter, Count, [KIND, fixed("cause", cause::ALL)];
    /// Objects that could not be decoded and were skipped.
    INFORMER_BAD_OBJECTS = "belayer_informer_bad_objects_total": Counter, Count, [KIND];
    /// Requests that wait: live reads for one of 64 slots; reads, writes and Events for a token of --kube-api-qps.
    /// Releases need no token.
    API_WAITING = "belayer_api_waiting": Gauge, Count, [fixed("queue", waiting::ALL)];
    /// Live reads from the API server for queries that caches cannot answer, by answer.
    QUERIES = "belayer_facts_total": Counter, Count, [known("question", Known::Query), known("answer", Known::Answer)];
    /// Always 1; the label is the version.
    BUILD_INFO = "belayer_build_info": Gauge, Count, [known("version", Known::Version)];
    /// How often the configuration file was read again, by result.
    CONFIG_RELOADS = "belayer_config_reloads_total": Counter, Count,
        [fixed("status", &["applied", "unchanged", "refused"])];
    /// 0 while the previous configuration is in use because the file is invalid, or because its controllers cannot fill their caches, else 1.
    CONFIG_GOOD = "belayer_config_last_reload_successful": Gauge, Count, [];
    /// 1 while this process is the leader and may write, 0 while it is a standby.
    LEADER = "leader_election_master_status": Gauge, Count, [known("name", Known::Lease)];
    /// CPU time used, user and system.
    PROCESS_CPU = "process_cpu_seconds_total": Counter, Seconds, [];
    /// File descriptors in use.
    PROCESS_OPEN_FDS = "process_open_fds": Gauge, Count, [];
    /// Maximum number of file descriptors.
    PROCESS_MAX_FDS = "process_max_fds": Gauge, Count, [];
    /// Virtual memory.
    PROCESS_VIRTUAL_MEMORY = "process_virtual_memory_bytes": Gauge, Bytes, [];
    /// Maximum virtual memory.
    PROCESS_VIRTUAL_MEMORY_MAX = "process_virtual_memory_max_bytes": Gauge, Bytes, [];
    /// Resident memory.
    PROCESS_RESIDENT_MEMORY = "process_resident_memory_bytes": Gauge, Bytes, [];
    /// Start time of the process, in seconds since 1970.
    PROCESS_START_TIME = "process_start_time_seconds": Gauge, Seconds, [];
    /// Threads of the process.
    PROCESS_THREADS = "process_threads": Gauge, Count, [];
}

/// Describes each metric to the installed recorder, with its help and unit.
/// `Exporter::install` calls it, in the [crate's example](crate).
pub fn describe_all() {
    for metric in ALL {
        match metric.kind {
            Counter => metrics::describe_counter!(metric.name, metric.unit, metric.help),
            Gauge => metrics::describe_gauge!(metric.name, metric.unit, metric.help),
            Histogram(_) => metrics::describe_histogram!(metric.name, metric.unit, metric.help),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_well_formed() {
        let mut seen = HashSet::new();
        for metric in ALL {
            assert!(seen.insert(metric.name), "{} is a duplicate", metric.name);
            assert!(
                metric
                    .name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{} is not a valid name",
                metric.name
            );
            assert!(
                metric.help.ends_with('.'),
                "{}: help is a sentence",
                metric.name
            );
        }
    }

    #[test]
    fn a_name_has_the_suffix_of_its_kind_and_unit() {
        for Metric {
            name, kind, unit, ..
        } in ALL
        {
            assert_eq!(*kind == Counter, name.ends_with("_total"), "{name}");
            if *unit == Seconds {
                assert!(name.contains("_seconds"), "{name} is in seconds");
            }
            if let Histogram(buckets) = kind {
                assert!(buckets.is_sorted_by(|a, b| a < b), "{name}: buckets rise");
                assert_eq!(*unit, Seconds, "{name}");
            }
        }
    }

    #[test]
    fn labels_of_one_name_have_the_same_values() {
        // client-go labels a queue with `name`, and a Lease too.
        let belayers = |label: &&Label| label.name != "name";
        for metric in ALL {
            for label in metric.labels.iter().filter(belayers) {
                for other in ALL
                    .iter()
                    .flat_map(|m| m.labels)
                    .filter(|o| o.name == label.name)
                {
                    assert_eq!(label.values, other.values, "label {}", label.name);
                }
                if let Values::Fixed(values) | Values::Within(values) = label.values {
                    assert!(!values.is_empty() && values.len() <= 40, "{}", label.name);
                }
            }
        }
    }
}
