//! The graph of owners and dependents, by UID.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::address::Gvr;
use crate::simulated::object;

pub(crate) type Uid = Arc<str>;

/// The finalizer by which an owner waits for its blocking dependents.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer by which an owner waits until its dependents have dropped their references.
pub(crate) const ORPHAN: &str = "orphan";

/// Whether the owner's foreground deletion waits for this dependent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Blocking {
    Yes,
    No,
}

/// One entry of `metadata.ownerReferences`, with the fields that the collector reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerRef {
    pub(crate) uid: Uid,
    pub(crate) api_version: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) blocking: Blocking,
}

/// The state of an object's own deletion, as far as the collector is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not being deleted.
    Live,
    /// Being deleted, and the collector has nothing to do for it.
    Deleting,
    /// Foreground: waits for the dependents that block it.
    AwaitsDependents,
    /// Orphan: waits until no dependent references it.
    Orphans,
}

impl State {
    /// Whether the owner waits for its dependents.
    fn waits(self) -> bool {
        matches!(self, Self::AwaitsDependents | Self::Orphans)
    }
}

/// The propagation policy that an object's own finalizers select for its deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Background,
    Foreground,
    Orphan,
}

/// An object in the graph.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) gvr: Gvr,
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) name: Arc<str>,
    pub(crate) owners: Vec<OwnerRef>,
    pub(crate) state: State,
    pub(crate) wish: Wish,
}

impl Node {
    fn read(gvr: &Gvr, object: &Value) -> Self {
        let has = |name| object::finalizers(object).any(|finalizer| finalizer == name);
        let wish = match (has(ORPHAN), has(FOREGROUND)) {
            (true, _) => Wish::Orphan,
            (false, true) => Wish::Foreground,
            (false, false) => Wish::Background,
        };
        let state = match (object::is_deleting(object), wish) {
            (false, _) => State::Live,
            (true, Wish::Background) => State::Deleting,
            (true, Wish::Foreground) => State::AwaitsDependents,
            (true, Wish::Orphan) => State::Orphans,
        };
        Self {
            gvr: gvr.clone(),
            namespace: object::namespace(object).map(Arc::from),
            name: object::name(object).into(),
            owners: owner_refs(object),
            state,
            wish,
        }
    }
}

fn owner_refs(object: &Value) -> Vec<OwnerRef> {
    let text = |entry, pointer| object::text(entry, pointer).unwrap_or_default().into();
    object::items(object, "/metadata/ownerReferences")
        .iter()
        .filter_map(|entry| {
            let uid = object::text(entry, "/uid")?;
            let blocking = match entry.get("blockOwnerDeletion").and_then(Value::as_bool) {
                Some(true) => Blocking::Yes,
                _ => Blocking::No,
            };
            Some(OwnerRef {
                uid: uid.into(),
                api_version: text(entry, "/apiVersion"),
                kind: text(entry, "/kind"),
                blocking,
            })
        })
        .collect()
}

type Namespace = Option<Arc<str>>;

/// The dependents of one owner UID, by namespace. Those in another namespace than the owner's do
/// not count.
#[derive(Debug, Default)]
struct Dependents {
    all: BTreeMap<Namespace, BTreeSet<Uid>>,
    blocking: BTreeMap<Namespace, BTreeSet<Uid>>,
    /// The owner was seen being removed, so it is gone whatever its kind.
    owner_gone: Gone,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Gone {
    Seen,
    #[default]
    Unseen,
}

/// All objects with their owners and dependents. A query costs no more than its result is long.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: BTreeMap<Uid, Node>,
    dependents: BTreeMap<Uid, Dependents>,
}

impl Graph {
    pub(crate) fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Adds or updates an object; returns the objects to process again.
    pub(crate) fn upsert(&mut self, gvr: &Gvr, object: &Value) -> Vec<Uid> {
        let uid: Uid = object::uid(object).into();
        if uid.is_empty() {
            return vec![];
        }
        let new = Node::read(gvr, object);
        let old = self.nodes.get(&uid);
        let old_owners = old.map(|old| old.owners.clone()).unwrap_or_default();
        let (old_state, known) = (old.map_or(State::Live, |old| old.state), old.is_some());
        let owners_changed = old_owners != new.owners;
        if known && !owners_changed && old_state == new.state {
            if let Some(node) = self.nodes.get_mut(&uid) {
                node.wish = new.wish;
            }
            return vec![];
        }

        let mut look = vec![];
        if owners_changed {
            self.unlink(&uid, &new.namespace, &old_owners);
            self.link(&uid, &new.namespace, &new.owners);
            look.extend(self.waiting(&old_owners));
        }
        if new.state != old_state && new.state.waits() {
            look.extend(self.dependents_in_scope(&uid, &new.namespace).cloned());
        }
        if !new.owners.is_empty() || new.state.waits() {
            look.push(uid.clone());
        }
        self.nodes.insert(uid, new);
        look
    }

    /// Removes an object; returns the objects to process again.
    pub(crate) fn remove(&mut self, uid: &str) -> Vec<Uid> {
        let Some(node) = self.nodes.remove(uid) else {
            return vec![];
        };
        self.unlink(uid, &node.namespace, &node.owners);
        let mut look: Vec<Uid> = self.waiting(&node.owners).collect();
        if let Some(dependents) = self.dependents.get_mut(uid) {
            dependents.owner_gone = Gone::Seen;
            look.extend(dependents.all.values().flatten().cloned());
        }
        look
    }

    /// Whether the owner existed and was seen being removed.
    pub(crate) fn seen_gone(&self, owner: &str) -> bool {
        self.dependents
            .get(owner)
            .is_some_and(|d| d.owner_gone == Gone::Seen)
    }

    /// The dependents in the scope of an owner in this namespace.
    pub(crate) fn dependents_in_scope<'a>(
        &'a self,
        owner: &str,
        namespace: &'a Namespace,
    ) -> impl Iterator<Item = &'a Uid> {
        self.dependents
            .get(owner)
            .into_iter()
            .flat_map(move |d| in_scope(&d.all, namespace))
    }

    /// As [`Graph::dependents_in_scope`], but only those that block a foreground deletion.
    pub(crate) fn blocking_in_scope<'a>(
        &'a self,
        owner: &str,
        namespace: &'a Namespace,
    ) -> impl Iterator<Item = &'a Uid> {
        self.dependents
            .get(owner)
            .into_iter()
            .flat_map(move |d| in_scope(&d.blocking, namespace))
    }

    /// The owners that wait for their dependents.
    fn waiting(&self, owners: &[OwnerRef]) -> impl Iterator<Item = Uid> {
        owners
            .iter()
            .filter(|owner| {
                self.nodes
                    .get(&owner.uid)
                    .is_some_and(|node| node.state.waits())
            })
            .map(|owner| owner.uid.clone())
    }

    fn link(&mut self, uid: &Uid, namespace: &Namespace, owners: &[OwnerRef]) {
        for owner in owners {
            let edges = self.dependents.entry(owner.uid.clone()).or_default();
            edges
                .all
                .entry(namespace.clone())
                .or_default()
                .insert(uid.clone());
            if owner.blocking == Blocking::Yes {
                edges
                    .blocking
                    .entry(namespace.clone())
                    .or_default()
                    .insert(uid.clone());
            }
        }
    }

    fn unlink(&mut self, uid: &str, namespace: &Namespace, owners: &[OwnerRef]) {
        for owner in owners {
            let Some(edges) = self.dependents.get_mut(&owner.uid) else {
                continue;
            };
            take_out(&mut edges.all, namespace, uid);
            take_out(&mut edges.blocking, namespace, uid);
            if edges.all.is_empty() {
                self.dependents.remove(&owner.uid);
            }
        }
    }
}

fn take_out(edges: &mut BTreeMap<Namespace, BTreeSet<Uid>>, namespace: &Namespace, uid: &str) {
    if let Some(set) = edges.get_mut(namespace) {
        set.remove(uid);
        if set.is_empty() {
            edges.remove(namespace);
        }
    }
}

/// A cluster-scoped owner has dependents in all namespaces, any other only in its own.
fn in_scope<'a>(
    edges: &'a BTreeMap<Namespace, BTreeSet<Uid>>,
    namespace: &'a Namespace,
) -> impl Iterator<Item = &'a Uid> {
    let own = namespace.is_some().then(|| edges.get(namespace)).flatten();
    let all = namespace.is_none().then(|| edges.values().flatten());
    own.into_iter().flatten().chain(all.into_iter().flatten())
}
