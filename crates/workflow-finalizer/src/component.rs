//! workflow-finalizer as a component of the runner of one owner kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use belayer_core::informer::{Event, Stored};
use belayer_core::object::{ObjectKey, OwnerReference};
use belayer_core::queries::Waiter;
use belayer_core::slim::{Keep, Namespace, ObjectMeta, OwnerMeta, Pod};
use belayer_core::workqueue::{Priority, WorkQueue};
use belayer_holds::argo;
use belayer_holds::decision::Decision;
use belayer_holds::held_objects::note_current;
use belayer_holds::names;
use belayer_holds::namespace::{NamespaceQuery, NamespaceView, is_cached_as_ignored};
use belayer_holds::owned::{HELD_BY_OWNER, holding_owner};
use belayer_holds::runner::{Change, Component};
use belayer_holds::selection::{Selection, UnselectedBy};
use belayer_holds::view::{Answers, Cached, Objects, View};

use crate::config::{OwnerRule, Settings, Until};
use crate::decide::decide;
use crate::evidence::{Evidence, KeptRunning};
use crate::held_objects::{HeldObjects, HeldWorkflow};
use crate::pods_query::PodsQuery;
use crate::query::WorkflowQuery;
use crate::snapshot::{Deletion, PodsView, Snapshot, WorkflowView};

/// Name of the component: in `--controllers`, in metrics, in logs.
pub const NAME: &str = "workflow-finalizer";

/// The labels of owners, of whatever kind, that the rules read.
pub(crate) fn keep_of_owners(settings: &Settings) -> Keep {
    let selected = settings.owners.iter();
    let selected = selected.flat_map(|rule| rule.selector.names());
    Keep::nothing().labels(selected.chain([argo::COMPLETED_LABEL, argo::ARCHIVING_LABEL]))
}

/// The labels of namespaces that the rules read.
pub(crate) fn keep_of_namespaces() -> Keep {
    Keep::nothing().labels([names::IGNORE_LABEL])
}

/// The dependencies of the component.
pub struct Parts<V: View = Cached> {
    /// The owners of the kind.
    pub workflows: V::Store<OwnerMeta>,
    /// Pods, with the index [`HELD_BY_OWNER`].
    pub pods: V::Store<Pod>,
    /// Namespaces.
    pub namespaces: V::Store<Namespace>,
    /// Live lists of pods.
    pub pod_queries: V::Queries<PodsQuery>,
    /// Live reads of namespaces.
    pub namespace_queries: V::Queries<NamespaceQuery>,
    /// The queue of this kind's runner.
    pub queue: WorkQueue<ObjectKey>,
    /// The queue of the pod runner.
    pub pods_queue: WorkQueue<ObjectKey>,
}

/// Holds the owners of one kind until all their pods have been released. Its rules are in
/// [`row`](crate::row).
pub struct WorkflowFinalizer<V: View = Cached> {
    rule: OwnerRule,
    resync: Duration,
    pub(crate) parts: Parts<V>,
    held_objects: HeldObjects,
    /// Whether the kind is not served, or is being listed again after that: events about what changed meanwhile look
    /// like changes of labels.
    unserved: AtomicBool,
}

impl<V: View> WorkflowFinalizer<V> {
    /// The component for the kind of `rule`.
    pub fn new(settings: &Settings, rule: OwnerRule, parts: Parts<V>) -> Self {
        Self {
            rule,
            resync: settings.resync,
            parts,
            held_objects: HeldObjects::new(settings.max_unselected),
            unserved: AtomicBool::new(false),
        }
    }

    /// The held workflows.
    pub fn held_objects(&self) -> &HeldObjects {
        &self.held_objects
    }

    /// Records a workflow; `by` is the reason if no entry selects its labels.
    pub(crate) fn note(&self, workflow: &ObjectMeta, by: UnselectedBy) {
        let held = held(workflow).then(|| HeldWorkflow {
            uid: workflow.uid.clone(),
            unselected: match self.selection(workflow) {
                Selection::Yes => None,
                Selection::No => Some(by),
                Selection::Ignored => Some(UnselectedBy::Namespace),
            },
            deleting: workflow.deletion_timestamp,
        });
        self.held_objects.note(&workflow.key, held);
    }

    fn selection(&self, workflow: &ObjectMeta) -> Selection {
        let namespace = workflow.key.namespace().unwrap_or_default();
        if !self.rule.selects(&workflow.labels, namespace) {
            return Selection::No;
        }
        if is_cached_as_ignored(workflow, &self.parts.namespaces) {
            return Selection::Ignored;
        }
        Selection::Yes
    }

    fn pods_query(&self, workflow: &ObjectMeta) -> PodsQuery {
        let namespace = Arc::clone(workflow.key.shared_namespace());
        PodsQuery::new(namespace, self.rule.pod_label.clone())
    }

    fn view(&self, workflow: &Stored<OwnerMeta>) -> WorkflowView {
        let meta = &workflow.object.meta;
        let is_argo = argo::is_workflow(&self.rule.kind);
        let query = self.pods_query(meta);
        // The index is read after the answer: the store may have reached the version of the answer.
        let pods = PodsView {
            answer: self.parts.pod_queries.get(&query),
            held: self
                .parts
                .pods
                .count_by_index(HELD_BY_OWNER, meta.uid.as_str()),
            query,
        };
        WorkflowView {
            uid: meta.uid.clone(),
            pods,
            kept_running: KeptRunning::prove(meta).filter(|_| is_argo),
            is_to_be_archived: self.rule.until == Until::Archived && argo::is_to_be_archived(meta),
            held: held(meta),
            deletion: deletion(workflow),
            first_seen: workflow.first_seen,
            selection: self.selection(meta),
            namespace: NamespaceView::of(
                meta,
                &self.parts.namespaces,
                &self.parts.namespace_queries,
            ),
        }
    }
}

impl WorkflowFinalizer {
    /// Which owners it holds.
    pub fn rule(&self) -> &OwnerRule {
        &self.rule
    }

    /// How many pods of a workflow are still held, from the index.
    pub fn pods_held(&self, workflow: &HeldWorkflow) -> Option<usize> {
        self.parts
            .pods
            .count_by_index(HELD_BY_OWNER, workflow.uid.as_str())
    }

    /// Updates the held objects, and enqueues the pods of a workflow that is being deleted with the highest
    /// priority. Must receive every event of the kind *before* its runner does.
    pub fn on_workflow(&self, event: &Event<OwnerMeta>) {
        let changed = if self.unserved.load(Ordering::Relaxed) {
            UnselectedBy::Configuration
        } else {
            UnselectedBy::Labels
        };
        match event {
            Event::Added { object, initial } => {
                let by = if *initial {
                    UnselectedBy::Configuration
                } else {
                    changed
                };
                self.note(&object.object.meta, by);
                if object.object.meta.is_deleting() {
                    self.raise_pods(&object.object.meta);
                }
            }
            Event::Updated { old, new } => {
                self.note(&new.object.meta, changed);
                if new.object.meta.is_deleting() && !old.object.meta.is_deleting() {
                    self.raise_pods(&new.object.meta);
                }
            }
            Event::Deleted { last, .. } => {
                self.held_objects.note(&last.object.meta.key, None);
            }
            Event::Unserved => {
                self.unserved.store(true, Ordering::Relaxed);
                self.held_objects.clear();
                tracing::warn!(kind = %self.rule.kind, "this kind is not served: Belayer holds its objects once the API server serves it");
            }
            Event::Synced => {
                tracing::info!(kind = %self.rule.kind, objects = self.parts.workflows.len(), "this kind is served");
                // After the kind was not served, objects that still exist cause no event.
                self.parts.workflows.for_each(|workflow| {
                    self.note(&workflow.object.meta, UnselectedBy::Configuration);
                });
                self.unserved.store(false, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Enqueues a workflow that is being deleted when the last of its pods has been released. Must receive every
    /// pod event.
    pub fn on_pod(&self, event: &Event<Pod>) {
        match event {
            // Released or orphaned: it is no longer a held pod of that owner.
            Event::Updated { old, new } => {
                let before = holding_owner(old);
                if before.is_some() && before != holding_owner(new) {
                    self.pod_left(old);
                }
            }
            Event::Deleted { last, .. } if holding_owner(last).is_some() => self.pod_left(last),
            _ => {}
        }
    }

    /// Enqueues the workflows of a namespace that changed.
    pub fn on_namespace(&self, event: &Event<Namespace>) {
        let Some(namespace) = event.news() else {
            return;
        };
        let name = namespace.object.meta.key.name();
        let mut keys = Vec::new();
        self.parts.workflows.for_each(|workflow| {
            let meta = &workflow.object.meta;
            if meta.key.namespace() == Some(name) {
                keys.push(meta.key.clone());
            }
        });
        for key in keys {
            note_current(&self.parts.workflows, &key, |workflow| match workflow {
                Some(workflow) => self.note(&workflow.object.meta, UnselectedBy::Labels),
                None => drop(self.held_objects.note(&key, None)),
            });
            self.parts.queue.add(key, Priority::Normal);
        }
    }

    /// Enqueues every held unselected workflow, once their number is within the mass-release limit again.
    pub fn queue_unselected(&self) {
        let keys = self.held_objects.unselected();
        self.parts.queue.add_all(keys, Priority::Release);
    }

    /// Rule 4: enqueues the pods, which are released in parallel, with the highest priority.
    fn raise_pods(&self, workflow: &ObjectMeta) {
        let pods = self
            .parts
            .pods
            .by_index(HELD_BY_OWNER, workflow.uid.as_str());
        let keys = pods.into_iter().flatten();
        let keys = keys.map(|pod| pod.object.meta.key.clone());
        self.parts.pods_queue.add_all(keys, Priority::Release);
    }

    fn pod_left(&self, pod: &Pod) {
        let Some(owner) = pod
            .meta
            .controller
            .as_ref()
            .filter(|owner| self.is_of_kind(owner))
        else {
            return;
        };
        let uid = owner.uid.as_str();
        if self.parts.pods.count_by_index(HELD_BY_OWNER, uid) != Some(0) {
            return;
        }
        let find = |key: ObjectKey| self.parts.workflows.lookup(&key).found();
        let namespace = pod.meta.key.shared_namespace().clone();
        let found = find(ObjectKey::new(namespace, owner.name.clone()))
            .or_else(|| find(ObjectKey::cluster(owner.name.clone())));
        let Some(workflow) = found else {
            return;
        };
        let meta = &workflow.object.meta;
        let key = meta.key.clone();
        if meta.uid != owner.uid || !meta.is_deleting() || !held(meta) {
            return;
        }
        // A live list that found held pods is now outdated.
        let query = self.pods_query(meta);
        let outdated = self
            .parts
            .pod_queries
            .get(&query)
            .is_some_and(|answer| !answer.answer().shows_none_of(&meta.uid, Some(0)));
        if outdated {
            self.parts.pod_queries.outdate(&query);
        }
        self.parts.queue.add(key, Priority::Release);
    }

    fn is_of_kind(&self, owner: &OwnerReference) -> bool {
        owner.kind == self.rule.kind.kind && *owner.group() == *self.rule.kind.group
    }
}

fn held(workflow: &ObjectMeta) -> bool {
    workflow.has_finalizer(names::WORKFLOW_HOLD)
}

fn deletion(workflow: &Stored<OwnerMeta>) -> Option<Deletion> {
    Some(Deletion {
        since: workflow.object.meta.deletion_timestamp?,
        seen: workflow.deletion_seen?,
    })
}

impl<V: View> Component<OwnerMeta> for WorkflowFinalizer<V> {
    type Snapshot = Snapshot;
    type Evidence = Evidence;
    type Query = WorkflowQuery;
    type Step = ();

    fn name(&self) -> &'static str {
        NAME
    }

    fn hold(&self) -> &'static str {
        names::WORKFLOW_HOLD
    }

    fn interest(&self, change: &Change<'_, OwnerMeta>) -> Option<Priority> {
        let workflow = &change.new?.object.meta;
        let quiet = change.source.quiet();
        let held = held(workflow);
        if workflow.is_deleting() {
            return held.then_some(Priority::Release);
        }
        let selected = self.selection(workflow) == Selection::Yes;
        (held != selected).then_some(quiet)
    }

    fn observe(&self, workflow: &Stored<OwnerMeta>) -> Snapshot {
        Snapshot {
            workflow: Some(self.view(workflow)),
            mass_release: self.held_objects.mass_release(&workflow.object.meta.key),
            resync: self.resync,
        }
    }

    fn decide(snapshot: &Snapshot, now: Timestamp) -> Decision<Evidence, WorkflowQuery> {
        decide(snapshot, now)
    }

    fn ask(&self, query: WorkflowQuery, waiter: Waiter<'_>) {
        let parts = &self.parts;
        match query {
            WorkflowQuery::Pods(query) => {
                parts.pod_queries.ask(query, waiter);
            }
            WorkflowQuery::Namespace(query) => {
                parts.namespace_queries.ask(query, waiter);
            }
        }
    }
}
