//! What to do about one object, given who owns whom.

use super::graph::{Blocking, Graph, Node, OwnerRef, State, Uid, Wish};

/// What discovery says about the kind that an owner reference names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    ClusterScoped,
    Namespaced,
    No,
}

/// What an owner reference amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// There, or not provably gone: the dependent stays because of it.
    Solid,
    /// Gone.
    Absent,
    /// In foreground deletion: it wants its dependents gone.
    AwaitsDependents,
    /// In orphaning deletion: it wants to be forgotten.
    Orphans,
}

/// The next write about one object, if any. Never more than one: its event brings the object back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    /// Delete it, with this policy.
    Delete(Wish),
    /// It keeps other owners, or is to be orphaned: forget these.
    ForgetOwners(Vec<Uid>),
    /// Owners and dependents wait for each other in a ring: block none of them any more.
    Unblock,
    /// No dependent blocks it any more: take the foreground finalizer off.
    EndForeground,
    /// No dependent names it any more: take the orphan finalizer off.
    EndOrphaning,
}

/// Decides about the object with this UID.
pub(crate) fn decide(graph: &Graph, uid: &str, served: impl Fn(&OwnerRef) -> Served) -> Step {
    let Some(node) = graph.node(uid) else {
        return Step::Nothing;
    };
    let owners: Vec<(&OwnerRef, Owner)> = node
        .owners
        .iter()
        .map(|owner| (owner, classify(graph, node, owner, &served)))
        .collect();
    let those = |wanted: &[Owner]| -> Vec<Uid> {
        owners
            .iter()
            .filter(|(_, o)| wanted.contains(o))
            .map(|(owner, _)| owner.uid.clone())
            .collect()
    };

    // An orphaning owner waits for this, however the object itself fares.
    let orphaning = those(&[Owner::Orphans]);
    if !orphaning.is_empty() {
        return Step::ForgetOwners(orphaning);
    }
    match node.state {
        State::Live => {}
        State::Deleting => return Step::Nothing,
        State::AwaitsDependents => {
            return match graph.blocking_in_scope(uid, &node.namespace).next() {
                Some(_) => Step::Nothing,
                None => Step::EndForeground,
            };
        }
        State::Orphans => {
            return match graph.dependents_in_scope(uid, &node.namespace).next() {
                Some(_) => Step::Nothing,
                None => Step::EndOrphaning,
            };
        }
    }

    if owners.is_empty() {
        return Step::Nothing;
    }
    if owners.iter().any(|(_, owner)| *owner == Owner::Solid) {
        let rest = those(&[Owner::Absent, Owner::AwaitsDependents]);
        return if rest.is_empty() {
            Step::Nothing
        } else {
            Step::ForgetOwners(rest)
        };
    }
    let awaited = owners
        .iter()
        .any(|(_, owner)| *owner == Owner::AwaitsDependents);
    let mut dependents = graph.dependents_in_scope(uid, &node.namespace).peekable();
    if !awaited || dependents.peek().is_none() {
        return Step::Delete(node.wish);
    }
    let ring = dependents.any(|dependent| {
        graph
            .node(dependent)
            .is_some_and(|node| node.state == State::AwaitsDependents)
    });
    if ring
        && node
            .owners
            .iter()
            .any(|owner| owner.blocking == Blocking::Yes)
    {
        return Step::Unblock;
    }
    Step::Delete(Wish::Foreground)
}

/// Owners are known by UID alone, and only within the dependent's own scope: an owner in another
/// namespace is as good as none.
fn classify(
    graph: &Graph,
    dependent: &Node,
    owner: &OwnerRef,
    served: impl Fn(&OwnerRef) -> Served,
) -> Owner {
    if let Some(node) = graph.node(&owner.uid) {
        return match (&dependent.namespace, &node.namespace) {
            // A namespaced owner of a cluster-scoped object cannot be resolved: never collected.
            (None, Some(_)) => Owner::Solid,
            (Some(here), Some(there)) if here != there => Owner::Absent,
            _ => match node.state {
                State::Live | State::Deleting => Owner::Solid,
                State::AwaitsDependents => Owner::AwaitsDependents,
                State::Orphans => Owner::Orphans,
            },
        };
    }
    if graph.seen_gone(&owner.uid) {
        return Owner::Absent;
    }
    // Never seen: gone only if somebody could have answered for its kind.
    match (served(owner), &dependent.namespace) {
        (Served::No, _) | (Served::Namespaced, None) => Owner::Solid,
        (Served::ClusterScoped, _) | (Served::Namespaced, Some(_)) => Owner::Absent,
    }
}
