//! Explanations by Belayer's own components, which the binary passes in as [`Explainer`]s.
//!
//! ```no_run
//! use belayer_inspect::{Inspector, text};
//!
//! # async fn print(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let explanation = Inspector::new(client).explain("pods", "shop", "web-0").await?;
//! let (now, style) = (belayer_core::clock::now(), text::Style::default());
//! println!("{}", text::explanation(&explanation, now, style, &text::Plain));
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Serialize;

use belayer_core::http::RequestError;
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::queries::ReadError;

use crate::known_finalizers::KnownFinalizers;
use crate::reader::{Reader, explain};

/// Belayer, as configured in the binary, and the known finalizers. By default no Belayer is asked.
/// By default [`Inspector`](crate::Inspector) asks none.
#[derive(Default)]
pub struct Belayer {
    /// Its components.
    pub explainers: Vec<Explainer>,
    /// `namespace/name` of its leader election Lease, if leader election is enabled.
    pub lease: Option<String>,
    /// Namespace and name of its gate. It names the Lease of each component, because one that runs in a separate
    /// Deployment has a separate Lease.
    pub gate: Option<ObjectKey>,
    /// The configuration file that was given, for steps that need the same one.
    pub config: Option<String>,
    /// The key of the gate that switches each component's admission policy.
    pub switches: BTreeMap<&'static str, &'static str>,
    /// The known finalizers.
    pub known: Arc<KnownFinalizers>,
}

/// Explains the holds of one component: live reads, its own decision, the matching rule and what is missing.
///
/// Each component provides its own, so this crate depends on none of them.
///
/// Without any, as in the [example](crate::explain), the finalizers are explained as known ones.
pub struct Explainer {
    /// Name of the component.
    pub component: &'static str,
    /// All its finalizers: the configured one, then those of earlier configurations. The same decision applies to
    /// all of them.
    pub holds: &'static [&'static str],
    /// The kinds that it handles.
    pub kinds: Vec<Resource>,
    /// Reads the object and everything its decision depends on, and decides.
    pub explain: Explain,
}

/// See [`Explainer::explain`]. Part of an [`Explainer`].
pub type Explain = Box<dyn Fn(Resource, ObjectKey, Reader) -> Explaining + Send + Sync>;

/// A pending explanation. Returned by an [`Explainer`], for an
/// [explanation](crate::explain).
pub type Explaining = BoxFuture<'static, Result<Explained, ExplainError>>;

/// Why an object cannot be explained. Returned by an [`Explainer`]. The [example](crate::explain)
/// asks no explainer.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// It does not exist.
    #[error("{kind} {key} does not exist")]
    Absent {
        /// Its kind.
        kind: Resource,
        /// Its namespace and name.
        key: ObjectKey,
    },
    /// The configuration does not mention its kind.
    #[error("{key} does not list its kind")]
    NotConfigured {
        /// The key of the configuration.
        key: &'static str,
    },
    /// The default configuration does not select the object, but Belayer runs with another one.
    #[error(
        "the Deployment {deployment} runs with a configuration file: give it with --config FILE"
    )]
    NotTheConfiguration {
        /// `namespace/name`.
        deployment: String,
    },
    /// The object, or another one that the decision depends on, cannot be read. The message names the cause, so that
    /// it is not a source as well.
    #[error("{object}: {}", explain(error))]
    Read {
        /// The object.
        object: String,
        /// The cause.
        error: RequestError,
    },
    /// A live read of the decision failed.
    #[error(transparent)]
    Query(#[from] ReadError),
    /// A request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl Explainer {
    /// An explainer by the function `explain` of a component with this `state`.
    pub fn new<S, F>(
        component: &'static str,
        holds: &'static [&'static str],
        kinds: Vec<Resource>,
        state: S,
        explain: impl Fn(Arc<S>, Resource, ObjectKey, Reader) -> F + Send + Sync + 'static,
    ) -> Self
    where
        S: Send + Sync + 'static,
        F: Future<Output = Result<Explained, ExplainError>> + Send + 'static,
    {
        let state = Arc::new(state);
        Self {
            component,
            holds,
            kinds,
            explain: Box::new(move |kind, key, reader| {
                explain(Arc::clone(&state), kind, key, reader).boxed()
            }),
        }
    }

    /// Whether it handles objects of this kind.
    pub fn is_about(&self, kind: &Resource) -> bool {
        self.kinds.iter().any(|its| its.is_same_kind(kind))
    }
}

/// The explanation of one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// Name of the component.
    pub component: &'static str,
    /// Its hold.
    pub hold: &'static str,
    /// Whether the hold is on the object.
    pub held: bool,
    /// The rule of the component's decision table that matched.
    pub row: Row,
    /// What Belayer does with the object now.
    pub action: Action,
    /// The evidence that would be released on, with `action: release`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// What is missing for the next step, as text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Why the component ignores the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
    /// What happens next, and when.
    pub next: String,
    /// The object is requeued after this time at the latest, in seconds.
    #[serde(rename = "lookAgainSeconds", skip_serializing_if = "Option::is_none")]
    pub requeue_after_seconds: Option<u64>,
    /// Further information, such as the basis of the decision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A rule of a decision table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its number.
    pub number: u8,
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub says: String,
}

/// What Belayer does with an object now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Nothing.
    Nothing,
    /// It keeps the hold.
    Keep,
    /// It adds the hold.
    AddHold,
    /// It removes the hold.
    Release,
    /// It records what must not be lost.
    Record,
    /// It deletes the object.
    Delete,
    /// It writes the object's status.
    WriteStatus,
    /// It creates the pod that the object records.
    CreatePod,
    /// It deletes that pod.
    DeletePod,
    /// It annotates that pod with the reason why it is ignored.
    AnnotatePod,
}

/// The output of `explain` for one object: the documented form of its `-o json` and `-o yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// [`API_VERSION`](crate::report::API_VERSION).
    pub api_version: &'static str,
    /// `Explanation`.
    pub kind: &'static str,
    /// The object.
    pub object: Subject,
    /// The explanations of Belayer's components.
    pub belayer: Vec<Explained>,
    /// Its held pods, if it is a workflow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<HeldPod>,
    /// What blocks its deletion, as in the report of `stuck`; empty if it is not stuck.
    pub groups: Vec<crate::report::Group>,
    /// Finalizers that must be removed when it is deleted; empty if it is stuck.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<Finalizer>,
    /// What could not be determined.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// A held pod of a workflow, and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HeldPod {
    /// Its name.
    pub name: String,
    /// The explanations of the components that hold it.
    pub belayer: Vec<Explained>,
}

/// The object of an explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// End of its grace period; absent if it is not being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<crate::report::Time>"))]
    pub deletion_timestamp: Option<jiff::Timestamp>,
    /// Whether it is past its grace period.
    pub stuck: bool,
}

/// A finalizer of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Finalizer {
    /// Its name.
    pub name: String,
    /// Facts about it, if it is a known one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<crate::report::Known>,
}
