//! The cluster's past, replayed write by write from the API server's record.
//!
//! Nothing of the product is asked here: objects are plain JSON, and what a release needs is
//! written down a second time, by hand.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use belayer_sandbox::workload::{ARGO, USER, names};
use belayer_sandbox::{Gvr, Verb, Write};
use serde_json::Value;

use super::super::{BELAYER, HOLD, NEIGHBOUR};

/// What the stand-in writes about a pod that was gone before its result was taken.
const LOST: &str = "pod deleted";

/// Everybody who has a part in the story. Whoever else writes is a visitor with kubectl.
const CAST: &[&str] = &[
    BELAYER,
    USER,
    ARGO,
    NEIGHBOUR,
    "garbage-collector",
    "namespace-controller",
    "scheduler",
    "pod-gc",
    "kube-apiserver",
    "node-lifecycle-controller",
    "cloud-node-controller",
];

/// Why a pod may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Why {
    /// Its result stands in its workflow's status.
    ResultTaken,
    /// Somebody asked for the deletion of its workflow.
    WorkflowDeleted,
    /// Somebody asked for the deletion of its namespace.
    NamespaceDeleted,
    /// No workflow owns it.
    NoWorkflow,
}

impl Why {
    /// In words.
    pub(in super::super) fn as_str(self) -> &'static str {
        match self {
            Self::ResultTaken => "result taken",
            Self::WorkflowDeleted => "workflow deleted",
            Self::NamespaceDeleted => "namespace deleted",
            Self::NoWorkflow => "no workflow",
        }
    }
}

/// What a workflow's status says about one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    /// Its result was taken.
    Taken,
    /// It was gone before.
    Lost,
    /// Nothing final.
    Open,
}

/// All that has been written up to one moment.
#[derive(Debug, Default)]
pub(super) struct Past {
    objects: HashMap<String, Arc<Value>>,
    deletion_asked: HashSet<String>,
    namespaces_going: HashSet<String>,
    held: HashSet<String>,
    by_hand: HashSet<String>,
}

impl Past {
    /// Takes in the next write.
    pub(super) fn add(&mut self, write: &Write) {
        if !write.changed() {
            return;
        }
        let actor = write.actor.as_str();
        if !CAST.contains(&actor) && !actor.starts_with("kubelet/") {
            self.by_hand.insert(write.uid.clone());
        }
        if matches!(write.verb, Verb::Delete | Verb::DeleteCollection) {
            self.deletion_asked.insert(write.uid.clone());
            if write.resource == Gvr::NAMESPACES {
                self.namespaces_going.insert(write.key.name.to_string());
            }
        }
        if write.resource == Gvr::NAMESPACES && write.verb == Verb::Create {
            self.namespaces_going.remove(&*write.key.name);
        }
        let Some(object) = &write.object else { return };
        if is_held(object) {
            self.held.insert(write.uid.clone());
        }
        self.objects.insert(write.uid.clone(), Arc::clone(object));
    }

    /// The last state of an object that was written.
    pub(super) fn object(&self, uid: &str) -> Option<&Value> {
        self.objects.get(uid).map(|object| &**object)
    }

    /// The last states of all objects of a kind.
    pub(super) fn all<'a>(&'a self, kind: &'static str) -> impl Iterator<Item = &'a Value> {
        self.objects
            .values()
            .map(|object| &**object)
            .filter(move |object| text(object, "/kind") == kind)
    }

    /// Whether our hold was ever on this object.
    pub(super) fn was_held(&self, uid: &str) -> bool {
        self.held.contains(uid)
    }

    /// Whether somebody outside the story has changed a pod or its workflow: then anything may
    /// be as it is because they wanted it so.
    pub(super) fn is_by_hand(&self, object: &Value) -> bool {
        self.by_hand.contains(text(object, "/metadata/uid"))
            || owner(object).is_some_and(|owner| self.by_hand.contains(owner))
    }

    /// Whether the deletion of this object, or of its namespace, was asked for.
    pub(super) fn is_doomed(&self, object: &Value) -> bool {
        self.deletion_asked.contains(text(object, "/metadata/uid"))
            || self
                .namespaces_going
                .contains(text(object, "/metadata/namespace"))
    }

    /// Why this pod may go, if it may.
    pub(super) fn why_may_go(&self, pod: &Value) -> Option<Why> {
        if self
            .namespaces_going
            .contains(text(pod, "/metadata/namespace"))
        {
            return Some(Why::NamespaceDeleted);
        }
        let Some(owner) = owner(pod) else {
            return Some(Why::NoWorkflow);
        };
        if self.deletion_asked.contains(owner) || !self.objects.contains_key(owner) {
            return Some(Why::WorkflowDeleted);
        }
        (self.node_of(pod) == Node::Taken).then_some(Why::ResultTaken)
    }

    /// What the pod's workflow, matched by UID, says about it.
    pub(super) fn node_of(&self, pod: &Value) -> Node {
        let id = pod
            .pointer("/metadata/annotations")
            .and_then(|all| all.get(names::NODE_ID));
        let (Some(workflow), Some(id)) = (
            owner(pod).and_then(|owner| self.object(owner)),
            id.and_then(Value::as_str),
        ) else {
            return Node::Open;
        };
        let node = workflow
            .pointer("/status/nodes")
            .and_then(|nodes| nodes.get(id));
        match node {
            Some(node) if text(node, "/message") == LOST => Node::Lost,
            Some(node) if matches!(text(node, "/phase"), "Succeeded" | "Failed" | "Error") => {
                Node::Taken
            }
            _ => Node::Open,
        }
    }
}

/// The UID of the workflow that controls a pod.
fn owner(pod: &Value) -> Option<&str> {
    let owners = pod.pointer("/metadata/ownerReferences")?.as_array()?;
    let workflow = |owner: &&Value| owner["kind"] == "Workflow" && owner["controller"] == true;
    owners.iter().find(workflow)?["uid"].as_str()
}

/// Whether our hold is on an object.
pub(super) fn is_held(object: &Value) -> bool {
    let finalizers = object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array);
    finalizers.is_some_and(|all| all.iter().any(|finalizer| finalizer == HOLD))
}

/// Whether an object is being deleted.
pub(super) fn is_deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// `Pod team-a/web-0`.
pub(super) fn called(object: &Value) -> String {
    let (namespace, name) = (
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name"),
    );
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("{} {namespace}{slash}{name}", text(object, "/kind"))
}

/// The text at a JSON pointer; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
