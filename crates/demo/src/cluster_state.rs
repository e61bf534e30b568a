//! What is in the cluster right now, followed live: for the counters and for knowing when a
//! chapter is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use belayer_sandbox::{Cluster, EventType, Gvr, StoreEvent};
use belayer_workload::WORKFLOWS;
use parking_lot::Mutex;

use super::life::{Flow, Hold, Life, Now, Pod, text};

/// The counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Pods, workflows and claims that a hold of ours is on.
    pub(super) held: usize,
    /// Those that are Terminating, and held.
    pub(super) waiting: usize,
    /// Those that are gone.
    pub(super) vanished: usize,
}

impl Counts {
    fn add(&mut self, life: &Life) {
        self.held += usize::from(life.now != Now::Gone && life.hold == Hold::On);
        self.waiting += usize::from(life.is_waiting());
        self.vanished += usize::from(life.now == Now::Gone);
    }
}

/// Everything of the story that there is and was. Cheap to clone; the clones are one.
#[derive(Debug, Clone, Default)]
pub(super) struct Chronicle {
    inner: Arc<Mutex<Inner>>,
}

/// All by UID, but for the namespaces, which are by name.
#[derive(Debug, Default)]
struct Inner {
    pods: BTreeMap<String, Pod>,
    flows: BTreeMap<String, Flow>,
    claims: BTreeMap<String, Life>,
    namespaces: BTreeMap<String, Now>,
    changes: u64,
}

impl Chronicle {
    /// Follows the cluster from now on, as long as it exists.
    pub(super) fn follow(cluster: &Cluster) -> Self {
        let chronicle = Self::default();
        let mut events = cluster.subscribe(None, cluster.version());
        let writer = chronicle.clone();
        tokio::spawn(async move {
            while let Ok(event) = events.next().await {
                writer.inner.lock().note(&event, Instant::now());
            }
        });
        chronicle
    }

    /// The counters.
    pub(super) fn counts(&self) -> Counts {
        let inner = self.inner.lock();
        let pods = inner.pods.values().map(|pod| &pod.life);
        let flows = inner.flows.values().map(|flow| &flow.life);
        let mut counts = Counts::default();
        for life in pods.chain(flows).chain(inner.claims.values()) {
            counts.add(life);
        }
        counts
    }

    /// The pods for which `which` is true, in the order of their UIDs.
    pub(super) fn pods(&self, which: impl Fn(&Pod) -> bool) -> Vec<Pod> {
        let inner = self.inner.lock();
        let pods = inner.pods.values().filter(|pod| which(pod));
        pods.cloned().collect()
    }

    /// How many pods there are for which `which` is true.
    pub(super) fn count(&self, which: impl Fn(&Pod) -> bool) -> usize {
        let inner = self.inner.lock();
        inner.pods.values().filter(|pod| which(pod)).count()
    }

    /// How many workflows there are for which `which` is true.
    pub(super) fn count_flows(&self, which: impl Fn(&Flow) -> bool) -> usize {
        let inner = self.inner.lock();
        inner.flows.values().filter(|flow| which(flow)).count()
    }

    /// How many claims there are for which `which` is true.
    pub(super) fn count_claims(&self, which: impl Fn(&Life) -> bool) -> usize {
        let inner = self.inner.lock();
        inner.claims.values().filter(|claim| which(claim)).count()
    }

    /// The claim of this name, if there is or was one.
    pub(super) fn claim(&self, name: &str) -> Option<Life> {
        let inner = self.inner.lock();
        inner
            .claims
            .values()
            .find(|life| life.name == name)
            .cloned()
    }

    /// Whether a namespace is there.
    pub(super) fn namespace(&self, name: &str) -> Now {
        let inner = self.inner.lock();
        inner.namespaces.get(name).copied().unwrap_or(Now::Gone)
    }

    /// How many namespaces are Terminating.
    pub(super) fn terminating_namespaces(&self) -> usize {
        let inner = self.inner.lock();
        let all = inner.namespaces.values();
        all.filter(|now| **now == Now::Terminating).count()
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
            EventType::Deleted => Now::Gone,
            _ if object.pointer("/metadata/deletionTimestamp").is_some() => Now::Terminating,
            _ => Now::There,
        };
        let uid = text(object, "/metadata/uid").to_owned();
        if is(&Gvr::PODS) {
            let pod = self.pods.entry(uid);
            pod.or_insert_with(|| Pod::new(object, at))
                .note(object, now, at);
        } else if is(&WORKFLOWS) {
            let flow = self.flows.entry(uid);
            flow.or_insert_with(|| Flow::new(object, at))
                .note(object, now, at);
        } else if is(&Gvr::PERSISTENTVOLUMECLAIMS) {
            let claim = self.claims.entry(uid);
            claim
                .or_insert_with(|| Life::new(object, at))
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
