//! pod-recreation as a component of the pods' runner: its hold. What it notes of pods and records wakes
//! the [rules of the records](crate::recreations), which do the rest.

use std::sync::Arc;

use belayer_core::informer::{Event, Lookup, Store, Stored};
use belayer_core::object::{ObjectKey, OwnerReference, Uid};
use belayer_core::queries::Waiter;
use belayer_core::slim::{
    Continuity, Keep, Namespace, OwnerMeta, Phase, Pod, Slim as _, Transition,
};
use belayer_core::workqueue::{Priority, WorkQueue};
use belayer_holds::decision::Decision;
use belayer_holds::holding::Holding;
use belayer_holds::names::{IGNORE_LABEL, POD_RECREATION_HOLD};
use belayer_holds::namespace::is_ignored;
use belayer_holds::owned::{OwnerStores, RECREATION_BY_OWNER};
use belayer_holds::owner::OwnerQuery;
use belayer_holds::runner::{Change, Component};
use belayer_holds::view::{Answers, Cached, Objects, View};
use hashbrown::{HashMap, HashSet};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::NAME;
use crate::api::{self, record_name};
use crate::config::Settings;
use crate::decide::{NamespaceSight, Snapshot};
use crate::evidence::Evidence;
use crate::holds::{self, HoldSnapshot, RecordSight};
use crate::proof::FirstSight;
use crate::record::Record;
use crate::snapshot::{self, ANNOTATIONS, Asked, Hold, PodState, PodView, Selection, Sight};

/// What the component stands on.
pub struct Parts<V: View = Cached> {
    /// All pods, with the labels and annotations of [`keep_of_pods`].
    pub pods: V::Store<Pod>,
    /// All records.
    pub records: V::Store<Record>,
    /// All namespaces.
    pub namespaces: V::Store<Namespace>,
    /// The kinds of owners that some component watches.
    pub owners: OwnerStores<V>,
    /// Live reads of records and owners.
    pub owner_queries: V::Queries<OwnerQuery>,
    /// The queue of the pods' runner.
    pub pods_queue: WorkQueue<ObjectKey>,
    /// The queue of the records' runner.
    pub queue: WorkQueue<ObjectKey>,
}

/// Holds pods until they start, and knows which record belongs to which pod.
pub struct PodRecreation<V: View = Cached> {
    settings: Settings,
    pub(crate) parts: Parts<V>,
    memory: Mutex<Memory>,
}

/// What is remembered of pods for as long as they exist.
#[derive(Debug, Default)]
struct Memory {
    /// Rejected pods that have no record yet, by the record that they are to have.
    candidates: HashMap<ObjectKey, ObjectKey>,
    /// Pods that had been rejected when they were first seen.
    first_seen_rejected: HashSet<Uid>,
    /// First pods whose record somebody deleted before anything was done.
    cancelled: HashSet<Uid>,
    /// Pods that were rejected without their hold, and not proven never to have run.
    reported: HashSet<Uid>,
    /// Pods that carry our marks and were created by somebody else.
    copies: HashSet<Uid>,
    /// The last attempt of a record, by its UID, whose pod was seen: it was created.
    created: HashMap<Uid, u32>,
}

/// The labels and annotations of pods that are read.
pub fn keep_of_pods(settings: &Settings) -> Keep {
    Keep::nothing()
        .labels(settings.eligibility.labels())
        .annotations(ANNOTATIONS)
}

/// The labels of namespaces that are read.
pub fn keep_of_namespaces() -> Keep {
    Keep::nothing().labels([IGNORE_LABEL])
}

impl<V: View> PodRecreation<V> {
    /// The component with these settings.
    pub fn new(settings: Settings, parts: Parts<V>) -> Self {
        Self {
            settings,
            parts,
            memory: Mutex::default(),
        }
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl PodRecreation {
    /// The records.
    pub fn records(&self) -> &Store<Record> {
        &self.parts.records
    }

    /// The queue of records.
    pub fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.parts.queue
    }

    /// Notes what matters of a pod and wakes its record. To be told of every event of the pods *before*
    /// their runner is.
    pub fn on_pod(&self, event: &Event<Pod>) {
        match event {
            Event::Added { object, .. } => {
                if object.phase == Phase::Failed {
                    let mut memory = self.memory.lock();
                    memory.first_seen_rejected.insert(object.meta.uid.clone());
                }
                self.note_created(object);
                self.wake(object);
            }
            Event::Updated { old, new } => {
                self.note_created(new);
                self.note_report(old, new);
                self.wake(new);
            }
            Event::Deleted { last, .. } => {
                self.wake(last);
                let record = self.record_key(last);
                let mut memory = self.memory.lock();
                memory.first_seen_rejected.remove(&last.meta.uid);
                memory.cancelled.remove(&last.meta.uid);
                memory.reported.remove(&last.meta.uid);
                memory.copies.remove(&last.meta.uid);
                memory.candidates.remove(&record);
            }
            _ => {}
        }
    }

    /// Remembers that the pod of an attempt was created.
    fn note_created(&self, pod: &Pod) {
        if let Some(mark) = snapshot::mark(pod).filter(|_| !self.is_copy(pod)) {
            let mut memory = self.memory.lock();
            let last = memory.created.entry(mark.record_uid).or_default();
            *last = mark.attempt.max(*last);
        }
    }

    /// Reports a pod that was rejected without its hold, because it had started and was released, or because
    /// there is no proof that none of its containers ran. It is left alone, and nothing else reports that.
    fn note_report(&self, old: &Pod, new: &Pod) {
        if new.phase != Phase::Failed || old.phase == Phase::Failed {
            return;
        }
        let now = self.view(new);
        let is_rejected = matches!(now.state, PodState::Rejected(_)) && !now.is_deleting();
        let is_left_alone = now.hold == Hold::Off && now.recreatable().is_none();
        if is_left_alone
            && is_rejected
            && now.mark.is_none()
            && now.selection == Selection::Eligible
        {
            self.memory.lock().reported.insert(now.uid);
        }
    }

    /// Enqueues the pods of an owner that is being deleted or gone.
    pub fn on_owner(&self, event: &Event<OwnerMeta>) {
        let ends = match event {
            Event::Added { object, .. } => Some(object).filter(|owner| owner.0.is_deleting()),
            Event::Updated { old, new } => {
                Some(new).filter(|new| new.0.is_deleting() && !old.0.is_deleting())
            }
            Event::Deleted { last, .. } => Some(last),
            _ => None,
        };
        let Some(owner) = ends else {
            return;
        };
        let pods = &self.parts.pods;
        let pods = pods.by_index(RECREATION_BY_OWNER, owner.0.uid.as_str());
        let keys = pods
            .into_iter()
            .flatten()
            .map(|pod| pod.meta.key.clone())
            .collect::<Vec<_>>();
        self.parts.pods_queue.add_all(keys, Priority::Release);
    }

    /// Wakes the pods of a namespace that changed: whether it is ignored, or being deleted.
    pub fn on_namespace(&self, event: &Event<Namespace>) {
        let Some(namespace) = event.news() else {
            return;
        };
        let name = namespace.object.meta.key.name();
        self.look_at_all(|pod| pod.meta.key.namespace() == Some(name));
    }

    /// Wakes those that are held or could be. Rare enough for a look at all of them: an index would
    /// cost every pod.
    fn look_at_all(&self, concerned: impl Fn(&Pod) -> bool) {
        let mut pods = Vec::new();
        self.parts.pods.for_each(|pod| {
            if concerned(&pod.object) {
                pods.push(pod.clone());
            }
        });
        for pod in pods {
            let view = self.view(&pod);
            if view.hold == Hold::On || view.selection == Selection::Eligible {
                self.parts
                    .pods_queue
                    .add(pod.meta.key.clone(), Priority::Normal);
                self.wake(&pod);
            }
        }
    }

    /// Wakes the pod of a record, and remembers whose record somebody deleted. The records' runner has a
    /// handler of its own.
    pub fn on_record(&self, event: &Event<Record>) {
        let record = match event {
            Event::Added { object, .. } => object,
            Event::Updated { new, .. } => new,
            Event::Deleted { last, .. } => {
                self.memory.lock().created.remove(&last.meta.uid);
                let over = last.status.phase.is_some_and(api::Phase::is_final);
                if !over {
                    let mut memory = self.memory.lock();
                    memory.cancelled.insert(Uid::new(last.first_uid.as_str()));
                }
                last
            }
            // Without records no hold is added. Their kind may have been installed just now.
            Event::Synced => return self.look_at_all(|_| true),
            _ => return,
        };
        let key = pod_key(record);
        if self.parts.pods.lookup(&key).found().is_some() {
            self.parts.pods_queue.add(key, Priority::Normal);
        } else if matches!(event, Event::Deleted { .. }) {
            // Nobody is left for whom it would have to be remembered.
            let mut memory = self.memory.lock();
            memory
                .cancelled
                .remove(&Uid::new(record.first_uid.as_str()));
        }
    }
}

impl<V: View> PodRecreation<V> {
    pub(crate) fn wake(&self, pod: &Stored<Pod>) {
        let view = self.view(pod);
        let held = view.hold == Hold::On;
        if !held && view.mark.is_none() && view.selection == Selection::No {
            return;
        }
        let key = self.record_key(pod);
        if view.is_candidate() {
            let mut memory = self.memory.lock();
            memory.candidates.insert(key.clone(), pod.meta.key.clone());
        } else if view.state == PodState::Pending && view.mark.is_none() {
            // A pod that waits for its node has no record.
            return;
        }
        self.parts.queue.add(key, Priority::Normal);
    }

    /// A pod in this component's words.
    pub fn view(&self, pod: &Pod) -> PodView {
        let mut view = if pod.phase == Phase::Failed {
            self.view_of_failed(pod)
        } else {
            PodView::of(pod, &self.settings, FirstSight::Earlier)
        };
        if view.mark.is_some() && self.is_copy(pod) {
            view.mark = None;
        }
        if view.selection == Selection::Eligible && self.is_ignored(pod) {
            return PodView {
                selection: Selection::No,
                ..view
            };
        }
        view
    }

    /// A pod that has failed, with what the store remembers of its earlier versions. A pod from a live read
    /// has no such memory, and the store may have missed versions before it.
    fn view_of_failed(&self, pod: &Pod) -> PodView {
        let Pod { meta, .. } = pod;
        let stored = self.parts.pods.lookup(&meta.key).found();
        let stored = stored.filter(|stored| stored.meta.uid == meta.uid);
        let first_seen_rejected = self.memory.lock().first_seen_rejected.contains(&meta.uid);
        let sight = |unbroken: bool| match (first_seen_rejected, unbroken) {
            (true, _) => FirstSight::Rejected,
            (false, true) => FirstSight::Throughout,
            (false, false) => FirstSight::Earlier,
        };
        match stored {
            Some(stored) if stored.meta.resource_version == meta.resource_version => {
                let unbroken = V::FOLLOWS && stored.continuity() == Some(Continuity::Unbroken);
                PodView::of(&stored, &self.settings, sight(unbroken))
            }
            Some(stored) => {
                let mut pod = pod.clone();
                pod.inherit(&stored, Transition::Missed);
                PodView::of(&pod, &self.settings, sight(false))
            }
            None => PodView::of(pod, &self.settings, sight(false)),
        }
    }

    /// A pod that carries our marks and is somebody else's work: it is a pod like any other.
    pub(crate) fn note_copy(&self, pod: &Uid, key: &ObjectKey) {
        self.memory.lock().copies.insert(pod.clone());
        self.parts.pods_queue.add(key.clone(), Priority::Normal);
        if let Some(pod) = self.parts.pods.lookup(key).found() {
            self.wake(&pod);
        }
    }

    fn is_copy(&self, pod: &Pod) -> bool {
        self.memory.lock().copies.contains(&pod.meta.uid)
    }

    pub(crate) fn record_key(&self, pod: &Pod) -> ObjectKey {
        if self.is_copy(pod) {
            return own_record_key(pod);
        }
        record_key(pod)
    }

    /// Whether the pod's namespace is to be left alone.
    pub(crate) fn is_ignored(&self, pod: &Pod) -> bool {
        let namespace = ObjectKey::cluster(Arc::clone(pod.meta.key.shared_namespace()));
        let found = self.parts.namespaces.lookup(&namespace).found();
        found.is_some_and(|namespace| is_ignored(&namespace.meta.labels))
    }

    /// What is known for a record's next step.
    pub fn observe_record(&self, key: &ObjectKey) -> Snapshot {
        let record = self.parts.records.lookup(key);
        let candidate = self.memory.lock().candidates.get(key).cloned();
        let (record, name) = match record {
            Lookup::Unknown => (None, None),
            Lookup::Absent => (None, candidate),
            Lookup::Found(record) => {
                let name = pod_key(&record);
                (Some(Box::new((*record.object).clone())), Some(name))
            }
        };
        let pod = match name.map(|name| self.parts.pods.lookup(&name)) {
            None => Sight::Absent,
            Some(Lookup::Unknown) => Sight::Unknown,
            Some(Lookup::Absent) => Sight::Absent,
            Some(Lookup::Found(pod)) => Sight::Present(Box::new(self.view(&pod))),
        };
        let cancelled = match &pod {
            Sight::Present(pod) => self.is_cancelled(&pod.uid),
            Sight::Unknown | Sight::Absent => Asked::No,
        };
        let namespace = ObjectKey::cluster(Arc::clone(key.shared_namespace()));
        let namespace = match self.parts.namespaces.lookup(&namespace) {
            Lookup::Found(namespace) if namespace.meta.is_deleting() => NamespaceSight::Terminating,
            _ => NamespaceSight::Active,
        };
        let created = record.as_deref().and_then(|record: &Record| {
            let memory = self.memory.lock();
            memory.created.get(&record.meta.uid).copied()
        });
        Snapshot {
            record,
            pod,
            namespace,
            cancelled,
            created,
            holding: Holding::Allowed,
            record_ttl: self.settings.record_ttl,
        }
    }

    /// The rejected pod that is to have this record.
    pub fn candidate(&self, record: &ObjectKey) -> Option<ObjectKey> {
        self.memory.lock().candidates.get(record).cloned()
    }

    fn is_cancelled(&self, pod: &Uid) -> Asked {
        if self.memory.lock().cancelled.contains(pod) {
            Asked::Yes
        } else {
            Asked::No
        }
    }

    fn record_of(&self, key: &ObjectKey) -> RecordSight {
        if self.parts.records.is_not_served() {
            return RecordSight::NotServed;
        }
        match self.parts.records.lookup(key) {
            Lookup::Unknown => RecordSight::Unknown,
            Lookup::Absent => RecordSight::Absent,
            Lookup::Found(record) => RecordSight::Found(Box::new((*record.object).clone())),
        }
    }
}

/// The record of a pod: that of its mark, else the one that it would have as the first of a chain.
pub fn record_key(pod: &Pod) -> ObjectKey {
    let namespace = Arc::clone(pod.meta.key.shared_namespace());
    match snapshot::mark(pod) {
        Some(mark) => ObjectKey::new(namespace, mark.record),
        None => own_record_key(pod),
    }
}

/// The record that a pod would have as the first of a chain.
fn own_record_key(pod: &Pod) -> ObjectKey {
    let name = record_name(pod.meta.key.name(), pod.meta.uid.as_str());
    ObjectKey::new(Arc::clone(pod.meta.key.shared_namespace()), name)
}

/// What to ask about the record that a re-created pod names; nothing for others.
pub fn query_about(pod: &Pod, view: &PodView) -> Option<OwnerQuery> {
    let mark = view.mark.as_ref()?;
    let reference = OwnerReference {
        api_version: api::resource().api_version().into(),
        kind: api::KIND.into(),
        name: Arc::clone(&mark.record),
        uid: mark.record_uid.clone(),
    };
    let namespace = pod.meta.key.shared_namespace();
    Some(OwnerQuery::new(api::resource(), namespace, &reference))
}

/// The pods of a record.
pub fn pod_key(record: &Record) -> ObjectKey {
    ObjectKey::new(
        Arc::clone(record.meta.key.shared_namespace()),
        record.pod_name.as_str(),
    )
}

impl<V: View> Component<Pod> for PodRecreation<V> {
    type Snapshot = HoldSnapshot;
    type Evidence = Evidence;
    type Query = OwnerQuery;
    type Step = ();

    fn name(&self) -> &'static str {
        NAME
    }

    fn hold(&self) -> &'static str {
        POD_RECREATION_HOLD
    }

    fn interest(&self, change: &Change<'_, Pod>) -> Option<Priority> {
        let pod = change.new?;
        let view = self.view(pod);
        match (view.hold, &view.state) {
            (Hold::On, PodState::Pending) if !view.is_deleting() => Some(change.source.quiet()),
            (Hold::On, _) => Some(Priority::Release),
            (Hold::Off, _) if view.selection == Selection::Eligible && !view.is_deleting() => {
                Some(change.source.quiet())
            }
            _ => None,
        }
    }

    fn observe(&self, pod: &Stored<Pod>) -> HoldSnapshot {
        let view = self.view(pod);
        let record = self.record_of(&self.record_key(pod));
        let look = query_about(pod, &view).map(|query| {
            let answer = self.parts.owner_queries.get(&query);
            (query, answer)
        });
        HoldSnapshot {
            cancelled: self.is_cancelled(&view.uid),
            to_report: Asked::from(self.memory.lock().reported.contains(&view.uid)),
            first_seen: pod.first_seen,
            owner: self
                .parts
                .owners
                .owner_of(pod, |query| self.parts.owner_queries.get(query)),
            pod: view,
            record,
            look,
        }
    }

    fn decide(snapshot: &HoldSnapshot, now: Timestamp) -> Decision<Evidence, OwnerQuery> {
        holds::decide(snapshot, now)
    }

    fn ask(&self, query: OwnerQuery, asker: Waiter<'_>) {
        self.parts.owner_queries.ask(query, asker);
    }
}
