//! The output of `stuck` and `explain` as data: the documented, stable form of `-o json` and `-o
//! yaml`. The [crate's example](crate) reads the first group of one.

use jiff::Timestamp;
use serde::Serialize;

use belayer_core::http::{ErrorClass, RequestError};

use crate::reader::explain;

/// `apiVersion` of everything here.
pub const API_VERSION: &str = "inspect.belayer.dev/v1alpha1";

/// All objects stuck in Terminating, grouped by cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `StuckReport`.
    pub kind: &'static str,
    /// Totals.
    pub summary: Summary,
    /// The only namespace that was read; `None` if all were.
    #[serde(skip)]
    pub namespace: Option<String>,
    /// One per cause; causes that can be acted upon come first.
    pub groups: Vec<Group>,
    /// Kinds and APIs that could not be listed.
    pub unseen: Vec<Unseen>,
}

/// Totals of a report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Stuck objects.
    pub stuck: usize,
    /// Objects that are being deleted and within their grace period.
    pub within_grace: usize,
    /// Stuck objects that are left out by age or labels.
    pub left_out: usize,
    /// Kinds that were listed.
    pub kinds: usize,
    /// Objects that were listed.
    pub objects: u64,
    /// Requests that were sent.
    pub requests: u64,
    /// Whether all kinds could be listed.
    pub complete: bool,
}

/// Objects with the same cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Its number in the report, from 1.
    pub number: usize,
    /// The cause.
    pub cause: Cause,
    /// The finalizer, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finalizer: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// One-line summary.
    pub headline: String,
    /// What proves the verdict.
    pub proof: Vec<String>,
    /// Facts that are missing for a verdict.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Facts about the finalizer, if it is a known one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<Known>,
    /// The next safe steps, in order.
    pub next: Vec<Step>,
    /// The objects.
    pub objects: Vec<StuckObject>,
}

/// Why an object is not deleted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// An API that does not answer: no namespace can be deleted.
    DeadApi,
    /// A webhook without an endpoint that intercepts every change.
    Webhook,
    /// A finalizer of a controller.
    Finalizer,
    /// A hold of Belayer's.
    Hold,
    /// Dependents that must be deleted first (foreground deletion).
    Dependents,
    /// What a namespace still contains.
    NamespaceContent,
    /// Pods that use a PVC.
    ClaimInUse,
    /// A PVC that a volume is bound to.
    VolumeBound,
    /// A volume that is attached to a node.
    VolumeAttached,
    /// Custom resources of a CustomResourceDefinition.
    Instances,
    /// The node, whose kubelet has to terminate the pod.
    Node,
    /// No cause was found.
    Nothing,
}

/// The state of a cause. Every verdict but `unknown` is proven by the group's `proof`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The API behind an APIService is down.
    ApiDown,
    /// The service behind a webhook has no endpoint.
    WebhookDown,
    /// The controller that removes the finalizer does not exist in the cluster.
    ControllerGone,
    /// It exists and does not run.
    ControllerDown,
    /// The node does not exist.
    NodeGone,
    /// The node exists and is not ready.
    NodeDown,
    /// A hold of Belayer's; the proof names the rule.
    HeldByBelayer,
    /// The controller runs and has not removed its finalizer.
    ControllerAlive,
    /// Not proven either way.
    Unknown,
    /// As expected: another object must be deleted first and still exists.
    Waiting,
}

impl Verdict {
    /// The text for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::ApiDown => "API down",
            Self::WebhookDown => "webhook down",
            Self::ControllerGone => "controller gone",
            Self::ControllerDown => "controller down",
            Self::NodeGone => "node gone",
            Self::NodeDown => "node down",
            Self::HeldByBelayer => "held by Belayer",
            Self::ControllerAlive => "controller alive",
            Self::Waiting => "waiting",
            Self::Unknown => "unknown",
        }
    }
}

/// Facts about a known finalizer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Known {
    /// Its controller.
    pub owner: String,
    /// What it is for.
    pub guards: String,
    /// What is lost if it is removed by force.
    pub lost_if_forced: String,
    /// Source of these facts.
    pub source: String,
}

/// A step, optionally with a command to copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// What to do, and its effect.
    pub say: String,
    /// The command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Step {
    /// A step without a command.
    pub fn say(text: impl Into<String>) -> Self {
        Self {
            say: text.into(),
            command: None,
        }
    }

    /// A step with its command.
    pub fn run(text: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            say: text.into(),
            command: Some(command.into()),
        }
    }
}

/// A stuck object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StuckObject {
    /// `apps/v1`.
    pub api_version: String,
    /// `Deployment`.
    pub kind: String,
    /// `deployments.apps`, as kubectl accepts it.
    pub resource: String,
    /// Empty for cluster-scoped kinds.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// When its grace period ended.
    #[cfg_attr(test, schemars(with = "Time"))]
    pub deletion_timestamp: Timestamp,
    /// Time since then, in seconds.
    pub age_seconds: i64,
    /// The manager that last set the finalizer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_by: Option<Setter>,
    /// Details of this object alone: what uses it, what it waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub detail: Vec<String>,
    /// Numbers of the other groups it is in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_in: Vec<usize>,
}

impl StuckObject {
    /// `shop/pods/web-0`, or `nodes/node-1`.
    pub fn place(&self) -> String {
        if self.namespace.is_empty() {
            format!("{}/{}", self.resource, self.name)
        } else {
            format!("{}/{}/{}", self.namespace, self.resource, self.name)
        }
    }
}

/// The manager that set a finalizer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Setter {
    /// The field manager.
    pub manager: String,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<Time>"))]
    pub time: Option<Timestamp>,
}

/// A kind or API that could not be listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Unseen {
    /// A kind, or an API.
    pub resource: String,
    /// `not-allowed` or `failed`.
    pub reason: UnseenReason,
    /// The error, for people.
    pub message: String,
    /// Whether its objects are in no namespace.
    #[serde(skip)]
    pub cluster_scoped: bool,
}

impl Unseen {
    /// What could not be read because of this error.
    pub(crate) fn new(resource: String, error: &RequestError) -> Self {
        Self {
            resource,
            reason: match error.class() {
                ErrorClass::Forbidden | ErrorClass::Unauthorized => UnseenReason::NotAllowed,
                _ => UnseenReason::Failed,
            },
            message: explain(error),
            cluster_scoped: false,
        }
    }
}

/// Why a kind or API could not be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum UnseenReason {
    /// Permission is missing.
    NotAllowed,
    /// The server failed.
    Failed,
}

/// A duration in the units that kubectl uses.
///
/// ```
/// assert_eq!(belayer_inspect::report::age(5400), "90m");
/// ```
pub fn age(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600, seconds / 60);
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 && seconds % 60 != 0 => format!("{minutes}m{}s", seconds % 60),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 48 => format!("{hours}h"),
        () => format!("{days}d"),
    }
}

/// RFC 3339.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[schemars(inline, extend("format" = "date-time"))]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct Time(String);

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(-5, "0s")]
    #[case(119, "119s")]
    #[case(125, "2m5s")]
    #[case(3_600, "60m")]
    #[case(20_000, "5h")]
    #[case(900_000, "10d")]
    fn ages_are_short(#[case] seconds: i64, #[case] expected: &str) {
        assert_eq!(age(seconds), expected);
    }
}
