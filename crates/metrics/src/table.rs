//! The table of metrics.

use metrics::Unit;

use crate::values::{
    CODES, METHODS, cause, config, lifecycle, outcome, priority, recreation, unread, waiting, wipe,
};
use crate::{buckets, names as n};

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

const fn metric(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    labels: &'static [Label],
    help: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        unit,
        help,
        labels,
    }
}

use Kind::{Counter, Gauge, Histogram};
use Unit::{Bytes, Count, Seconds};

/// Every metric of this version.
pub const ALL: &[Metric] = &[
    metric(
        n::WORKQUEUE_DEPTH,
        Gauge,
        Count,
        &[QUEUE, fixed("priority", priority::ALL)],
        "Keys ready to be worked on, by priority.",
    ),
    metric(
        n::WORKQUEUE_ADDS,
        Counter,
        Count,
        &[QUEUE],
        "Keys added to the queue; merged duplicates are not counted.",
    ),
    metric(
        n::WORKQUEUE_QUEUE_DURATION,
        Histogram(buckets::WORKQUEUE),
        Seconds,
        &[QUEUE],
        "How long a key waited in the queue before a worker took it.",
    ),
    metric(
        n::WORKQUEUE_WORK_DURATION,
        Histogram(buckets::WORKQUEUE),
        Seconds,
        &[QUEUE],
        "How long a worker spent on a key.",
    ),
    metric(
        n::WORKQUEUE_UNFINISHED_WORK,
        Gauge,
        Seconds,
        &[QUEUE],
        "Seconds of work in progress, over all workers. Large values mean stuck workers.",
    ),
    metric(
        n::WORKQUEUE_LONGEST_RUNNING,
        Gauge,
        Seconds,
        &[QUEUE],
        "How long the longest running worker has been on its key.",
    ),
    metric(
        n::WORKQUEUE_RETRIES,
        Counter,
        Count,
        &[QUEUE],
        "Keys that were added again with backoff.",
    ),
    metric(
        n::REST_REQUESTS,
        Counter,
        Count,
        &[
            Label {
                name: "code",
                values: Values::Within(CODES),
            },
            fixed("method", METHODS),
        ],
        "Requests to the API server by status code and method; <error> means no response.",
    ),
    metric(
        n::REST_REQUEST_DURATION,
        Histogram(buckets::REQUEST),
        Seconds,
        &[fixed("verb", METHODS)],
        "Time from sending a request to the headers of its response.",
    ),
    metric(
        n::HOLDS,
        Gauge,
        Count,
        &[CONTROLLER],
        "Objects that have a finalizer of the controller (a hold).",
    ),
    metric(
        n::HOLDS_ADDED,
        Counter,
        Count,
        &[CONTROLLER],
        "Holds that were added.",
    ),
    metric(
        n::RELEASES,
        Counter,
        Count,
        &[CONTROLLER, known("evidence", Known::Evidence)],
        "Holds that were released, by the evidence that allowed it.",
    ),
    metric(
        n::RELEASE_DURATION,
        Histogram(buckets::RELEASE),
        Seconds,
        &[CONTROLLER],
        "Time from when the evidence existed to the release.",
    ),
    metric(
        n::RELEASE_DENIED,
        Counter,
        Count,
        &[
            CONTROLLER,
            Label {
                name: "code",
                values: Values::Within(CODES),
            },
        ],
        "Releases that the API server refused, by status code. Retried slowly.",
    ),
    metric(
        n::WAITING,
        Gauge,
        Count,
        &[CONTROLLER],
        "Objects that are being deleted and still have the controller's hold.",
    ),
    metric(
        n::OLDEST_WAITING,
        Gauge,
        Seconds,
        &[CONTROLLER],
        "Age of the oldest deletion that still waits for the controller; 0 if none does.",
    ),
    metric(
        n::MISSED_HOLDS,
        Counter,
        Count,
        &[CONTROLLER],
        "Selected objects whose deletion began before they could be held.",
    ),
    metric(
        n::BACKLOG_GATE,
        Gauge,
        Count,
        &[CONTROLLER],
        "1 while the backlog limit is reached and no holds are added in any namespace, else 0.",
    ),
    metric(
        n::BACKLOG_NAMESPACES,
        Gauge,
        Count,
        &[CONTROLLER],
        "Namespaces whose backlog limit is reached, so that no holds are added there.",
    ),
    metric(
        n::UNSELECTED_KEPT,
        Gauge,
        Count,
        &[CONTROLLER],
        "Holds kept although no profile selects their object any more, because releasing that many \
         at once is probably a mistake.",
    ),
    metric(
        n::CONSUMER_SILENT,
        Gauge,
        Seconds,
        &[KIND],
        "How long no owner of this kind has changed in one namespace while pods of such owners there have ended, are being \
         deleted and are held: the longest time of all namespaces; 0 if there are no such pods. Their consumer may be down.",
    ),
    metric(
        n::OBSERVED_LOSSES,
        Counter,
        Count,
        &[CONTROLLER],
        "Objects in observe mode that vanished before their result was read.",
    ),
    metric(
        n::UNREAD_PODS,
        Counter,
        Count,
        &[
            fixed("judgement", unread::JUDGEMENTS),
            fixed("mode", unread::MODES),
            Label {
                name: "pod_namespace",
                values: Values::Namespaces,
            },
        ],
        "Pods of Argo Workflows that were released, or were deleted in observe mode, although no result had been \
         read; Undecided pods stay held.",
    ),
    metric(
        n::CLEANUPS,
        Counter,
        Count,
        &[CONTROLLER],
        "Pods deleted by the cleanup that their own annotation requests.",
    ),
    metric(
        n::OUTCOMES,
        Counter,
        Count,
        &[CONTROLLER, fixed("result", outcome::ALL)],
        "Records of pods' outcomes: written, already written, incomplete because the node is \
         lost or the pod was released before its end, or refused by the API server.",
    ),
    metric(
        n::PODS_REMAINING,
        Gauge,
        Count,
        &[CONTROLLER],
        "Pods that still have a hold while the deletion of their owner waits for them.",
    ),
    metric(
        n::RECREATIONS,
        Counter,
        Count,
        &[
            fixed("reason", recreation::REASONS),
            fixed("outcome", recreation::OUTCOMES),
        ],
        "Steps of the re-creation of rejected pods, by the kubelet's reason and by result.",
    ),
    metric(
        n::RECREATION_BUDGET_EXHAUSTED,
        Counter,
        Count,
        &[],
        "Rejected pods of which every allowed re-creation was rejected too.",
    ),
    metric(
        n::BREAKER_OPEN,
        Gauge,
        Count,
        &[fixed("scope", recreation::SCOPES)],
        "Open circuit breakers; re-creations of pods that their nodes rejected wait.",
    ),
    metric(
        n::EVENTS_DROPPED,
        Counter,
        Count,
        &[],
        "Events that were not written: too many were queued or about one object, the request failed, or the process stopped before.",
    ),
    metric(
        n::WORKER_PANICS,
        Counter,
        Count,
        &[QUEUE],
        "Panics that a worker caught.",
    ),
    metric(
        n::WORKERS,
        Gauge,
        Count,
        &[
            CONTROLLER,
            fixed("lifecycle", lifecycle::ALL),
            fixed("config", config::ALL),
        ],
        "Objects that have a worker, by the phase of its work and by whether the store still \
         contains the object (desired) or not (orphan).",
    ),
    metric(
        n::WORKERS_DESIRED,
        Gauge,
        Count,
        &[CONTROLLER],
        "Objects that the store contains, including those whose work has finished.",
    ),
    metric(
        n::WORKERS_ACTIVE,
        Gauge,
        Count,
        &[CONTROLLER],
        "Objects for which something may run: their work is not known to be terminated.",
    ),
    metric(
        n::WORKER_RESTARTS,
        Counter,
        Count,
        &[CONTROLLER],
        "Objects that were created again before the work of their own UID had finished.",
    ),
    metric(
        n::WORKER_ORPHANS,
        Counter,
        Count,
        &[CONTROLLER],
        "Objects that vanished from the store without an observed \
         deletion, and found remains of objects that the store does not contain.",
    ),
    metric(
        n::WIPE_TRIES,
        Counter,
        Count,
        &[fixed("state", wipe::ALL)],
        "Attempts of the node agent to wipe the remains of a rejected pod from its node.",
    ),
    metric(
        n::WIPE_DURATION,
        Histogram(buckets::RELEASE),
        Seconds,
        &[],
        "Time from when the node agent first saw the request for a wipe to its completion.",
    ),
    metric(
        n::WIPE_REMOVED,
        Counter,
        Count,
        &[],
        "Files and directories that the node agent removed.",
    ),
    metric(
        n::WIPES_PENDING,
        Gauge,
        Count,
        &[],
        "Rejected pods whose remains the node agent still has to wipe from its node.",
    ),
    metric(
        n::INFORMER_OBJECTS,
        Gauge,
        Count,
        &[KIND],
        "Objects in the store.",
    ),
    metric(
        n::INFORMER_LAG,
        Gauge,
        Seconds,
        &[KIND],
        "Time since the API server last sent something to the store, including bookmarks.",
    ),
    metric(
        n::INFORMER_RELISTS,
        Counter,
        Count,
        &[KIND, fixed("cause", cause::ALL)],
        "Lists that filled or replaced the store, by cause.",
    ),
    metric(
        n::INFORMER_BAD_OBJECTS,
        Counter,
        Count,
        &[KIND],
        "Objects that could not be decoded and were skipped.",
    ),
    metric(
        n::API_WAITING,
        Gauge,
        Count,
        &[fixed("queue", waiting::ALL)],
        "Requests that wait: live reads for one of 64 slots; reads, writes and Events for a token of \
         --kube-api-qps. Releases need no token.",
    ),
    metric(
        n::FACTS,
        Counter,
        Count,
        &[
            known("question", Known::Query),
            known("answer", Known::Answer),
        ],
        "Live reads from the API server for queries that caches cannot answer, by answer.",
    ),
    metric(
        n::BUILD_INFO,
        Gauge,
        Count,
        &[known("version", Known::Version)],
        "Always 1; the label is the version.",
    ),
    metric(
        n::CONFIG_RELOADS,
        Counter,
        Count,
        &[fixed("status", &["applied", "unchanged", "refused"])],
        "How often the configuration file was read again, by result.",
    ),
    metric(
        n::CONFIG_GOOD,
        Gauge,
        Count,
        &[],
        "0 while the configuration file is invalid and the previous one is in use, else 1.",
    ),
    metric(
        n::LEADER,
        Gauge,
        Count,
        &[known("name", Known::Lease)],
        "1 while this process is the leader and may write, 0 while it is a standby.",
    ),
    metric(
        n::PROCESS_CPU,
        Counter,
        Seconds,
        &[],
        "CPU time used, user and system.",
    ),
    metric(
        n::PROCESS_OPEN_FDS,
        Gauge,
        Count,
        &[],
        "File descriptors in use.",
    ),
    metric(
        n::PROCESS_MAX_FDS,
        Gauge,
        Count,
        &[],
        "Maximum number of file descriptors.",
    ),
    metric(
        n::PROCESS_VIRTUAL_MEMORY,
        Gauge,
        Bytes,
        &[],
        "Virtual memory.",
    ),
    metric(
        n::PROCESS_VIRTUAL_MEMORY_MAX,
        Gauge,
        Bytes,
        &[],
        "Maximum virtual memory.",
    ),
    metric(
        n::PROCESS_RESIDENT_MEMORY,
        Gauge,
        Bytes,
        &[],
        "Resident memory.",
    ),
    metric(
        n::PROCESS_START_TIME,
        Gauge,
        Seconds,
        &[],
        "Start time of the process, in seconds since 1970.",
    ),
    metric(
        n::PROCESS_THREADS,
        Gauge,
        Count,
        &[],
        "Threads of the process.",
    ),
];

/// Describes each metric to the installed recorder, with its help and unit.
/// [`Exporter::install`](crate::Exporter::install) calls it, in the [crate's example](crate).
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
        let ours = |label: &&Label| label.name != "name";
        for metric in ALL {
            for label in metric.labels.iter().filter(ours) {
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

    #[test]
    fn every_name_constant_is_in_the_table() {
        let source = include_str!("names.rs");
        for line in source.lines().filter(|line| line.starts_with("pub const")) {
            let name = line.split('"').nth(1).unwrap();
            assert!(
                ALL.iter().any(|metric| metric.name == name),
                "{name} is not in the table"
            );
        }
    }
}
