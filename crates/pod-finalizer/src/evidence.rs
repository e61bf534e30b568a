//! Why a pod may go. No variant can be had without its proof (invariant EVIDENCE).

use belayer_core::decision::{self, Reach};
use belayer_core::facts::{Fact, GoneProof, NamespaceState, OwnerState};
use belayer_core::moment::Moment;
use belayer_core::names;
use belayer_core::object::{ResourceVersion, Uid};
use belayer_core::slim::{Labels, ObjectMeta};

use crate::profile::Profile;

/// Why the hold is taken off a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// Row 2: the pod carries the annotation `belayer.dev/release: "true"` at the version the
    /// patch names.
    AdminAsked,
    /// Row 3: the namespace was seen being deleted by a look begun after the pod was seen.
    NamespaceTerminating(NamespaceDeletion),
    /// Row 4: no profile selects the pod at the version the patch names.
    Unselected(NotSelected),
    /// Row 5: the owner's UID is gone, by a live look.
    OwnerGone(GoneProof),
    /// Row 6: the owner has a deletion timestamp, which is never taken back.
    OwnerDeleting(OwnerDeletion),
    /// Row 8: the profile requires an owner and the pod, at the version the patch names, has none.
    NoOwner,
    /// Row 9: the consumer has taken the result.
    Consumed(Consumption),
    /// The profile's `releaseAfter` ran out: the admin's standing order, counted apart.
    ReleaseAfter,
}

impl decision::Evidence for Evidence {
    fn name(&self) -> &'static str {
        match self {
            Self::AdminAsked => "AdminAsked",
            Self::NamespaceTerminating(_) => "NamespaceTerminating",
            Self::Unselected(_) => "Unselected",
            Self::OwnerGone(_) => "OwnerGone",
            Self::OwnerDeleting(_) => "OwnerDeleting",
            Self::NoOwner => "NoOwner",
            Self::Consumed(_) => "Consumed",
            Self::ReleaseAfter => "ReleaseAfter",
        }
    }

    fn reach(&self) -> Reach {
        match self {
            Self::AdminAsked | Self::NamespaceTerminating(_) => Reach::AllOfOurs,
            _ => Reach::OwnHold,
        }
    }
}

/// The names of all kinds of evidence, for metrics that start at zero.
pub const EVIDENCE_NAMES: &[&str] = &[
    "AdminAsked",
    "NamespaceTerminating",
    "Unselected",
    "OwnerGone",
    "OwnerDeleting",
    "NoOwner",
    "Consumed",
    "ReleaseAfter",
];

/// A live look, begun after the pod was seen and no older than the cache, saw the pod's
/// namespace being deleted.
///
/// The cache alone would not do: it may still show a namespace of that name which is long gone,
/// while the pod lives in its successor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceDeletion(Uid);

impl NamespaceDeletion {
    /// The proof, if `fact` gives it for a pod first seen at `pod_seen`.
    pub fn prove(fact: &Fact<NamespaceState>, pod_seen: Moment) -> Option<Self> {
        let meta = present(fact.answer())?;
        (fact.begun() > pod_seen && meta.is_deleting()).then(|| Self(meta.uid.clone()))
    }
}

/// Why no profile selects a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSelected {
    /// By the pod's own labels, or by the names of namespaces in the configuration.
    ByProfiles,
    /// The namespace is left alone, by a live look begun after the pod was seen.
    ByNamespace(Uid),
}

impl NotSelected {
    /// The proof that the pod's namespace carries the label that says to leave it alone.
    pub fn prove_ignored(
        fact: &Fact<NamespaceState>,
        pod_seen: Moment,
        cached: ResourceVersion,
    ) -> Option<Self> {
        let meta = present(fact.answer())?;
        let fresh = fact.begun() > pod_seen && meta.resource_version >= cached;
        (fresh && is_ignored(&meta.labels)).then(|| Self::ByNamespace(meta.uid.clone()))
    }
}

/// Whether a namespace with these labels is left alone.
pub fn is_ignored(labels: &Labels) -> bool {
    labels.get(names::IGNORE_LABEL) == Some("true")
}

/// The owner was seen with a deletion timestamp.
///
/// That is never taken back, so a cache proves it as well as a live look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerDeletion(Uid);

impl OwnerDeletion {
    /// The proof, if `owner` is the object of UID `expected` and is being deleted.
    pub fn prove(owner: &ObjectMeta, expected: &Uid) -> Option<Self> {
        (owner.uid == *expected && owner.is_deleting()).then(|| Self(owner.uid.clone()))
    }
}

/// Who says that the result was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consumption {
    /// A label on the pod, at the version the patch names.
    PodLabel,
    /// The owner finished, by its labels in a live look begun after the pod was seen. A cache
    /// would not do: a retry un-finishes a workflow and gives it new pods.
    OwnerFinished(Uid),
}

impl Consumption {
    /// The proof that the owner `expected` finished, if `fact` gives it.
    pub fn prove_owner_finished(
        fact: &Fact<OwnerState>,
        expected: &Uid,
        pod_seen: Moment,
        profile: &Profile,
    ) -> Option<Self> {
        let OwnerState::Present(owner) = fact.answer() else {
            return None;
        };
        let proven = owner.uid == *expected
            && fact.begun() > pod_seen
            && profile.is_owner_finished(&owner.labels);
        proven.then(|| Self::OwnerFinished(owner.uid.clone()))
    }
}

fn present(state: &NamespaceState) -> Option<&ObjectMeta> {
    match state {
        NamespaceState::Present(meta) => Some(meta),
        NamespaceState::Gone => None,
    }
}
