//! The cluster's history, replayed write by write from the API server's record.
//!
//! It shares no code with the controllers: objects are plain JSON, and the conditions of a release
//! are implemented a second time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use belayer_holds::names::{IGNORE_LABEL, RECREATION_ENDED_ANNOTATION, RECREATION_UID_ANNOTATION};
use belayer_sandbox::{Gvr, Verb, Write};
use belayer_workload::{ARGO, ARGO_SERVER, USER, names};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::objects::{
    Kind, Node, annotation, controller_of, finalizers, has_hold, holds, is_completed, is_deleting,
    is_final_record, is_rejected, is_removal, main_exit_code, shows_a_run, text, uid, workflow_of,
};
use crate::{BELAYER, RECREATION_HOLD, Settings};

/// The actors of every test. Any other actor that the test does not name is a person with kubectl.
const KNOWN_ACTORS: &[&str] = &[
    BELAYER,
    USER,
    ARGO,
    ARGO_SERVER,
    "garbage-collector",
    "namespace-controller",
    "scheduler",
    "pod-gc",
    "kube-apiserver",
    "node-lifecycle-controller",
    "cloud-node-controller",
    KUBELET,
];

const KUBELET: &str = "kubelet";

/// Everything that has been written up to one point of the record. Objects are identified by UID.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Further actors of the test, in addition to [`KNOWN_ACTORS`].
    others: HashSet<String>,
    /// Last states, also of removed objects.
    objects: HashMap<String, Arc<Value>>,
    /// The states of pods as they were created.
    created: HashMap<String, Arc<Value>>,
    gone: HashSet<String>,
    /// The index of the write that created the object.
    created_at: HashMap<String, usize>,
    /// The first delete request in the record.
    deleted_at: HashMap<String, (usize, Timestamp)>,
    /// Objects that a user or a controller deleted before Belayer did.
    deleted_by_user: HashSet<String>,
    /// The write that deleted a namespace, by name; the last one if there were several of that name.
    namespaces_deleted_at: HashMap<String, usize>,
    /// The index of the write that first added a hold of Belayer's.
    held: HashMap<String, usize>,
    /// Pods of which a container ran.
    ran: HashSet<String>,
    /// Pods whose main container had not ended when they were deleted.
    ended_by_deletion: HashSet<String>,
    /// Pods whose node was removed, or was not ready when they were deleted by force, and since when.
    lost_with_node: HashMap<String, Timestamp>,
    /// Belayer's configuration.
    pub(crate) settings: Settings,
    /// Pods that Argo has labelled as completed. It may yet write that the pod was deleted, of a node whose outputs are incomplete.
    labelled: HashSet<String>,
    /// Pods whose final outcome Belayer has recorded.
    recorded: HashSet<String>,
    /// Workflows that have completed, and those that have succeeded.
    completed: HashSet<String>,
    succeeded: HashSet<String>,
    /// When each workflow was last retried.
    retried_at: HashMap<String, Timestamp>,
    /// The nodes, by workflow and ID, of pods whose result was consumed when they were removed. A pod of the same name may
    /// overwrite it then.
    consumed_nodes: HashSet<(String, String)>,
    /// Pods whose node a retry of their workflow removed.
    of_earlier_run: HashSet<String>,
    /// Those of them whose result had been consumed.
    read_before_retry: HashSet<String>,
    by_hand: HashSet<String>,
    /// Namespaces that have or had the label with which Belayer ignores them, and when it was removed.
    ignored: HashMap<String, Option<Timestamp>>,
    /// Objects that Belayer released in an ignored namespace, and pods that it released while they were being deleted and their
    /// status showed no start: their kubelet may be cut off from the API server, and report a result later.
    released_without_result: HashSet<String>,
    /// The time of the write that is checked.
    pub(crate) now: Timestamp,
    /// Whether Belayer had given up that write when the server handled it.
    pub(crate) is_late: bool,
    /// Pods that their kubelet rejected long after it had accepted them: a container may have run unseen.
    rejected_late: HashSet<String>,
    /// Pods that Belayer created by a request that it had given up.
    created_late: HashSet<String>,
    /// Pods from which another client removed Belayer's finalizer for re-creation, and that have not got it again.
    unheld_by_others: HashSet<String>,
}

/// How long after a change Belayer may still act on what it read before: it reads, and then writes.
const LATELY: SignedDuration = SignedDuration::from_secs(30);

/// How much longer a request may take that Belayer gives up.
const LATE: SignedDuration = SignedDuration::from_secs(60);

/// The longest time between a pod's start and its rejection at its admission.
const ADMISSION: SignedDuration = SignedDuration::from_secs(10);

impl History {
    /// An empty history.
    pub(crate) fn new(others: &[&str], settings: Settings) -> Self {
        Self {
            settings,
            others: others.iter().map(|&actor| actor.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// Adds the next write.
    pub(crate) fn add(&mut self, write: &Write) {
        if !write.changed() {
            return;
        }
        let actor = write.actor.program();
        let is_known = KNOWN_ACTORS.contains(&actor) || self.others.contains(actor);
        if !is_known {
            self.by_hand.insert(write.uid.clone());
        }
        if matches!(write.verb, Verb::Delete | Verb::DeleteCollection) {
            let is_first = !self.deleted_at.contains_key(&write.uid);
            if is_first && actor != BELAYER && actor != KUBELET {
                self.deleted_by_user.insert(write.uid.clone());
            }
            let when = self.deleted_at.entry(write.uid.clone());
            when.or_insert((write.index, write.at));
            if write.resource == Gvr::NAMESPACES {
                let name = write.key.name.to_string();
                self.namespaces_deleted_at.insert(name, write.index);
            }
        }
        let Some(object) = &write.object else { return };
        if write.resource == Gvr::NAMESPACES {
            self.ignore(object, write.at);
        }
        let before = self.objects.get(&write.uid).cloned();
        let before = before.as_deref();
        if actor == BELAYER
            && before.is_some_and(|before| holds(before).count() > holds(object).count())
            && (self.is_ignored(object) || self.is_deleted_before_start(object))
        {
            self.released_without_result.insert(write.uid.clone());
        }
        if actor == ARGO_SERVER && Kind::of(&write.resource) == Kind::Workflow {
            self.retry(object);
            self.retried_at.insert(write.uid.clone(), write.at);
        }
        let is_held = |object: &Value| finalizers(object).any(|name| name == RECREATION_HOLD);
        if actor != BELAYER && before.is_some_and(is_held) && !is_held(object) {
            self.unheld_by_others.insert(write.uid.clone());
        } else if is_held(object) {
            self.unheld_by_others.remove(&write.uid);
        }
        if !matches!(actor, BELAYER | ARGO | ARGO_SERVER)
            && before.is_some_and(|before| marks(before) != marks(object))
        {
            self.by_hand.insert(write.uid.clone());
            self.by_hand.extend(workflow_of(object).map(str::to_owned));
        }
        if write.verb == Verb::Create && write.subresource.is_empty() {
            self.created_at.insert(write.uid.clone(), write.index);
            if Kind::of(&write.resource) == Kind::Pod {
                self.created.insert(write.uid.clone(), Arc::clone(object));
                if write.actor.is_late() {
                    self.created_late.insert(write.uid.clone());
                }
            }
        }
        if actor == ARGO
            && Kind::of(&write.resource) == Kind::Pod
            && object["metadata"]["labels"][names::COMPLETED] == "true"
        {
            self.labelled.insert(write.uid.clone());
        }
        if has_hold(object) {
            self.held.entry(write.uid.clone()).or_insert(write.index);
        }
        if Kind::of(&write.resource) == Kind::Pod && shows_a_run(object) {
            self.ran.insert(write.uid.clone());
        }
        if Kind::of(&write.resource) == Kind::Pod
            && is_rejected(object)
            && !before.is_some_and(is_rejected)
            && text(object, "/status/startTime")
                .parse::<Timestamp>()
                .is_ok_and(|start| write.at.duration_since(start) > ADMISSION)
        {
            self.rejected_late.insert(write.uid.clone());
        }
        if Kind::of(&write.resource) == Kind::Pod
            && is_deleting(object)
            && main_exit_code(object).is_none()
        {
            self.ended_by_deletion.insert(write.uid.clone());
        }
        if &*write.resource.resource == "podoutcomes" && is_final_record(object) {
            let pod = text(object, "/spec/podUID");
            self.recorded.insert(pod.to_owned());
        }
        if Kind::of(&write.resource) == Kind::Workflow {
            let labels = &object["metadata"]["labels"];
            if labels[names::COMPLETED] == "true" {
                self.completed.insert(write.uid.clone());
            }
            if labels[names::PHASE] == "Succeeded" {
                self.succeeded.insert(write.uid.clone());
            }
        }
        if is_removal(write) {
            if self.node_of(object) == Node::Taken {
                self.consumed_nodes.extend(node_id(object));
            }
            self.gone.insert(write.uid.clone());
            if write.resource == Gvr::NODES {
                self.lose_pods_of(&write.key.name, write.at);
            }
        }
        self.objects.insert(write.uid.clone(), Arc::clone(object));
        match Kind::of(&write.resource) {
            Kind::Pod if is_forced(object) => {
                let node = text(object, "/spec/nodeName");
                let is_its = |found: &&Value| text(found, "/metadata/name") == node;
                if self.all("Node").filter(is_its).any(|node| !is_ready(node)) {
                    self.lose([write.uid.clone()], write.at);
                }
            }
            _ if write.resource == Gvr::NODES && !is_ready(object) => {
                let pods = self.live_pods().filter(|pod| is_forced(pod));
                let there = pods.filter(|pod| text(pod, "/spec/nodeName") == &*write.key.name);
                let lost: Vec<String> = there.map(|pod| uid(pod).to_owned()).collect();
                self.lose(lost, write.at);
            }
            _ => {}
        }
    }

    /// A retry removed nodes of this workflow: that results of their earlier pods were consumed permits no release of the pods that
    /// Argo creates for them now.
    fn retry(&mut self, workflow: &Value) {
        let owner = uid(workflow);
        let nodes = workflow.pointer("/status/nodes");
        let is_removed = |(of, node): &(String, String)| {
            of == owner && nodes.is_none_or(|nodes| nodes.get(node).is_none())
        };
        self.consumed_nodes.retain(|node| !is_removed(node));
        let pods = self.all("Pod");
        let pods = pods.filter(|pod| node_id(pod).is_some_and(|node| is_removed(&node)));
        let pods: Vec<&Value> = pods.collect();
        let read = pods.iter().filter(|pod| self.node_of(pod) == Node::Taken);
        let read: Vec<String> = read.map(|pod| uid(pod).to_owned()).collect();
        let pods: Vec<String> = pods.iter().map(|pod| uid(pod).to_owned()).collect();
        self.read_before_retry.extend(read);
        self.of_earlier_run.extend(pods);
    }

    /// Whether the result of this pod was consumed before a retry of its workflow removed the pod's node.
    pub(crate) fn was_read_before_retry(&self, pod: &Value) -> bool {
        self.read_before_retry.contains(uid(pod))
    }

    /// Whether a retry of the pod's workflow removed the pod's node.
    pub(crate) fn is_of_earlier_run(&self, pod: &Value) -> bool {
        self.of_earlier_run.contains(uid(pod))
    }

    fn lose_pods_of(&mut self, node: &str, at: Timestamp) {
        let pods = self
            .live_pods()
            .filter(|pod| text(pod, "/spec/nodeName") == node);
        let lost: Vec<String> = pods.map(|pod| uid(pod).to_owned()).collect();
        self.lose(lost, at);
    }

    fn lose(&mut self, pods: impl IntoIterator<Item = String>, at: Timestamp) {
        for pod in pods {
            self.lost_with_node.entry(pod).or_insert(at);
        }
    }

    /// The last state of an object that was written.
    pub(crate) fn object(&self, uid: &str) -> Option<&Value> {
        self.objects.get(uid).map(|object| &**object)
    }

    /// The pod as it was created, if its creation is in the record.
    pub(crate) fn created_pod(&self, uid: &str) -> Option<&Value> {
        self.created.get(uid).map(|pod| &**pod)
    }

    /// The last state of an object that exists.
    pub(crate) fn live(&self, uid: &str) -> Option<&Value> {
        self.object(uid).filter(|_| !self.gone.contains(uid))
    }

    /// The last states of all objects of a kind, also of removed ones.
    pub(crate) fn all<'a>(&'a self, kind: &'static str) -> impl Iterator<Item = &'a Value> {
        self.objects
            .values()
            .map(|object| &**object)
            .filter(move |object| text(object, "/kind") == kind)
    }

    /// The pods that exist.
    pub(crate) fn live_pods(&self) -> impl Iterator<Item = &Value> {
        self.all("Pod").filter(|pod| !self.gone.contains(uid(pod)))
    }

    /// Whether the object ever had a hold of Belayer's.
    pub(crate) fn had_hold(&self, uid: &str) -> bool {
        self.held.contains_key(uid)
    }

    /// Whether the object was created by this write or a later one.
    pub(crate) fn is_created_from(&self, uid: &str, write: usize) -> bool {
        self.created_at
            .get(uid)
            .is_some_and(|created| *created >= write)
    }

    /// Whether another client than Belayer created this pod later than that one. A pod that Belayer created late and has not deleted
    /// counts as one: Belayer may have left it to its user.
    pub(crate) fn is_stranger_after(&self, pod: &Value, before: &Value) -> bool {
        let created = |pod: &Value| self.created_at.get(uid(pod));
        let is_belayers = self
            .created_pod(uid(pod))
            .is_some_and(|pod| !annotation(pod, RECREATION_UID_ANNOTATION).is_empty());
        let is_deleted_by_belayer =
            self.deleted_at.contains_key(uid(pod)) && !self.deleted_by_user.contains(uid(pod));
        let is_left = self.is_created_late(pod) && !is_deleted_by_belayer;
        (!is_belayers || is_left) && created(pod) > created(before)
    }

    /// Whether one object had a hold before another was deleted.
    pub(crate) fn had_hold_before_deletion(&self, held: &str, deleted: &str) -> bool {
        match (self.held.get(held), self.deleted_at.get(deleted)) {
            (Some(held), Some((deleted, _))) => held < deleted,
            (held, _) => held.is_some(),
        }
    }

    /// Whether any container of this pod ever ran.
    pub(crate) fn has_run(&self, uid: &str) -> bool {
        self.ran.contains(uid)
    }

    /// Whether its deletion ended this pod of a workflow: the delete came before the end of the main
    /// container, which has failed or never began.
    pub(crate) fn was_ended_by_deletion(&self, pod: &Value) -> bool {
        let without_result = match main_exit_code(pod) {
            Some(code) => code != 0,
            None => !self.has_run(uid(pod)),
        };
        without_result && self.ended_by_deletion.contains(uid(pod))
    }

    /// Whether this pod was deleted before its status showed that a container had started: it may be released at once.
    fn is_deleted_before_start(&self, pod: &Value) -> bool {
        !self.settings.holds_deleted
            && main_exit_code(pod).is_none()
            && self.was_ended_by_deletion(pod)
    }

    /// Whether this pod is being deleted after its node was lost, before its main container ended.
    pub(crate) fn was_node_lost(&self, pod: &Value) -> bool {
        is_deleting(pod)
            && main_exit_code(pod).is_none()
            && self.lost_with_node.contains_key(uid(pod))
    }

    /// Whether the pod's node was removed, or was not ready when the pod was deleted by force.
    pub(crate) fn is_lost_with_node(&self, pod: &Value) -> bool {
        self.lost_with_node.contains_key(uid(pod))
    }

    /// Whether this pod has been on a lost node, and been deleted, for less than what is configured.
    pub(crate) fn is_lost_too_recently(&self, pod: &Value, now: Timestamp) -> bool {
        let lost = self.lost_with_node.get(uid(pod)).copied();
        let deleted = self.deleted_at.get(uid(pod)).map(|(_, at)| *at);
        let since = lost.max(deleted);
        let delay = SignedDuration::try_from(self.settings.node_lost_delay).unwrap_or_default();
        since.is_some_and(|since| now.duration_since(since) < delay)
    }

    /// Whether an actor outside the test has changed the object or its workflow, or any other actor what Argo or
    /// Belayer say about it, so that its state is not Belayer's responsibility.
    pub(crate) fn is_by_hand(&self, object: &Value) -> bool {
        self.by_hand.contains(uid(object))
            || workflow_of(object).is_some_and(|owner| self.by_hand.contains(owner))
    }

    /// Whether another client removed Belayer's finalizer for re-creation, and the pod has not got it again. Once it is deleted,
    /// nothing shows that it ran.
    pub(crate) fn is_unheld_by_others(&self, pod: &Value) -> bool {
        self.unheld_by_others.contains(uid(pod))
    }

    /// Whether Belayer created this pod by a request that it had given up: it may be needed no more.
    pub(crate) fn is_created_late(&self, pod: &Value) -> bool {
        self.created_late.contains(uid(pod))
    }

    /// Whether the write that is checked may still follow from what Belayer read before this time.
    fn is_lately(&self, at: Timestamp) -> bool {
        let most = if self.is_late { LATELY + LATE } else { LATELY };
        self.now.duration_since(at) < most
    }

    /// Whether the pod is of the profile whose consumer reads records.
    pub(crate) fn is_read_by_record(&self, pod: &Value) -> bool {
        let app = self.settings.recorded_app;
        app.is_some_and(|app| pod["metadata"]["labels"]["app"] == app)
    }

    /// Whether Argo has labelled this pod as completed.
    pub(crate) fn is_labelled(&self, uid: &str) -> bool {
        self.labelled.contains(uid)
    }

    /// Whether the kubelet had accepted this pod long before it rejected it.
    pub(crate) fn was_rejected_late(&self, uid: &str) -> bool {
        self.rejected_late.contains(uid)
    }

    /// Whether the final outcome of this pod is recorded.
    pub(crate) fn is_recorded(&self, uid: &str) -> bool {
        self.recorded.contains(uid)
    }

    /// Whether this workflow has ever completed.
    pub(crate) fn has_completed(&self, uid: &str) -> bool {
        self.completed.contains(uid)
    }

    /// Whether this workflow has ever succeeded.
    pub(crate) fn has_succeeded(&self, uid: &str) -> bool {
        self.succeeded.contains(uid)
    }

    /// Whether the result of an earlier pod of this pod's node was consumed.
    pub(crate) fn is_of_consumed_node(&self, pod: &Value) -> bool {
        node_id(pod).is_some_and(|node| self.consumed_nodes.contains(&node))
    }

    /// Whether this object was deleted (it may still exist).
    pub(crate) fn is_deleted(&self, uid: &str) -> bool {
        self.deleted_at.contains_key(uid)
    }

    /// Whether another actor than Belayer deleted this object first.
    pub(crate) fn was_deleted_by_user(&self, uid: &str) -> bool {
        self.deleted_by_user.contains(uid)
    }

    /// When a user or a controller deleted the object before Belayer did.
    pub(crate) fn deleted_by_user_at(&self, uid: &str) -> Option<Timestamp> {
        let first = self.deleted_at.get(uid).map(|(_, at)| *at);
        first.filter(|_| self.was_deleted_by_user(uid))
    }

    fn ignore(&mut self, namespace: &Value, at: Timestamp) {
        let name = text(namespace, "/metadata/name");
        if namespace["metadata"]["labels"][IGNORE_LABEL] == "true" {
            self.ignored.insert(name.to_owned(), None);
        } else if let Some(until) = self.ignored.get_mut(name) {
            until.get_or_insert(at);
        }
    }

    /// Whether Belayer ignores the object's namespace, or did so shortly before: it reads the namespace, and then
    /// writes.
    pub(crate) fn is_ignored(&self, object: &Value) -> bool {
        let until = self.ignored.get(text(object, "/metadata/namespace"));
        until.is_some_and(|until| until.is_none_or(|until| self.is_lately(until)))
    }

    /// Whether Belayer released the object in an ignored namespace, or a pod that was deleted before its status showed a start.
    pub(crate) fn was_released_without_result(&self, object: &Value) -> bool {
        self.released_without_result.contains(uid(object))
    }

    /// Whether Belayer ever ignored the object's namespace.
    pub(crate) fn was_ever_ignored(&self, object: &Value) -> bool {
        self.ignored
            .contains_key(text(object, "/metadata/namespace"))
    }

    /// Whether this workflow has completed, or had shortly before a retry: Belayer reads the workflow, and then writes.
    pub(crate) fn has_finished_lately(&self, uid: &str) -> bool {
        let retried = self.retried_at.get(uid);
        self.object(uid).is_some_and(is_completed) || retried.is_some_and(|at| self.is_lately(*at))
    }

    /// Whether the controller owner of the pod was deleted: garbage collection deletes the pod.
    pub(crate) fn is_owner_deleted(&self, pod: &Value) -> bool {
        let owner = controller_of(self.created_pod(uid(pod)).unwrap_or(pod));
        owner.is_some_and(|owner| self.is_deleted(owner))
    }

    /// Whether the object's namespace was deleted (both may still exist). There may be another namespace of that name since.
    pub(crate) fn is_in_deleted_namespace(&self, object: &Value) -> bool {
        let namespace = text(object, "/metadata/namespace");
        let deleted = self.namespaces_deleted_at.get(namespace);
        let created = self.created_at.get(uid(object));
        deleted.is_some_and(|deleted| created < Some(deleted))
    }

    /// Whether this object or its namespace was deleted.
    pub(crate) fn is_deleted_or_in_deleted_namespace(&self, object: &Value) -> bool {
        self.is_deleted(uid(object)) || self.is_in_deleted_namespace(object)
    }
}

/// What Argo says about a pod in its label, and Belayer in its annotation. Whoever may change the pod can write them.
fn marks(pod: &Value) -> [Option<&Value>; 2] {
    let metadata = &pod["metadata"];
    [
        metadata["labels"].get(names::COMPLETED),
        metadata["annotations"].get(RECREATION_ENDED_ANNOTATION),
    ]
}

/// The workflow of a pod, and the ID of its node.
fn node_id(pod: &Value) -> Option<(String, String)> {
    let id = annotation(pod, names::NODE_ID);
    Some((workflow_of(pod)?.to_owned(), id.to_owned()))
}

/// Whether the pod is being deleted without a grace period.
fn is_forced(pod: &Value) -> bool {
    is_deleting(pod) && pod["metadata"]["deletionGracePeriodSeconds"] == 0
}

fn is_ready(node: &Value) -> bool {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}
