//! Fixed label values, and the limits of those that come from outside.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Priorities of a workqueue. Values of a [`Label`](crate::Label), the type of
/// [`Metric::labels`](crate::Metric::labels).
pub mod priority {
    /// A release of an object.
    pub const RELEASE: &str = "release";
    /// A change of an object.
    pub const NORMAL: &str = "normal";
    /// The initial list and the periodic resync.
    pub const RESYNC: &str = "resync";
    /// All of them.
    pub const ALL: &[&str] = &[RELEASE, NORMAL, RESYNC];
}

/// Queues in which requests to the API server wait. Values of a [`Label`](crate::Label), the type
/// of [`Metric::labels`](crate::Metric::labels).
pub mod waiting {
    /// Live reads that have not begun.
    pub const LIVE_READS: &str = "live-reads";
    /// Reads that wait for a token.
    pub const EVIDENCE: &str = "evidence";
    /// Writes that wait for a token, without releases.
    pub const WRITE: &str = "write";
    /// Events that wait for a token.
    pub const NOTICE: &str = "notice";
    /// All of them.
    pub const ALL: &[&str] = &[LIVE_READS, EVIDENCE, WRITE, NOTICE];
}

/// Why an informer listed. Values of a [`Label`](crate::Label), the type of
/// [`Metric::labels`](crate::Metric::labels).
pub mod cause {
    /// The first list of the process.
    pub const INITIAL: &str = "initial";
    /// The server responded 410: the version to watch from was compacted.
    pub const EXPIRED: &str = "expired";
    /// The version went back: a restored etcd.
    pub const REWOUND: &str = "rewound";
    /// The fields to keep have changed.
    pub const RECONFIGURED: &str = "reconfigured";
    /// Anything else.
    pub const ERROR: &str = "error";
    /// All of them.
    pub const ALL: &[&str] = &[INITIAL, EXPIRED, REWOUND, RECONFIGURED, ERROR];
}

/// Results of recording a pod's outcome. Values of a [`Label`](crate::Label), the type of
/// [`Metric::labels`](crate::Metric::labels).
pub mod outcome {
    /// It was written.
    pub const WRITTEN: &str = "written";
    /// It was written before, by a Belayer that stopped in between.
    pub const EXISTED: &str = "existed";
    /// It was written, as incomplete: the node was lost.
    pub const INCOMPLETE: &str = "incomplete";
    /// The API server refused it.
    pub const REFUSED: &str = "refused";
    /// All of them.
    pub const ALL: &[&str] = &[WRITTEN, EXISTED, INCOMPLETE, REFUSED];
}

/// Pods whose result was not read. Values of a [`Label`](crate::Label), the type of
/// [`Metric::labels`](crate::Metric::labels).
pub mod unread {
    /// The evidence.
    pub const JUDGEMENTS: &[&str] = &[
        "NeverHeld",
        "EndedByDeletion",
        "NodeLost",
        "EarlierRun",
        "Undecided",
    ];
    /// Whether the pod's profile holds pods or only observes them.
    pub const MODES: &[&str] = &["enforce", "observe"];
}

/// How many namespaces have their own series.
pub const NAMESPACES: usize = 200;

static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The label value of a namespace: its name, or `other` if [`NAMESPACES`] others have occurred.
/// [`bound_code`](crate::bound_code) bounds another label.
pub fn bound_namespace(namespace: &str) -> String {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if !seen.contains(namespace) {
        if seen.len() >= NAMESPACES {
            return "other".to_owned();
        }
        seen.insert(namespace.to_owned());
    }
    namespace.to_owned()
}

/// Re-creations of rejected pods. Values of a [`Label`](crate::Label), the type of
/// [`Metric::labels`](crate::Metric::labels).
pub mod recreation {
    /// The kubelet's known reasons; any other one is `Other`.
    pub const REASONS: &[&str] = &[
        "NodeAffinity",
        "MatchNodeSelector",
        "NodePorts",
        "TaintToleration",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfpods",
        "OutOfephemeral-storage",
        "OutOfExtendedResource",
        "UnexpectedAdmissionError",
        "InvalidNodeInfo",
        "NodeShutdown",
        "Evicted",
        "VolumeAttachmentLimitExceeded",
        "TopologyAffinityError",
        "SMTAlignmentError",
        "EmptyPodSharedPoolError",
        "Other",
    ];
    /// Results of a rejection.
    pub const OUTCOMES: &[&str] = &[
        "rejected",
        "recreated",
        "started",
        "exhausted",
        "cancelled",
        "denied",
        "name_taken",
        "reported",
        "wipe_failed",
    ];
    /// The scopes of circuit breakers.
    pub const SCOPES: &[&str] = &["node", "namespace"];
}

/// Results of one attempt to wipe the remains of a pod from a node. Values of a
/// [`Label`](crate::Label), the type of [`Metric::labels`](crate::Metric::labels).
pub mod wipe {
    /// Nothing is left.
    pub const COMPLETE: &str = "complete";
    /// Something is left.
    pub const LEFT: &str = "left";
    /// A program of the administrator failed.
    pub const HOOK: &str = "hook";
    /// All of them.
    pub const ALL: &[&str] = &[COMPLETE, LEFT, HOOK];
}

/// Phases of a worker's work. Values of a [`Label`](crate::Label), the type of
/// [`Metric::labels`](crate::Metric::labels).
pub mod lifecycle {
    /// Its object is desired.
    pub const SYNC: &str = "sync";
    /// What runs for its object is being stopped.
    pub const TERMINATING: &str = "terminating";
    /// Nothing runs any more; remaining state is cleaned up.
    pub const TERMINATED: &str = "terminated";
    /// All of them.
    pub const ALL: &[&str] = &[SYNC, TERMINATING, TERMINATED];
}

/// Whether the store contains a worker's object. Values of a [`Label`](crate::Label), the type of
/// [`Metric::labels`](crate::Metric::labels).
pub mod config {
    /// It does.
    pub const DESIRED: &str = "desired";
    /// It does not, or not any more.
    pub const ORPHAN: &str = "orphan";
    /// All of them.
    pub const ALL: &[&str] = &[DESIRED, ORPHAN];
}

/// Values of the labels `method` and `verb`.
pub(crate) const METHODS: &[&str] = &["GET", "POST", "PUT", "PATCH", "DELETE", "OTHER"];

/// The label value of an HTTP method. The example of [`bound_code`](crate::bound_code) has one.
pub fn bound_method(method: &str) -> &'static str {
    METHODS
        .iter()
        .find(|known| **known == method)
        .copied()
        .unwrap_or("OTHER")
}

/// Values of the label `code`: the codes that an API server responds with, the classes for the
/// rest.
pub(crate) const CODES: &[&str] = &[
    "200", "201", "202", "204", "301", "302", "304", "400", "401", "403", "404", "405", "406",
    "409", "410", "413", "415", "422", "429", "500", "501", "502", "503", "504", "1xx", "2xx",
    "3xx", "4xx", "5xx", "other", "<error>",
];

/// The label value of a status code; `None` means a request without a response, labelled `<error>`
/// as in client-go.
///
/// ```
/// use belayer_metrics::{bound_code, bound_method};
///
/// assert_eq!((bound_code(Some(404)), bound_code(None)), ("404", "<error>"));
/// assert_eq!(bound_method("PATCH"), "PATCH");
/// ```
pub fn bound_code(code: Option<u16>) -> &'static str {
    let Some(code) = code else { return "<error>" };
    let text = code.to_string();
    if let Some(known) = CODES.iter().find(|known| **known == text) {
        return known;
    }
    match code / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        5 => "5xx",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(Some(200), "200")]
    #[case(Some(429), "429")]
    #[case(Some(418), "4xx")]
    #[case(Some(599), "5xx")]
    #[case(Some(0), "other")]
    #[case(Some(u16::MAX), "other")]
    #[case(None, "<error>")]
    fn codes_are_bounded(#[case] code: Option<u16>, #[case] label: &str) {
        assert_eq!(bound_code(code), label);
        assert!(CODES.contains(&bound_code(code)));
    }

    #[test]
    fn every_code_has_a_value_of_the_list() {
        assert!((0..=u16::MAX).all(|code| CODES.contains(&bound_code(Some(code)))));
    }

    #[test]
    fn namespaces_are_bounded() {
        for index in 0..2 * NAMESPACES {
            bound_namespace(&format!("n{index}"));
        }
        assert_eq!(bound_namespace("n1"), "n1");
        assert_eq!(bound_namespace("another"), "other");
    }

    #[rstest]
    #[case("PATCH", "PATCH")]
    #[case("patch", "OTHER")]
    #[case("BREW", "OTHER")]
    fn methods_are_bounded(#[case] method: &str, #[case] label: &str) {
        assert_eq!(bound_method(method), label);
    }
}
