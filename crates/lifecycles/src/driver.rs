//! The driver: runs lifecycles on a tokio runtime.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::SharedString;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::meters::Meters;
use super::object::{Deadline, Identity};
use super::phase::Phase;
use super::shared::Shared;
use super::slot::View;
use super::slots::{Calls, Lookup, Slots};
use super::step::Observation;
use super::work::Lifecycle;
use super::worker;
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, Uid};

/// The options of lifecycles. The [crate's example](crate) names the lifecycles and keeps the
/// defaults.
#[derive(Debug, Clone)]
pub struct Options {
    controller: SharedString,
    resync: Option<Duration>,
}

impl Options {
    /// Sets the name of these lifecycles in metrics and logs. A settled object is synced again
    /// about once a minute, as in the kubelet.
    pub fn new(controller: impl Into<SharedString>) -> Self {
        Self {
            controller: controller.into(),
            resync: Some(Duration::from_secs(60)),
        }
    }

    /// Syncs a settled object again after `interval`, each on its own and up to half as long again,
    /// so that objects that came together drift apart.
    #[must_use]
    pub fn resync(self, interval: Duration) -> Self {
        Self {
            resync: Some(interval),
            ..self
        }
    }

    /// Syncs a settled object again only when it is observed.
    #[must_use]
    pub fn without_resync(self) -> Self {
        Self {
            resync: None,
            ..self
        }
    }
}

/// A comparison with the whole store and with what was found outside of it.
///
/// Its point in time is when it is created: objects that were observed later are left alone, so
/// create it *before* reading. Remains (processes or files of an object that is not in the store)
/// are terminated without a further check. So they have to be read before the store, and the store
/// has to be synced: an object that was found before it was in the store would be taken for
/// remains.
///
/// [`Lifecycles::reconcile`](crate::Lifecycles::reconcile) takes it.
///
/// ```
/// use belayer_core::object::{ObjectKey, Uid};
/// use belayer_lifecycles::{Identity, Pass};
///
/// let web = Identity::new(ObjectKey::new("shop", "web-0"), Uid::new("u-1"));
/// // Its time is now; then the store is read.
/// let pass: Pass<String> = Pass::begin().desired(web, "data".to_owned());
/// # drop(pass);
/// ```
#[derive(Debug)]
pub struct Pass<S> {
    as_of: LogicalTime,
    desired: BTreeMap<ObjectKey, (Uid, Arc<S>)>,
    found: Vec<(Identity, Deadline)>,
}

impl<S> Pass<S> {
    /// A comparison that begins now.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            as_of: LogicalTime::now(),
            desired: BTreeMap::new(),
            found: Vec::new(),
        }
    }

    /// The store contains this object.
    #[must_use]
    pub fn desired(mut self, object: Identity, snapshot: impl Into<Arc<S>>) -> Self {
        self.desired
            .insert(object.key, (object.uid, snapshot.into()));
        self
    }

    /// Something of this object was found. If the store does not contain it and there is no work
    /// of its name, [`terminate_found`](Lifecycle::terminate_found) is run for it, before the work
    /// on another object of the name begins.
    ///
    /// Remains of an older object are ignored while there is work on a newer one of its name. So
    /// that work has to remove what it finds of older ones.
    #[must_use]
    pub fn found(mut self, object: Identity, deadline: Deadline) -> Self {
        self.found.push((object, deadline));
        self
    }
}

/// What is known of an object's work. Unknown must never be taken for absent. Returned by
/// [`Lifecycles::known`](crate::Lifecycles::known), as in the [crate's example](crate).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known<S> {
    /// The work has this state.
    Known(View<Arc<S>>),
    /// There is no such work. Only possible after the first [`Pass`]. This does not mean that nothing
    /// of the object exists: a pass [ignores](Pass::found) remains while there is work on a newer
    /// object of their name.
    Absent,
    /// The work is not known, and no [`Pass`] has been made yet.
    Unknown,
}

impl<S> Known<S> {
    /// The phase of its work; `None` if no work is known.
    #[must_use]
    pub fn phase(&self) -> Option<Phase> {
        match self {
            Self::Known(view) => Some(view.phase),
            Self::Absent | Self::Unknown => None,
        }
    }

    /// Whether something may run for the object, now or later. True if it is unknown: check this
    /// before removing what may be in use.
    #[must_use]
    pub fn could_run(&self) -> bool {
        match self {
            Self::Known(view) => view.phase < Phase::Terminated,
            Self::Absent => false,
            Self::Unknown => true,
        }
    }

    /// Whether nothing runs for the object, now or later. False if it is unknown: check this before
    /// reusing what it used.
    #[must_use]
    pub fn is_known_terminated(&self) -> bool {
        matches!(self, Self::Known(view) if view.phase >= Phase::Terminated)
    }

    /// Whether no work is left for it; false if it is unknown.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match self {
            Self::Known(view) => view.phase == Phase::Finished,
            Self::Absent => true,
            Self::Unknown => false,
        }
    }
}

/// Lifecycles by name: the kubelet's pod workers, for any object. See the [module](super) for the
/// guarantees.
///
/// Clones share it. When the last one is dropped, work in flight is cancelled and nothing new
/// begins, as after a [`shutdown`](Self::shutdown).
///
/// The [crate's example](crate) runs one.
pub struct Lifecycles<L: Lifecycle> {
    shared: Arc<Owner<L>>,
}

impl<L: Lifecycle> Clone for Lifecycles<L> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

/// What the clones share: workers hold the inner part and so do not keep it alive.
struct Owner<L: Lifecycle>(Arc<Shared<L>>);

impl<L: Lifecycle> std::ops::Deref for Owner<L> {
    type Target = Arc<Shared<L>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<L: Lifecycle> Drop for Owner<L> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<L: Lifecycle> std::fmt::Debug for Lifecycles<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lifecycles")
            .field("controller", &self.shared.controller)
            .finish_non_exhaustive()
    }
}

impl<L: Lifecycle> Lifecycles<L> {
    /// Lifecycles that do this work, on the current tokio runtime.
    ///
    /// # Panics
    /// Outside of a tokio runtime, as `tokio::spawn` does.
    pub fn new(work: L, options: Options) -> Self {
        let shared = Arc::new(Shared {
            slots: Slots::new(),
            work,
            meters: Meters::new(&options.controller),
            controller: options.controller,
            resync: options.resync,
            changed: Notify::new(),
            stop: CancellationToken::new(),
            runtime: Handle::current(),
            tasks: TaskTracker::new(),
        });
        let ticker = Arc::clone(&shared).publish_until_stopped();
        shared.tasks.spawn_on(ticker, &shared.runtime);
        Self {
            shared: Arc::new(Owner(shared)),
        }
    }

    /// Records an observation of an object. Observations of one name must be in the order of the
    /// store.
    pub fn observe(&self, object: &Identity, observation: Observation<Arc<L::Snapshot>>) {
        let calls = self
            .shared
            .slots
            .observe(object, observation, LogicalTime::now());
        self.shared.call(&object.key, calls);
    }

    /// The object was created. If the work of an object with the same UID is ending, the creation
    /// is stored and begins after that.
    pub fn created(&self, object: &Identity, snapshot: impl Into<Arc<L::Snapshot>>) {
        self.observe(object, Observation::Created(snapshot.into()));
    }

    /// The object exists and is desired. Does not undo a termination.
    pub fn updated(&self, object: &Identity, snapshot: impl Into<Arc<L::Snapshot>>) {
        self.observe(object, Observation::Updated(snapshot.into()));
    }

    /// The object exists and must terminate.
    pub fn terminating(
        &self,
        object: &Identity,
        snapshot: impl Into<Arc<L::Snapshot>>,
        deadline: Deadline,
    ) {
        let snapshot = snapshot.into();
        self.observe(object, Observation::Terminating { snapshot, deadline });
    }

    /// The object must terminate, whatever its state in the store. Ignored for an unknown object.
    pub fn kill(&self, object: &Identity, deadline: Deadline) {
        self.observe(object, Observation::Kill { deadline });
    }

    /// The object was deleted from the store: its remaining work is done with its last snapshot,
    /// then it is removed.
    pub fn deleted(&self, object: &Identity) {
        self.observe(object, Observation::Deleted);
    }

    /// Compares all lifecycles with the whole store: terminates orphans, begins missed objects,
    /// removes tombstones of deleted objects. Call it regularly (the kubelet: every 2 s); nothing
    /// else detects a missed deletion.
    pub fn reconcile(&self, pass: Pass<L::Snapshot>) {
        let calls = self
            .shared
            .slots
            .pass(pass.as_of, &pass.desired, &pass.found);
        for (key, calls) in calls {
            self.shared.call(&key, calls);
        }
        self.publish_metrics();
    }

    /// What is known of an object's work.
    #[must_use]
    pub fn known(&self, object: &Identity) -> Known<L::Snapshot> {
        match self.shared.slots.lookup(object) {
            Lookup::Known(view) => Known::Known(view),
            Lookup::Absent => Known::Absent,
            Lookup::Unknown => Known::Unknown,
        }
    }

    /// The work of all objects, ordered by name.
    #[must_use]
    pub fn all(&self) -> Vec<(ObjectKey, View<Arc<L::Snapshot>>)> {
        let mut all = Vec::new();
        self.shared
            .slots
            .for_each(|key, view| all.push((key.clone(), view)));
        all
    }

    /// Waits until no unfinished work of the object is known. Never returns if some is left when
    /// the lifecycles are shut down.
    pub async fn finished(&self, object: &Identity) {
        self.shared
            .wait_until(|slots| match slots.lookup(object) {
                Lookup::Known(view) => view.phase == Phase::Finished,
                Lookup::Absent | Lookup::Unknown => true,
            })
            .await;
    }

    /// Waits until nothing is in flight and nothing is due now; later resyncs and retries do not
    /// count. The state then does not change by itself.
    pub async fn settled(&self) {
        self.shared
            .wait_until(|slots| slots.is_quiet(Instant::now()))
            .await;
    }

    /// Begins no more work, cancels the work in flight and waits until it has returned. Unfinished
    /// work is left for the next process: every phase can be repeated.
    pub async fn shutdown(&self) {
        self.shared.close();
        self.shared.tasks.wait().await;
        self.publish_metrics();
    }

    #[cfg(test)]
    pub(super) fn slots(&self) -> &Slots<Arc<L::Snapshot>> {
        &self.shared.slots
    }

    /// Publishes the gauges. Also done every 2 s and by every [`reconcile`](Self::reconcile).
    pub fn publish_metrics(&self) {
        self.shared.publish_metrics();
    }
}

impl<L: Lifecycle> Shared<L> {
    /// Does what must be done outside of the lock.
    fn call(self: &Arc<Self>, key: &ObjectKey, mut calls: Calls) {
        calls.fire();
        if let Some((key, signal)) = calls.spawn.take() {
            let worker = worker::work(Arc::clone(self), key, signal);
            self.tasks.spawn_on(worker, &self.runtime);
        }
        self.report(key, calls.effects);
    }
}
