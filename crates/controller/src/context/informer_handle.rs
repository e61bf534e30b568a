//! Informers and workers before they run, with their types erased.

use std::fmt;
use std::sync::Arc;

use belayer_core::watch;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use tokio_util::sync::CancellationToken;

use belayer_core::informer::{Decoders, Event, Informer, InformerBuilder, InformerState, Store};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::Slim;
use belayer_core::workqueue::{WorkQueue, Workers};

/// An informer, its store, and the decoders of its kind. Returned by a
/// [`ControllerContext`](crate::context::ControllerContext) for a kind that a
/// [`Controller`](crate::Controller) needs.
pub struct Watched<K: Slim> {
    /// The kind.
    pub resource: Resource,
    /// The store that the informer fills.
    pub store: Store<K>,
    /// Decode single objects.
    pub decoders: Decoders<K>,
    informer: Informer<K>,
}

impl<K: Slim> Watched<K> {
    /// Builds an informer of `resource`; `with` adds its indexes.
    pub fn new(
        client: &Client,
        resource: Resource,
        decoders: Decoders<K>,
        with: impl FnOnce(InformerBuilder<K>) -> InformerBuilder<K>,
    ) -> Self {
        let builder = Informer::builder(client.clone(), resource.clone(), decoders.clone());
        let (informer, store) = with(builder).build();
        Self {
            resource,
            store,
            decoders,
            informer,
        }
    }

    /// Adds a handler of every event, after the existing handlers.
    pub fn on_event(&mut self, on: impl Fn(&Event<K>) + Send + Sync + 'static) {
        self.informer.add_handler(Arc::new(on));
    }

    /// The informer, for a handler with a type of its own.
    pub fn informer(&mut self) -> &mut Informer<K> {
        &mut self.informer
    }

    /// Converts it to a handle that can be run.
    pub fn into_handle(self) -> InformerHandle {
        InformerHandle {
            seen: Seen::new(&*self.resource.plural, &self.store),
            state: self.store.watch_state(),
            label: self.store.label().to_owned(),
            resource: self.resource,
            run: Box::new(|stop| self.informer.run(stop).boxed()),
        }
    }
}

/// The visible state of an informer. Returned by an
/// [`InformerHandle`](crate::context::InformerHandle), which a [`Controller`](crate::Controller)
/// registers.
#[derive(Clone)]
pub struct Seen {
    /// The plural of its kind.
    pub name: String,
    /// Its state, to be watched.
    pub state: watch::Receiver<InformerState>,
    /// Whether its store is complete.
    pub is_synced: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Seen {
    /// The state of the informer that fills `store`; `name` is the plural of its kind.
    pub fn new<K: Slim>(name: impl Into<String>, store: &Store<K>) -> Self {
        let store = store.clone();
        Self {
            name: name.into(),
            state: store.watch_state(),
            is_synced: Arc::new(move || store.is_synced()),
        }
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seen").field(&self.name).finish()
    }
}

/// An informer that can be run. A [`ControllerContext`](crate::context::ControllerContext)
/// collects them; the [example](crate::context) registers none.
pub struct InformerHandle {
    pub(super) resource: Resource,
    label: String,
    seen: Seen,
    state: watch::Receiver<InformerState>,
    run: BackgroundTask,
}

impl InformerHandle {
    /// Runs until `stop` is cancelled.
    pub fn run(self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        (self.run)(stop)
    }

    /// The label `kind` of its metrics, such as `Pod`.
    pub fn label(&self) -> String {
        self.label.clone()
    }

    /// The visible state, for health and status.
    pub fn seen(&self) -> Seen {
        self.seen.clone()
    }

    /// Its state, to be watched.
    pub fn state(&self) -> watch::Receiver<InformerState> {
        self.state.clone()
    }
}

/// Workers of one queue that can be started. A
/// [`ControllerContext`](crate::context::ControllerContext) collects them; the
/// [example](crate::context) registers none.
pub struct WorkerGroup {
    /// The queue's name, such as `pods`.
    pub name: &'static str,
    /// The queue.
    pub queue: WorkQueue<ObjectKey>,
    /// The informers whose first list must be complete before any decision.
    pub needs: Vec<watch::Receiver<InformerState>>,
    /// Starts the workers.
    pub start: Box<dyn FnOnce() -> Workers<ObjectKey> + Send>,
    /// Tasks that run alongside the workers.
    pub background: Vec<BackgroundTask>,
}

/// A task that runs until it is cancelled. A
/// [`ControllerContext`](crate::context::ControllerContext) collects them; the
/// [example](crate::context) registers none.
pub type BackgroundTask = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Waits until an informer has its first list; never returns if it was stopped before. The
/// informer is one that a [`Controller`](crate::Controller) needs.
pub async fn synced(mut state: watch::Receiver<InformerState>) {
    let synced = |now: &InformerState| *now == InformerState::Synced;
    let never = state.wait_for(synced).await.is_err();
    if never {
        std::future::pending::<()>().await;
    }
}

/// Waits until an informer has its first list, its kind is not served, or it was stopped. The
/// informer is one that a [`Controller`](crate::Controller) needs.
pub async fn list_state_known(mut state: watch::Receiver<InformerState>) {
    let known = |now: &InformerState| {
        matches!(
            now,
            InformerState::Synced | InformerState::NotServed | InformerState::Stopped
        )
    };
    let _ = state.wait_for(known).await;
}
