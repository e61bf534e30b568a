//! The driver: lifecycles on a tokio runtime.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::SharedString;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::gate::{Calls, Gate, Standing};
use super::meters::Meters;
use super::object::{Deadline, Identity};
use super::phase::Phase;
use super::shared::Shared;
use super::slot::View;
use super::step::Observation;
use super::work::Lifecycle;
use super::worker;
use belayer_core::moment::LogicalTime;
use belayer_core::object::{ObjectKey, Uid};

/// What lifecycles can be told.
#[derive(Debug, Clone)]
pub struct Options {
    controller: SharedString,
    resync: Option<Duration>,
}

impl Options {
    /// The name that metrics and logs give these lifecycles. A settled object is looked at again
    /// about once a minute, as the kubelet does.
    pub fn new(controller: impl Into<SharedString>) -> Self {
        Self {
            controller: controller.into(),
            resync: Some(Duration::from_secs(60)),
        }
    }

    /// A settled object is looked at again after this, each on its own and up to half as long again,
    /// so that those that came together drift apart.
    #[must_use]
    pub fn resync(self, interval: Duration) -> Self {
        Self {
            resync: Some(interval),
            ..self
        }
    }

    /// A settled object is looked at again only when something is observed of it.
    #[must_use]
    pub fn without_resync(self) -> Self {
        Self {
            resync: None,
            ..self
        }
    }
}

/// One look at everything: what the store holds, and what was found in the world.
///
/// The moment it is made is what it is measured by: objects that were heard of later are left alone,
/// so make it *before* looking. Remains are acted on without further question, so they have to be
/// looked for before the store, and the store has to be one that is synced: an object that came to
/// the world before it came to the store would be taken for remains.
#[derive(Debug)]
pub struct Pass<S> {
    as_of: LogicalTime,
    desired: BTreeMap<ObjectKey, (Uid, Arc<S>)>,
    found: Vec<(Identity, Deadline)>,
}

impl<S> Pass<S> {
    /// A look that begins now.
    #[must_use]
    pub fn begin() -> Self {
        Self {
            as_of: LogicalTime::now(),
            desired: BTreeMap::new(),
            found: Vec::new(),
        }
    }

    /// The store holds this object.
    #[must_use]
    pub fn desired(mut self, object: Identity, snapshot: impl Into<Arc<S>>) -> Self {
        self.desired
            .insert(object.key, (object.uid, snapshot.into()));
        self
    }

    /// Something of this object was found. If the store does not hold it and nothing is known of
    /// it, [`terminate_found`](Lifecycle::terminate_found) is run for it.
    #[must_use]
    pub fn found(mut self, object: Identity, deadline: Deadline) -> Self {
        self.found.push((object, deadline));
        self
    }
}

/// What is known of an object's work. Unknown is never to be taken for absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known<S> {
    /// This is.
    Known(View<Arc<S>>),
    /// There is no such work: not since the first [`Pass`], in which it would have turned up.
    Absent,
    /// Nothing is known, and no [`Pass`] has been made yet.
    Unknown,
}

impl<S> Known<S> {
    /// Which kind of work is done for it; `None` if nothing is known of any.
    #[must_use]
    pub fn phase(&self) -> Option<Phase> {
        match self {
            Self::Known(view) => Some(view.phase),
            Self::Absent | Self::Unknown => None,
        }
    }

    /// Whether something may run for the object, now or later. True for what is not known yet:
    /// ask this before taking away what runs.
    #[must_use]
    pub fn could_run(&self) -> bool {
        match self {
            Self::Known(view) => view.phase < Phase::Terminated,
            Self::Absent => false,
            Self::Unknown => true,
        }
    }

    /// Whether it is known that nothing runs for the object nor will. False for what is not known:
    /// ask this before counting on what it used.
    #[must_use]
    pub fn is_known_terminated(&self) -> bool {
        matches!(self, Self::Known(view) if view.phase >= Phase::Terminated)
    }

    /// Whether no work is left for it, as far as can be known.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match self {
            Self::Known(view) => view.phase == Phase::Finished,
            Self::Absent => true,
            Self::Unknown => false,
        }
    }
}

/// Lifecycles by name: what the kubelet's pod workers are, for any object. See the
/// [module](super) for what it guarantees.
///
/// Clones share it. When the last is dropped, work in flight is cancelled and nothing new begins, as
/// after a [`shutdown`](Self::shutdown) that nobody waits for.
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
            gate: Gate::new(),
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

    /// Something was observed of an object. Observations of one name have to be told in the order in
    /// which the store had them.
    pub fn observe(&self, object: &Identity, observation: Observation<Arc<L::Snapshot>>) {
        let calls = self
            .shared
            .gate
            .observe(object, observation, LogicalTime::now());
        self.shared.call(&object.key, calls);
    }

    /// The object came into being. Under a UID whose work comes to its end, this is remembered and
    /// begins when that has ended.
    pub fn created(&self, object: &Identity, snapshot: impl Into<Arc<L::Snapshot>>) {
        self.observe(object, Observation::Created(snapshot.into()));
    }

    /// The object is there and wanted. Does not undo a termination.
    pub fn updated(&self, object: &Identity, snapshot: impl Into<Arc<L::Snapshot>>) {
        self.observe(object, Observation::Updated(snapshot.into()));
    }

    /// The object is there and has to stop.
    pub fn terminating(
        &self,
        object: &Identity,
        snapshot: impl Into<Arc<L::Snapshot>>,
        deadline: Deadline,
    ) {
        let snapshot = snapshot.into();
        self.observe(object, Observation::Terminating { snapshot, deadline });
    }

    /// The object has to stop, whatever the store says of it. Nothing happens if it is not known.
    pub fn kill(&self, object: &Identity, deadline: Deadline) {
        self.observe(object, Observation::Kill { deadline });
    }

    /// The object is gone from the store: what is left to do for it is done with what was last seen
    /// of it, and then it is forgotten.
    pub fn deleted(&self, object: &Identity) {
        self.observe(object, Observation::Deleted);
    }

    /// Compares everything with a look at the whole store: orphans are brought to their end, objects
    /// that were missed are begun, tombstones of objects that are gone go. Call it regularly (the
    /// kubelet: every 2 s); a delete that got lost is found by nothing else.
    pub fn reconcile(&self, pass: Pass<L::Snapshot>) {
        let calls = self
            .shared
            .gate
            .pass(pass.as_of, &pass.desired, &pass.found);
        for (key, calls) in calls {
            self.shared.call(&key, calls);
        }
        self.publish_metrics();
    }

    /// What is known of an object's work.
    #[must_use]
    pub fn known(&self, object: &Identity) -> Known<L::Snapshot> {
        match self.shared.gate.standing(object) {
            Standing::Known(view) => Known::Known(view),
            Standing::Absent => Known::Absent,
            Standing::Unknown => Known::Unknown,
        }
    }

    /// What is known of all objects, ordered by name.
    #[must_use]
    pub fn all(&self) -> Vec<(ObjectKey, View<Arc<L::Snapshot>>)> {
        let mut all = Vec::new();
        self.shared
            .gate
            .for_each(|key, view| all.push((key.clone(), view)));
        all
    }

    /// Waits until no unfinished work is known for the object; for ever if there is some when the
    /// lifecycles are shut down, for nobody will finish it.
    pub async fn finished(&self, object: &Identity) {
        self.shared
            .wait_until(|gate| match gate.standing(object) {
                Standing::Known(view) => view.phase == Phase::Finished,
                Standing::Absent | Standing::Unknown => true,
            })
            .await;
    }

    /// Waits until nothing is in flight and nothing is to be done at once; resyncs and retries that
    /// are due later do not count. What is read then is not about to change by itself.
    pub async fn settled(&self) {
        self.shared
            .wait_until(|gate| gate.is_quiet(Instant::now()))
            .await;
    }

    /// Begins nothing any more, cancels what is in flight and waits until all of it has returned.
    /// Unfinished work is left for the next process: every phase can be repeated.
    pub async fn shutdown(&self) {
        self.shared.close();
        self.shared.tasks.wait().await;
        self.publish_metrics();
    }

    #[cfg(test)]
    pub(super) fn gate(&self) -> &Gate<Arc<L::Snapshot>> {
        &self.shared.gate
    }

    /// Publishes the gauges. Done every 2 s and by every [`reconcile`](Self::reconcile) anyway.
    pub fn publish_metrics(&self) {
        self.shared.publish_metrics();
    }
}

impl<L: Lifecycle> Shared<L> {
    /// Does what the lock had no time for.
    fn call(self: &Arc<Self>, key: &ObjectKey, mut calls: Calls) {
        calls.fire();
        if let Some((key, signal)) = calls.spawn.take() {
            let worker = worker::work(Arc::clone(self), key, signal);
            self.tasks.spawn_on(worker, &self.runtime);
        }
        self.report(key, calls.effects);
    }
}
