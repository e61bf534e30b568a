//! Why a node rejects pods, in four classes.
//!
//! The kubelet's reasons come from its predicates, its device and topology managers and its admission
//! handlers. What is not in the table is unknown and reported, never acted on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a reason means for the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Scheduler and node did not know the same: the pod fits elsewhere.
    Race,
    /// The node cannot take it now.
    Transient,
    /// No node of this kind ever takes it.
    Permanent,
    /// Not in the table.
    Unknown,
}

impl Class {
    /// Whether a pod rejected so is re-created.
    pub fn is_recreated(self) -> bool {
        matches!(self, Self::Race | Self::Transient)
    }

    /// As in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Race => "race",
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::Unknown => "unknown",
        }
    }
}

const RACE: &[&str] = &[
    "NodeAffinity",
    "MatchNodeSelector",
    "NodePorts",
    "TaintToleration",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfpods",
    "OutOfephemeral-storage",
];

const TRANSIENT: &[&str] = &[
    "UnexpectedAdmissionError",
    "InvalidNodeInfo",
    "NodeShutdown",
    "Evicted",
    "VolumeAttachmentLimitExceeded",
    "TopologyAffinityError",
    "SMTAlignmentError",
    "EmptyPodSharedPoolError",
];

const PERMANENT: &[&str] = &[
    "AppArmor",
    "SysctlForbidden",
    "PodOSNotSupported",
    "PodOSSelectorNodeLabelDoesNotMatch",
    "PodFeatureUnsupported",
    "PodLevelResourcesNotSupported",
    "SupplementalGroupsPolicyNotSupported",
    "InitContainerRestartPolicyForbidden",
    "NodeName",
];

/// What the kubelet puts before the name of a resource that it lacks.
const OUT_OF: &str = "OutOf";

/// An eviction is a rejection only if the pod was refused at admission.
const EVICTED: &str = "Evicted";

/// How the message of an eviction at admission begins.
const REJECTED: &str = "Pod was rejected";

/// Classes of reasons: the table, and what the configuration says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Classes(BTreeMap<String, Class>);

impl Classes {
    /// The table with these exceptions.
    pub fn with(exceptions: BTreeMap<String, Class>) -> Self {
        Self(exceptions)
    }

    /// The class of a pod's `status.reason` with its `status.message`.
    pub fn of(&self, reason: &str, message: &str) -> Class {
        if reason == EVICTED && !message.starts_with(REJECTED) {
            return Class::Unknown;
        }
        if let Some(class) = self.0.get(reason) {
            return *class;
        }
        let listed = |list: &[&str]| list.contains(&reason);
        if listed(RACE) || is_out_of_extended_resource(reason) {
            Class::Race
        } else if listed(TRANSIENT) {
            Class::Transient
        } else if listed(PERMANENT) {
            Class::Permanent
        } else {
            Class::Unknown
        }
    }
}

/// `OutOf<extended resource>`: such a name has a domain before a slash, or is one of huge pages.
fn is_out_of_extended_resource(reason: &str) -> bool {
    reason
        .strip_prefix(OUT_OF)
        .is_some_and(|resource| resource.contains('/') || resource.starts_with("hugepages-"))
}

/// All values of the metric label `reason`.
pub use belayer_metrics::recreation::REASONS as LABELS;

/// A reason as a metric label: the raw string never is one.
pub fn label(reason: &str) -> &'static str {
    if is_out_of_extended_resource(reason) {
        return "OutOfExtendedResource";
    }
    let known = LABELS.iter().find(|known| **known == reason);
    known.copied().unwrap_or("Other")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    fn race(
        #[values(
            "NodeAffinity",
            "MatchNodeSelector",
            "NodePorts",
            "TaintToleration",
            "OutOfcpu",
            "OutOfmemory",
            "OutOfpods",
            "OutOfephemeral-storage",
            "OutOfnvidia.com/gpu",
            "OutOfhugepages-2Mi"
        )]
        reason: &str,
    ) {
        assert_eq!(Classes::default().of(reason, ""), Class::Race);
        assert!(LABELS.contains(&label(reason)));
    }

    #[rstest]
    fn transient(
        #[values(
            "UnexpectedAdmissionError",
            "InvalidNodeInfo",
            "NodeShutdown",
            "VolumeAttachmentLimitExceeded",
            "TopologyAffinityError",
            "SMTAlignmentError",
            "EmptyPodSharedPoolError"
        )]
        reason: &str,
    ) {
        assert_eq!(Classes::default().of(reason, "Pod x"), Class::Transient);
        assert_eq!(label(reason), reason);
    }

    #[rstest]
    fn permanent(
        #[values(
            "AppArmor",
            "SysctlForbidden",
            "PodOSNotSupported",
            "PodOSSelectorNodeLabelDoesNotMatch",
            "PodFeatureUnsupported",
            "PodLevelResourcesNotSupported",
            "SupplementalGroupsPolicyNotSupported",
            "InitContainerRestartPolicyForbidden",
            "NodeName"
        )]
        reason: &str,
    ) {
        assert_eq!(Classes::default().of(reason, ""), Class::Permanent);
        assert!(!Class::Permanent.is_recreated());
    }

    #[rstest]
    fn unknown(
        #[values(
            "UnknownReason",
            "UnexpectedPredicateFailureType",
            "DeadlineExceeded",
            "OutOfluck",
            ""
        )]
        reason: &str,
    ) {
        assert_eq!(Classes::default().of(reason, ""), Class::Unknown);
        assert_eq!(label(reason), "Other");
    }

    #[rstest]
    #[case::at_admission(
        "Pod was rejected: The node had condition: [MemoryPressure]",
        Class::Transient
    )]
    #[case::while_it_ran("The node was low on resource: memory.", Class::Unknown)]
    fn an_eviction_counts_at_admission_only(#[case] message: &str, #[case] expected: Class) {
        assert_eq!(Classes::default().of("Evicted", message), expected);
    }

    #[test]
    fn the_configuration_has_the_last_word() {
        let exceptions = [
            ("NodeShutdown".to_owned(), Class::Permanent),
            ("Custom".to_owned(), Class::Race),
            ("Evicted".to_owned(), Class::Race),
        ];
        let classes = Classes::with(exceptions.into_iter().collect());
        assert_eq!(classes.of("NodeShutdown", ""), Class::Permanent);
        assert_eq!(classes.of("Custom", ""), Class::Race);
        assert_eq!(
            classes.of("Evicted", "The node was low on resource"),
            Class::Unknown,
            "a pod that ran is none that was rejected, whatever is configured"
        );
    }
}
