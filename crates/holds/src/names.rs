//! Names that several components share. A finalizer, label or annotation is Belayer's only if it is listed
//! here (invariant FOREIGN).
//!
//! ```
//! use belayer_holds::names;
//!
//! assert!(names::POD_HOLDS.contains(&names::POD_STATUS_HOLD));
//! ```

use belayer_core::object::Resource;

/// User agent of every request. Servers use it as the default field manager.
pub const USER_AGENT: &str = concat!("belayer/", env!("CARGO_PKG_VERSION"));

/// The hold of pod-finalizer on pods, one for all profiles.
pub const POD_STATUS_HOLD: &str = "belayer.dev/pod-status";

/// The hold of pod-recreation on pods, from their creation until they start.
pub const POD_RECREATION_HOLD: &str = "belayer.dev/pod-recreation";

/// All of Belayer's holds on pods.
pub const POD_HOLDS: &[&str] = &[POD_STATUS_HOLD, POD_RECREATION_HOLD];

/// Annotation with which a user requests the re-creation of a pod that its node rejects; value `"true"`.
pub const RECREATE_ANNOTATION: &str = "belayer.dev/recreate";

/// Annotation with which a user requests that the files of a rejected pod are removed from its node first; value
/// `"true"`.
pub const WIPE_ANNOTATION: &str = "belayer.dev/wipe";

/// Annotation of a re-created pod: the name of its `PodRecreation`.
pub const RECREATION_ANNOTATION: &str = "belayer.dev/recreation";

/// Annotation of a re-created pod: the UID of its `PodRecreation`.
pub const RECREATION_UID_ANNOTATION: &str = "belayer.dev/recreation-uid";

/// Annotation of a re-created pod: which attempt it is, from 1.
pub const RECREATION_ATTEMPT_ANNOTATION: &str = "belayer.dev/recreation-attempt";

/// Annotation of a rejected pod that is kept: why it is not re-created.
pub const RECREATION_ENDED_ANNOTATION: &str = "belayer.dev/recreation-ended";

/// The hold of pvc-protection on PVCs if it runs alongside Kubernetes' own controller.
pub const PVC_PROTECTION_HOLD: &str = "belayer.dev/pvc-protection";

/// The finalizer of Kubernetes' own controller on PVCs, and of pvc-protection if it replaces that controller.
/// The kubelet mounts a PVC that is being deleted only while it has this finalizer.
pub const KUBERNETES_PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";

/// The hold of workflow-finalizer on workflows of any kind.
pub const WORKFLOW_HOLD: &str = "belayer.dev/workflow-cleanup";

/// A controller, in this build or not; one of [all](crate::names::CONTROLLERS).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// Its finalizer. A drain removes it.
    pub finalizer: &'static str,
    /// The key of the Gate that switches the admission policy for that finalizer.
    pub switch: &'static str,
}

/// Every controller that exists.
///
/// ```
/// use belayer_holds::names;
///
/// let mut known = names::CONTROLLERS.iter();
/// assert!(known.any(|controller| controller.name == "pod-finalizer"));
/// ```
pub const CONTROLLERS: &[Known] = &[
    Known {
        name: "pod-finalizer",
        finalizer: POD_STATUS_HOLD,
        switch: "hold",
    },
    Known {
        name: "workflow-finalizer",
        finalizer: WORKFLOW_HOLD,
        switch: "holdWorkflows",
    },
    Known {
        name: "pod-recreation",
        finalizer: POD_RECREATION_HOLD,
        switch: "holdRecreations",
    },
    Known {
        name: "pvc-protection",
        finalizer: PVC_PROTECTION_HOLD,
        switch: "holdClaims",
    },
];

/// The finalizers that Belayer's controllers add, in this build or not: those of [`CONTROLLERS`].
///
/// ```
/// use belayer_holds::names;
///
/// assert!(names::holds().any(|name| name == names::WORKFLOW_HOLD));
/// ```
pub fn holds() -> impl Iterator<Item = &'static str> {
    CONTROLLERS.iter().map(|controller| controller.finalizer)
}

/// Annotation with which an admin requests the release of an object; value `"true"`.
pub const RELEASE_ANNOTATION: &str = "belayer.dev/release";

/// Label of a namespace whose objects Belayer ignores; value `"true"`.
pub const IGNORE_LABEL: &str = "belayer.dev/ignore";

/// The namespace that Belayer always ignores.
pub const SYSTEM_NAMESPACE: &str = "kube-system";

/// Annotation of the kubelet on the mirror pod of a static pod.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Belayer's default namespace.
pub const DEFAULT_NAMESPACE: &str = "belayer-system";

/// The Gate that is the parameter of the admission policies.
pub const GATE: &str = "belayer-gate";

/// The key of that Gate that says whether Belayer is draining.
pub const GATE_MODE: &str = "mode";

/// The value of [`GATE_MODE`] that stops new holds.
pub const GATE_DRAINING: &str = "draining";

/// The key of that Gate with which a drain that left no hold lets Belayer's namespace and CRDs be deleted; value
/// `"true"`. It counts only while the mode is [`GATE_DRAINING`].
pub const GATE_DRAINED: &str = "drained";

/// The prefix of the keys of that Gate that name, for a switch, the Lease of the leader that turned it on.
pub const GATE_LEASE_PREFIX: &str = "lease.";

/// The policies that limit what Belayer's account writes: of pods, and of the other kinds that it holds.
pub const WRITE_POLICIES: [&str; 2] = ["belayer-pod-writes", "belayer-owner-writes"];

/// The policy that guards Belayer's namespace and CRDs, and its binding.
pub const NAMESPACE_GUARD: &str = "belayer-namespace-guard";

/// An annotation of [`WRITE_POLICIES`]: the only namespaces, with commas, in which the policies of the installation add
/// finalizers. Then permissions in these namespaces suffice to remove them.
pub const NAMESPACES_ANNOTATION: &str = "belayer.dev/namespaces";

/// The one of [`WRITE_POLICIES`] that limits what Belayer's account writes to objects of this kind.
///
/// ```
/// use belayer_core::object::Resource;
/// use belayer_holds::names;
///
/// assert_eq!(names::write_policy(&Resource::pods()), "belayer-pod-writes");
/// ```
#[must_use]
pub fn write_policy(kind: &Resource) -> &'static str {
    let [of_pods, of_others] = WRITE_POLICIES;
    if *kind == Resource::pods() {
        of_pods
    } else {
        of_others
    }
}

/// The prefix of the keys of that Gate that close single namespaces; the namespace's name follows. No
/// hold is added to pods there.
pub const GATE_CLOSED_PREFIX: &str = "closed.";

/// The value of such a key if the backlog closed the namespace; any other value was set by an admin.
pub const GATE_CLOSED_BY_BACKLOG: &str = "backlog";

/// The key of that Gate with which the backlog closes the whole cluster: no hold is added to any pod.
pub const GATE_BACKLOG: &str = "backlog";

/// The value of [`GATE_BACKLOG`] while it is closed.
pub const GATE_BACKLOG_CLOSED: &str = "closed";

/// Reason of the Event on that Gate, or on Belayer's own namespace, that too many objects are unselected and
/// are therefore not released.
pub const HELD_BACK: &str = "MassReleaseHeldBack";

/// How these objects are released if the change was intended. Without its configuration, the default one would decide
/// what Belayer no longer selects.
pub const RELEASE_UNSELECTED: &str = "`belayer drain --unselected --config FILE` releases them; FILE is the configuration that \
                                      Belayer runs with, left out if it runs without one";

/// Belayer's name in requests: `fieldManager`, user agent, event source.
pub const FIELD_MANAGER: &str = "belayer";
