//! pvc-protection as a component of the PVC runner: which events enqueue a PVC, and which state is
//! read for it. Part of the component whose rules are in [`row`](crate::row).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use belayer_core::index::{PODS_BY_PVC, pvc_value};
use belayer_core::informer::{Event, Lookup, Store, Stored};
use belayer_core::object::ObjectKey;
use belayer_core::queries::{Pace, Waiter};
use belayer_core::slim::{ANY_PVC, ObjectMeta, Pod, Pvc};
use belayer_core::workqueue::{Priority, WorkQueue};
use belayer_holds::decision::Decision;
use belayer_holds::held_objects::Noted as _;
use belayer_holds::names::KUBERNETES_PVC_PROTECTION;
use belayer_holds::owner::OwnerQuery;
use belayer_holds::runner::{Change, Component};
use belayer_holds::view::{Answers, Cached, View};

use crate::advice::Signs;
use crate::config::Mode;
use crate::decide::decide;
use crate::evidence::Evidence;
use crate::held_objects::{Entry, HeldObjects};
use crate::owner::{self, OwnerView};
use crate::pods_query::PodsQuery;
use crate::query::PvcQuery;
use crate::release_tracker::{ReleaseTracker, Remover};
use crate::snapshot::{CachedUsers, Hold, PvcView, Snapshot};
use crate::uses::{self, NAMED, Users, uses};

/// Name of the component: in `--controllers`, in metrics, in logs.
pub const NAME: &str = "pvc-protection";

/// If Kubernetes' own controller has not released an unused PVC within this time, it is considered not to run.
const LEFT_AFTER: Duration = Duration::from_secs(60);

/// The rate limit of live reads per namespace. Reads are shared, so a short interval suffices:
/// PVCs deleted one after the other are each released at once, PVCs deleted in bulk share a read.
/// Part of the component whose rules are in [`row`](crate::row).
pub fn pace() -> Pace {
    Pace {
        min_interval: Duration::from_millis(20),
        keep: Duration::from_secs(60),
        ..Pace::default()
    }
}

/// A view that also shows which pods use a PVC. Part of the component whose rules are in
/// [`row`](crate::row).
pub trait UsersView: View {
    /// Pods.
    type Pods: UsersOf;
}

impl UsersView for Cached {
    type Pods = Store<Pod>;
}

/// Which pods use a PVC. Part of the component whose rules are in [`row`](crate::row).
pub trait UsersOf: Send + Sync + 'static {
    /// The pods that use `pvc`.
    fn users_of(&self, pvc: &ObjectMeta) -> CachedUsers;
}

/// The dependencies of the component. Part of the component whose rules are in
/// [`row`](crate::row).
pub struct Parts<V: UsersView = Cached> {
    /// PVCs.
    pub pvcs: V::Store<Pvc>,
    /// Pods: a store with the index [`PODS_BY_PVC`].
    pub pods: V::Pods,
    /// Live reads of the pods of namespaces, at the [`pace`] of this module.
    pub pods_queries: V::Queries<PodsQuery>,
    /// Live reads of the Workflows that own PVCs, with [`owner::COMPLETED_LABEL`] kept.
    pub owners: V::Queries<OwnerQuery>,
    /// The queue of the PVC runner.
    pub queue: WorkQueue<ObjectKey>,
}

/// Holds PVCs while pods use them, or reports which pods they wait for. Its rules are in
/// [`row`](crate::row).
pub struct PvcProtection<V: UsersView = Cached> {
    mode: Mode,
    parts: Parts<V>,
    held_objects: HeldObjects,
    releases: Arc<ReleaseTracker>,
}

/// A PVC whose deletion waits, and the pods that use it. Part of the component whose rules are in
/// [`row`](crate::row).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The PVC.
    pub key: ObjectKey,
    /// Its deletion timestamp.
    pub since: Timestamp,
    /// The pods that use it, from the pod store; `None` while the store cannot answer.
    pub users: Option<Users>,
}

impl<V: UsersView> PvcProtection<V> {
    /// The component in this mode.
    pub fn new(mode: Mode, parts: Parts<V>) -> Self {
        Self {
            mode,
            parts,
            held_objects: HeldObjects::default(),
            releases: Arc::default(),
        }
    }

    fn hold_of(&self, pvc: &ObjectMeta) -> Hold {
        if pvc.has_finalizer(self.mode.hold()) {
            return Hold::Present;
        }
        let former = |name: &&&str| pvc.has_finalizer(name);
        match self.mode.finalizers().iter().find(former) {
            Some(_) => Hold::Former,
            None => Hold::Missing,
        }
    }

    /// Being deleted, and kept by Kubernetes while Belayer only reports.
    fn is_advised_on(&self, pvc: &ObjectMeta) -> bool {
        !self.mode.adds_holds() && pvc.is_deleting() && pvc.has_finalizer(KUBERNETES_PVC_PROTECTION)
    }
}

impl PvcProtection {
    /// Whether PVCs are held, and by which finalizer.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The held PVCs.
    pub fn held_objects(&self) -> &HeldObjects {
        &self.held_objects
    }

    /// The tracker of Belayer's releases, which the observer of releases updates.
    pub fn release_tracker(&self) -> &Arc<ReleaseTracker> {
        &self.releases
    }

    /// Enqueues the PVCs that a change of a pod affects: the PVCs of a pod that was added or changed while it is
    /// ended or not bound, that was just bound, or that was deleted. A pod that was deleted and created again under
    /// the same name causes two events, so the PVCs of the old pod are enqueued as well; so are the PVCs of a pod
    /// whose deletion was only noticed by a relist.
    pub fn on_pod(&self, event: &Event<Pod>) {
        match event {
            Event::Added { object, .. } if is_idle(object) => self.queue_pvcs_of(object),
            Event::Updated { old, new } if is_idle(new) || old.is_bound() != new.is_bound() => {
                self.queue_pvcs_of(new);
            }
            Event::Deleted { last, .. } => self.queue_pvcs_of(last),
            _ => {}
        }
    }

    /// Updates the held objects and the release tracker. Must receive every PVC event *before* the runner does.
    pub fn on_pvc(&self, event: &Event<Pvc>) {
        match event {
            Event::Added { object, .. } => self.note(&object.meta),
            Event::Updated { new, .. } => self.note(&new.meta),
            Event::Deleted { last, .. } => self.noted(&last.meta, None),
            _ => {}
        }
    }

    /// All PVCs whose deletion waits, the longest waiting first.
    pub fn waiting(&self) -> Vec<Waiting> {
        let waiting = self.held_objects.waiting().into_iter();
        let waits = |(key, entry): (ObjectKey, Entry)| {
            let since = entry.waits_since()?;
            let users = match self.parts.pvcs.lookup(&key) {
                Lookup::Found(pvc) => match self.parts.pods.users_of(&pvc.meta) {
                    CachedUsers::Known { users, .. } => Some(users),
                    CachedUsers::Unknown => None,
                },
                Lookup::Absent | Lookup::Unknown => None,
            };
            Some(Waiting { key, since, users })
        };
        waiting.filter_map(waits).collect()
    }

    /// Observations about other controllers that protect PVCs.
    pub fn signs(&self, now: Timestamp) -> Signs {
        let mut signs = Signs {
            by_others: self.releases.by_others(),
            ..Signs::default()
        };
        let mut left = Vec::new();
        self.parts.pvcs.for_each(|pvc| {
            let meta = &pvc.meta;
            let protected = meta.has_finalizer(KUBERNETES_PVC_PROTECTION);
            match meta.deletion_timestamp {
                None if !protected => signs.bare += 1,
                Some(since)
                    if protected
                        && meta.finalizers.len() == 1
                        && now.duration_since(since).as_secs() >= LEFT_AFTER.as_secs() as i64 =>
                {
                    left.push(Arc::clone(&pvc.object));
                }
                _ => {}
            }
        });
        let unused = |pvc: &Arc<Pvc>| match self.parts.pods.users_of(&pvc.meta) {
            CachedUsers::Known { users, .. } => users.is_empty(),
            CachedUsers::Unknown => false,
        };
        signs.left_behind = left.iter().filter(|pvc| unused(pvc)).count();
        signs
    }

    /// Only waiting PVCs are enqueued. A PVC whose deletion was not seen yet is enqueued by that event.
    fn queue_pvcs_of(&self, pod: &Stored<Pod>) {
        if pod.may_use_any_pvc() {
            let namespace = pod.meta.key.namespace();
            let mut waiting = self.held_objects.waiting();
            waiting.retain(|(key, _)| key.namespace() == namespace);
            for (key, _) in waiting {
                self.parts.queue.add(key, Priority::Release);
            }
            return;
        }
        for pvc in uses::pvcs_of(pod) {
            let namespace = pod.meta.key.shared_namespace();
            let key = ObjectKey::new(Arc::clone(namespace), Arc::clone(pvc));
            match self.parts.pvcs.lookup(&key) {
                Lookup::Found(pvc) if self.is_waiting(&pvc.meta) => {
                    self.parts.queue.add(key, Priority::Release);
                }
                Lookup::Found(_) | Lookup::Absent | Lookup::Unknown => {}
            }
        }
    }

    fn note(&self, pvc: &ObjectMeta) {
        let entry = match pvc.deletion_timestamp {
            deleting if self.hold_of(pvc).keeps() => Some(Entry::Held { deleting }),
            Some(since) if self.is_advised_on(pvc) => Some(Entry::Waits { since }),
            _ => None,
        };
        self.noted(pvc, entry);
    }

    fn noted(&self, pvc: &ObjectMeta, entry: Option<Entry>) {
        let before = self.held_objects.note(&pvc.key, entry);
        let waited = matches!(before, Some(Entry::Held { deleting: Some(_) }));
        if waited && entry.is_none() {
            let remover = match owner::query(pvc) {
                Some(_) => Remover::Argo,
                None => Remover::Belayer,
            };
            self.releases.gone(&pvc.uid, remover);
        }
    }

    /// Being deleted, and held by Belayer.
    fn is_waiting(&self, pvc: &ObjectMeta) -> bool {
        pvc.is_deleting() && self.hold_of(pvc).keeps()
    }
}

impl UsersOf for Store<Pod> {
    /// Reads the index, which contains only bound pods. The version is read first, so that the index is at least
    /// as new as the version.
    fn users_of(&self, pvc: &ObjectMeta) -> CachedUsers {
        let as_of = self.resource_version();
        let namespace = pvc.key.namespace().unwrap_or_default();
        let value = pvc_value(namespace, pvc.key.name());
        let mut users = Users::default();
        let mut seen = 0;
        // Whether all of them have ended matters only if a Workflow owns the PVC.
        let all = owner::query(pvc).is_some();
        let scanned = self.scan_index(PODS_BY_PVC, &value, |pod| {
            seen += 1;
            if uses(pod, pvc) {
                users.note_pod(pod);
            }
            if users.total() >= NAMED && !(all && users.running() == 0) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        let any = self.scan_index(PODS_BY_PVC, &pvc_value(namespace, ANY_PVC), |pod| {
            if uses(pod, pvc) {
                users.note_pod(pod);
            }
            ControlFlow::Continue(())
        });
        if scanned.is_none() || any.is_none() || (users.is_empty() && self.unreadable() > 0) {
            return CachedUsers::Unknown;
        }
        if users.running() > 0 && users.total() >= NAMED {
            // The rest is counted without checking each pod: thousands of pods may share one PVC.
            let all = self.count_by_index(PODS_BY_PVC, &value).unwrap_or(seen);
            users.note_more(all.saturating_sub(seen));
        }
        CachedUsers::Known { users, as_of }
    }
}

/// Ended, shut down, or not bound: its PVCs may be unused.
fn is_idle(pod: &Pod) -> bool {
    !pod.is_bound() || uses::is_terminated(pod)
}

impl<V: UsersView> Component<Pvc> for PvcProtection<V> {
    type Snapshot = Snapshot;
    type Evidence = Evidence;
    type Query = PvcQuery;
    type Step = ();

    fn name(&self) -> &'static str {
        NAME
    }

    fn hold(&self) -> &'static str {
        self.mode.hold()
    }

    fn interest(&self, change: &Change<'_, Pvc>) -> Option<Priority> {
        let pvc = &change.new?.meta;
        match (pvc.is_deleting(), self.hold_of(pvc)) {
            (true, hold) if hold.keeps() => Some(Priority::Release),
            (false, Hold::Missing | Hold::Former) if self.mode.adds_holds() => {
                Some(change.source.quiet())
            }
            (true, _) if self.is_advised_on(pvc) => Some(change.source.quiet()),
            (false, Hold::Present) if !self.mode.adds_holds() => Some(change.source.quiet()),
            _ => None,
        }
    }

    fn observe(&self, pvc: &Stored<Pvc>) -> Snapshot {
        let meta = pvc.meta.clone();
        let query = PodsQuery::new(Arc::clone(meta.key.shared_namespace()));
        // The live read first, so that the store is read after the point at which it was found up to date.
        let pods_answer = self.parts.pods_queries.get(&query);
        let list_error = self
            .parts
            .pods_queries
            .last_error(&query)
            .map(|error| error.to_string());
        Snapshot {
            pvc: Some(PvcView {
                mode: self.mode,
                owner: owner::query(&meta).map(|query| OwnerView {
                    answer: self.parts.owners.get(&query),
                    query,
                }),
                hold: self.hold_of(&meta),
                deletion_seen: pvc.deletion_seen,
                cached: self.parts.pods.users_of(&meta),
                query,
                pods_answer,
                list_error,
                meta,
            }),
        }
    }

    fn decide(snapshot: &Snapshot, now: Timestamp) -> Decision<Evidence, PvcQuery> {
        decide(snapshot, now)
    }

    fn ask(&self, query: PvcQuery, waiter: Waiter<'_>) {
        match query {
            PvcQuery::Pods(query) => self.parts.pods_queries.ask(query, waiter),
            PvcQuery::Owner(query) => self.parts.owners.ask(query, waiter),
        }
    }
}
