//! `PodRecreation`, as it stands in the API: one per chain of pods of one name.

use std::time::Duration;

use belayer_core::object::Resource;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// API group.
pub const GROUP: &str = "belayer.dev";

/// Version within the group.
pub const VERSION: &str = "v1alpha1";

/// Kind.
pub const KIND: &str = "PodRecreation";

/// Lower-case plural.
pub const PLURAL: &str = "podrecreations";

/// The kind as the API serves it.
pub fn resource() -> Resource {
    Resource::new(GROUP, VERSION, KIND, PLURAL)
}

/// What is to be done; written once, never changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Name of every pod of the chain.
    pub pod_name: String,
    /// UID of the first pod, the one the user created.
    #[serde(rename = "firstUID")]
    pub first_uid: String,
    /// The policy in force when the record was made.
    pub policy: Policy,
    /// The pod to create: labels, annotations, owner references and spec.
    pub pod: Value,
}

/// How often, how fast, and on what conditions a pod is re-created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Policy {
    /// Re-creations, not attempts in all: 3 means at most four pods.
    pub max_retries: u32,
    /// Pause before the first re-creation, in seconds; doubles up to five minutes.
    pub backoff_seconds: u32,
    /// Whether the node must be wiped of the rejected pod first.
    pub wipe: Wipe,
    /// How long the wiping is waited for, in seconds.
    pub wipe_timeout_seconds: u32,
    /// What follows when it took longer.
    pub on_wipe_timeout: OnWipeTimeout,
    /// Whether a re-created pod keeps away from nodes that rejected its predecessors.
    pub avoid_rejected_node: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_retries: 3,
            backoff_seconds: 15,
            wipe: Wipe::None,
            wipe_timeout_seconds: 120,
            on_wipe_timeout: OnWipeTimeout::Proceed,
            avoid_rejected_node: false,
        }
    }
}

/// The longest pause before a re-creation.
const LONGEST_BACKOFF: Duration = Duration::from_secs(300);

impl Policy {
    /// The pause before the re-creation after `attempts` others. `spread` is from 0 to 1 and adds up
    /// to a tenth, so that pods that were rejected together do not come back together.
    pub fn pause(&self, attempts: u32, spread: f64) -> Duration {
        let first = Duration::from_secs(self.backoff_seconds.into());
        let doubled = first.saturating_mul(2_u32.saturating_pow(attempts));
        let base = doubled.min(LONGEST_BACKOFF);
        base + base.mul_f64(spread.clamp(0.0, 1.0) / 10.0)
    }
}

/// Whether a node must be wiped of what it keeps of a rejected pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wipe {
    /// Nothing is waited for.
    #[default]
    None,
    /// `StateWiped` must be true before the pod is deleted.
    Required,
}

/// What follows when the wiping takes too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnWipeTimeout {
    /// The pod is re-created, but never again on that node.
    #[default]
    Proceed,
    /// The pod is not re-created.
    Fail,
}

/// How far it has come. Only Belayer writes it, but for the condition `StateWiped`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// Where the state machine stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Re-creations that were reserved: raised before each create.
    pub attempts: u32,
    /// Pods of the chain that exist or existed, the first included.
    pub pod_starts: u32,
    /// Pods that were re-created.
    pub pod_recreated: u32,
    /// When the rejected pod was seen gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_deletion_time: Option<Timestamp>,
    /// The pod that was rejected last.
    #[serde(rename = "rejectedUID", skip_serializing_if = "Option::is_none")]
    pub rejected_uid: Option<String>,
    /// The pod that was re-created last.
    #[serde(rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// The node that rejected it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Nodes that no further pod may be put on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub avoid_nodes: Vec<String>,
    /// Why the node rejected it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// In words: why it ended, or what is in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it ended; the record is kept for a while after that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions, by [`ConditionType`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Where the state machine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// The pod was rejected and is still there, untouched.
    Rejected,
    /// The rejected pod is to be deleted, by us.
    Deleting,
    /// It is gone; the backoff runs.
    Waiting,
    /// An attempt is reserved; its pod is to be created.
    Creating,
    /// The pod was re-created and has not started yet.
    Recreated,
    /// The pod started. The end.
    Started,
    /// Every allowed re-creation was rejected. The end.
    Exhausted,
    /// Anything else that leaves nothing to do, told in `message`. The end.
    Ended,
}

impl Phase {
    /// As in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "Rejected",
            Self::Deleting => "Deleting",
            Self::Waiting => "Waiting",
            Self::Creating => "Creating",
            Self::Recreated => "Recreated",
            Self::Started => "Started",
            Self::Exhausted => "Exhausted",
            Self::Ended => "Ended",
        }
    }

    /// Whether nothing more will be re-created.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Started | Self::Exhausted | Self::Ended)
    }
}

/// The types of conditions that Belayer knows. Others are kept as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionType {
    /// A rejected pod of the chain waits to be re-created.
    PodRejected,
    /// The node keeps nothing of the rejected pod. Set by the node agent, or where the node is gone.
    StateWiped,
    /// A pod was re-created.
    Recreated,
    /// A pod of the chain started.
    Started,
    /// The budget is used up.
    Exhausted,
    /// The API server refuses the pod.
    CreateDenied,
    /// The pod of the last attempt keeps its hold until the record names it, even during a drain: so a pod
    /// that does not exist was never created (row R5). Earlier versions did not ensure that. A condition,
    /// because the CRD of an earlier version would drop a field that it does not know.
    HoldKept,
}

impl ConditionType {
    /// As in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PodRejected => "PodRejected",
            Self::StateWiped => "StateWiped",
            Self::Recreated => "Recreated",
            Self::Started => "Started",
            Self::Exhausted => "Exhausted",
            Self::CreateDenied => "CreateDenied",
            Self::HoldKept => "HoldKept",
        }
    }
}

/// One condition, of the shape that all of Kubernetes uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which: a [`ConditionType`], or somebody else's.
    pub r#type: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// CamelCase word.
    #[serde(default)]
    pub reason: String,
    /// In words.
    #[serde(default)]
    pub message: String,
    /// When it last changed.
    pub last_transition_time: Timestamp,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// Nobody knows.
    Unknown,
}

impl Status {
    /// The condition of a type.
    pub fn condition(&self, wanted: ConditionType) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.r#type == wanted.as_str())
    }

    /// Whether the condition is known to hold.
    pub fn is_true(&self, wanted: ConditionType) -> bool {
        self.condition(wanted)
            .is_some_and(|condition| condition.status == ConditionStatus::True)
    }

    /// Sets a condition; its time changes only with its status.
    pub fn set(
        &mut self,
        r#type: ConditionType,
        status: ConditionStatus,
        (reason, message): (&str, &str),
        now: Timestamp,
    ) {
        let since = match self.condition(r#type) {
            Some(old) if old.status == status => old.last_transition_time,
            _ => whole_seconds(now),
        };
        self.conditions
            .retain(|condition| condition.r#type != r#type.as_str());
        self.conditions.push(Condition {
            r#type: r#type.as_str().to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: since,
        });
    }
}

/// The API writes no fractions of seconds. Rounded down: a pause is never shorter for it by more
/// than that second.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Longest name of an object.
const NAME_LIMIT: usize = 253;

/// Characters of the first pod's UID that stand in the name.
const UID_PART: usize = 8;

/// The name of the record of a chain: `<pod>-<first 8 of the first pod's UID>`, the pod's part cut to
/// fit.
pub fn record_name(pod: &str, first_uid: &str) -> String {
    let uid: String = first_uid.chars().take(UID_PART).collect();
    let room = NAME_LIMIT - UID_PART - 1;
    let cut = &pod[..pod.floor_char_boundary(room)];
    format!("{}-{uid}", cut.trim_end_matches(['-', '.']))
}

/// Whether a record of this name can be that of a chain of pods called `pod`.
pub fn is_name_for(record: &str, pod: &str) -> bool {
    let part = record.strip_prefix(&record_name(pod, ""));
    part.is_some_and(|uid| (1..=UID_PART).contains(&uid.len()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("web-0", "0a1b2c3d-0000", "web-0-0a1b2c3d")]
    #[case("web", "short", "web-short")]
    fn a_record_is_named_after_its_pod(
        #[case] pod: &str,
        #[case] uid: &str,
        #[case] expected: &str,
    ) {
        assert_eq!(record_name(pod, uid), expected);
        assert!(is_name_for(expected, pod));
    }

    #[rstest]
    #[case::of_another_pod("web-0a1b2c3d", "web-a")]
    #[case::of_a_longer_name("web-a-0a1b2c3d", "web")]
    #[case::of_none("Not A Name!", "web")]
    #[case::of_no_uid("web-", "web")]
    fn a_record_of_another_name_is_none_of_this_pod(#[case] record: &str, #[case] pod: &str) {
        assert!(!is_name_for(record, pod));
    }

    #[test]
    fn a_long_name_is_cut_to_fit() {
        let name = record_name(&"x".repeat(253), "0a1b2c3d-0000");
        assert_eq!(name.len(), 253);
        assert!(name.ends_with("x-0a1b2c3d"));
        let dotted = record_name(&format!("{}.{}", "x".repeat(243), "y"), "0a1b2c3d");
        assert!(dotted.ends_with("x-0a1b2c3d"), "{dotted}");
    }

    #[rstest]
    #[case::first(0, 15)]
    #[case::second(1, 30)]
    #[case::third(2, 60)]
    #[case::capped(9, 300)]
    #[case::far_beyond(60, 300)]
    fn the_pause_doubles_and_is_capped(#[case] attempts: u32, #[case] seconds: u64) {
        let pause = Policy::default().pause(attempts, 0.0);
        assert_eq!(pause, Duration::from_secs(seconds));
        let spread = Policy::default().pause(attempts, 1.0);
        assert_eq!(spread, Duration::from_secs(seconds).mul_f64(1.1));
    }

    #[test]
    fn the_time_of_a_condition_changes_only_with_its_status() {
        let mut status = Status::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
        status.set(ConditionType::CreateDenied, yes, ("Quota", "a"), at(10));
        status.set(ConditionType::CreateDenied, yes, ("Quota", "b"), at(20));
        let condition = status.condition(ConditionType::CreateDenied).unwrap();
        assert_eq!(condition.last_transition_time, at(10));
        assert_eq!(condition.message, "b");
        status.set(ConditionType::CreateDenied, no, ("", ""), at(30));
        let condition = status.condition(ConditionType::CreateDenied).unwrap();
        assert_eq!(condition.last_transition_time, at(30));
        assert_eq!(status.conditions.len(), 1);
    }
}
