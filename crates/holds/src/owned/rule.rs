//! The rule that releases a pod whose owner is being deleted or gone, so that the owner does not wait for its pods,
//! and the pods do not wait for ever.

use jiff::Timestamp;

use super::HELD_BY_OWNER;
use super::owner::{EndedOwner, ObservedOwner, OwnerEnd, OwnerStores};
use crate::decision::{Decision, Missing, Rule, Write};
use crate::names;
use crate::owner::OwnerQuery;
use crate::runner::{Change, Component};
use belayer_core::informer::{Event, Store, Stored};
use belayer_core::object::ObjectKey;
use belayer_core::queries::{QueryCache, Waiter};
use belayer_core::slim::{OwnerMeta, Pod};
use belayer_core::workqueue::{Priority, WorkQueue};

const NOT_OURS: &Rule = &Rule::new(1, "not-ours", "not held, or not owned by one of the kinds");
const OWNER_DELETING: &Rule =
    &Rule::new(2, "owner-deleting", "held, and its owner is being deleted");
const OWNER_GONE: &Rule = &Rule::new(
    3,
    "owner-gone",
    "held and being deleted, and its owner is gone",
);
const KEEP: &Rule = &Rule::new(
    4,
    "keep",
    "held, and its owner is there, or it is not being deleted",
);

/// The inputs of the rule. The pods of an owner are found by
/// [`held_by_owner`](crate::owned::held_by_owner).
pub struct Parts {
    /// Name of the component that registers it.
    pub name: &'static str,
    /// The kinds of owners, and their stores.
    pub owners: OwnerStores,
    /// Live reads of owners. Components that use the same cache read each owner once.
    pub owner_queries: QueryCache<OwnerQuery>,
    /// The pods, with the index [`HELD_BY_OWNER`].
    pub pods: Store<Pod>,
    /// The queue of the runner of pods.
    pub queue: WorkQueue<ObjectKey>,
}

/// Releases the pods of owners that have ended. A [`Component`](crate::runner::Component) of the
/// runner of pods; when an owner ends, [`held_by_owner`](crate::owned::held_by_owner) lists its
/// pods.
pub struct OwnerEnds(Parts);

/// A snapshot of one pod. The pods of an owner are found by
/// [`held_by_owner`](crate::owned::held_by_owner).
#[derive(Debug, Clone)]
pub enum Snapshot {
    /// Not held, or not owned by one of the kinds.
    NotOwned,
    /// Held and owned.
    Owned {
        /// Its owner.
        owner: Box<ObservedOwner>,
        /// Whether the pod is being deleted.
        deleting: bool,
    },
}

impl OwnerEnds {
    /// The rule on these stores.
    pub fn new(parts: Parts) -> Self {
        Self(parts)
    }

    fn owner(&self, pod: &Pod) -> Option<ObservedOwner> {
        let answer = |query: &OwnerQuery| self.0.owner_queries.get(query);
        self.0.owners.owner_of(pod, answer)
    }

    /// Enqueues the held pods that are being deleted of an owner that is gone. Receives every event of the kinds of owners.
    pub fn on_owner(&self, event: &Event<OwnerMeta>) {
        let waits = |pod: &Pod| pod.meta.is_deleting() && is_held(pod);
        let enqueue = |pod: &Stored<Pod>| {
            let key = pod.object.meta.key.clone();
            self.0.queue.add(key, Priority::Release);
        };
        match event {
            Event::Deleted { last, .. } => {
                let owner = last.object.meta.uid.as_str();
                let pods = self.0.pods.by_index(HELD_BY_OWNER, owner);
                let pods = pods.unwrap_or_default();
                pods.iter()
                    .filter(|pod| waits(&pod.object))
                    .for_each(enqueue);
            }
            // Its CRD was deleted: of owners that went while the watch was down no event comes.
            Event::Unserved => self.0.pods.for_each(|pod| {
                if waits(&pod.object) && self.owner(&pod.object).is_some() {
                    enqueue(pod);
                }
            }),
            _ => {}
        }
    }
}

fn is_held(pod: &Pod) -> bool {
    pod.meta.has_finalizer(names::POD_STATUS_HOLD)
}

impl Component<Pod> for OwnerEnds {
    type Snapshot = Snapshot;
    type Evidence = EndedOwner;
    type Query = OwnerQuery;
    type Step = ();

    fn name(&self) -> &'static str {
        self.0.name
    }

    fn hold(&self) -> &'static str {
        names::POD_STATUS_HOLD
    }

    fn interest(&self, change: &Change<'_, Pod>) -> Option<Priority> {
        let pod = &change.new?.object;
        if !is_held(pod) {
            return None;
        }
        let waits = !self.owner(pod)?.is_there();
        if waits || pod.meta.is_deleting() {
            return Some(Priority::Release);
        }
        Some(change.source.quiet())
    }

    fn observe(&self, pod: &Stored<Pod>) -> Snapshot {
        let owner = is_held(pod).then(|| self.owner(pod)).flatten();
        match owner {
            Some(owner) => Snapshot::Owned {
                owner: Box::new(owner),
                deleting: pod.object.meta.is_deleting(),
            },
            None => Snapshot::NotOwned,
        }
    }

    fn decide(snapshot: &Snapshot, _: Timestamp) -> Decision<EndedOwner, OwnerQuery> {
        let Snapshot::Owned { owner, deleting } = snapshot else {
            return Decision::nothing(NOT_OURS);
        };
        decide(owner, *deleting)
    }

    fn ask(&self, query: OwnerQuery, waiter: Waiter<'_>) {
        self.0.owner_queries.ask(query, waiter);
    }
}

fn decide(owner: &ObservedOwner, deleting: bool) -> Decision<EndedOwner, OwnerQuery> {
    match owner.end() {
        OwnerEnd::Lives => Decision::nothing(KEEP),
        // Nothing waits for the hold yet. A profile that does not look at the owner would add it again, without end.
        OwnerEnd::Ended(EndedOwner::Gone(_)) | OwnerEnd::Ask { .. } if !deleting => {
            Decision::nothing(KEEP)
        }
        // Its pods still have results that Argo reads (A16).
        OwnerEnd::Ended(EndedOwner::Deleting(_)) if owner.is_kept_running() => {
            Decision::nothing(KEEP)
        }
        OwnerEnd::Ended(ended) => {
            let row = match ended {
                EndedOwner::Deleting(_) => OWNER_DELETING,
                EndedOwner::Gone(_) => OWNER_GONE,
            };
            Decision::write(row, Write::Release(ended))
        }
        OwnerEnd::Ask { query, after } => {
            Decision::missing(OWNER_GONE, Missing::Answer { query, after })
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::decision::Evidence as _;
    use crate::owner::{GoneProof, OwnerState};
    use belayer_core::logical_time::LogicalTime;
    use belayer_core::object::{Resource, ResourceVersion, Uid};
    use belayer_core::queries::LiveAnswer;
    use belayer_core::slim::ObjectMeta;

    fn owned(cached: Option<ObjectMeta>, answer: Option<OwnerState>) -> ObservedOwner {
        let kind = Resource::new("example.com", "v1", "Run", "runs");
        ObservedOwner {
            query: OwnerQuery::about(kind, &meta(None)),
            cached,
            answer: answer.map(|state| LiveAnswer::scripted(state, LogicalTime::now())),
        }
    }

    fn meta(deleting: Option<Timestamp>) -> ObjectMeta {
        ObjectMeta {
            deletion_timestamp: deleting,
            ..ObjectMeta::new(
                ObjectKey::new("ci", "run"),
                Uid::new("u-1"),
                ResourceVersion::new(1),
            )
        }
    }

    const DELETING: Option<Timestamp> = Some(Timestamp::UNIX_EPOCH);

    #[rstest]
    #[case::a_living_owner_keeps_them(Some(meta(None)), None, (KEEP, None))]
    #[case::a_deleting_owner_releases_them(Some(meta(DELETING)), None, (OWNER_DELETING, Some("OwnerDeleting")))]
    #[case::by_a_live_read_as_well(None, Some(OwnerState::Present(meta(DELETING))), (OWNER_DELETING, Some("OwnerDeleting")))]
    #[case::an_owner_confirmed_gone(None, Some(OwnerState::Gone(GoneProof::scripted())), (OWNER_GONE, Some("OwnerGone")))]
    #[case::an_absent_owner_is_asked_for(None, None, (OWNER_GONE, None))]
    #[case::an_unknown_one_proves_nothing(None, Some(OwnerState::Unknown("not served".into())), (OWNER_GONE, None))]
    fn pods_of_owners(
        #[case] cached: Option<ObjectMeta>,
        #[case] answer: Option<OwnerState>,
        #[case] expected: (&'static Rule, Option<&str>),
    ) {
        let decision = decide(&owned(cached, answer), true);
        let evidence = match &decision.write {
            Some(Write::Release(evidence)) => Some(evidence.name()),
            None => None,
            other => panic!("{other:?}"),
        };
        assert_eq!((decision.row, evidence), expected);
    }

    /// Its profile may hold it again.
    #[rstest]
    #[case::an_owner_confirmed_gone(Some(OwnerState::Gone(GoneProof::scripted())))]
    #[case::an_absent_owner(None)]
    fn a_pod_that_is_not_being_deleted_is_kept(#[case] answer: Option<OwnerState>) {
        let decision = decide(&owned(None, answer), false);
        assert_eq!((decision.row, decision.write.is_some()), (KEEP, false));
    }
}
