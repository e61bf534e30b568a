//! Informers and workers on their way to running, with their types put aside.

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

/// An informer, its store, and what reads single objects of its kind.
pub struct Watched<K: Slim> {
    /// Its kind.
    pub resource: Resource,
    /// What the informer fills.
    pub store: Store<K>,
    /// Reads single objects.
    pub decoders: Decoders<K>,
    informer: Informer<K>,
}

impl<K: Slim> Watched<K> {
    /// An informer of `resource`; `with` adds its indexes.
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

    /// Calls `on` with every event, after those that were added before.
    pub fn on_event(&mut self, on: impl Fn(&Event<K>) + Send + Sync + 'static) {
        self.informer.add_handler(Arc::new(on));
    }

    /// The informer itself, for a handler with a type of its own.
    pub fn informer(&mut self) -> &mut Informer<K> {
        &mut self.informer
    }

    /// Ready to run.
    pub fn into_feed(self) -> InformerHandle {
        InformerHandle {
            kind: self.resource.kind.to_string(),
            seen: Seen::new(&*self.resource.plural, &self.store),
            state: self.store.watch_state(),
            run: Box::new(|stop| self.informer.run(stop).boxed()),
        }
    }
}

/// An informer as others see it.
#[derive(Clone)]
pub struct Seen {
    /// Its kind's plural.
    pub name: String,
    /// How it is doing, to be followed.
    pub state: watch::Receiver<InformerState>,
    /// Whether its store is complete.
    pub is_synced: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Seen {
    /// The informer that fills `store`; `name` is its kind's plural.
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

/// An informer that is ready to run.
pub struct InformerHandle {
    kind: String,
    seen: Seen,
    state: watch::Receiver<InformerState>,
    run: BackgroundTask,
}

impl InformerHandle {
    /// Runs until `stop` is cancelled.
    pub fn run(self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        (self.run)(stop)
    }

    /// The kind, such as `Pod`.
    pub fn kind(&self) -> String {
        self.kind.clone()
    }

    /// For those who ask how the process is doing.
    pub fn seen(&self) -> Seen {
        self.seen.clone()
    }

    /// How it is doing, to be followed.
    pub fn state(&self) -> watch::Receiver<InformerState> {
        self.state.clone()
    }
}

/// Workers that are ready to work on one queue.
pub struct WorkerGroup {
    /// The queue's name, such as `pods`.
    pub name: &'static str,
    /// What they work on.
    pub queue: WorkQueue<ObjectKey>,
    /// The informers without whose first list nothing may be decided.
    pub needs: Vec<watch::Receiver<InformerState>>,
    /// Starts them.
    pub start: Box<dyn FnOnce() -> Workers<ObjectKey> + Send>,
    /// What runs beside them, once they work.
    pub beside: Vec<BackgroundTask>,
}

/// Runs until it is cancelled.
pub type BackgroundTask = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Waits until an informer has its first list. Never, if it was stopped before.
pub async fn synced(mut state: watch::Receiver<InformerState>) {
    let synced = |now: &InformerState| *now == InformerState::Synced;
    let never = state.wait_for(synced).await.is_err();
    if never {
        std::future::pending::<()>().await;
    }
}

/// Waits until an informer has its first list or has learned that its kind is not served.
pub async fn heard_of(mut state: watch::Receiver<InformerState>) {
    let heard = |now: &InformerState| {
        matches!(
            now,
            InformerState::Synced | InformerState::NotServed | InformerState::Stopped
        )
    };
    let _ = state.wait_for(heard).await;
}
