//! pod-recreation as a component of the pod runner: its hold, and the snapshots of its [records](crate::recreations).

mod clocks;
mod deleted;
mod events;
mod waits;

use std::sync::Arc;

use belayer_core::clock;
use belayer_core::informer::{Lookup, Store, Stored};
use belayer_core::object::{ObjectKey, OwnerReference, Uid};
use belayer_core::queries::Waiter;
use belayer_core::slim::{Keep, Namespace, Phase, Pod, Slim as _, Transition};
use belayer_core::workqueue::{Priority, WorkQueue};
use belayer_holds::held_objects::HeldObjects;
use belayer_holds::holding::Holding;
use belayer_holds::names::{FIELD_MANAGER, IGNORE_LABEL, POD_RECREATION_HOLD};
use belayer_holds::namespace::{NamespaceQuery, NamespaceView, is_cached_as_ignored};
use belayer_holds::node_wipe::NodeWipe;
use belayer_holds::owned::OwnerStores;
use belayer_holds::owner::OwnerQuery;
use belayer_holds::runner::{Change, Component};
use belayer_holds::selection::Selection;
use belayer_holds::view::{Answers, Cached, Objects, View};
use hashbrown::{HashMap, HashSet};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::NAME;
use crate::api::{self, Wipe, record_name};
use crate::config::Settings;
use crate::decide::{ObservedWipe, RecordSnapshot, yields_to};
use crate::evidence::Evidence;
use crate::holds::{self, HoldDecision, HoldSnapshot, ObservedRecord};
use crate::proof::FirstSeen;
use crate::query::RecreationQuery;
use crate::reason;
use crate::record::Record;
use crate::snapshot::{ANNOTATIONS, ORIGIN_ANNOTATIONS, ObservedPod, Origin, PodState, PodView};
pub(crate) use clocks::NodeClock;
use clocks::{Clocks, Reading};
use deleted::DeletedRecords;
pub(crate) use events::is_reported_when_found;
use waits::Waits;

/// The dependencies of the component.
pub struct Parts<V: View = Cached> {
    /// All pods, with the labels and annotations of [`keep_of_pods`].
    pub pods: V::Store<Pod>,
    /// All records.
    pub records: V::Store<Record>,
    /// The wipes of all nodes.
    pub wipes: V::Store<NodeWipe>,
    /// All namespaces.
    pub namespaces: V::Store<Namespace>,
    /// The kinds of owners that Belayer watches.
    pub owners: OwnerStores<V>,
    /// Live reads of records and owners.
    pub owner_queries: V::Queries<OwnerQuery>,
    /// Live reads of namespaces.
    pub namespace_queries: V::Queries<NamespaceQuery>,
    /// The queue of the pod runner.
    pub pods_queue: WorkQueue<ObjectKey>,
    /// The queue of the record runner.
    pub queue: WorkQueue<ObjectKey>,
}

/// Holds pods until they start, and assigns pods to records. Its rules are in [`row`](crate::row).
pub struct PodRecreation<V: View = Cached> {
    settings: Settings,
    pub(crate) parts: Parts<V>,
    /// Pods with the hold, and since when their deletion waits.
    held_objects: HeldObjects<Option<Timestamp>>,
    memory: Mutex<Memory>,
}

/// What this process has seen of existing pods, and what no object contains.
#[derive(Debug, Default)]
struct Memory {
    /// Rejected pods without a record, by the key of the record to create.
    candidates: HashMap<ObjectKey, ObjectKey>,
    /// First pods whose record another client deleted before the record had ended.
    cancelled: HashSet<Uid>,
    /// Pods that were rejected without their hold and without the proof that no container of them ran, while this process watched
    /// them or not long before.
    reported: HashSet<Uid>,
    /// Rejected pods without a record of which the metric has counted that they are not re-created.
    counted: HashSet<Uid>,
    /// The records of a pod's name, the first one first. Those of one second are in the order in which the watch delivered
    /// them.
    by_pod: HashMap<ObjectKey, Vec<RecordOfName>>,
    /// The last attempt whose pod was seen, by the namespace and the UID of the record.
    created: HashMap<(Arc<str>, Uid), u32>,
    /// The records that were deleted last.
    deleted: DeletedRecords,
    /// Since when records wait for the same.
    waits: Waits,
    /// How much the clocks of nodes differ.
    clocks: Clocks,
}

/// A record of a pod's name.
#[derive(Debug)]
struct RecordOfName {
    /// To the second.
    created: Option<Timestamp>,
    uid: Uid,
    key: ObjectKey,
}

impl Memory {
    fn note_record(&mut self, record: &Record) {
        let records = self.by_pod.entry(pod_key(record)).or_default();
        let place = records.partition_point(|known| known.created <= record.created);
        let known = RecordOfName {
            created: record.created,
            uid: record.meta.uid.clone(),
            key: record.meta.key.clone(),
        };
        records.insert(place, known);
    }

    fn forget_record(&mut self, record: &Record) {
        let pod = pod_key(record);
        if let Some(records) = self.by_pod.get_mut(&pod) {
            records.retain(|known| known.uid != record.meta.uid);
            if records.is_empty() {
                self.by_pod.remove(&pod);
            }
        }
    }
}

/// The labels and annotations of pods that the rules read.
pub(crate) fn keep_of_pods(settings: &Settings) -> Keep {
    Keep::nothing()
        .labels(settings.eligibility.labels())
        .annotations(ANNOTATIONS)
        .annotations_if_created_by(FIELD_MANAGER, ORIGIN_ANNOTATIONS)
}

/// The labels of namespaces that the rules read.
pub(crate) fn keep_of_namespaces() -> Keep {
    Keep::nothing().labels([IGNORE_LABEL])
}

impl<V: View> PodRecreation<V> {
    /// The component with these settings.
    pub fn new(settings: Settings, parts: Parts<V>) -> Self {
        Self {
            settings,
            parts,
            held_objects: HeldObjects::default(),
            memory: Mutex::default(),
        }
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Enqueues the record of a pod, unless there can be none.
    pub(crate) fn enqueue_record(&self, pod: &Stored<Pod>) {
        let view = self.view(pod);
        if !view.held && view.origin.is_none() && !view.is_selected() {
            return;
        }
        let key = record_key(pod, view.origin.as_ref());
        if view.is_candidate() {
            self.remember_candidate(&key, pod);
        } else if view.state == PodState::Pending && view.origin.is_none() {
            return;
        }
        self.enqueue(key);
    }

    /// Enqueues a record, unless it does not exist and is not to be created. A record's own changes enqueue it, too.
    pub(crate) fn enqueue(&self, record: ObjectKey) {
        let absent = || {
            let records = &self.parts.records;
            records.is_not_served() || matches!(records.lookup(&record), Lookup::Absent)
        };
        if self.candidate(&record).is_some() || !absent() {
            self.parts.queue.add(record, Priority::Normal);
        }
    }

    /// Enqueues the records of a name that a new pod has: a re-creation that waits must learn that the name was in use, even if
    /// it is free again when the pause ends.
    pub(crate) fn enqueue_records_of_name(&self, pod: &ObjectKey) {
        let keys = self.keys_of_name(pod);
        self.parts.queue.add_all(keys, Priority::Normal);
    }

    /// The records of a pod's name, the first one first.
    fn keys_of_name(&self, pod: &ObjectKey) -> Vec<ObjectKey> {
        let memory = self.memory.lock();
        let records = memory.by_pod.get(pod).into_iter().flatten();
        records.map(|record| record.key.clone()).collect()
    }

    /// What the rules read of a pod, including what this process has seen of it.
    pub fn view(&self, pod: &Pod) -> PodView {
        let mut view = if pod.phase == Phase::Failed {
            self.view_of_failed(pod)
        } else {
            PodView::of(pod, &self.settings, FirstSeen::Earlier)
        };
        if view.is_selected() && self.is_ignored(pod) {
            view.selection = Selection::Ignored;
        }
        // A second record of the pod would allow it more attempts, and the two would end each other.
        if view.origin.is_none() {
            let mut records = self.records_of_name(&pod.meta.key);
            view.origin = records.find_map(|record| Origin::by(&record, &view.uid));
        }
        view
    }

    /// Those of them that are in the store.
    fn records_of_name(&self, pod: &ObjectKey) -> impl Iterator<Item = Stored<Record>> {
        let keys = self.keys_of_name(pod).into_iter();
        keys.filter_map(|key| self.parts.records.lookup(&key).found())
    }

    /// A failed pod, with what the store has of its earlier versions. A pod from a live read has no such history, and
    /// the store may have missed versions before it.
    fn view_of_failed(&self, pod: &Pod) -> PodView {
        let Pod { meta, .. } = pod;
        let stored = self.parts.pods.lookup(&meta.key).found();
        let stored = stored.filter(|stored| stored.meta.uid == meta.uid);
        let mut pod = pod.clone();
        let first_seen = match stored {
            Some(stored) if V::FOLLOWS => {
                if stored.meta.resource_version == meta.resource_version {
                    pod = Pod::clone(&stored);
                } else {
                    pod.inherit(&stored, Transition::Missed);
                }
                FirstSeen::of(&pod)
            }
            _ => FirstSeen::Earlier,
        };
        let reading = if !V::FOLLOWS {
            Reading::Never
        } else if pod.meta.has_finalizer(POD_RECREATION_HOLD) {
            Reading::Again
        } else if first_seen == FirstSeen::EarlierUnbroken {
            Reading::Once
        } else {
            // A rejection without the hold that was not observed is not recorded.
            Reading::Never
        };
        if let (Some(node), Some(failure)) = (&pod.node_name, &mut pod.failure) {
            let memory = self.memory.lock();
            memory.clocks.correct(node, failure, reading);
        }
        PodView::of(&pod, &self.settings, first_seen)
    }

    /// Whether the clock of the node was read not long ago.
    pub(crate) fn knows_clock(&self, node: &str) -> bool {
        self.memory.lock().clocks.knows(node)
    }

    /// Stores the clock of a node; `None` if that is unknown.
    pub(crate) fn note_clock(&self, node: &Arc<str>, clock: Option<NodeClock>) {
        self.memory.lock().clocks.note(node, clock);
    }

    /// Counts the time anew for which the record has waited.
    pub(crate) fn restart_wait(&self, record: &Uid) {
        self.memory.lock().waits.forget(record);
    }

    /// Whether the pod's namespace has the label that excludes it, in the cache.
    pub(crate) fn is_ignored(&self, pod: &Pod) -> bool {
        is_cached_as_ignored(&pod.meta, &self.parts.namespaces)
    }

    /// The snapshot for the next step of a record.
    pub fn observe_record(&self, key: &ObjectKey) -> RecordSnapshot {
        let (record, name) = match self.parts.records.lookup(key) {
            Lookup::Unknown => (None, None),
            Lookup::Absent => (None, self.candidate(key)),
            Lookup::Found(record) => {
                let name = pod_key(&record);
                (Some(Box::new((*record.object).clone())), Some(name))
            }
        };
        let pod = match name.map(|name| self.parts.pods.lookup(&name)) {
            Some(Lookup::Unknown) => ObservedPod::Unknown,
            None | Some(Lookup::Absent) => ObservedPod::Absent,
            Some(Lookup::Found(pod)) => ObservedPod::Present(Box::new(self.view(&pod))),
        };
        let cancelled = match &pod {
            ObservedPod::Present(pod) => self.is_cancelled(&pod.uid),
            ObservedPod::Unknown | ObservedPod::Absent => false,
        };
        let namespace = ObjectKey::cluster(Arc::clone(key.shared_namespace()));
        let namespace = self.parts.namespaces.lookup(&namespace).found();
        let created = record.as_deref().and_then(|record: &Record| {
            let attempts = attempts_of(&record.meta.key, &record.meta.uid);
            self.memory.lock().created.get(&attempts).copied()
        });
        let replaced = record
            .as_deref()
            .is_some_and(|record| self.is_replaced(record));
        let watched = record.as_deref().filter(|_| V::FOLLOWS);
        let watched = watched.map(|record| self.memory.lock().waits.watched(record));
        let wipe = record
            .as_deref()
            .map_or(ObservedWipe::NotRequested, |record| self.wipe_of(record));
        RecordSnapshot {
            record,
            pod,
            watched,
            namespace_terminating: namespace.is_some_and(|found| found.meta.is_deleting()),
            replaced,
            cancelled,
            created,
            holding: Holding::Allowed,
            wipe,
            record_ttl: self.settings.record_ttl,
        }
    }

    fn is_replaced(&self, record: &Record) -> bool {
        let name = pod_key(record);
        let mut records = self.records_of_name(&name);
        let mut is_later = false;
        records.any(|other| {
            if other.meta.uid == record.meta.uid {
                is_later = true;
                return false;
            }
            // One without a status may come from a backup: it is ignored.
            other.status.phase.is_some() && yields_to(record, &other, is_later)
        })
    }

    /// The entry in the `NodeWipe` of the node for the record's rejected pod.
    fn wipe_of(&self, record: &Record) -> ObservedWipe {
        let status = &record.status;
        let (Wipe::Required, Some(node), Some(pod)) =
            (record.policy.wipe, &status.node_name, &status.rejected_uid)
        else {
            return ObservedWipe::NotRequested;
        };
        if self.parts.wipes.is_not_served() {
            return ObservedWipe::NotServed;
        }
        match self.parts.wipes.lookup(&ObjectKey::cluster(node.as_str())) {
            Lookup::Unknown => ObservedWipe::Unknown,
            Lookup::Absent => ObservedWipe::NotRequested,
            Lookup::Found(list) => match list.wipes.get(&Uid::new(pod)) {
                None => ObservedWipe::NotRequested,
                Some(wipe) => ObservedWipe::Requested(wipe.report.clone()),
            },
        }
    }

    /// The rejected pod for which this record is to be created.
    pub fn candidate(&self, record: &ObjectKey) -> Option<ObjectKey> {
        self.memory.lock().candidates.get(record).cloned()
    }

    /// The record of this pod is not to be created, for example by the clock of its node, which was read meanwhile. The decision
    /// about its hold may have been made before that.
    pub(crate) fn forget_candidate(&self, record: &ObjectKey) {
        let pod = self.memory.lock().candidates.remove(record);
        if let Some(pod) = pod {
            self.parts.pods_queue.add(pod, Priority::Normal);
        }
    }

    /// Enqueues the record of a candidate that is none by the events of its pod: the clock of its node has to be read again.
    fn note_candidate(&self, pod: &Pod) {
        let record = record_key(pod, None);
        if self.remember_candidate(&record, pod) {
            self.parts.queue.add(record, Priority::Normal);
        }
    }

    /// Returns whether it is new.
    fn remember_candidate(&self, record: &ObjectKey, pod: &Pod) -> bool {
        let mut memory = self.memory.lock();
        let pod = pod.meta.key.clone();
        memory.candidates.insert(record.clone(), pod).is_none()
    }

    fn is_cancelled(&self, pod: &Uid) -> bool {
        self.memory.lock().cancelled.contains(pod)
    }

    /// Counts a rejected pod that is reported and gets no record, once.
    fn count_reported(&self, snapshot: &HoldSnapshot) {
        if !V::FOLLOWS || !matches!(snapshot.pod.state, PodState::Rejected(_)) {
            return;
        }
        let decision = holds::decide(snapshot, clock::now());
        if let Some(rejection) = holds::reported(snapshot, &decision)
            && self.memory.lock().counted.insert(snapshot.pod.uid.clone())
        {
            let label = reason::label(&rejection.reason);
            metrics::counter!(belayer_metrics::RECREATIONS, "reason" => label, "outcome" => "reported")
                .increment(1);
        }
    }

    fn record_of(&self, key: &ObjectKey) -> ObservedRecord {
        if self.parts.records.is_not_served() {
            return ObservedRecord::NotServed;
        }
        match self.parts.records.lookup(key) {
            Lookup::Unknown => ObservedRecord::Unknown,
            Lookup::Absent => ObservedRecord::Absent,
            Lookup::Found(record) => ObservedRecord::Found(Box::new((*record.object).clone())),
        }
    }
}

impl PodRecreation {
    /// The records.
    pub fn records(&self) -> &Store<Record> {
        &self.parts.records
    }

    /// The held pods.
    pub(crate) fn held_objects(&self) -> &HeldObjects<Option<Timestamp>> {
        &self.held_objects
    }

    /// The queue of records.
    pub fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.parts.queue
    }
}

/// The record whose attempt created a pod, or the one that Belayer creates for it.
pub(crate) fn record_key(pod: &Pod, origin: Option<&Origin>) -> ObjectKey {
    let namespace = Arc::clone(pod.meta.key.shared_namespace());
    match origin {
        Some(origin) => ObjectKey::new(namespace, Arc::clone(&origin.record)),
        None => {
            let name = record_name(pod.meta.key.name(), pod.meta.uid.as_str());
            ObjectKey::new(namespace, name)
        }
    }
}

/// The key in [`Memory::created`] and [`Memory::deleted`], from the key of the record or of its pod: a pod in another
/// namespace is no attempt.
fn attempts_of(key: &ObjectKey, record: &Uid) -> (Arc<str>, Uid) {
    (Arc::clone(key.shared_namespace()), record.clone())
}

/// The query for the record that a re-created pod names; `None` for other pods.
pub(crate) fn record_query(pod: &Pod, view: &PodView) -> Option<OwnerQuery> {
    let origin = view.origin.as_ref()?;
    let reference = OwnerReference {
        api_version: api::resource().api_version().into(),
        kind: api::KIND.into(),
        name: Arc::clone(&origin.record),
        uid: origin.record_uid.clone(),
    };
    let namespace = pod.meta.key.shared_namespace();
    Some(OwnerQuery::new(api::resource(), namespace, &reference))
}

/// The key of a record's pods.
pub(crate) fn pod_key(record: &Record) -> ObjectKey {
    ObjectKey::new(
        Arc::clone(record.meta.key.shared_namespace()),
        record.pod_name.as_str(),
    )
}

impl<V: View> Component<Pod> for PodRecreation<V> {
    type Snapshot = HoldSnapshot;
    type Evidence = Evidence;
    type Query = RecreationQuery;
    type Step = ();

    fn name(&self) -> &'static str {
        NAME
    }

    fn hold(&self) -> &'static str {
        POD_RECREATION_HOLD
    }

    fn interest(&self, change: &Change<'_, Pod>) -> Option<Priority> {
        let view = self.view(change.new?);
        let is_waiting = view.state == PodState::Pending && !view.deleting;
        match (view.held, is_waiting) {
            (true, true) => Some(change.source.quiet()),
            (true, false) => Some(Priority::Release),
            (false, _) if view.is_selected() && !view.deleting => Some(change.source.quiet()),
            (false, _) => None,
        }
    }

    fn observe(&self, pod: &Stored<Pod>) -> HoldSnapshot {
        let view = self.view(pod);
        if view.is_candidate() {
            self.note_candidate(pod);
        }
        let record = self.record_of(&record_key(pod, view.origin.as_ref()));
        let live_record = record_query(pod, &view).map(|query| {
            let answer = self.parts.owner_queries.get(&query);
            (query, answer)
        });
        let snapshot = HoldSnapshot {
            cancelled: self.is_cancelled(&view.uid),
            created_in_vain: view.origin.as_ref().is_some_and(|origin| {
                let record = attempts_of(&pod.meta.key, &origin.record_uid);
                self.memory.lock().deleted.did_not_name(&record, &view.uid)
            }),
            to_report: self.memory.lock().reported.contains(&view.uid),
            first_seen: pod.first_seen,
            owner: self
                .parts
                .owners
                .owner_of(pod, |query| self.parts.owner_queries.get(query)),
            namespace: (view.selection == Selection::Ignored).then(|| {
                let parts = &self.parts;
                NamespaceView::of(&pod.meta, &parts.namespaces, &parts.namespace_queries)
            }),
            pod: view,
            record,
            live_record,
        };
        self.count_reported(&snapshot);
        snapshot
    }

    fn decide(snapshot: &HoldSnapshot, now: Timestamp) -> HoldDecision {
        holds::decide(snapshot, now)
    }

    fn ask(&self, query: RecreationQuery, waiter: Waiter<'_>) {
        match query {
            RecreationQuery::Owner(query) => self.parts.owner_queries.ask(query, waiter),
            RecreationQuery::Namespace(query) => self.parts.namespace_queries.ask(query, waiter),
        }
    }
}
