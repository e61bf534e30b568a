//! The one rule about pods that an owner's deletion needs: a pod whose owner is being deleted, or
//! is gone, is released. The owner must not wait for its pods, nor they for ever.

use std::time::Duration;

use jiff::Timestamp;

use crate::decision::{self, Decision, Missing, Row, Write};
use crate::facts::{Asker, Fact, Facts, GoneProof, OwnerDeletion, OwnerQuestion, OwnerState};
use crate::informer::{Lookup, Store, Stored};
use crate::names;
use crate::object::{ObjectKey, OwnerReference, Resource};
use crate::runner::{Change, Component};
use crate::slim::{ObjectMeta, OwnerMeta, Pod};
use crate::workqueue::Band;

/// Not held, or not owned by one of the kinds.
const NOT_OURS: Row = row(1, "not-ours");
/// The owner is being deleted.
const OWNER_DELETING: Row = row(2, "owner-deleting");
/// The owner's UID is confirmed gone.
const OWNER_GONE: Row = row(3, "owner-gone");
/// The owner lives.
const KEEP: Row = row(4, "keep");

const fn row(number: u8, name: &'static str) -> Row {
    Row { number, name }
}

/// A live answer that proves nothing either way is asked for again after this time.
const RECHECK: Duration = Duration::from_secs(30);

/// Why a pod may go: its owner ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndedOwner {
    /// It has a deletion timestamp, which is never taken back.
    Deleting(OwnerDeletion),
    /// Its UID is gone, by a live look.
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

/// What the rule stands on.
pub struct Parts {
    /// Name of the component that registers it.
    pub name: &'static str,
    /// The kinds of owners, and their stores.
    pub owners: Vec<(Resource, Store<OwnerMeta>)>,
    /// Live looks at owners; `None` where another component asks whether they are gone, so that
    /// one owner is looked at once.
    pub facts: Option<Facts<OwnerQuestion>>,
}

/// Releases the pods of owners that end.
pub struct OwnerEnds(Parts);

/// What stores and facts say about one pod.
#[derive(Debug, Clone)]
pub enum Snapshot {
    /// Not held, or not owned by one of the kinds.
    NotOurs,
    /// Held, and owned.
    Owned(Box<Owned>),
}

/// A held pod's owner.
#[derive(Debug, Clone)]
pub struct Owned {
    question: OwnerQuestion,
    cached: Cached,
    fact: Option<Fact<OwnerState>>,
    asking: Asking,
}

#[allow(clippy::large_enum_variant, reason = "it lives for one decision")]
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cached {
    Present(ObjectMeta),
    /// Absent, or the store cannot say: to be asked.
    NotPresent,
}

/// Whether this rule may ask for the owner itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    Allowed,
    LeftToOthers,
}

impl OwnerEnds {
    /// The rule on these stores.
    pub fn new(parts: Parts) -> Self {
        Self(parts)
    }

    fn owner<'a>(
        &'a self,
        pod: &'a Pod,
    ) -> Option<(&'a OwnerReference, &'a Resource, &'a Store<OwnerMeta>)> {
        let owner = pod.meta.controller.as_ref()?;
        let of_kind = |kind: &Resource| kind.kind == owner.kind && *kind.group == *owner.group();
        let (kind, store) = self.0.owners.iter().find(|(kind, _)| of_kind(kind))?;
        Some((owner, kind, store))
    }
}

fn is_held(pod: &Pod) -> bool {
    pod.meta.has_finalizer(names::POD_STATUS_HOLD)
}

fn cached(pod: &Pod, owner: &OwnerReference, store: &Store<OwnerMeta>) -> Cached {
    let key = ObjectKey::new(pod.meta.key.shared_namespace().clone(), owner.name.clone());
    match store.lookup(&key) {
        Lookup::Found(found) if found.object.0.uid == owner.uid => {
            Cached::Present(found.object.0.clone())
        }
        // Another object of that name, none, or nobody knows: only a live look can say.
        _ => Cached::NotPresent,
    }
}

impl Component<Pod> for OwnerEnds {
    type Snapshot = Snapshot;
    type Evidence = EndedOwner;
    type Question = OwnerQuestion;

    fn name(&self) -> &'static str {
        self.0.name
    }

    fn hold(&self) -> &'static str {
        names::POD_STATUS_HOLD
    }

    fn interest(&self, change: &Change<'_, Pod>) -> Option<Band> {
        let pod = &change.new?.object;
        if !is_held(pod) {
            return None;
        }
        let (owner, _, store) = self.owner(pod)?;
        let waits = match cached(pod, owner, store) {
            Cached::Present(owner) => owner.is_deleting(),
            Cached::NotPresent => true,
        };
        if waits || pod.meta.is_deleting() {
            return Some(Band::Release);
        }
        Some(change.source.quiet())
    }

    fn observe(&self, pod: &Stored<Pod>) -> Snapshot {
        let Some((owner, kind, store)) = self.owner(pod).filter(|_| is_held(pod)) else {
            return Snapshot::NotOurs;
        };
        let namespace = pod.object.meta.key.shared_namespace();
        let question = OwnerQuestion::new(kind.clone(), namespace, owner);
        let (fact, asking) = match &self.0.facts {
            Some(facts) => (facts.get(&question), Asking::Allowed),
            None => (None, Asking::LeftToOthers),
        };
        Snapshot::Owned(Box::new(Owned {
            cached: cached(pod, owner, store),
            fact,
            asking,
            question,
        }))
    }

    fn decide(snapshot: &Snapshot, _: Timestamp) -> Decision<EndedOwner, OwnerQuestion> {
        let Snapshot::Owned(owned) = snapshot else {
            return Decision::nothing(NOT_OURS);
        };
        decide(owned)
    }

    fn ask(&self, question: OwnerQuestion, asker: Asker<'_>) {
        if let Some(facts) = &self.0.facts {
            facts.ask(question, asker);
        }
    }
}

fn decide(owned: &Owned) -> Decision<EndedOwner, OwnerQuestion> {
    let uid = owned.question.uid();
    let deleting = |owner: &ObjectMeta| {
        OwnerDeletion::prove(owner, uid).map(|proof| {
            Decision::write(OWNER_DELETING, Write::Release(EndedOwner::Deleting(proof)))
        })
    };
    if let Cached::Present(owner) = &owned.cached {
        return deleting(owner).unwrap_or_else(|| Decision::nothing(KEEP));
    }
    let after = match owned.fact.as_ref().map(Fact::answer) {
        Some(OwnerState::Gone(proof)) => {
            let evidence = EndedOwner::Gone(proof.clone());
            return Decision::write(OWNER_GONE, Write::Release(evidence));
        }
        Some(OwnerState::Present(owner)) => match deleting(owner) {
            Some(release) => return release,
            None => RECHECK,
        },
        Some(OwnerState::Unknown(_)) => RECHECK,
        None => Duration::ZERO,
    };
    match owned.asking {
        Asking::LeftToOthers => Decision::nothing(KEEP),
        Asking::Allowed => {
            let question = owned.question.clone();
            Decision::missing(OWNER_GONE, Missing::Answer { question, after })
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::decision::Evidence as _;
    use crate::moment::Moment;
    use crate::object::{ResourceVersion, Uid};

    fn owned(cached: Cached, fact: Option<OwnerState>, asking: Asking) -> Owned {
        let kind = Resource::new("example.com", "v1", "Run", "runs");
        Owned {
            question: OwnerQuestion::about(kind, &meta(None)),
            cached,
            fact: fact.map(|state| Fact::scripted(state, Moment::now())),
            asking,
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
    #[case::a_living_owner_keeps_them(Cached::Present(meta(None)), None, (KEEP, None))]
    #[case::a_deleting_owner_lets_them_go(Cached::Present(meta(DELETING)), None, (OWNER_DELETING, Some("OwnerDeleting")))]
    #[case::by_a_live_look_as_well(Cached::NotPresent, Some(OwnerState::Present(meta(DELETING))), (OWNER_DELETING, Some("OwnerDeleting")))]
    #[case::an_owner_confirmed_gone(Cached::NotPresent, Some(OwnerState::Gone(GoneProof::scripted())), (OWNER_GONE, Some("OwnerGone")))]
    #[case::an_absent_owner_is_asked_for(Cached::NotPresent, None, (OWNER_GONE, None))]
    #[case::an_unknown_one_proves_nothing(Cached::NotPresent, Some(OwnerState::Unknown("not served".into())), (OWNER_GONE, None))]
    fn pods_of_owners(
        #[case] cached: Cached,
        #[case] fact: Option<OwnerState>,
        #[case] expected: (Row, Option<&str>),
    ) {
        let decision = decide(&owned(cached, fact, Asking::Allowed));
        let evidence = match &decision.write {
            Some(Write::Release(evidence)) => Some(evidence.name()),
            None => None,
            other => panic!("{other:?}"),
        };
        assert_eq!((decision.row, evidence), expected);
    }

    #[test]
    fn where_another_component_asks_this_one_does_not() {
        let decision = decide(&owned(Cached::NotPresent, None, Asking::LeftToOthers));
        assert_eq!(decision, Decision::nothing(KEEP));
    }
}
