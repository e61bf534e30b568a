//! Profiles: which pods are held, for which consumer, and what shows that their result was read.
//!
//! A pod belongs to the *first* profile that selects it. All profiles share one finalizer, so a
//! pod may move from one profile to another without a write.
//!
//! The [crate's example](crate) finds the profile of a pod.

pub mod argo;
pub mod config;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use belayer_core::object::{OwnerReference, Resource};
use belayer_core::slim::Labels;
use belayer_holds::names::SYSTEM_NAMESPACE;

use crate::status::ConsumedWhen;

pub use belayer_holds::selection::{
    InvalidLabel, MatchLabels, MaxUnselected, Namespaces, Operator, ParseMaxUnselectedError,
    Requirement, Selector,
};

/// The kind whose objects own a profile's pods, by an owner reference with `controller: true`.
/// Part of a [`Profile`], of which the [crate's example](crate) has one.
pub type OwnerKind = Resource;

/// The settings for the pods of one consumer. The [crate's example](crate) has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Unique among the profiles.
    pub name: Arc<str>,
    /// Whether it writes, or only observes.
    pub mode: Mode,
    /// The labels of its pods.
    pub selector: Selector,
    /// The namespaces of its pods.
    pub namespaces: Namespaces,
    /// The kind that owns its pods; `None` if their owners do not show whether the result was read.
    pub owner: Option<OwnerKind>,
    /// Pod labels by which the consumer shows that it has read the result.
    pub consumed: MatchLabels,
    /// Labels of the owner that show that it has finished and read all results it needs.
    pub owner_finished: MatchLabels,
    /// How long after its grace period a deleted pod is released without any evidence. Off by default: an admin who sets
    /// it accepts lost results.
    pub release_after: Option<Duration>,
    /// Whether the owner's own status is read for fulfilled nodes.
    pub owner_status: OwnerStatus,
    /// An expression over the owner that shows that the results of its pods were read.
    pub consumed_when: Option<ConsumedWhen>,
    /// Finalizers of other controllers that Belayer removes together with its own, on the same evidence.
    pub adopt: Box<[Arc<str>]>,
    /// Whether the outcome of its pods is recorded.
    pub capture: bool,
    /// What its consumer reads: the pod, or a record of its outcome.
    pub consumer: Consumer,
    /// Whether a pod of Argo Workflows that was deleted while it ran is held until Argo has read how
    /// the deletion ended it.
    pub deleted_while_running: DeletedWhileRunning,
    /// How long a pod of Argo Workflows is held after its node was found lost.
    pub node_lost_delay: Duration,
    /// Whether its released pods are deleted when their annotation requires it.
    pub cleanup: Cleanup,
}

/// Whether the owner's own status counts as evidence. Part of a
/// [`Profile`], of which the [crate's example](crate) has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OwnerStatus {
    /// It does not.
    #[default]
    None,
    /// It is that of Argo Workflows.
    Argo,
}

/// What the consumer of a profile's pods reads. Part of a [`Profile`], of
/// which the [crate's example](crate) has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Consumer {
    /// The pods. A record of an outcome releases nothing.
    #[default]
    Pod,
    /// The records: a pod is released once its record is written (rule 11). Never with Argo Workflows, which
    /// reads only pods.
    PodOutcome,
}

/// What happens to a pod of Argo Workflows that was deleted while it ran. Part of a
/// [`Profile`], of which the [crate's example](crate) has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DeletedWhileRunning {
    /// It is released once it has ended: Argo finds what it would find without Belayer, a pod that
    /// was deleted.
    #[default]
    Release,
    /// It is held until Argo has read how the deletion ended it.
    Hold,
}

/// Whether released pods are deleted. Part of a [`Profile`], of which the
/// [crate's example](crate) has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cleanup {
    /// They are not.
    #[default]
    None,
    /// They are, when the annotation of Argo Workflows requires it.
    Argo,
}

/// Whether a profile writes. Part of a [`Profile`], of which the [crate's
/// example](crate) has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Holds and releases.
    #[default]
    Enforce,
    /// Decides and reports, writes nothing.
    Observe,
}

impl Mode {
    /// As the configuration spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Profile {
    /// Whether it selects a pod with these labels in this namespace.
    pub fn selects(&self, labels: &Labels, namespace: &str) -> bool {
        self.namespaces.contains(namespace) && self.selector.matches(labels)
    }

    /// Whether these labels of one of its pods show that the consumer has read the result.
    pub fn is_consumed(&self, pod: &Labels) -> bool {
        self.consumed.found_in(pod)
    }

    /// Whether these labels of an owner show that it has finished.
    pub fn is_owner_finished(&self, owner: &Labels) -> bool {
        self.owner_finished.found_in(owner)
    }

    /// An effect that an admin may not expect, for the log and for `belayer check`.
    pub fn advice(&self) -> Option<String> {
        (self.is_argo() && self.capture).then(|| {
            format!(
                "profile {}: `capture: true` records outcomes and releases no pod: Argo Workflows \
                 reads pods, never a PodOutcome",
                self.name
            )
        })
    }

    /// Whether its pods can be released by anything other than an admin, the deletion of a namespace, or `releaseAfter`.
    fn can_release(&self) -> bool {
        self.owner.is_some() || !self.consumed.is_empty() || self.consumer == Consumer::PodOutcome
    }

    /// Whether its pods are steps of Argo Workflows.
    pub fn is_argo(&self) -> bool {
        self.owner.as_ref().is_some_and(argo::is_workflow) || self.owner_status == OwnerStatus::Argo
    }
}

/// Whether an owner is of this kind. Versions of one group and kind are the same objects.
pub(crate) fn is_of_kind(owner: &OwnerReference, kind: &Resource) -> bool {
    owner.kind == kind.kind && *owner.group() == *kind.group
}

/// The profiles in force, in order. The [crate's example](crate) finds the profile of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profiles(Arc<[Arc<Profile>]>);

/// Why profiles are not valid. Returned when [profiles](crate) are made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfilesError {
    /// There is none.
    #[error(
        "the list of profiles is empty: remove the key `profiles` to get the built-in profile for Argo"
    )]
    Empty,
    /// Two have one name.
    #[error("two profiles are called {name:?}: profile names must be unique")]
    DuplicateName {
        /// Position of the second one, from 0.
        index: usize,
        /// Their name.
        name: Arc<str>,
    },
    /// Nothing could ever release its pods.
    #[error(
        "nothing could ever release the pods of profile {name:?}: \
         name the `owner` kind, or the `consumed` labels that its consumer sets, \
         or set `capture: true` with `consumer: podOutcome`"
    )]
    NothingReleases {
        /// Its position, from 0.
        index: usize,
        /// Its name.
        name: Arc<str>,
    },
    /// Every pod that it selects counts as consumed, so it would never hold one.
    #[error(
        "every pod that profile {name:?} selects counts as consumed already: \
         `consumed` must name a label that the consumer sets later"
    )]
    AlwaysConsumed {
        /// Its position, from 0.
        index: usize,
        /// Its name.
        name: Arc<str>,
    },
}

impl Profiles {
    /// Checks profiles; the order is kept.
    ///
    /// # Errors
    /// If there is none, if two have the same name, or if one is invalid.
    pub fn new(profiles: impl IntoIterator<Item = Profile>) -> Result<Self, ProfilesError> {
        let profiles: Vec<Arc<Profile>> = profiles.into_iter().map(Arc::new).collect();
        if profiles.is_empty() {
            return Err(ProfilesError::Empty);
        }
        let mut names = BTreeSet::new();
        for (index, profile) in profiles.iter().enumerate() {
            let name = || profile.name.clone();
            if !names.insert(&profile.name) {
                return Err(ProfilesError::DuplicateName {
                    index,
                    name: name(),
                });
            }
            if !profile.can_release() {
                return Err(ProfilesError::NothingReleases {
                    index,
                    name: name(),
                });
            }
            if profile.selector.implies(&profile.consumed) {
                return Err(ProfilesError::AlwaysConsumed {
                    index,
                    name: name(),
                });
            }
        }
        Ok(Self(profiles.into()))
    }

    /// The built-in profile for Argo Workflows, alone.
    pub fn argo() -> Self {
        Self(Arc::new([Arc::new(argo::profile())]))
    }

    /// The first profile that selects a pod. Pods in `kube-system` are never selected.
    ///
    /// The caller must check what the pod's labels do not show: mirror pods, and namespaces with the ignore label.
    pub fn first_match(&self, pod: &Labels, namespace: &str) -> Option<&Arc<Profile>> {
        if namespace == SYSTEM_NAMESPACE {
            return None;
        }
        self.0
            .iter()
            .find(|profile| profile.selects(pod, namespace))
    }

    /// The profiles, configured or built in, whose kind of owner is that of this controller.
    pub fn owning(&self, controller: &OwnerReference) -> Vec<Arc<Profile>> {
        let built_in = Self::argo();
        let all = self.iter().chain(built_in.iter());
        let owns = |profile: &&Arc<Profile>| {
            let owner = profile.owner.as_ref();
            owner.is_some_and(|kind| is_of_kind(controller, kind))
        };
        all.filter(owns).cloned().collect()
    }

    /// The profile of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Profile>> {
        self.0.iter().find(|profile| *profile.name == *name)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Profile>> {
        self.0.iter()
    }

    /// The kinds that own pods of any profile: the informers to run.
    pub fn owners(&self) -> BTreeSet<&OwnerKind> {
        self.0
            .iter()
            .filter_map(|profile| profile.owner.as_ref())
            .collect()
    }

    /// The labels of pods that any profile reads: what the pod informer has to keep.
    pub fn pod_labels(&self) -> BTreeSet<&str> {
        let component = self.iter().any(|profile| profile.is_argo());
        self.0
            .iter()
            .flat_map(|profile| profile.selector.names().chain(profile.consumed.names()))
            .chain(component.then_some(argo::COMPONENT_LABEL))
            .collect()
    }

    /// The labels that any profile reads on owners of this kind: what their informer has to keep.
    pub fn owner_labels(&self, owner: &OwnerKind) -> BTreeSet<&str> {
        self.0
            .iter()
            .filter(|profile| profile.owner.as_ref() == Some(owner))
            .flat_map(|profile| {
                let phase = (profile.cleanup == Cleanup::Argo).then_some(argo::PHASE_LABEL);
                profile.owner_finished.names().chain(phase)
            })
            .collect()
    }

    /// The finalizers that any profile adopts.
    pub fn adopted(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().flat_map(|profile| &profile.adopt)
    }

    /// The annotations of pods that any profile reads.
    pub fn pod_annotations(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        for profile in self.iter() {
            if profile.owner_status == OwnerStatus::Argo {
                names.extend([crate::status::NODE_ID, crate::status::NODE_NAME]);
            }
            if profile.cleanup == Cleanup::Argo {
                names.insert(crate::cleanup::POD_GC_STRATEGY);
            }
        }
        names
    }

    /// Whether any profile records outcomes.
    pub fn capture(&self) -> bool {
        self.iter().any(|profile| profile.capture)
    }
}

#[cfg(test)]
mod tests;
