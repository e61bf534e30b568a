//! The outcome of a pod, as a small durable record: a `PodOutcome`.
//!
//! With it the pod can be released early while its result stays readable. It contains nothing of the pod that could be
//! secret: no arguments, no environment, no output.
//!
//! ```
//! assert_eq!(belayer_pod_finalizer::outcome::crd()["kind"], "CustomResourceDefinition");
//! ```

mod build;
mod crd;
mod record;
mod sweep;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use belayer_core::object::{Resource, Uid};

pub use build::{Built, build};
pub use crd::crd;
pub(crate) use record::NOT_FINAL;
pub use record::{Captured, Outcomes, RecordState, Recorded};
pub use sweep::Sweeper;

/// Label of a record without an owner: when it may be deleted, in seconds since 1970.
pub const EXPIRES_LABEL: &str = "belayer.dev/expires";

/// Label of a record that was written before the outcome was final, because other evidence released the pod.
pub const NOT_FINAL_LABEL: &str = "belayer.dev/not-final";

/// `podoutcomes.belayer.dev`. The [module's example](crate::outcome) has its definition.
pub fn resource() -> Resource {
    Resource::new("belayer.dev", "v1alpha1", "PodOutcome", "podoutcomes")
}

/// The name of the record of a pod, derived from its UID, so that there is one record per UID.
pub(crate) fn name_of(pod: &Uid) -> String {
    format!("pod-{pod}")
}

/// How a pod ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodOutcomeSpec {
    /// Name of the pod.
    pub pod_name: String,
    /// UID of the pod.
    #[serde(rename = "podUID")]
    #[schemars(rename = "podUID")]
    pub pod_uid: String,
    /// Name of the node that the pod was bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// `Succeeded` or `Failed`; another phase if the pod was released before it ended.
    pub phase: String,
    /// Short reason, as in the pod status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Message, as in the pod status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the kubelet accepted the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When its last container ended, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// Whether the end of every container is known. It is false if the node was lost, or if the pod was released before
    /// it ended.
    pub complete: bool,
    /// Exit code of the container `main`. If there is none, or it never ran: that of the first container that failed, or 0
    /// if all have ended with 0. Omitted if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The containers whose end is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_containers: Vec<String>,
    /// Its containers, init containers last.
    #[serde(default)]
    pub containers: Vec<ContainerOutcome>,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerOutcome {
    /// Its name.
    pub name: String,
    /// Its image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Whether it is an init container.
    #[serde(default, skip_serializing_if = "is_false")]
    pub init: bool,
    /// Exit code; omitted if the container never ran or its exit code is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Short reason, as in the pod status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// How often it was restarted.
    #[serde(default)]
    pub restarts: i32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}
