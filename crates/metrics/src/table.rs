//! The table: one entry per metric.

use metrics::Unit;

use crate::values::{
    CODES, METHODS, band, cause, config, lifecycle, outcome, recreation, unread, waiting, wipe,
};
use crate::{buckets, names as n};

/// What a metric is called, what it counts and how its series differ.
#[derive(Debug)]
pub struct Metric {
    /// Its name, unit and `_total` included, as it is scraped.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// What one of it is.
    pub unit: Unit,
    /// The text of `# HELP`.
    pub help: &'static str,
    /// The labels that each of its series carries.
    pub labels: &'static [Label],
}

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Only rises; starts again at 0 with the process.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts observations below each of these upper bounds.
    Histogram(&'static [f64]),
}

/// A label and what bounds its values.
#[derive(Debug)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// The values it can take.
    pub values: Values,
}

/// The values that a label can take. There is no variant for free text: names that users choose (of pods,
/// profiles) are never labels, and only a limited number of namespaces are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Values {
    /// Exactly these, written as zeros from the start.
    Fixed(&'static [&'static str]),
    /// At most these. Which of them occur is up to the server, so no zeros are written.
    Within(&'static [&'static str]),
    /// Names of namespaces: the first [`NAMESPACES`](crate::NAMESPACES) that occur, `other` for the
    /// rest.
    Namespaces,
    /// Names of this program that are known once it has read its configuration.
    Known(Known),
}

/// Lists of names that are known when the program starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Known {
    /// Controllers, such as `pod-finalizer`.
    Controller,
    /// Kinds of evidence of one controller, such as `OwnerGone`.
    Evidence,
    /// Workqueues.
    Queue,
    /// Kinds that are watched, such as `Pod`.
    Kind,
    /// Kinds of live questions.
    Question,
    /// Kinds of answers to one question.
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

/// Every metric that this version writes.
pub const ALL: &[Metric] = &[
    metric(
        n::WORKQUEUE_DEPTH,
        Gauge,
        Count,
        &[QUEUE, fixed("priority", band::ALL)],
        "Keys ready to be worked on, by priority band.",
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
        "Requests to the API server by status code and method; <error> got no answer.",
    ),
    metric(
        n::REST_REQUEST_DURATION,
        Histogram(buckets::REQUEST),
        Seconds,
        &[fixed("verb", METHODS)],
        "Time from sending a request to the head of its answer.",
    ),
    metric(
        n::HOLDS,
        Gauge,
        Count,
        &[CONTROLLER],
        "Objects that carry the controller's hold now.",
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
        "Time from the moment the evidence existed to the release.",
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
        "Objects that are being deleted and still carry the controller's hold.",
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
        "1 while the backlog gate is closed and no holds are added in any namespace, else 0.",
    ),
    metric(
        n::BACKLOG_NAMESPACES,
        Gauge,
        Count,
        &[CONTROLLER],
        "Namespaces whose backlog gate is closed, so that no holds are added there.",
    ),
    metric(
        n::UNSELECTED_KEPT,
        Gauge,
        Count,
        &[CONTROLLER],
        "Holds kept although nothing selects their object any more, because releasing that many \
         at once looks like a mistake.",
    ),
    metric(
        n::OBSERVED_LOSSES,
        Counter,
        Count,
        &[CONTROLLER],
        "Objects in observe mode that vanished before their result was taken.",
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
        "Pods deleted by the cleanup that their own annotation asks for.",
    ),
    metric(
        n::OUTCOMES,
        Counter,
        Count,
        &[CONTROLLER, fixed("result", outcome::ALL)],
        "Records of pods' outcomes: written, found written already, incomplete because the node is \
         lost, or refused by the API server.",
    ),
    metric(
        n::PODS_REMAINING,
        Gauge,
        Count,
        &[CONTROLLER],
        "Pods that still carry a hold while the deletion of their owner waits for them.",
    ),
    metric(
        n::RECREATIONS,
        Counter,
        Count,
        &[
            fixed("reason", recreation::REASONS),
            fixed("outcome", recreation::OUTCOMES),
        ],
        "Steps in the life of rejected pods, by the kubelet's reason and what came of it.",
    ),
    metric(
        n::RECREATION_BUDGET_EXHAUSTED,
        Counter,
        Count,
        &[],
        "Rejected pods whose every allowed re-creation was rejected too.",
    ),
    metric(
        n::BREAKER_OPEN,
        Gauge,
        Count,
        &[fixed("scope", recreation::SCOPES)],
        "Breakers that are open, so that re-creations after their rejections wait.",
    ),
    metric(
        n::EVENTS_DROPPED,
        Counter,
        Count,
        &[],
        "Events that were not written because too many stood in line.",
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
        "Objects that have a worker, by the phase of its work and by whether the store still asks \
         for the object (desired) or not (orphan).",
    ),
    metric(
        n::WORKERS_DESIRED,
        Gauge,
        Count,
        &[CONTROLLER],
        "Objects that the store asks for, those included whose work has finished.",
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
        "Objects that turned out to have vanished from the store without a deletion having been \
         seen, and remains that were found of objects that it does not have.",
    ),
    metric(
        n::WIPE_TRIES,
        Counter,
        Count,
        &[fixed("state", wipe::ALL)],
        "Tries of the node agent to wipe its node of a rejected pod.",
    ),
    metric(
        n::WIPE_DURATION,
        Histogram(buckets::RELEASE),
        Seconds,
        &[],
        "Time from when the node agent first saw that a wipe is wanted to when it was complete.",
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
        "Rejected pods that the node agent has yet to wipe its node of.",
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
        "Time since the store last heard from the API server, bookmarks included.",
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
            known("question", Known::Question),
            known("answer", Known::Answer),
        ],
        "Live questions to the API server that caches cannot answer, by answer.",
    ),
    metric(
        n::BUILD_INFO,
        Gauge,
        Count,
        &[known("version", Known::Version)],
        "Always 1; the label tells the version.",
    ),
    metric(
        n::CONFIG_RELOADS,
        Counter,
        Count,
        &[fixed("status", &["applied", "unchanged", "refused"])],
        "How often the configuration file was read again, by what came of it.",
    ),
    metric(
        n::CONFIG_GOOD,
        Gauge,
        Count,
        &[],
        "0 while the configuration file that was last read is refused and the one before is in force.",
    ),
    metric(
        n::LEADER,
        Gauge,
        Count,
        &[known("name", Known::Lease)],
        "1 while this process leads and may write, 0 while it stands by.",
    ),
    metric(
        n::PROCESS_CPU,
        Counter,
        Seconds,
        &[],
        "Processor time used, user and system.",
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
        "File descriptors that may be in use.",
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
        "Virtual memory that may be used.",
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
        "Start of the process, since 1970.",
    ),
    metric(
        n::PROCESS_THREADS,
        Gauge,
        Count,
        &[],
        "Threads of the process.",
    ),
];

/// Gives the recorder in force the help and unit of each metric.
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
            assert!(seen.insert(metric.name), "{} stands twice", metric.name);
            assert!(
                metric
                    .name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{} is no good name",
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
    fn a_name_tells_kind_and_unit() {
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
    fn labels_of_one_name_mean_one_thing() {
        // client-go calls a queue `name`, and a Lease too.
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
    fn every_name_constant_stands_in_the_table() {
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
