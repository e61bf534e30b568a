//! The cluster's past, replayed write by write from the API server's record.
//!
//! Nothing of the product is asked here: objects are plain JSON, and what a release needs is
//! written down a second time, by hand.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use belayer_sandbox::{Gvr, Verb, Write};
use belayer_workload::{ARGO, USER};
use serde_json::Value;

use super::objects::{
    Kind, is_deleting, is_held, is_removal, main_exit_code, shows_a_run, text, uid, workflow_of,
};
use crate::BELAYER;

/// The actors of every test. Any other actor that the test does not name is a person with kubectl.
const CAST: &[&str] = &[
    BELAYER,
    USER,
    ARGO,
    "garbage-collector",
    "namespace-controller",
    "scheduler",
    "pod-gc",
    "kube-apiserver",
    "node-lifecycle-controller",
    "cloud-node-controller",
];

/// All that has been written up to one moment. Objects are known by their UIDs.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// Actors that belong to the test, besides the [`CAST`].
    others: HashSet<String>,
    /// Last states, of what is gone too.
    objects: HashMap<String, Arc<Value>>,
    gone: HashSet<String>,
    /// When somebody first asked for the deletion, as a place in the record.
    deletion_asked: HashMap<String, usize>,
    /// By name.
    namespaces_going: HashSet<String>,
    /// When a hold of ours was first on it, as a place in the record.
    held: HashMap<String, usize>,
    /// Pods of which something ran.
    ran: HashSet<String>,
    /// Pods whose main container had not ended when they were deleted.
    cut_short: HashSet<String>,
    by_hand: HashSet<String>,
}

impl Past {
    /// Nothing has been written yet.
    pub(crate) fn new(others: &[&str]) -> Self {
        Self {
            others: others.iter().map(|&actor| actor.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// Takes in the next write.
    pub(crate) fn add(&mut self, write: &Write) {
        if !write.changed() {
            return;
        }
        let actor = write.actor.as_str();
        let is_known =
            CAST.contains(&actor) || self.others.contains(actor) || actor.starts_with("kubelet/");
        if !is_known {
            self.by_hand.insert(write.uid.clone());
        }
        if matches!(write.verb, Verb::Delete | Verb::DeleteCollection) {
            let when = self.deletion_asked.entry(write.uid.clone());
            when.or_insert(write.index);
            if write.resource == Gvr::NAMESPACES {
                self.namespaces_going.insert(write.key.name.to_string());
            }
        }
        if write.resource == Gvr::NAMESPACES && write.verb == Verb::Create {
            self.namespaces_going.remove(&*write.key.name);
        }
        let Some(object) = &write.object else { return };
        if is_held(object) {
            self.held.entry(write.uid.clone()).or_insert(write.index);
        }
        if Kind::of(&write.resource) == Kind::Pod && shows_a_run(object) {
            self.ran.insert(write.uid.clone());
        }
        if Kind::of(&write.resource) == Kind::Pod
            && is_deleting(object)
            && main_exit_code(object).is_none()
        {
            self.cut_short.insert(write.uid.clone());
        }
        if is_removal(write) {
            self.gone.insert(write.uid.clone());
        }
        self.objects.insert(write.uid.clone(), Arc::clone(object));
    }

    /// The last state of an object that was written.
    pub(crate) fn object(&self, uid: &str) -> Option<&Value> {
        self.objects.get(uid).map(|object| &**object)
    }

    /// An object that is there.
    pub(crate) fn live(&self, uid: &str) -> Option<&Value> {
        self.object(uid).filter(|_| !self.gone.contains(uid))
    }

    /// The last states of all objects of a kind, of those that are gone too.
    pub(crate) fn all<'a>(&'a self, kind: &'static str) -> impl Iterator<Item = &'a Value> {
        self.objects
            .values()
            .map(|object| &**object)
            .filter(move |object| text(object, "/kind") == kind)
    }

    /// The pods that are there.
    pub(crate) fn live_pods(&self) -> impl Iterator<Item = &Value> {
        self.all("Pod").filter(|pod| !self.gone.contains(uid(pod)))
    }

    /// Whether a hold of ours was ever on this object.
    pub(crate) fn was_held(&self, uid: &str) -> bool {
        self.held.contains_key(uid)
    }

    /// Whether a hold was on one object before the deletion of another was asked for.
    pub(crate) fn was_held_before_deletion(&self, held: &str, deleted: &str) -> bool {
        match (self.held.get(held), self.deletion_asked.get(deleted)) {
            (Some(held), Some(deleted)) => held < deleted,
            (held, _) => held.is_some(),
        }
    }

    /// Whether anything of this pod ever ran.
    pub(crate) fn has_run(&self, uid: &str) -> bool {
        self.ran.contains(uid)
    }

    /// Whether its deletion ended this pod of a workflow: it came before the end of the main
    /// container, which has failed or never began.
    pub(crate) fn was_cut_short(&self, pod: &Value) -> bool {
        let without_result = match main_exit_code(pod) {
            Some(code) => code != 0,
            None => !self.has_run(uid(pod)),
        };
        without_result && self.cut_short.contains(uid(pod))
    }

    /// Whether somebody outside the story has changed an object or its workflow: then anything may
    /// be as it is because they wanted it so.
    pub(crate) fn is_by_hand(&self, object: &Value) -> bool {
        self.by_hand.contains(uid(object))
            || workflow_of(object).is_some_and(|owner| self.by_hand.contains(owner))
    }

    /// Whether the deletion of this object was asked for.
    pub(crate) fn is_to_go(&self, uid: &str) -> bool {
        self.deletion_asked.contains_key(uid)
    }

    /// Whether the deletion of this namespace was asked for.
    pub(crate) fn is_namespace_going(&self, name: &str) -> bool {
        self.namespaces_going.contains(name)
    }

    /// Whether the deletion of this object, or of its namespace, was asked for.
    pub(crate) fn is_doomed(&self, object: &Value) -> bool {
        self.is_to_go(uid(object)) || self.is_namespace_going(text(object, "/metadata/namespace"))
    }
}
