//! Builds a snapshot from stores and cached live reads, without I/O and without decisions.

use std::sync::Arc;
use std::time::Duration;

use belayer_core::informer::{Lookup, Stored};
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, OwnerReference, Resource, Uid};
use belayer_core::slim::{ObjectMeta, OwnerMeta, Phase, Pod};
use belayer_holds::names;
use belayer_holds::namespace::NamespaceView;
use belayer_holds::owned;
use belayer_holds::owner::OwnerQuery;
use belayer_holds::view::{Answers as _, Objects as _, View};

use super::{PodFinalizer, Waits};
use crate::argo::{self as argo_pods, ArgoPod, NodeQuery};
use crate::cleanup::{POD_GC_STRATEGY, PodEnd, PodGc, WorkflowEnd};
use crate::evidence::is_ignored;
use crate::profile::{Cleanup, Consumer, Mode, OwnerStatus, Profile, Profiles, argo, is_of_kind};
use crate::query::Delay;
use crate::snapshot::{
    CachedOwner, CleanupView, DecidingProfile, NodeView, Owner, OwnerView, PodView, Selection,
    Watched,
};
use crate::status::{self, NodeRef, StatusQuery};

impl<V: View> PodFinalizer<V> {
    /// The view of a pod.
    pub(crate) fn view(&self, pod: &Stored<Pod>) -> PodView {
        let meta = &pod.object.meta;
        let namespace =
            NamespaceView::of(meta, &self.parts.namespaces, &self.parts.namespace_queries);
        let selection = selection(&self.profiles, meta, namespace.cached.as_ref());
        let deciding_profiles = deciding_profiles(&self.profiles, meta, &selection);
        let owner = match owning(&selection, &deciding_profiles) {
            Some(profile) => self.owner(meta, profile),
            None => Owner::NotRequired,
        };
        let adopted = adopted(meta, &selection);
        let key_of = |reference: &OwnerReference, kind: &Resource| match &owner {
            Owner::Known(owner) if owner.query.resource() == kind => owner.query.key().clone(),
            _ => self.find_owner(meta, reference, kind).0,
        };
        let node = deciding(&selection, &deciding_profiles)
            .find_map(|profile| self.node(meta, profile, key_of));
        let cleanup = match &selection {
            Selection::By { profile, .. } => cleanup_of(
                &pod.object,
                profile,
                &owner,
                self.due_for(&Delay::Cleanup(meta.uid.clone())),
            ),
            Selection::None | Selection::Ignored => None,
        };
        PodView {
            uid: meta.uid.clone(),
            version: meta.resource_version,
            adopted,
            record: self.outcomes.state(meta, |key| self.recorded(key)),
            node,
            cleanup,
            argo: self.argo(pod),
            held: held(meta),
            deleting: meta.deletion_timestamp,
            watched: self.watched(meta, &selection),
            ended: pod.object.is_ended(),
            shut_down: pod.object.is_shut_down(),
            first_seen: pod.first_seen,
            admin_asked: admin_asked(meta),
            recreated: meta.annotations.get(names::RECREATION_ANNOTATION).is_some(),
            selection,
            namespace,
            owner,
            deciding_profiles,
        }
    }

    /// The metadata of a record in the cache.
    fn recorded(&self, key: &ObjectKey) -> Option<ObjectMeta> {
        match self.parts.records.as_ref()?.lookup(key) {
            Lookup::Found(record) => Some(record.object.meta.clone()),
            Lookup::Absent | Lookup::Unknown => None,
        }
    }

    fn due_for(&self, delay: &Delay) -> Option<Duration> {
        self.due
            .lock()
            .get(delay)
            .map(|waits| waits.since.elapsed())
    }

    /// How long a deleted pod whose profile has `releaseAfter` has been waiting.
    fn watched(&self, pod: &ObjectMeta, selection: &Selection) -> Option<Watched> {
        let Selection::By { profile, .. } = selection else {
            return None;
        };
        profile.release_after?;
        let deleting = pod.deletion_timestamp?;
        let delay = Delay::ReleaseAfter(pod.uid.clone());
        let mut due = self.due.lock();
        let grace = u64::try_from(pod.deletion_grace_period.unwrap_or_default());
        let grace = Duration::from_secs(grace.unwrap_or_default());
        let begin = || Waits::begin_deletion(deleting, grace);
        let waits = due.entry(delay).or_insert_with(begin);
        // Another request has shortened the grace period.
        if waits.deleting != Some(deleting) {
            *waits = begin();
        }
        Some(Watched {
            waited: waits.waited(),
            before: waits.before,
        })
    }

    fn argo(&self, pod: &Stored<Pod>) -> Option<ArgoPod> {
        argo_pod(&pod.object, |query| {
            let uid = &pod.object.meta.uid;
            argo_pods::NodeView {
                answer: self.parts.node_queries.get(&query),
                suspected: self.suspected(uid),
                lost_for: self.due_for(&Delay::NodeLost(uid.clone())),
                query,
            }
        })
    }

    /// When this pod was first observed as one whose node may be lost.
    fn suspected(&self, pod: &Uid) -> LogicalTime {
        let mut suspected = self.suspected.lock();
        *suspected.entry_ref(pod).or_insert_with(LogicalTime::now)
    }

    fn node(
        &self,
        pod: &ObjectMeta,
        profile: &Profile,
        key: impl FnOnce(&OwnerReference, &Resource) -> ObjectKey,
    ) -> Option<NodeView> {
        let (node, query) = node_of(pod, profile, key)?;
        Some(NodeView {
            node,
            answer: self.parts.status_queries.get(&query),
            query,
        })
    }

    fn owner(&self, pod: &ObjectMeta, profile: &Profile) -> Owner {
        let Some(kind) = &profile.owner else {
            return Owner::NotRequired;
        };
        match pod
            .controller
            .as_ref()
            .filter(|owner| is_of_kind(owner, kind))
        {
            Some(owner) => Owner::Known(Box::new(self.owner_view(pod, owner, kind))),
            None => Owner::Missing,
        }
    }

    pub(super) fn owner_view(
        &self,
        pod: &ObjectMeta,
        owner: &OwnerReference,
        kind: &Resource,
    ) -> OwnerView {
        let (key, found) = self.find_owner(pod, owner, kind);
        let cached = match found {
            Lookup::Unknown => CachedOwner::Unknown,
            Lookup::Found(found) if found.object.meta.uid == owner.uid => {
                CachedOwner::Present(found.object.meta.clone())
            }
            // Another object has that name, so the owner does not exist.
            Lookup::Found(_) | Lookup::Absent => CachedOwner::Absent,
        };
        let query = OwnerQuery::at(kind.clone(), key, owner.uid.clone());
        let answer = self.parts.owner_queries.get(&query);
        OwnerView {
            query,
            cached,
            answer,
        }
    }

    /// The owner in the store of its kind, and its key: see [`owned::find_owner`].
    pub(crate) fn find_owner(
        &self,
        pod: &ObjectMeta,
        owner: &OwnerReference,
        kind: &Resource,
    ) -> (ObjectKey, Lookup<OwnerMeta>) {
        let mut owners = self.parts.owners.iter();
        if let Some((_, store)) = owners.find(|(stored, _)| stored == kind) {
            return owned::find_owner(pod, owner, store);
        }
        let key = ObjectKey::new(Arc::clone(pod.key.shared_namespace()), owner.name.clone());
        (key, Lookup::Unknown)
    }
}

/// Which profile selects a pod, by its labels and its namespace.
pub(crate) fn selection(
    profiles: &Profiles,
    pod: &ObjectMeta,
    namespace: Option<&ObjectMeta>,
) -> Selection {
    // The mirror pod of a static pod: a finalizer on it would have no effect.
    if pod.annotations.get(names::MIRROR_ANNOTATION).is_some() {
        return Selection::None;
    }
    let Some(profile) = profiles.first_match(&pod.labels, pod.key.namespace().unwrap_or_default())
    else {
        return Selection::None;
    };
    if namespace.is_some_and(|namespace| is_ignored(&namespace.labels)) {
        return Selection::Ignored;
    }
    Selection::By {
        profile: profile.clone(),
        consumed: profile.is_consumed(&pod.labels),
    }
}

/// The profiles that apply to a pod in addition to the one that selects it: every configured or built-in profile whose
/// owner kind is that of the pod's controller.
///
/// They apply to a held pod that no profile selects (A4), and to a pod of Argo Workflows whose own profile releases on a
/// PodOutcome: Argo reads only pods, so nothing else could release it (A1).
pub(crate) fn deciding_profiles(
    profiles: &Profiles,
    pod: &ObjectMeta,
    selection: &Selection,
) -> Box<[DecidingProfile]> {
    let Some(controller) = &pod.controller else {
        return Box::default();
    };
    let is_judged = match selection {
        Selection::By { profile, .. } => {
            profile.consumer == Consumer::PodOutcome && argo_pods::is_of_workflow(pod)
        }
        Selection::None | Selection::Ignored => held(pod),
    };
    if !is_judged {
        return Box::default();
    }
    let deciding_profiles = profiles.owning(controller).into_iter();
    deciding_profiles
        .map(|profile| DecidingProfile {
            consumed: profile.is_consumed(&pod.labels),
            profile,
        })
        .collect()
}

/// All profiles that apply to a pod.
pub(crate) fn deciding<'a>(
    selection: &'a Selection,
    deciding_profiles: &'a [DecidingProfile],
) -> impl Iterator<Item = &'a Profile> {
    let selecting = match selection {
        Selection::By { profile, .. } => Some(&**profile),
        Selection::None | Selection::Ignored => None,
    };
    deciding_profiles
        .iter()
        .map(|judge| &*judge.profile)
        .chain(selecting)
}

/// The profile that determines the owner of a pod.
pub(crate) fn owning<'a>(
    selection: &'a Selection,
    deciding_profiles: &'a [DecidingProfile],
) -> Option<&'a Profile> {
    deciding(selection, deciding_profiles).next()
}

/// The pod's node in its owner's status, and the query for that status. `key` is that of the owner.
pub(crate) fn node_of(
    pod: &ObjectMeta,
    profile: &Profile,
    key: impl FnOnce(&OwnerReference, &Resource) -> ObjectKey,
) -> Option<(NodeRef, StatusQuery)> {
    let kind = profile.owner.as_ref()?;
    let owner = pod.controller.as_ref()?;
    if !is_of_kind(owner, kind) {
        return None;
    }
    let query = StatusQuery::new(kind.clone(), key(owner, kind), owner.uid.clone());
    match (&profile.consumed_when, profile.owner_status) {
        (Some(when), _) => Some((NodeRef::Owner, query.when(when.clone()))),
        (None, OwnerStatus::Argo) => Some((status::node_of(pod)?, query)),
        (None, OwnerStatus::None) => None,
    }
}

/// When a pod's annotation requires its deletion.
pub(crate) fn cleanup_of(
    pod: &Pod,
    profile: &Profile,
    owner: &Owner,
    due_for: Option<Duration>,
) -> Option<CleanupView> {
    if profile.cleanup == Cleanup::None || profile.mode == Mode::Observe {
        return None;
    }
    let gc = PodGc::parse(pod.meta.annotations.get(POD_GC_STRATEGY)?)?;
    let workflow = match owner {
        Owner::Known(owner) => match &owner.cached {
            CachedOwner::Present(meta) if profile.is_owner_finished(&meta.labels) => {
                match meta.labels.get(argo::PHASE_LABEL) {
                    Some("Succeeded") => WorkflowEnd::Succeeded,
                    _ => WorkflowEnd::Completed,
                }
            }
            CachedOwner::Present(_) => WorkflowEnd::NotYet,
            CachedOwner::Absent | CachedOwner::Unknown => WorkflowEnd::Unknown,
        },
        Owner::Missing => WorkflowEnd::Gone,
        Owner::NotRequired => WorkflowEnd::Unknown,
    };
    Some(CleanupView {
        gc,
        pod: match pod.phase {
            Phase::Succeeded => PodEnd::Succeeded,
            Phase::Failed => PodEnd::Failed,
            _ => PodEnd::NotYet,
        },
        workflow,
        due_for,
    })
}

/// The input of rules 16 to 18 for a pod whose controller is an Argo Workflow. `view` returns what is known about
/// its node.
pub(crate) fn argo_pod(
    pod: &Arc<Pod>,
    view: impl FnOnce(NodeQuery) -> argo_pods::NodeView,
) -> Option<ArgoPod> {
    if !argo_pods::is_of_workflow(&pod.meta) {
        return None;
    }
    Some(ArgoPod {
        pod: Arc::clone(pod),
        node: NodeQuery::about(pod).map(view),
    })
}

/// The other controllers' finalizers that Belayer removes together with its own: those that the profile names, on a
/// pod that the profile selects. Empty in observe mode.
pub(crate) fn adopted(pod: &ObjectMeta, selection: &Selection) -> Box<[Arc<str>]> {
    let Selection::By { profile, .. } = selection else {
        return Box::default();
    };
    if profile.adopt.is_empty() || profile.mode == Mode::Observe {
        return Box::default();
    }
    let named = profile.adopt.iter();
    named
        .filter(|name| pod.has_finalizer(name))
        .cloned()
        .collect()
}

pub(crate) fn held(pod: &ObjectMeta) -> bool {
    pod.has_finalizer(names::POD_STATUS_HOLD)
}

pub(crate) fn admin_asked(pod: &ObjectMeta) -> bool {
    pod.annotations.get(names::RELEASE_ANNOTATION) == Some("true")
}
