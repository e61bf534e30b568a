//! The garbage collector: deletes objects whose owners are gone.
//!
//! Owners are identified by UID, within the dependent's own namespace. After a background deletion of
//! the owner its dependents are deleted; in a foreground deletion the owner waits for those that
//! block it; with orphaning it waits until no dependent references it. A dependent with several
//! owners stays until the last of them is gone.
//!
//! It runs in the [example](crate::simulated).

mod decide;
mod graph;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use self::decide::{GcStep, Served, decide};
use self::graph::{FOREGROUND, Graph, Node, ORPHAN, OwnerRef, Uid, Wish};
use super::agenda::Agenda;
use super::driver::{Change, Controller, Interest, Progress, served};
use super::object;
use crate::address::{Actor, Gvr, Subresource};
use crate::cluster::{Cluster, DeleteOptions, Patch, Preconditions, Propagation, WriteOptions};
use crate::error::ApiError;

/// The actor name of the garbage collector.
pub const ACTOR: &str = "garbage-collector";

pub(crate) struct GarbageCollector {
    cluster: Cluster,
    actor: Actor,
    graph: Graph,
    agenda: Agenda<Uid>,
}

impl GarbageCollector {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            actor: Actor::new(ACTOR),
            graph: Graph::default(),
            agenda: Agenda::default(),
        }
    }

    fn served(&self, owner: &OwnerRef) -> Served {
        match self
            .cluster
            .resource_of_kind(&owner.api_version, &owner.kind)
        {
            None => Served::No,
            Some((info, _)) if info.namespaced() => Served::Namespaced,
            Some(_) => Served::ClusterScoped,
        }
    }

    fn carry_out(&self, uid: &str, node: &Node, step: &GcStep) -> Result<(), ApiError> {
        match step {
            GcStep::Nothing => Ok(()),
            GcStep::Delete(wish) => self.delete(uid, node, *wish),
            GcStep::EndForeground => self.end(uid, node, FOREGROUND),
            GcStep::EndOrphaning => self.end(uid, node, ORPHAN),
            GcStep::DropOwners(owners) => self.edit(uid, node, |object| {
                let gone = |entry: &Value| {
                    let owner = object::text(entry, "/uid").unwrap_or_default();
                    owners.iter().any(|gone| **gone == *owner)
                };
                let owners = object::items(object, "/metadata/ownerReferences");
                let left: Vec<&Value> = owners.iter().filter(|entry| !gone(entry)).collect();
                (left.len() < owners.len()).then(|| json!({"ownerReferences": left}))
            }),
            GcStep::Unblock => self.edit(uid, node, |object| {
                let mut owners = object::items(object, "/metadata/ownerReferences").to_vec();
                for owner in &mut owners {
                    owner["blockOwnerDeletion"] = json!(false);
                }
                Some(json!({"ownerReferences": owners}))
            }),
        }
    }

    fn delete(&self, uid: &str, node: &Node, wish: Wish) -> Result<(), ApiError> {
        let options = DeleteOptions {
            propagation_policy: Some(match wish {
                Wish::Background => Propagation::Background,
                Wish::Foreground => Propagation::Foreground,
                Wish::Orphan => Propagation::Orphan,
            }),
            preconditions: Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            },
            ..DeleteOptions::default()
        };
        let namespace = node.namespace.as_deref();
        let gvr = served(&self.cluster, &node.gvr);
        self.cluster
            .delete(&self.actor, &gvr, namespace, &node.name, &options)
            .map(drop)
    }

    fn end(&self, uid: &str, node: &Node, finalizer: &str) -> Result<(), ApiError> {
        self.edit(uid, node, |object| {
            let left: Vec<&str> = object::finalizers(object)
                .filter(|f| *f != finalizer)
                .collect();
            Some(json!({"finalizers": left}))
        })
    }

    /// Changes the metadata of the current object, unless its UID is another one.
    fn edit(
        &self,
        uid: &str,
        node: &Node,
        change: impl Fn(&Value) -> Option<Value>,
    ) -> Result<(), ApiError> {
        let (namespace, name) = (node.namespace.as_deref(), &*node.name);
        let gvr = served(&self.cluster, &node.gvr);
        let object = self.cluster.get(&gvr, namespace, name)?;
        if object::uid(&object) != uid {
            return Ok(());
        }
        let Some(mut metadata) = change(&object) else {
            return Ok(());
        };
        metadata["uid"] = json!(uid);
        metadata["resourceVersion"] = json!(object::resource_version(&object));
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let options = WriteOptions::default();
        self.cluster
            .patch(
                &self.actor,
                &gvr,
                namespace,
                name,
                patch,
                Subresource::None,
                &options,
            )
            .map(drop)
    }
}

impl Controller for GarbageCollector {
    fn interest(&self) -> Interest {
        Interest::Everything
    }

    fn observe(&mut self, gvr: &Gvr, change: &Change, _: Instant) {
        let look = match change {
            Change::Upserted(object) => self.graph.upsert(gvr, object),
            Change::Removed(object) => {
                let uid: Uid = Arc::from(object::uid(object));
                self.agenda.succeeded(&uid);
                self.graph.remove(&uid)
            }
        };
        for uid in look {
            self.agenda.add(uid);
        }
    }

    fn work(&mut self, now: Instant) -> Progress {
        let Some(uid) = self.agenda.pop(now) else {
            return Progress::Idle {
                until: self.agenda.next_timer(),
            };
        };
        let step = decide(&self.graph, &uid, |owner| self.served(owner));
        let Some(node) = self.graph.node(&uid) else {
            return Progress::Worked;
        };
        match self.carry_out(&uid, node, &step) {
            // Already gone, or replaced by another object: the log has an event for it.
            Err(error) if error.code == 404 && !error.is_not_served() => {}
            Err(error) => {
                tracing::debug!(%error, name = %node.name, ?step, "garbage collection will be retried");
                self.agenda.retry(uid, now);
            }
            Ok(()) => self.agenda.succeeded(&uid),
        }
        Progress::Worked
    }
}
