//! What stores and live reads show about the owner of a pod, and whether it has ended.

use std::sync::Arc;
use std::time::Duration;

use crate::argo;
use crate::decision;
use crate::owner::{GoneProof, OwnerDeletion, OwnerQuery, OwnerState};
use crate::view::{Cached, Objects, View};
use belayer_core::informer::Lookup;
use belayer_core::object::{ObjectKey, OwnerReference, Resource};
use belayer_core::queries::LiveAnswer;
use belayer_core::slim::{ObjectMeta, OwnerMeta, Pod};

/// A live read that proved nothing is repeated after this time.
const RECHECK: Duration = Duration::from_secs(30);

/// Why a pod may be released: its owner has ended. [`OwnerEnds`](crate::owned::OwnerEnds) releases
/// with it; the pods are found by [`held_by_owner`](crate::owned::held_by_owner).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndedOwner {
    /// It has a deletion timestamp, which is never taken back.
    Deleting(OwnerDeletion),
    /// Its UID is gone, by a live read.
    Gone(GoneProof),
}

/// The names of the evidence, for metrics that start at zero.
pub const NAMES: &[&str] = &["OwnerDeleting", "OwnerGone"];

impl decision::Evidence for EndedOwner {
    fn name(&self) -> &'static str {
        match self {
            Self::Deleting(_) => "OwnerDeleting",
            Self::Gone(_) => "OwnerGone",
        }
    }
}

/// The kinds of owners that are watched, and their stores. The pods of an owner are found by
/// [`held_by_owner`](crate::owned::held_by_owner).
pub struct OwnerStores<V: View = Cached>(Vec<(Resource, V::Store<OwnerMeta>)>);

impl<V: View> FromIterator<(Resource, V::Store<OwnerMeta>)> for OwnerStores<V> {
    fn from_iter<I: IntoIterator<Item = (Resource, V::Store<OwnerMeta>)>>(kinds: I) -> Self {
        Self(kinds.into_iter().collect())
    }
}

impl<V: View> OwnerStores<V> {
    /// What is known about the controller of `pod`; `None` if it has none, or one of a kind that is not
    /// watched. `answer` is the last answer of a live read.
    pub fn owner_of(
        &self,
        pod: &Pod,
        answer: impl FnOnce(&OwnerQuery) -> Option<LiveAnswer<OwnerState>>,
    ) -> Option<ObservedOwner> {
        let owner = pod.meta.controller.as_ref()?;
        let of_kind = |kind: &Resource| kind.kind == owner.kind && *kind.group == *owner.group();
        let (kind, store) = self.0.iter().find(|(kind, _)| of_kind(kind))?;
        let (key, found) = find_owner(&pod.meta, owner, store);
        let query = OwnerQuery::at(kind.clone(), key, owner.uid.clone());
        Some(ObservedOwner {
            cached: match found {
                Lookup::Found(found) if found.object.meta.uid == owner.uid => {
                    Some(found.object.meta.clone())
                }
                // Another object of that name, none, or unknown: only a live read can show it.
                _ => None,
            },
            answer: answer(&query),
            query,
        })
    }
}

/// The owner of `pod` in the store of its kind, and its key. An owner reference does not show whether the kind is
/// cluster-scoped, the store does. For an owner that is not stored, the live read finds out. Such an
/// owner's pods are found by [`held_by_owner`](crate::owned::held_by_owner).
pub fn find_owner(
    pod: &ObjectMeta,
    owner: &OwnerReference,
    store: &impl Objects<OwnerMeta>,
) -> (ObjectKey, Lookup<OwnerMeta>) {
    let key = ObjectKey::new(Arc::clone(pod.key.shared_namespace()), owner.name.clone());
    let found = store.lookup(&key);
    let may_be_cluster_scoped = match found {
        Lookup::Found(_) => false,
        Lookup::Absent => true,
        Lookup::Unknown => store.is_not_served(),
    };
    if may_be_cluster_scoped {
        let cluster = ObjectKey::cluster(owner.name.clone());
        let found = store.lookup(&cluster);
        if matches!(found, Lookup::Found(_)) {
            return (cluster, found);
        }
    }
    (key, found)
}

/// What is known about a pod's owner. A part of the snapshot of a pod that
/// [`held_by_owner`](crate::owned::held_by_owner) lists.
#[derive(Debug, Clone)]
pub struct ObservedOwner {
    /// The query about it.
    pub query: OwnerQuery,
    /// The owner itself, if the store has the object of its UID.
    pub cached: Option<ObjectMeta>,
    /// The last answer of a live read.
    pub answer: Option<LiveAnswer<OwnerState>>,
}

/// Whether an owner has ended. [`ObservedOwner`](crate::owned::ObservedOwner) says it of the owner
/// of a pod that [`held_by_owner`](crate::owned::held_by_owner) lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerEnd {
    /// It exists and is not being deleted.
    Lives,
    /// It has ended.
    Ended(EndedOwner),
    /// Only a live read can show it.
    Ask {
        /// The query.
        query: OwnerQuery,
        /// Not before this time has passed.
        after: Duration,
    },
}

impl ObservedOwner {
    /// Whether the owner has ended.
    pub fn end(&self) -> OwnerEnd {
        let uid = self.query.uid();
        let deleting = |owner: &ObjectMeta| {
            OwnerDeletion::prove(owner, uid)
                .map(|proof| OwnerEnd::Ended(EndedOwner::Deleting(proof)))
        };
        if let Some(owner) = &self.cached {
            return deleting(owner).unwrap_or(OwnerEnd::Lives);
        }
        let after = match self.answer.as_ref().map(LiveAnswer::answer) {
            Some(OwnerState::Gone(proof)) => {
                return OwnerEnd::Ended(EndedOwner::Gone(proof.clone()));
            }
            Some(OwnerState::Present(owner)) => match deleting(owner) {
                Some(ended) => return ended,
                None => RECHECK,
            },
            Some(OwnerState::Unknown(_)) => RECHECK,
            None => Duration::ZERO,
        };
        let query = self.query.clone();
        OwnerEnd::Ask { query, after }
    }

    /// Whether it is a Workflow that Argo goes on running although it is being deleted: see
    /// [`argo::kept_running_by`].
    pub fn is_kept_running(&self) -> bool {
        let live = match self.answer.as_ref().map(LiveAnswer::answer) {
            Some(OwnerState::Present(owner)) => Some(owner),
            Some(OwnerState::Gone(_) | OwnerState::Unknown(_)) | None => None,
        };
        let owner = self.cached.as_ref().or(live);
        self.query.is_about_a_workflow()
            && owner.is_some_and(|it| argo::kept_running_by(it).is_some())
    }

    /// Whether the owner is in the store and is not being deleted.
    pub fn is_there(&self) -> bool {
        self.end() == OwnerEnd::Lives
    }

    /// A value for tests of decisions.
    #[cfg(any(test, feature = "test-util"))]
    pub fn scripted(owner: ObjectMeta, state: Option<OwnerState>) -> Self {
        let kind = Resource::new("example.com", "v1", "Run", "runs");
        let query = OwnerQuery::about(kind, &owner);
        match state {
            None => Self {
                query,
                cached: Some(owner),
                answer: None,
            },
            Some(state) => Self {
                query,
                cached: None,
                answer: Some(LiveAnswer::scripted(
                    state,
                    belayer_core::logical_time::LogicalTime::now(),
                )),
            },
        }
    }
}
