//! Reports what waits for a consumer: on each node the ended pods that are being deleted and still held, and how long no
//! owner of such pods has changed (A21). A consumer may serve one namespace only, so each namespace is considered by
//! itself: the others must not hide that its consumer is silent.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use belayer_core::events::{EventRecorder, Regarding};
use belayer_core::informer::Lookup;
use belayer_core::object::{ObjectKey, Resource, Uid};
use belayer_core::slim::Pod;
use belayer_holds::decision::Notice;

use crate::component::{Owners, PodFinalizer};
use crate::decide::REPORT_AFTER;
use crate::profile::is_of_kind;

/// How often the waiting pods are visited.
const EVERY: Duration = Duration::from_secs(10);

/// Maximum number of pods of a namespace that are visited, those that have waited longest.
const VISITED: usize = 1_000;

/// Shortest time between two Events about one node.
const EVENT_AGAIN: Duration = Duration::from_secs(300);

/// What was last seen of the owners of waiting pods.
#[derive(Debug, Default)]
pub(super) struct Consumers {
    next: Option<Instant>,
    /// The owners for whose pods a consumer is needed, and since when none of them has changed.
    silent: HashMap<Owners, Instant>,
    /// When an Event about a node was last recorded.
    reported: HashMap<Arc<str>, Instant>,
}

impl Consumers {
    /// Visits the waiting pods, if it is time for that.
    pub(super) fn visit(&mut self, finalizer: &PodFinalizer, events: &EventRecorder) {
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + EVERY);
        let mut seen: HashSet<Owners> = HashSet::new();
        let mut on_nodes: BTreeMap<Arc<str>, Vec<ObjectKey>> = BTreeMap::new();
        let late = belayer_core::clock::now() - REPORT_AFTER;
        for (key, since) in waiting(finalizer) {
            let Lookup::Found(pod) = finalizer.parts.pods.lookup(&key) else {
                continue;
            };
            let pod = &pod.object;
            seen.extend(owners_of(finalizer, pod));
            if let Some(node) = pod.node_name.clone().filter(|_| since <= late) {
                on_nodes.entry(node).or_default().push(key);
            }
        }
        let changed = finalizer.take_changed_owners();
        self.silent
            .retain(|owners, _| seen.contains(owners) && !changed.contains(owners));
        for owners in seen {
            self.silent.entry(owners).or_insert(now);
        }
        self.publish(finalizer, now);
        self.reported
            .retain(|_, at| now.duration_since(*at) < EVENT_AGAIN);
        for (node, pods) in on_nodes {
            if let Entry::Vacant(place) = self.reported.entry(node) {
                record(events, place.key(), &pods);
                place.insert(now);
            }
        }
    }

    /// Forgets all owners: after a reload nothing publishes a kind that the configuration does not name any more.
    pub(super) fn end(mut self, finalizer: &PodFinalizer) {
        self.silent.clear();
        self.publish(finalizer, Instant::now());
    }

    /// Publishes the longest silence of all namespaces, by kind.
    fn publish(&self, finalizer: &PodFinalizer, now: Instant) {
        for (kind, owners) in &finalizer.parts.owners {
            let of_kind = self.silent.iter().filter(|((of, _), _)| of == kind);
            let oldest = of_kind.map(|(_, since)| *since).min();
            let silent = oldest.map_or(Duration::ZERO, |since| now.duration_since(since));
            metrics::gauge!(belayer_metrics::CONSUMER_SILENT, "kind" => owners.label().to_owned())
                .set(silent.as_secs_f64());
        }
    }
}

/// The ended pods that are being deleted and held, the longest waiting first, and since when.
fn waiting(finalizer: &PodFinalizer) -> impl Iterator<Item = (ObjectKey, Timestamp)> {
    let waiting = finalizer.held_objects().waiting().into_iter();
    let ended = waiting.filter_map(|(key, pod)| pod.ended.then_some(key).zip(pod.deleting));
    let mut visited: HashMap<Arc<str>, usize> = HashMap::new();
    ended.filter(move |(key, _)| {
        let visited = visited.entry(Arc::clone(key.shared_namespace()));
        let visited = visited.or_default();
        *visited += 1;
        *visited <= VISITED
    })
}

/// The owners among which a pod's owner is, if that is in its store.
fn owners_of(finalizer: &PodFinalizer, pod: &Pod) -> Option<Owners> {
    let owner = pod.meta.controller.as_ref()?;
    let mut kinds = finalizer.parts.owners.iter().map(|(kind, _)| kind);
    let kind = kinds.find(|kind| is_of_kind(owner, kind))?;
    let (key, found) = finalizer.find_owner(&pod.meta, owner, kind);
    let is_stored = matches!(found, Lookup::Found(_));
    is_stored.then(|| (kind.clone(), Arc::clone(key.shared_namespace())))
}

/// Events about a Node name it as UID, as those of the kubelet do.
fn record(events: &EventRecorder, node: &Arc<str>, pods: &[ObjectKey]) {
    let regarding = Regarding {
        resource: Resource::nodes(),
        key: ObjectKey::cluster(Arc::clone(node)),
        uid: Uid::new(&**node),
    };
    let Some(first) = pods.first() else {
        return;
    };
    let others = match pods.len() {
        1 => String::new(),
        more => format!(" and {} more", more - 1),
    };
    let message = format!(
        "pods of this node have ended and are being deleted, but stay until their consumer has read their results: \
         {first}{others}; `belayer explain pod/NAME` shows what each waits for"
    );
    let notice = Notice::normal("HeldPodsWait", message);
    events.record(&regarding, &notice);
}
