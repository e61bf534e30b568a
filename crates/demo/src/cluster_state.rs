//! The current state of the cluster, updated by its events: for the counters, and for the conditions
//! that end a chapter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use belayer_sandbox::{Cluster, EventType, Gvr, StoreEvent};
use belayer_workload::WORKFLOWS;
use parking_lot::Mutex;

use super::tracked::{Existence, Hold, Pod, Tracked, Workflow, text};

/// The counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Pods, workflows and PVCs with a hold.
    pub(super) held: usize,
    /// Those that are Terminating and have a hold.
    pub(super) waiting: usize,
    /// Those that are removed.
    pub(super) removed: usize,
}

impl Counts {
    fn add(&mut self, object: &Tracked) {
        self.held += usize::from(object.now != Existence::Gone && object.hold == Hold::On);
        self.waiting += usize::from(object.is_waiting());
        self.removed += usize::from(object.now == Existence::Gone);
    }
}

/// All objects of the demo, including removed ones. Clones share the state.
#[derive(Debug, Clone, Default)]
pub(super) struct ClusterState {
    inner: Arc<Mutex<Inner>>,
}

/// Objects by UID, namespaces by name.
#[derive(Debug, Default)]
struct Inner {
    pods: BTreeMap<String, Pod>,
    workflows: BTreeMap<String, Workflow>,
    pvcs: BTreeMap<String, Tracked>,
    namespaces: BTreeMap<String, Existence>,
    changes: u64,
}

impl ClusterState {
    /// Follows the cluster's events from now on.
    pub(super) fn follow(cluster: &Cluster) -> Self {
        let state = Self::default();
        let mut events = cluster.subscribe(None, cluster.version());
        let writer = state.clone();
        tokio::spawn(async move {
            while let Ok(event) = events.next().await {
                writer.inner.lock().note(&event, Instant::now());
            }
        });
        state
    }

    /// The counters.
    pub(super) fn counts(&self) -> Counts {
        let inner = self.inner.lock();
        let pods = inner.pods.values().map(|pod| &pod.object);
        let workflows = inner.workflows.values().map(|workflow| &workflow.object);
        let mut counts = Counts::default();
        for object in pods.chain(workflows).chain(inner.pvcs.values()) {
            counts.add(object);
        }
        counts
    }

    /// The pods that match, in the order of their UIDs.
    pub(super) fn pods(&self, which: impl Fn(&Pod) -> bool) -> Vec<Pod> {
        let inner = self.inner.lock();
        let pods = inner.pods.values().filter(|pod| which(pod));
        pods.cloned().collect()
    }

    /// How many pods match.
    pub(super) fn count(&self, which: impl Fn(&Pod) -> bool) -> usize {
        let inner = self.inner.lock();
        inner.pods.values().filter(|pod| which(pod)).count()
    }

    /// How many workflows match.
    pub(super) fn count_workflows(&self, which: impl Fn(&Workflow) -> bool) -> usize {
        let inner = self.inner.lock();
        inner
            .workflows
            .values()
            .filter(|workflow| which(workflow))
            .count()
    }

    /// How many PVCs match.
    pub(super) fn count_pvcs(&self, which: impl Fn(&Tracked) -> bool) -> usize {
        let inner = self.inner.lock();
        inner.pvcs.values().filter(|pvc| which(pvc)).count()
    }

    /// The PVC of this name, also after its removal.
    pub(super) fn pvc(&self, name: &str) -> Option<Tracked> {
        let inner = self.inner.lock();
        inner
            .pvcs
            .values()
            .find(|object| object.name == name)
            .cloned()
    }

    /// The state of a namespace.
    pub(super) fn namespace(&self, name: &str) -> Existence {
        let inner = self.inner.lock();
        inner
            .namespaces
            .get(name)
            .copied()
            .unwrap_or(Existence::Gone)
    }

    /// How many namespaces are Terminating.
    pub(super) fn terminating_namespaces(&self) -> usize {
        let inner = self.inner.lock();
        let all = inner.namespaces.values();
        all.filter(|now| **now == Existence::Terminating).count()
    }

    /// How many changes there have been.
    pub(super) fn changes(&self) -> u64 {
        self.inner.lock().changes
    }
}

impl Inner {
    fn note(&mut self, event: &StoreEvent, at: Instant) {
        let (group, resource) = (&event.resource.group, &event.resource.resource);
        let is = |gvr: &Gvr| *group == *gvr.group && *resource == *gvr.resource;
        let object = &*event.object;
        let now = match event.event_type {
            EventType::Deleted => Existence::Gone,
            _ if object.pointer("/metadata/deletionTimestamp").is_some() => Existence::Terminating,
            _ => Existence::Exists,
        };
        let uid = text(object, "/metadata/uid").to_owned();
        if is(&Gvr::PODS) {
            let pod = self.pods.entry(uid);
            pod.or_insert_with(|| Pod::new(object, at))
                .note(object, now, at);
        } else if is(&WORKFLOWS) {
            let workflow = self.workflows.entry(uid);
            workflow
                .or_insert_with(|| Workflow::new(object, at))
                .note(object, now, at);
        } else if is(&Gvr::PERSISTENTVOLUMECLAIMS) {
            let pvc = self.pvcs.entry(uid);
            pvc.or_insert_with(|| Tracked::new(object, at))
                .note(object, now, at);
        } else if is(&Gvr::NAMESPACES) {
            let name = text(object, "/metadata/name").to_owned();
            self.namespaces.insert(name, now);
        } else {
            return;
        }
        self.changes += 1;
    }
}
