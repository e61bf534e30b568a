//! What Belayer's own components say of an object: the seam at which the binary hands them in.

use futures::future::BoxFuture;
use serde::Serialize;

use belayer_core::object::{ObjectKey, Resource};

use crate::reader::Reader;

/// Belayer, as the binary knows it.
pub struct Belayer {
    /// Its components.
    pub explainers: Vec<Explainer>,
    /// `namespace/name` of the Lease that it leads by, where it elects a leader.
    pub lease: Option<String>,
}

/// Explains the holds of one component: live looks, its own decision, its row and what is missing.
///
/// Each component hands in its own, so that this crate knows none.
pub struct Explainer {
    /// Name of the component.
    pub component: &'static str,
    /// Every name that it may hold an object by: its hold, then those it held by before it was
    /// configured otherwise. All of them go by the same decision.
    pub holds: &'static [&'static str],
    /// The kinds that it is about.
    pub kinds: Vec<Resource>,
    /// Looks at the object of a kind and all that its decision stands on, now, and decides. Fails in words, when
    /// a look failed: nothing can be said then.
    pub explain: Explain,
}

/// See [`Explainer::explain`].
pub type Explain = Box<dyn Fn(Resource, ObjectKey, Reader) -> Explaining + Send + Sync>;

/// An explanation that is under way.
pub type Explaining = BoxFuture<'static, Result<Explained, String>>;

impl Explainer {
    /// Whether it is about objects of this kind.
    pub fn is_about(&self, kind: &Resource) -> bool {
        self.kinds.iter().any(|its| its.is_same_kind(kind))
    }
}

/// What a component says of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// Name of the component.
    pub component: &'static str,
    /// Its hold.
    pub hold: &'static str,
    /// Whether the hold is on the object.
    pub held: bool,
    /// The row of the component's decision table that matched.
    pub row: Row,
    /// What Belayer does about it now.
    pub action: Action,
    /// The evidence that would be released on, with `action: release`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// What is missing for the next step, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Why the component does not care about the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// What happens next, and when.
    pub next: String,
    /// At the latest it is looked at again after this time, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub look_again_seconds: Option<u64>,
    /// What is good to know besides, such as what this is based on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A row of a decision table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its number.
    pub number: u8,
    /// Its name.
    pub name: &'static str,
    /// What it says.
    pub says: String,
}

/// What Belayer does about an object now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// It leaves it as it is.
    Nothing,
    /// It keeps the hold.
    Keep,
    /// It adds the hold.
    AddHold,
    /// It takes the hold off.
    Release,
    /// It writes down what must not be lost.
    Record,
    /// It deletes the object.
    Delete,
    /// It carries the object on by a write to its status.
    WriteStatus,
    /// It creates the pod that the object is the record of.
    CreatePod,
    /// It deletes that pod.
    DeletePod,
    /// It writes on that pod why it is left alone.
    AnnotatePod,
}

/// What `explain` says of one object: the documented form of its `-o json` and `-o yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// As for the report.
    pub api_version: &'static str,
    /// `Explanation`.
    pub kind: &'static str,
    /// The object.
    pub object: Subject,
    /// What Belayer's components say of it.
    pub belayer: Vec<Explained>,
    /// What keeps it, as `stuck` would say; empty while it is not being deleted.
    pub groups: Vec<crate::report::Group>,
    /// Finalizers that will have to go once it is deleted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<Finalizer>,
    /// What could not be found out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// The object of an explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// `v1`.
    pub api_version: String,
    /// `Pod`.
    pub kind: String,
    /// `pods`.
    pub resource: String,
    /// Empty for cluster-scoped kinds.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// When its grace runs out or ran out; nothing while it is not being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<jiff::Timestamp>,
    /// Whether it is past its grace.
    pub stuck: bool,
}

/// A finalizer of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finalizer {
    /// Its name.
    pub name: String,
    /// What the book says of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<crate::report::Known>,
}
