//! Names that several components share. A finalizer, label or annotation is *ours* only if it
//! stands here (invariant FOREIGN).

/// The hold of pod-finalizer on pods, one for all profiles.
pub const POD_STATUS_HOLD: &str = "belayer.dev/pod-status";

/// The hold of pod-recreation on pods, from their creation until they start.
pub const POD_RECREATION_HOLD: &str = "belayer.dev/pod-recreation";

/// All holds of ours that can be on a pod.
pub const POD_HOLDS: &[&str] = &[POD_STATUS_HOLD, POD_RECREATION_HOLD];

/// Annotation by which a user asks that a pod be re-created if its node rejects it: `"true"` counts.
pub const RECREATE_ANNOTATION: &str = "belayer.dev/recreate";

/// Annotation by which a user asks that a node be wiped of a rejected pod first: `"true"` counts.
pub const WIPE_ANNOTATION: &str = "belayer.dev/wipe";

/// Annotation of a re-created pod: the name of its `PodRecreation`.
pub const RECREATION_ANNOTATION: &str = "belayer.dev/recreation";

/// Annotation of a re-created pod: the UID of its `PodRecreation`.
pub const RECREATION_UID_ANNOTATION: &str = "belayer.dev/recreation-uid";

/// Annotation of a re-created pod: which attempt it is, from 1.
pub const RECREATION_ATTEMPT_ANNOTATION: &str = "belayer.dev/recreation-attempt";

/// Annotation of a rejected pod that stays: why it is not re-created (any more).
pub const RECREATION_ENDED_ANNOTATION: &str = "belayer.dev/recreation-ended";

/// The hold of pvc-protection on claims where it runs beside Kubernetes' own controller.
pub const PVC_PROTECTION_HOLD: &str = "belayer.dev/pvc-protection";

/// The hold of Kubernetes' own controller on claims, and of pvc-protection where it replaces that.
/// The kubelet mounts a claim that is being deleted only while this is on it.
pub const KUBERNETES_PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";

/// The hold of workflow-finalizer on workflows, whatever kind they are of.
pub const WORKFLOW_HOLD: &str = "belayer.dev/workflow-cleanup";

/// All holds of ours that can be on an owner of pods.
pub const OWNER_HOLDS: &[&str] = &[WORKFLOW_HOLD];

/// Annotation by which an admin asks to let an object go: the value `"true"` counts.
pub const RELEASE_ANNOTATION: &str = "belayer.dev/release";

/// Label on a namespace whose objects are left alone: the value `"true"` counts.
pub const IGNORE_LABEL: &str = "belayer.dev/ignore";

/// The namespace that is never touched.
pub const SYSTEM_NAMESPACE: &str = "kube-system";

/// Annotation of the kubelet on the API's mirror of a static pod.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The namespace Belayer runs in, unless it is told another.
pub const DEFAULT_NAMESPACE: &str = "belayer-system";

/// The ConfigMap that the admission policies take as their parameter.
pub const GATE_CONFIG_MAP: &str = "belayer-gate";

/// The key of that ConfigMap that says whether Belayer is drained.
pub const GATE_MODE: &str = "mode";

/// The value of [`GATE_MODE`] that stops new holds.
pub const GATE_DRAINING: &str = "draining";

/// The prefix of the keys of that ConfigMap that close single namespaces; the namespace's name follows. No
/// hold is added to pods there.
pub const GATE_CLOSED_PREFIX: &str = "closed.";

/// The value of such a key if the backlog closed the namespace; any other value is an admin's.
pub const GATE_CLOSED_BY_BACKLOG: &str = "backlog";

/// The key of that ConfigMap that says that the backlog closed the whole cluster: no hold is added to any pod.
pub const GATE_BACKLOG: &str = "backlog";

/// The value of [`GATE_BACKLOG`] while it is closed.
pub const GATE_BACKLOG_CLOSED: &str = "closed";

/// Reason of the Event by which Belayer reports, on that ConfigMap or on its own namespace, that unselected
/// objects are kept because they are too many.
pub const HELD_BACK: &str = "MassReleaseHeldBack";

/// Name that Belayer writes under: `fieldManager`, user agent, event source.
pub const FIELD_MANAGER: &str = "belayer";
