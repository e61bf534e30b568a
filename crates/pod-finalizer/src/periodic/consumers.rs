//! Reports what waits for a consumer: on each node the ended pods that are being deleted and still held, and how long no
//! owner of such pods has changed (A21). A consumer may serve one namespace only, so each namespace is considered by
//! itself: the others must not hide that its consumer is silent.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use belayer_core::events::{EventRecorder, Regarding};
use belayer_core::informer::Lookup;
use belayer_core::object::{ObjectKey, Resource, ResourceVersion, Uid};
use belayer_holds::decision::Notice;

use crate::component::PodFinalizer;
use crate::decide::REPORT_AFTER;
use crate::profile::is_of_kind;

/// How often the waiting pods are visited.
const EVERY: Duration = Duration::from_secs(10);

/// Maximum number of pods that are visited, those that have waited longest.
const VISITED: usize = 1_000;

/// Shortest time between two Events about one node.
const EVENT_AGAIN: Duration = Duration::from_secs(300);

/// The owners of a kind in a namespace.
type Owners = (Resource, Arc<str>);

/// What was last seen of the owners of waiting pods.
#[derive(Debug, Default)]
pub(super) struct Consumers {
    next: Option<Instant>,
    /// The newest version of an owner of a waiting pod, and since when it is the newest.
    newest: HashMap<Owners, (ResourceVersion, Instant)>,
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
        let mut seen: HashMap<Owners, ResourceVersion> = HashMap::new();
        let mut on_nodes: BTreeMap<Arc<str>, Vec<ObjectKey>> = BTreeMap::new();
        let late = belayer_core::clock::now() - REPORT_AFTER;
        for (key, since) in waiting(finalizer) {
            let Lookup::Found(pod) = finalizer.parts.pods.lookup(&key) else {
                continue;
            };
            let pod = &pod.object;
            if let Some((kind, owner)) = owner_of(finalizer, pod) {
                let owners = (kind, Arc::clone(key.shared_namespace()));
                let newest = seen.entry(owners).or_default();
                *newest = (*newest).max(owner);
            }
            if let Some(node) = pod.node_name.clone().filter(|_| since <= late) {
                on_nodes.entry(node).or_default().push(key);
            }
        }
        self.newest.retain(|owners, _| seen.contains_key(owners));
        for (owners, newest) in seen {
            let known = self.newest.entry(owners).or_insert((newest, now));
            if known.0 != newest {
                *known = (newest, now);
            }
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

    /// Publishes the longest silence of all namespaces, by kind.
    fn publish(&self, finalizer: &PodFinalizer, now: Instant) {
        for (kind, _) in &finalizer.parts.owners {
            let of_kind = self.newest.iter().filter(|((of, _), _)| of == kind);
            let oldest = of_kind.map(|(_, (_, since))| *since).min();
            let silent = oldest.map_or(Duration::ZERO, |since| now.duration_since(since));
            metrics::gauge!(belayer_metrics::CONSUMER_SILENT, "kind" => kind.to_string())
                .set(silent.as_secs_f64());
        }
    }
}

/// The ended pods that are being deleted and held, the longest waiting first, and since when.
fn waiting(finalizer: &PodFinalizer) -> impl Iterator<Item = (ObjectKey, Timestamp)> {
    let waiting = finalizer.held_objects().waiting().into_iter();
    let ended = waiting.filter_map(|(key, pod)| pod.ended.then_some(key).zip(pod.deleting));
    ended.take(VISITED)
}

/// The kind and the version of a pod's owner in its store.
fn owner_of(
    finalizer: &PodFinalizer,
    pod: &belayer_core::slim::Pod,
) -> Option<(Resource, ResourceVersion)> {
    let owner = pod.meta.controller.as_ref()?;
    let mut kinds = finalizer.parts.owners.iter().map(|(kind, _)| kind);
    let kind = kinds.find(|kind| is_of_kind(owner, kind))?;
    match finalizer.find_owner(&pod.meta, owner, kind).1 {
        Lookup::Found(found) => Some((kind.clone(), found.object.0.resource_version)),
        Lookup::Absent | Lookup::Unknown => None,
    }
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
