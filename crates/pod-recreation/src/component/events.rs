//! The event handlers of pod-recreation: they update its memory and enqueue pods and records.

use belayer_core::clock;
use belayer_core::informer::{Event, Lookup, Stored};
use belayer_core::slim::{Namespace, OwnerMeta, Phase, Pod};
use belayer_core::workqueue::Priority;
use belayer_holds::names::POD_RECREATION_HOLD;
use belayer_holds::owned::RECREATION_BY_OWNER;
use jiff::SignedDuration;

use super::{PodRecreation, attempts_of, pod_key, record_key};
use crate::api;
use crate::reason::Class;
use crate::record::Record;
use crate::snapshot::{self, Origin, PodState, PodView};

/// The age of a rejection up to which it is reported although it was not observed. API servers delete Events after an hour.
const REPORTED_WITHIN: SignedDuration = SignedDuration::from_hours(1);

/// Whether a pod failed so recently that its rejection is reported although the pod was first seen rejected.
pub(crate) fn is_reported_when_found(pod: &Pod) -> bool {
    let failed = pod
        .failure
        .as_deref()
        .and_then(|failure| failure.status_written.or(failure.created));
    failed.is_some_and(|failed| clock::now().duration_since(failed) <= REPORTED_WITHIN)
}

impl PodRecreation {
    /// Updates the memory for a pod and enqueues its record. Must be registered *before* the pod runner, which reads
    /// the memory.
    pub fn on_pod(&self, event: &Event<Pod>) {
        match event {
            Event::Added { object, .. } => {
                self.note_held(object);
                self.note_created(object);
                self.note_found_rejection(object);
                self.enqueue_record(object);
                self.enqueue_records_of_name(&object.meta.key);
            }
            Event::Updated { old, new } => {
                self.note_held(new);
                self.note_created(new);
                self.note_unheld_rejection(old, new);
                // A user may have removed the annotations: then the record that they named would not be enqueued.
                if let Some(before) = snapshot::origin(old)
                    && snapshot::origin(new).as_ref() != Some(&before)
                {
                    self.enqueue(record_key(old, Some(&before)));
                }
                self.enqueue_record(new);
            }
            Event::Deleted { last, .. } => {
                self.held_objects.note(&last.meta.key, None);
                self.enqueue_record(last);
                let origin = snapshot::origin(last);
                let record = record_key(last, origin.as_ref());
                let unrecorded =
                    origin.filter(|_| matches!(self.parts.records.lookup(&record), Lookup::Absent));
                let mut memory = self.memory.lock();
                memory.cancelled.remove(&last.meta.uid);
                memory.reported.remove(&last.meta.uid);
                memory.counted.remove(&last.meta.uid);
                memory.candidates.remove(&record);
                if let Some(origin) = unrecorded {
                    let attempts = attempts_of(&record, &origin.record_uid);
                    memory.created.remove(&attempts);
                }
            }
            _ => {}
        }
    }

    fn note_held(&self, pod: &Pod) {
        let held = pod.meta.has_finalizer(POD_RECREATION_HOLD);
        let waits_since = pod.meta.deletion_timestamp;
        self.held_objects
            .note(&pod.meta.key, held.then_some(waits_since));
    }

    /// Stores that the pod of an attempt was created.
    fn note_created(&self, pod: &Pod) {
        if let Some(origin) = snapshot::origin(pod) {
            let attempts = attempts_of(&pod.meta.key, &origin.record_uid);
            let mut memory = self.memory.lock();
            let last = memory.created.entry(attempts).or_default();
            *last = origin.attempt.max(*last);
        }
    }

    /// Stores that a pod was rejected without its hold: it had started and was released, or there is no proof that no
    /// container of it ran. It is not re-created; the decision reports that by an Event.
    fn note_unheld_rejection(&self, old: &Pod, new: &Pod) {
        if new.phase == Phase::Failed && old.phase != Phase::Failed {
            self.note_unheld(self.view(new));
        }
    }

    /// The same for a pod that had been rejected when it was first seen. Older rejections are not reported, because each process
    /// would report all of them again, and pods that failed for other reasons may be many.
    fn note_found_rejection(&self, pod: &Pod) {
        if !is_reported_when_found(pod) {
            return;
        }
        let now = self.view(pod);
        if matches!(&now.state, PodState::Rejected(rejection) if rejection.class != Class::Unknown)
        {
            self.note_unheld(now);
        }
    }

    fn note_unheld(&self, now: PodView) {
        let is_rejected = matches!(now.state, PodState::Rejected(_)) && !now.deleting;
        if is_rejected
            && !now.held
            && now.recreatable().is_none()
            && now.origin.is_none()
            && now.is_selected()
        {
            self.memory.lock().reported.insert(now.uid);
        }
    }

    /// Enqueues the pods of an owner that is being deleted or gone.
    pub fn on_owner(&self, event: &Event<OwnerMeta>) {
        let ended = match event {
            Event::Added { object, .. } => Some(object).filter(|owner| owner.meta.is_deleting()),
            Event::Updated { old, new } => {
                Some(new).filter(|new| new.meta.is_deleting() && !old.meta.is_deleting())
            }
            Event::Deleted { last, .. } => Some(last),
            _ => None,
        };
        let Some(owner) = ended else {
            return;
        };
        let pods = &self.parts.pods;
        let pods = pods.by_index(RECREATION_BY_OWNER, owner.meta.uid.as_str());
        let keys = pods
            .into_iter()
            .flatten()
            .map(|pod| pod.meta.key.clone())
            .collect::<Vec<_>>();
        self.parts.pods_queue.add_all(keys, Priority::Release);
    }

    /// Enqueues the pods of a namespace that changed: it may be ignored, or be being deleted.
    pub fn on_namespace(&self, event: &Event<Namespace>) {
        let Some(namespace) = event.news() else {
            return;
        };
        let name = namespace.object.meta.key.name();
        self.enqueue_pods(|pod| pod.meta.key.namespace() == Some(name));
    }

    /// Enqueues the matching pods that are held or selected, and their records. It reads all pods: that is rare, and
    /// an index would cost memory for every pod.
    fn enqueue_pods(&self, matches: impl Fn(&Pod) -> bool) {
        let mut pods = Vec::new();
        self.parts.pods.for_each(|pod| {
            if matches(&pod.object) {
                pods.push(pod.clone());
            }
        });
        for pod in pods {
            let view = self.view(&pod);
            if view.held || view.is_selected() {
                self.enqueue_pod(&pod);
            }
        }
    }

    fn enqueue_pod(&self, pod: &Stored<Pod>) {
        let key = pod.meta.key.clone();
        self.parts.pods_queue.add(key, Priority::Normal);
        self.enqueue_record(pod);
    }

    /// Enqueues the pod of a record, and stores whose record another client deleted. The record runner has its own
    /// handler.
    pub fn on_record(&self, event: &Event<Record>) {
        let record = match event {
            Event::Added { object, .. } => {
                self.memory.lock().note_record(object);
                object
            }
            Event::Updated { new, .. } => new,
            Event::Deleted {
                last,
                final_state_known,
            } => {
                let attempts = attempts_of(&last.meta.key, &last.meta.uid);
                let mut memory = self.memory.lock();
                memory.created.remove(&attempts);
                memory.waits.forget(&last.meta.uid);
                memory.forget_record(last);
                // If a list does not have it, a version in which it named a pod may have been missed.
                if *final_state_known {
                    memory.deleted.note(last);
                }
                // Read while the memory is locked: a later deletion of the pod removes the entry.
                let pod = self.parts.pods.lookup(&pod_key(last)).found();
                let first = pod.filter(|pod| {
                    let uid = &pod.meta.uid;
                    uid.as_str() == &*last.first_uid
                        || Origin::by(last, uid).is_some() && snapshot::origin(pod).is_none()
                });
                // That a list does not have it is no deletion by a client: a backup may have been restored.
                if let Some(first) = first
                    && *final_state_known
                    && !last.status.phase.is_some_and(api::Phase::is_final)
                {
                    memory.cancelled.insert(first.meta.uid.clone());
                }
                last
            }
            // No hold is added without records. Their CRD may have been installed just now, or been deleted: then nothing else
            // releases the pods that are being deleted.
            Event::Synced | Event::Unserved => return self.enqueue_pods(|_| true),
            // The pods are in the state of the backup, too.
            Event::Relisted { regressed: true } => {
                let mut memory = self.memory.lock();
                memory.cancelled.clear();
                memory.deleted.clear();
                drop(memory);
                return self.enqueue_pods(|_| true);
            }
            _ => return,
        };
        let key = pod_key(record);
        if self.parts.pods.lookup(&key).found().is_some() {
            self.parts.pods_queue.add(key, Priority::Normal);
        }
    }
}
