//! The API type `PodRecreation`, the record of a pod and its re-creations. Together these pods are
//! a *chain*: they have the same name, and each replaces one that its node rejected. The [crate's
//! example](crate) names a record, and computes a pause by the default policy.

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

/// The kind. Its records are named as in the [crate's example](crate).
pub fn resource() -> Resource {
    Resource::new(GROUP, VERSION, KIND, PLURAL)
}

/// The pod to create and the policy. Immutable. A record contains it, beside the
/// [`Policy`] of the [crate's example](crate).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Name of every pod of the chain.
    pub pod_name: String,
    /// UID of the first pod, the one the user created.
    #[serde(rename = "firstUID")]
    pub first_uid: String,
    /// The policy at the time of the record's creation.
    pub policy: Policy,
    /// The pod to create: labels, annotations, owner references and spec.
    pub pod: Value,
}

/// How often, how fast, and under which conditions a pod is re-created. The [crate's
/// example](crate) names a record, and computes a pause by the default policy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Policy {
    /// Maximum number of re-creations: 3 means at most four pods.
    pub max_retries: u32,
    /// Pause before the first re-creation, in seconds.
    pub backoff_seconds: u32,
    /// How the pause grows. Records of earlier versions do not have it; the pause of their pods grows as by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Growth>,
    /// Whether the node must be wiped of the rejected pod first.
    pub wipe: Wipe,
    /// How long Belayer waits for the wipe, in seconds.
    pub wipe_timeout_seconds: u32,
    /// What happens when the wipe takes longer.
    pub on_wipe_timeout: OnWipeTimeout,
    /// Whether re-created pods are kept away from nodes that rejected an earlier pod of the chain.
    pub avoid_rejected_node: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_retries: 3,
            backoff_seconds: 15,
            backoff: None,
            wipe: Wipe::None,
            wipe_timeout_seconds: 120,
            on_wipe_timeout: OnWipeTimeout::Proceed,
            avoid_rejected_node: false,
        }
    }
}

/// How the pause before a re-creation grows. A record contains it, beside the
/// [`Policy`] of the [crate's example](crate).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Growth {
    /// Multiplier of each further pause; 1 keeps it constant.
    pub factor: f64,
    /// The longest pause, in seconds, without jitter.
    pub max_seconds: u32,
    /// The largest part of a pause that is added to it at random, from 0 to 1.
    pub jitter: f64,
}

impl Default for Growth {
    fn default() -> Self {
        Self {
            factor: 2.0,
            max_seconds: 300,
            jitter: 0.1,
        }
    }
}

impl Policy {
    /// The pause before a re-creation that follows `attempts` others. `spread`, from 0 to 1, selects the jitter, so
    /// that pods that were rejected together are not re-created together.
    pub fn pause(&self, attempts: u32, spread: f64) -> Duration {
        let growth = self.backoff.unwrap_or_default();
        let longest = f64::from(growth.max_seconds);
        // A record may contain any number, and `min` also replaces one that is not a number.
        let grown = f64::from(self.backoff_seconds) * growth.factor.powf(attempts.into());
        let base = grown.min(longest).max(0.0);
        let jitter = base * growth.jitter.clamp(0.0, 1.0) * spread.clamp(0.0, 1.0);
        Duration::try_from_secs_f64(base + jitter).unwrap_or(Duration::from_secs(300))
    }
}

/// Whether the node agent must first remove the files of a rejected pod from its node. Part of the
/// status of a record, which the rules of [`row`](crate::row) write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wipe {
    /// It need not.
    #[default]
    None,
    /// The condition `StateWiped` must be true before the pod is deleted.
    Required,
}

/// What happens when the wipe takes too long. A record contains it, beside the
/// [`Policy`] of the [crate's example](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnWipeTimeout {
    /// The pod is re-created, but never again on that node.
    #[default]
    Proceed,
    /// The pod is not re-created.
    Fail,
}

/// The progress. Only the controller writes it, except the condition `StateWiped`, which the node
/// agent writes. Part of the status of a record, which the rules of [`row`](crate::row) write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The state of the state machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Number of reserved attempts: incremented before each create.
    pub attempts: u32,
    /// Pods of the chain that exist or existed, including the first.
    pub pod_starts: u32,
    /// Number of re-created pods.
    pub pod_recreated: u32,
    /// When a read showed that the rejected pod does not exist any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_deletion_time: Option<Timestamp>,
    /// UID of the pod that was rejected last.
    #[serde(rename = "rejectedUID", skip_serializing_if = "Option::is_none")]
    pub rejected_uid: Option<String>,
    /// UID of the pod that was re-created last.
    #[serde(rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// The node that rejected it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Nodes on which no further pod may run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub avoid_nodes: Vec<String>,
    /// Why the node rejected it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the record ended, or what blocks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the record ended; it is deleted some time later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Labels, annotations and owner references of the pod to create, if they have changed since the record was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_metadata: Option<Value>,
    /// The generation of the spec to which this status refers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions, by [`ConditionType`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A state of the state machine. Part of the status of a record, which the rules of
/// [`row`](crate::row) write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum Phase {
    /// The pod was rejected, and is not changed.
    Rejected,
    /// Belayer deletes the rejected pod.
    Deleting,
    /// The rejected pod does not exist any more; the pause before the next attempt runs.
    Waiting,
    /// An attempt is reserved; Belayer creates its pod.
    Creating,
    /// The pod was re-created and has not started yet.
    Recreated,
    /// Final: the pod has started.
    Started,
    /// Final: every allowed re-creation was rejected.
    Exhausted,
    /// Final: any other end; `message` gives the reason.
    Ended,
}

impl Phase {
    /// Its name in the API.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether the record has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Started | Self::Exhausted | Self::Ended)
    }
}

/// The condition types that Belayer uses. Others are not changed. Part of the status of a record,
/// which the rules of [`row`](crate::row) write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr)]
pub enum ConditionType {
    /// A pod of the chain was rejected, and its re-creation is pending.
    PodRejected,
    /// The node has no files of the rejected pod. Set by the node agent, or if the node does not exist.
    StateWiped,
    /// A pod was re-created.
    Recreated,
    /// A pod of the chain has started.
    Started,
    /// The limit of re-creations is reached.
    Exhausted,
    /// The API server denies the create of the pod.
    CreateDenied,
    /// The pod of the last attempt keeps its hold until the record names it, even during a drain. So if it does not
    /// exist it was never created (R5). Earlier versions did not ensure that. It is a condition because the CRD of an
    /// earlier version would prune an unknown field.
    HoldKept,
    /// The record has ended, and not because every allowed re-creation was rejected. For tools that know no phases.
    Ready,
    /// Nothing changes until its cause is removed. For tools that know no phases.
    Stalled,
}

impl ConditionType {
    /// Its name in the API.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A condition in the format of the Kubernetes API. Part of the status of a record, which the
/// rules of [`row`](crate::row) write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// A [`ConditionType`], or a type of another client.
    pub r#type: String,
    /// Whether it is true.
    pub status: ConditionStatus,
    /// The reason, in CamelCase.
    #[serde(default)]
    pub reason: String,
    /// The message.
    #[serde(default)]
    pub message: String,
    /// When its status last changed.
    pub last_transition_time: Timestamp,
}

/// The status of a condition. Part of the status of a record, which the rules of
/// [`row`](crate::row) write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It is true.
    True,
    /// It is false.
    False,
    /// It is unknown.
    Unknown,
}

impl ConditionStatus {
    /// `True` or `False`.
    pub fn of(is_true: bool) -> Self {
        if is_true { Self::True } else { Self::False }
    }
}

impl Status {
    /// The condition of this type.
    pub fn condition(&self, wanted: ConditionType) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.r#type == wanted.as_str())
    }

    /// Whether the condition is true.
    pub fn is_true(&self, wanted: ConditionType) -> bool {
        self.condition(wanted)
            .is_some_and(|condition| condition.status == ConditionStatus::True)
    }

    /// The status but for what the denial of a create changes.
    pub(crate) fn without_denial(&self) -> Self {
        let changed = [
            ConditionType::CreateDenied,
            ConditionType::Ready,
            ConditionType::Stalled,
        ];
        let mut status = self.clone();
        status
            .conditions
            .retain(|condition| changed.iter().all(|one| condition.r#type != one.as_str()));
        status
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

    /// Sets the conditions `Ready` and `Stalled`, which follow from the rest of the status. By them kstatus, and so Flux
    /// and `helm --wait`, knows how far a record is, and `kubectl wait --for=condition=Ready` waits for it.
    pub fn summarize(&mut self, now: Timestamp) {
        let Some(phase) = self.phase else { return };
        let denied = self
            .condition(ConditionType::CreateDenied)
            .filter(|condition| condition.status == ConditionStatus::True && !phase.is_final());
        let (reason, message) = match denied {
            Some(condition) => (condition.r#type.clone(), condition.message.clone()),
            None => (
                phase.as_str().to_owned(),
                self.message.clone().unwrap_or_default(),
            ),
        };
        let is_ready = matches!(phase, Phase::Started | Phase::Ended);
        let is_stalled = denied.is_some() || phase == Phase::Exhausted;
        for (condition, is_true) in [
            (ConditionType::Ready, is_ready),
            (ConditionType::Stalled, is_stalled),
        ] {
            let status = ConditionStatus::of(is_true);
            self.set(condition, status, (&reason, &message), now);
        }
    }
}

/// Rounds down to whole seconds, because the API stores no fractions. That shortens a pause by less than a second.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Longest name of an object.
const NAME_LIMIT: usize = 253;

/// Number of characters of the first pod's UID in the name.
const UID_PART: usize = 8;

/// The name of the record of a chain: `<pod>-<first 8 characters of the first pod's UID>`. A long
/// pod name is cut. The [crate's example](crate) names a record, and computes a pause by the
/// default policy.
pub fn record_name(pod: &str, first_uid: &str) -> String {
    let uid: String = first_uid.chars().take(UID_PART).collect();
    let room = NAME_LIMIT - UID_PART - 1;
    let cut = &pod[..pod.floor_char_boundary(room)];
    format!("{}-{uid}", cut.trim_end_matches(['-', '.']))
}

/// Whether a record of this name can belong to a chain of pods with the name `pod`: whether [`record_name`] returns it.
/// Users can write any name into the annotation of a pod.
///
/// ```
/// use belayer_pod_recreation::api::is_name_for;
///
/// assert!(is_name_for("web-0a1b2c3d", "web"));
/// assert!(!is_name_for("web-a/b", "web"));
/// ```
pub fn is_name_for(record: &str, pod: &str) -> bool {
    let is_of_uid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let part = record.strip_prefix(&record_name(pod, ""));
    part.is_some_and(|uid| (1..=UID_PART).contains(&uid.len()) && uid.bytes().all(is_of_uid))
}

#[cfg(test)]
mod tests;
