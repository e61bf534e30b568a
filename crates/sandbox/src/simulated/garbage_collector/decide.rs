//! Decides what to do about one object, given the graph of owners.

use super::graph::{Blocking, Graph, Node, OwnerRef, State, Uid, Wish};

/// What discovery says about the kind of an owner reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    ClusterScoped,
    Namespaced,
    No,
}

/// The state of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// Exists, or its absence is not proven: the dependent stays.
    Solid,
    /// Gone.
    Absent,
    /// In foreground deletion: its dependents must be deleted.
    AwaitsDependents,
    /// In orphaning deletion: its dependents must drop the reference.
    Orphans,
}

/// The next write about one object, if any. At most one: its event queues the object again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GcStep {
    Nothing,
    /// Delete it, with this policy.
    Delete(Wish),
    /// It has other owners, or is to be orphaned: remove these owner references.
    DropOwners(Vec<Uid>),
    /// Owners and dependents block each other in a cycle: clear `blockOwnerDeletion`.
    Unblock,
    /// No dependent blocks it any more: remove the foreground finalizer.
    EndForeground,
    /// No dependent references it any more: remove the orphan finalizer.
    EndOrphaning,
}

/// Decides about the object with this UID.
pub(crate) fn decide(graph: &Graph, uid: &str, served: impl Fn(&OwnerRef) -> Served) -> GcStep {
    let Some(node) = graph.node(uid) else {
        return GcStep::Nothing;
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

    // An orphaning owner waits for this, whatever happens to the object itself.
    let orphaning = those(&[Owner::Orphans]);
    if !orphaning.is_empty() {
        return GcStep::DropOwners(orphaning);
    }
    match node.state {
        State::Live => {}
        State::Deleting => return GcStep::Nothing,
        State::AwaitsDependents => {
            return match graph.blocking_in_scope(uid, &node.namespace).next() {
                Some(_) => GcStep::Nothing,
                None => GcStep::EndForeground,
            };
        }
        State::Orphans => {
            return match graph.dependents_in_scope(uid, &node.namespace).next() {
                Some(_) => GcStep::Nothing,
                None => GcStep::EndOrphaning,
            };
        }
    }

    if owners.is_empty() {
        return GcStep::Nothing;
    }
    if owners.iter().any(|(_, owner)| *owner == Owner::Solid) {
        let rest = those(&[Owner::Absent, Owner::AwaitsDependents]);
        return if rest.is_empty() {
            GcStep::Nothing
        } else {
            GcStep::DropOwners(rest)
        };
    }
    let awaited = owners
        .iter()
        .any(|(_, owner)| *owner == Owner::AwaitsDependents);
    let mut dependents = graph.dependents_in_scope(uid, &node.namespace).peekable();
    if !awaited || dependents.peek().is_none() {
        return GcStep::Delete(node.wish);
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
        return GcStep::Unblock;
    }
    GcStep::Delete(Wish::Foreground)
}

/// Owners are identified by UID and only within the dependent's own scope: an owner in another
/// namespace counts as absent.
fn classify(
    graph: &Graph,
    dependent: &Node,
    owner: &OwnerRef,
    served: impl Fn(&OwnerRef) -> Served,
) -> Owner {
    if let Some(node) = graph.node(&owner.uid) {
        return match (&dependent.namespace, &node.namespace) {
            // A namespaced owner of a cluster-scoped object cannot be resolved: the dependent is never collected.
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
    // Never seen: absent only if its kind is served, so that the server would have it.
    match (served(owner), &dependent.namespace) {
        (Served::No, _) | (Served::Namespaced, None) => Owner::Solid,
        (Served::ClusterScoped, _) | (Served::Namespaced, Some(_)) => Owner::Absent,
    }
}
