//! The same decision for a person: a snapshot from live looks instead of stores, and its row in
//! words.

use std::sync::Arc;
use std::time::Duration;

use belayer_core::executor::Executor;
use belayer_core::facts::{LiveReader, LookError, look};
use belayer_core::moment::LogicalTime;
use belayer_core::slim::{ObjectMeta, Pod};
use belayer_holds::names::{IGNORE_LABEL, MIRROR_ANNOTATION, SYSTEM_NAMESPACE};
use belayer_holds::namespace::{NamespaceQuery, NamespaceState, NamespaceView};
use belayer_holds::owner::{OwnerQuery, OwnerState};
use belayer_holds::selection::UnselectedBy;

use crate::argo::{ArgoPod, NodeQuery};
use crate::observe::{
    admin_asked, adopted, argo_pod, cleanup_of, held, judges, judging, node_of, owning, selection,
};
use crate::outcome::{self, RecordState};
use crate::profile::{Capture, Profile, Profiles, is_of_kind};
use crate::snapshot::{
    CachedOwner, Ended, Gate, MassRelease, NodeView, Owner, OwnerView, PodView, Selection, Snapshot,
};
use crate::status::{Asked, StatusReader};

/// What is looked at live.
pub struct Looks {
    /// The profiles in force.
    pub profiles: Profiles,
    /// Answers about owners.
    pub owners: Arc<dyn LiveReader<OwnerQuery>>,
    /// Answers about namespaces.
    pub namespaces: Arc<dyn LiveReader<NamespaceQuery>>,
    /// Answers about nodes.
    pub nodes: Arc<dyn LiveReader<NodeQuery>>,
    /// Reads records of outcomes, and the status of owners.
    pub executor: Arc<Executor>,
    /// How often a held pod is looked at without any event.
    pub resync: Duration,
}

impl Looks {
    /// The snapshot that a controller would have whose stores are as of now.
    ///
    /// Whether too many pods are unselected is not looked at: that takes a count of all of them,
    /// which whoever needs it puts in.
    ///
    /// # Errors
    ///
    /// When a look gave no answer.
    pub async fn snapshot(&self, pod: &Pod, gate: Gate) -> Result<Snapshot, LookError> {
        // Everything below begins after this: it is evidence about this very pod.
        let first_seen = LogicalTime::now();
        let meta = &pod.meta;
        let namespace = self.namespace(meta).await?;
        let selection = selection(&self.profiles, meta, namespace.cached.as_ref());
        let judges = judges(&self.profiles, meta, &selection);
        let owner = match owning(&selection, &judges) {
            Some(profile) => self.owner(meta, profile).await?,
            None => Owner::NotRequired,
        };
        let mut node = None;
        for profile in judging(&selection, &judges) {
            if node.is_none() {
                node = self.node(pod, profile).await?;
            }
        }
        let (record, cleanup) = match &selection {
            Selection::By { profile, .. } => (
                self.record(pod, profile).await?,
                // When a deletion that is due was first seen to be due only a controller knows.
                cleanup_of(pod, profile, &owner, None),
            ),
            Selection::None | Selection::Ignored => (RecordState::Unknown, None),
        };
        let ended = if pod.is_ended() {
            Ended::Yes
        } else {
            Ended::No
        };
        Ok(Snapshot {
            pod: Some(PodView {
                uid: meta.uid.clone(),
                adopted: adopted(meta, &selection),
                record,
                node,
                cleanup,
                argo: self.argo(pod, first_seen).await?,
                held: held(meta),
                deleting: meta.deletion_timestamp,
                ended,
                first_seen,
                admin_asked: admin_asked(meta),
                selection,
                namespace,
                owner,
                judges,
            }),
            gate,
            mass_release: MassRelease::Within,
            resync: self.resync,
        })
    }

    async fn record(&self, pod: &Pod, profile: &Profile) -> Result<RecordState, LookError> {
        if profile.capture == Capture::Off {
            return Ok(RecordState::Unknown);
        }
        let looked = outcome::look(pod, &self.executor).await;
        looked.map_err(|error| LookError::from(&error))
    }

    /// The node is read only if the pod looks as if its node were lost.
    async fn argo(&self, pod: &Pod, seen: LogicalTime) -> Result<Option<ArgoPod>, LookError> {
        let fact = match NodeQuery::about(pod) {
            Some(question) => Some(look(&*self.nodes, &question).await?),
            None => None,
        };
        let pod = Arc::new(pod.clone());
        // Only a running controller knows since when the loss is known.
        Ok(argo_pod(&pod, seen, |_| (fact, None)))
    }

    /// A status can be large: like the controller, this asks only where it can matter.
    async fn node(&self, pod: &Pod, profile: &Profile) -> Result<Option<NodeView>, LookError> {
        let waits = pod.is_ended() || pod.meta.is_deleting();
        let Some((node, question)) = node_of(&pod.meta, profile).filter(|_| waits) else {
            return Ok(None);
        };
        let asked = Asked::One(node.clone());
        let statuses = StatusReader::new(Arc::clone(&self.executor), asked);
        let fact = look(&statuses, &question).await?;
        Ok(Some(NodeView {
            node,
            question,
            fact: Some(fact),
        }))
    }

    async fn namespace(&self, pod: &ObjectMeta) -> Result<NamespaceView, LookError> {
        let question = NamespaceQuery::new(pod.key.shared_namespace().clone());
        let fact = look(&*self.namespaces, &question).await?;
        let cached = match fact.answer() {
            NamespaceState::Present(meta) => Some(meta.clone()),
            NamespaceState::Gone => None,
        };
        Ok(NamespaceView {
            question,
            cached,
            fact: Some(fact),
        })
    }

    async fn owner(&self, pod: &ObjectMeta, profile: &Profile) -> Result<Owner, LookError> {
        let Some(kind) = &profile.owner else {
            return Ok(Owner::NotRequired);
        };
        let Some(owner) = pod
            .controller
            .as_ref()
            .filter(|owner| is_of_kind(owner, kind))
        else {
            return Ok(Owner::Missing);
        };
        let question = OwnerQuery::new(kind.clone(), pod.key.shared_namespace(), owner);
        let fact = look(&*self.owners, &question).await?;
        let cached = match fact.answer() {
            OwnerState::Present(meta) => CachedOwner::Present(meta.clone()),
            OwnerState::Gone(_) => CachedOwner::Absent,
            OwnerState::Unknown(_) => CachedOwner::Unknown,
        };
        Ok(Owner::Known(Box::new(OwnerView {
            question,
            cached,
            fact: Some(fact),
        })))
    }
}

/// Why no profile selects a pod of this namespace, as a controller judges it right after its start;
/// `None` if one does.
pub fn unselected_by(
    profiles: &Profiles,
    pod: &ObjectMeta,
    namespace: Option<&ObjectMeta>,
) -> Option<UnselectedBy> {
    match selection(profiles, pod, namespace) {
        Selection::By { .. } => None,
        Selection::None => Some(UnselectedBy::Configuration),
        Selection::Ignored => Some(UnselectedBy::Namespace),
    }
}

/// Why no profile selects a pod, in words; `None` if one does.
pub fn why_not_selected(
    profiles: &Profiles,
    pod: &ObjectMeta,
    selection: &Selection,
) -> Option<String> {
    if let Selection::By { .. } = selection {
        return None;
    }
    let namespace = pod.key.namespace().unwrap_or_default();
    if pod.annotations.get(MIRROR_ANNOTATION).is_some() {
        return Some(
            "it is the API's mirror of a static pod: a finalizer on it would hold nothing"
                .to_owned(),
        );
    }
    if let Selection::Ignored = selection {
        return Some(format!(
            "its namespace carries the label {IGNORE_LABEL}=true"
        ));
    }
    if namespace == SYSTEM_NAMESPACE {
        return Some(format!("pods in {SYSTEM_NAMESPACE} are never selected"));
    }
    let wanted: Vec<String> = profiles
        .iter()
        .map(|profile| {
            if profile.selector.matches(&pod.labels) {
                return format!("profile {} leaves out namespace {namespace}", profile.name);
            }
            let labels: Vec<_> = profile.selector.names().collect();
            format!("profile {} selects by {}", profile.name, labels.join(", "))
        })
        .collect();
    Some(format!("no profile selects it: {}", wanted.join("; ")))
}

#[cfg(test)]
mod tests {
    use crate::row;

    /// A released pod that still exists, and one that was deleted before it was held, look alike.
    #[test]
    fn row_14_explains_both_ways_into_it() {
        let says = row::TOO_LATE.says;
        assert!(says.contains("has released it"), "{says}");
        assert!(says.contains("began before it was held"), "{says}");
    }
}
