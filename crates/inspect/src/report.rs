//! What `stuck` and `explain` say, as data: the documented, stable form of `-o json` and `-o yaml`.

use jiff::Timestamp;
use serde::Serialize;

/// `apiVersion` of everything here.
pub const API_VERSION: &str = "inspect.belayer.dev/v1alpha1";

/// Everything that hangs in Terminating, grouped by what keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `StuckReport`.
    pub kind: &'static str,
    /// In numbers.
    pub summary: Summary,
    /// One per cause, what can be acted upon first.
    pub groups: Vec<Group>,
    /// What could not be looked at.
    pub unseen: Vec<Unseen>,
}

/// A report in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Objects that hang.
    pub stuck: usize,
    /// Objects that are being deleted and are within their grace, or not old enough.
    pub within_grace: usize,
    /// Kinds that were listed.
    pub kinds: usize,
    /// Objects that were looked at.
    pub objects: u64,
    /// Requests that it took.
    pub requests: u64,
    /// Whether everything could be looked at.
    pub complete: bool,
}

/// Objects that are kept by the same thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Its number in the report, from 1.
    pub number: usize,
    /// What keeps them.
    pub cause: Cause,
    /// The finalizer, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finalizer: Option<String>,
    /// What was found out.
    pub verdict: Verdict,
    /// In one line.
    pub headline: String,
    /// What proves the verdict.
    pub proof: Vec<String>,
    /// What would have to be known for a verdict.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Whose finalizer it is, if it is in the book.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<Known>,
    /// The next safe steps, in order.
    pub next: Vec<Step>,
    /// The objects.
    pub objects: Vec<StuckObject>,
}

/// What keeps an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// An API that does not answer, so that no namespace can be emptied.
    DeadApi,
    /// A webhook that nobody answers and that must agree to every change.
    Webhook,
    /// A finalizer of a controller.
    Finalizer,
    /// A hold of Belayer's.
    Hold,
    /// Dependents that have to go first (foreground deletion).
    Dependents,
    /// What a namespace still contains.
    NamespaceContent,
    /// Pods that use a claim.
    ClaimInUse,
    /// A claim that a volume is bound to.
    VolumeBound,
    /// A volume that is attached to a node.
    VolumeAttached,
    /// Instances of a custom resource's definition.
    Instances,
    /// The node, whose kubelet has to end the pod.
    Node,
    /// Nothing that can be seen.
    Nothing,
}

/// What was found out about a cause. Each but `unknown` stands on the group's `proof`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The API behind an APIService is down.
    ApiDown,
    /// The service behind a webhook has no endpoint.
    WebhookDown,
    /// The controller that takes the finalizer off is not in the cluster any more.
    ControllerGone,
    /// It is there and does not run.
    ControllerDown,
    /// The node does not exist any more.
    NodeGone,
    /// The node exists and its kubelet is silent.
    NodeDown,
    /// A hold of Belayer's, and by which rule.
    HeldByBelayer,
    /// The controller runs and has not let go.
    ControllerAlive,
    /// Not proven either way.
    Unknown,
    /// As it should be: something has to go first, and is still there.
    Waiting,
}

impl Verdict {
    /// In words.
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

/// What the book says of a finalizer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Known {
    /// Whose it is.
    pub owner: String,
    /// What it is for.
    pub guards: String,
    /// What forcing it off loses.
    pub lost_if_forced: String,
    /// Where this is from.
    pub source: String,
}

/// A step, perhaps with a command to copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// What to do and what it brings.
    pub say: String,
    /// How.
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

/// An object that hangs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StuckObject {
    /// `apps/v1`.
    pub api_version: String,
    /// `Deployment`.
    pub kind: String,
    /// `deployments.apps`, as kubectl takes it.
    pub resource: String,
    /// Empty for cluster-scoped kinds.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Since when it is past its grace.
    pub deletion_timestamp: Timestamp,
    /// How long that is, in seconds.
    pub age_seconds: i64,
    /// Who last set the finalizer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_by: Option<Setter>,
    /// What is said of this object alone: who uses it, what it waits for.
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

/// Who set a finalizer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Setter {
    /// The field manager.
    pub manager: String,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
}

/// Something that could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unseen {
    /// A kind, or an API.
    pub resource: String,
    /// `not-allowed` or `failed`.
    pub reason: UnseenReason,
    /// In words.
    pub message: String,
}

/// Why something could not be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnseenReason {
    /// A matter of rights.
    NotAllowed,
    /// The server could not show it.
    Failed,
}

/// How long something has lasted, in the two largest units, as kubectl writes it.
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
