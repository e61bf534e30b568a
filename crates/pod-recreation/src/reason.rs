//! The reasons for which kubelets reject pods, in four classes.
//!
//! They come from the kubelet's predicates, its device and topology managers and its admission handlers. Pods with a
//! reason that is not in the table are reported and never re-created.
//!
//! The [crate's example](crate) classifies some reasons.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The class of a reason. The [crate's example](crate) classifies some reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The scheduler decided on outdated data: the pod fits on another node.
    Race,
    /// The node cannot run the pod now.
    Transient,
    /// No node of this kind can run the pod.
    Permanent,
    /// Not in the table.
    Unknown,
}

impl Class {
    /// Whether a pod that was rejected for such a reason is re-created.
    pub fn is_recreated(self) -> bool {
        matches!(self, Self::Race | Self::Transient)
    }

    /// Its name in the configuration.
    pub fn as_str(self) -> &'static str {
        self.into()
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

/// The kubelet's reason for a missing resource is this prefix and the name of the resource.
const OUT_OF: &str = "OutOf";

/// The reason of an eviction, which is a rejection only if it happened at admission.
const EVICTED: &str = "Evicted";

/// Prefix of the message of an eviction at admission.
const REJECTED_PREFIX: &str = "Pod was rejected";

/// The classes of reasons: the table, overridden by the configuration. The [crate's
/// example](crate) classifies some reasons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Classes(BTreeMap<String, Class>);

impl Classes {
    /// The table with these exceptions.
    pub fn with(exceptions: BTreeMap<String, Class>) -> Self {
        Self(exceptions)
    }

    /// The class of a pod's `status.reason` with its `status.message`.
    pub fn of(&self, reason: &str, message: &str) -> Class {
        if reason == EVICTED && !message.starts_with(REJECTED_PREFIX) {
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

/// `OutOf<extended resource>`: the name has a domain and a slash, or is one of the huge pages.
fn is_out_of_extended_resource(reason: &str) -> bool {
    reason
        .strip_prefix(OUT_OF)
        .is_some_and(|resource| resource.contains('/') || resource.starts_with("hugepages-"))
}

/// All values of the metric label `reason`.
pub use belayer_metrics::recreation::REASONS as LABELS;

/// The metric label of a reason, of which there is a fixed number. The [crate's example](crate)
/// classifies such reasons.
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
    fn only_an_eviction_at_admission_is_a_rejection(
        #[case] message: &str,
        #[case] expected: Class,
    ) {
        assert_eq!(Classes::default().of("Evicted", message), expected);
    }

    #[test]
    fn the_configuration_overrides_the_table() {
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
            "the eviction of a running pod is no rejection, whatever is configured"
        );
    }
}
