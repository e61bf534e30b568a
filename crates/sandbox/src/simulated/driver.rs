//! The loop that all simulated controllers share: read changes, do what is due, wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::object;
use crate::address::{Gvr, ObjectKey};
use crate::cluster::{Cluster, EventType, ListOptions, StoreEvent, Subscription};
use crate::kinds::ResourceInfo;

/// Units of work done before other tasks get a turn.
const BATCH: usize = 64;

/// A change that a controller receives. A removal carries the object's last state.
/// [`Controller`](crate::simulated::Controller) receives it.
#[derive(Debug, Clone)]
pub enum Change {
    /// The object exists; this is its state.
    Upserted(Arc<Value>),
    /// The object was removed; this was its last state.
    Removed(Arc<Value>),
}

/// Which kinds a controller receives changes of. Returned by a
/// [`Controller`](crate::simulated::Controller), which keeps what it has to do in an
/// [`Agenda`](crate::simulated::Agenda).
#[derive(Debug, Clone, Copy)]
pub enum Interest {
    /// All kinds.
    Everything,
    /// Only these kinds.
    Only(&'static [Gvr]),
}

impl Interest {
    fn covers(self, resource: &ResourceInfo) -> bool {
        match self {
            Self::Everything => true,
            Self::Only(kinds) => kinds.iter().any(|gvr| resource.is(gvr)),
        }
    }
}

/// The result of a unit of work. Returned by a [`Controller`](crate::simulated::Controller), which
/// keeps what it has to do in an [`Agenda`](crate::simulated::Agenda).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There may be more to do at once.
    Worked,
    /// Nothing to do before this time, unless something changes.
    Idle {
        /// Without a limit, if there is none.
        until: Option<Instant>,
    },
}

/// A simulated controller: an index over the cluster, and the work that follows from it.
///
/// It is level-triggered: a change only says which object to process. All changes up to a point
/// in the log are delivered before `work` is called.
///
/// [`spawn`](crate::simulated::spawn) runs it; most have an [`Agenda`](crate::simulated::Agenda)
/// of keys.
pub trait Controller: Send + 'static {
    /// The kinds whose changes it receives.
    fn interest(&self) -> Interest;
    /// Updates the index with a change. Writes nothing.
    fn observe(&mut self, gvr: &Gvr, change: &Change, now: Instant);
    /// Does one thing that is due.
    fn work(&mut self, now: Instant) -> Progress;
    /// Waits for work that does not come from a change of an object, such as a command. Cancel safe.
    fn called(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// Runs a controller until it is cancelled.
pub(super) async fn drive(
    cluster: Cluster,
    mut controller: impl Controller,
    cancel: CancellationToken,
) {
    let mut informer = InformerHandle::new(cluster, controller.interest());
    while !cancel.is_cancelled() {
        let mut progress = Progress::Worked;
        for _ in 0..BATCH {
            informer.drain(&mut controller);
            progress = controller.work(Instant::now());
            if progress != Progress::Worked {
                break;
            }
        }
        let Progress::Idle { until } = progress else {
            tokio::task::yield_now().await;
            continue;
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            () = controller.called() => {}
            () = informer.wait() => {}
            () = at(until) => {}
        }
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// All changes of the kinds that a controller follows, in the order of the log. After a compaction
/// past its position it lists again and reports the differences.
struct InformerHandle {
    cluster: Cluster,
    interest: Interest,
    /// By the index of their kind and their name.
    known: BTreeMap<(usize, ObjectKey), Arc<Value>>,
    /// The `Gvr` that the controller sees for each kind. It stays the same when the versions of the
    /// kind change.
    kinds: Vec<Gvr>,
    subscription: Option<Subscription>,
    next: Option<Arc<StoreEvent>>,
}

impl InformerHandle {
    fn new(cluster: Cluster, interest: Interest) -> Self {
        Self {
            cluster,
            interest,
            known: BTreeMap::new(),
            kinds: Vec::new(),
            subscription: None,
            next: None,
        }
    }

    /// Delivers all changes up to now.
    fn drain(&mut self, to: &mut impl Controller) {
        loop {
            if self.subscription.is_none() {
                self.list(to);
            }
            let event = match (self.next.take(), &mut self.subscription) {
                (Some(event), _) => event,
                (None, Some(subscription)) => match subscription.try_next() {
                    Ok(Some(event)) => event,
                    Ok(None) => return,
                    Err(expired) => {
                        tracing::debug!(%expired, "a simulated controller lists again");
                        self.subscription = None;
                        continue;
                    }
                },
                (None, None) => return,
            };
            self.deliver(&event, to);
        }
    }

    /// Waits until there is a change to deliver. Cancel safe.
    async fn wait(&mut self) {
        let Some(subscription) = self.subscription.as_mut() else {
            return;
        };
        if self.next.is_some() {
            return;
        }
        match subscription.next().await {
            Ok(event) => self.next = Some(event),
            Err(_) => self.subscription = None,
        }
    }

    fn deliver(&mut self, event: &StoreEvent, to: &mut impl Controller) {
        if !self.interest.covers(&event.resource) {
            return;
        }
        let kind = self.kind(&event.resource);
        let key = (kind, event.key.clone());
        // The list may have been newer than the position in the log.
        if self
            .known
            .get(&key)
            .is_some_and(|known| version(known) >= event.rv)
        {
            return;
        }
        let (now, gvr) = (Instant::now(), &self.kinds[kind]);
        if event.event_type == EventType::Deleted {
            self.known.remove(&key);
            to.observe(gvr, &Change::Removed(Arc::clone(&event.object)), now);
            return;
        }
        self.known.insert(key, Arc::clone(&event.object));
        to.observe(gvr, &Change::Upserted(Arc::clone(&event.object)), now);
    }

    fn kind(&mut self, resource: &ResourceInfo) -> usize {
        let known = self.kinds.iter().position(|gvr| resource.is(gvr));
        known.unwrap_or_else(|| {
            self.kinds.push(resource.storage_gvr());
            self.kinds.len() - 1
        })
    }

    fn list(&mut self, to: &mut impl Controller) {
        let from = self.cluster.version();
        let now = Instant::now();
        let mut before = std::mem::take(&mut self.known);
        for resource in self.cluster.resources() {
            if !self.interest.covers(&resource) {
                continue;
            }
            let kind = self.kind(&resource);
            let gvr = &self.kinds[kind];
            let served = served(&self.cluster, gvr);
            let Ok(page) = self.cluster.list(&served, None, &ListOptions::default()) else {
                continue;
            };
            for object in page.items {
                let key = ObjectKey::new(object::namespace(&object), object::name(&object));
                let key = (kind, key);
                let old = before.remove(&key);
                if let Some(old) = &old
                    && object::uid(old) != object::uid(&object)
                {
                    to.observe(gvr, &Change::Removed(Arc::clone(old)), now);
                }
                if old.is_none_or(|old| version(&old) != version(&object)) {
                    to.observe(gvr, &Change::Upserted(Arc::clone(&object)), now);
                }
                self.known.insert(key, object);
            }
        }
        for ((kind, _), gone) in before {
            to.observe(&self.kinds[kind], &Change::Removed(gone), now);
        }
        self.subscription = Some(self.cluster.subscribe(None, from));
    }
}

/// The kind at a served version, for writing to it. The version under which the controller first
/// saw it may no longer be served.
pub(crate) fn served(cluster: &Cluster, gvr: &Gvr) -> Gvr {
    if cluster.resource(gvr).is_some() {
        return gvr.clone();
    }
    let kind = cluster
        .resources()
        .into_iter()
        .find(|resource| resource.is(gvr));
    let version = kind
        .as_ref()
        .and_then(|kind| kind.versions.first().map(|v| kind.gvr(&v.name)));
    version.unwrap_or_else(|| gvr.clone())
}

fn version(object: &Value) -> u64 {
    object::resource_version(object).parse().unwrap_or_default()
}
