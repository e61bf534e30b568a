//! Informers and workers on their way to running, with their types put aside.

use belayer_core::watch;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use tokio_util::sync::CancellationToken;

use belayer_core::informer::{Decoders, Event, Informer, InformerBuilder, InformerState, Store};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::Slim;
use belayer_core::workqueue::{WorkQueue, Workers};

use crate::health::Seen;

/// An informer, its store, and what reads single objects of its kind.
pub(super) struct Watched<K: Slim> {
    pub(super) resource: Resource,
    pub(super) store: Store<K>,
    pub(super) decoders: Decoders<K>,
    informer: Informer<K>,
}

impl<K: Slim> Watched<K> {
    /// An informer of `resource`; `with` adds its indexes.
    pub(super) fn new(
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
    pub(super) fn on_event(&mut self, on: impl Fn(&Event<K>) + Send + Sync + 'static) {
        self.informer.add_handler(std::sync::Arc::new(on));
    }

    /// The informer itself, for a handler with a type of its own.
    pub(super) fn informer(&mut self) -> &mut Informer<K> {
        &mut self.informer
    }

    /// Ready to run.
    pub(super) fn into_feed(self) -> Feed {
        Feed {
            kind: self.resource.kind.to_string(),
            seen: Seen::new(&*self.resource.plural, &self.store),
            state: self.store.watch_state(),
            run: Box::new(|stop| self.informer.run(stop).boxed()),
        }
    }
}

/// An informer that is ready to run.
pub(super) struct Feed {
    kind: String,
    seen: Seen,
    state: watch::Receiver<InformerState>,
    run: Beside,
}

impl Feed {
    /// Runs until `stop` is cancelled.
    pub(super) fn run(self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        (self.run)(stop)
    }

    /// The kind, such as `Pod`.
    pub(super) fn kind(&self) -> String {
        self.kind.clone()
    }

    /// For those who ask how the process is doing.
    pub(super) fn seen(&self) -> Seen {
        self.seen.clone()
    }

    /// How it is doing, to be followed.
    pub(super) fn state(&self) -> watch::Receiver<InformerState> {
        self.state.clone()
    }
}

/// Workers that are ready to work on one queue.
pub(super) struct Crew {
    /// The queue's name, such as `pods`.
    pub(super) name: &'static str,
    pub(super) queue: WorkQueue<ObjectKey>,
    /// The informers without whose first list nothing may be decided.
    pub(super) needs: Vec<watch::Receiver<InformerState>>,
    /// Starts them.
    pub(super) start: Box<dyn FnOnce() -> Workers<ObjectKey> + Send>,
    /// What runs beside them, once they work.
    pub(super) beside: Vec<Beside>,
}

/// Runs until it is cancelled.
pub(super) type Beside = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Waits until an informer has its first list. Never, if it was stopped before.
pub(super) async fn synced(mut state: watch::Receiver<InformerState>) {
    let synced = |now: &InformerState| *now == InformerState::Synced;
    let never = state.wait_for(synced).await.is_err();
    if never {
        std::future::pending::<()>().await;
    }
}

/// Waits until an informer has its first list or has learned that its kind is not served.
pub(super) async fn heard_of(mut state: watch::Receiver<InformerState>) {
    let heard = |now: &InformerState| {
        matches!(
            now,
            InformerState::Synced | InformerState::NotServed | InformerState::Stopped
        )
    };
    let _ = state.wait_for(heard).await;
}
