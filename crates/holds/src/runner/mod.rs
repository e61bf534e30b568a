//! One runner per object kind: observe, decide, execute, at most one write per decision.
//!
//! Components register for a kind. Their decisions about one object are merged into one patch, and the versions of
//! Belayer's own writes are stored in one place, so that two holds on one object do not conflict. The runner also
//! retries in place on 409 and assigns a retry class to every other failure, so none is dropped.
//!
//! The example [`runner`](https://github.com/belayer/belayer/blob/main/crates/holds/examples/runner.rs) has one
//! component.

mod alone;
mod answers;
mod component;
mod merge;
mod outcome;
mod step;
mod trace;
mod work;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use parking_lot::Mutex;

use belayer_core::events::{EventRecorder, Regarding};
use belayer_core::executor::{Executor, Tickets};
use belayer_core::freshness::OwnWrites;
use belayer_core::informer::{Decoders, Event, Handler, Store};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::Slim;
use belayer_core::workqueue::{Priority, WorkQueue, Workers};

use crate::holding::HoldSwitch;
pub use alone::run;
use component::AnyComponent;
pub use component::{By, Change, Component, Source};
pub use outcome::{ADOPTED, Executed, Observer, UNDECIDED, What, count_unread};
pub use step::{StepContext, Stepped};
use work::Due;

/// Source of the wall-clock time for decisions. One of the [`RunnerParts`] of a
/// [`Runner`].
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Processes the keys of one kind. Cheap to clone; clones share one runner. [`run`] makes one for a single component.
///
/// ```
/// use std::sync::Arc;
///
/// use belayer_core::{Informer, ObjectKey, OwnerMeta, Workers};
/// use belayer_holds::runner::{Component, RunnerParts, Runner};
///
/// fn start(
///     parts: RunnerParts<OwnerMeta>,
///     components: [impl Component<OwnerMeta>; 2],
///     informer: &mut Informer<OwnerMeta>,
/// ) -> Workers<ObjectKey> {
///     let mut builder = Runner::builder(parts);
///     for component in components {
///         builder = builder.component(Arc::new(component));
///     }
///     let runner = builder.build();
///     informer.add_handler(Arc::new(runner.clone()));
///     runner.work(2)
/// }
/// ```
pub struct Runner<K: Slim> {
    shared: Arc<Shared<K>>,
}

struct Shared<K: Slim> {
    /// Its executor is that of the workers, which never waits for a rate limit token.
    parts: RunnerParts<K>,
    tickets: Tickets,
    own: OwnWrites,
    due: Mutex<Due>,
    /// Keys that wait until holds may be added; ordered, so that simulations are deterministic.
    withheld: Mutex<BTreeSet<ObjectKey>>,
    /// Keys whose last live answer cannot be decoded: each is logged once.
    unreadable: Mutex<BTreeSet<ObjectKey>>,
    /// Whether the kind is not served. What happened meanwhile to other objects enqueued none of this kind, and an
    /// object that is unchanged afterwards causes no event.
    unserved: AtomicBool,
    components: Vec<Box<dyn AnyComponent<K>>>,
}

/// The parts of a [`Runner`].
pub struct RunnerParts<K: Slim> {
    /// The kind.
    pub resource: Resource,
    /// All of Belayer's finalizers on this kind.
    pub finalizers: Box<[&'static str]>,
    /// Its informer's store.
    pub store: Store<K>,
    /// The queue, created earlier so that live answers can enqueue keys.
    pub queue: WorkQueue<ObjectKey>,
    /// Sends the requests.
    pub executor: Arc<Executor>,
    /// Reads single objects.
    pub decoders: Decoders<K>,
    /// Records Events.
    pub events: EventRecorder,
    /// Wall-clock time, for decisions that read it.
    pub clock: Clock,
    /// Receives what was executed.
    pub observer: Arc<dyn Observer>,
    /// Whether holds may be added.
    pub switch: HoldSwitch,
}

impl<K: Slim> Clone for Runner<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Slim> Runner<K> {
    /// A runner without components.
    pub fn builder(parts: RunnerParts<K>) -> Builder<K> {
        Builder {
            parts,
            components: Vec::new(),
        }
    }

    /// Starts `count` workers. They end when the queue is shut down.
    pub fn work(&self, count: usize) -> Workers<ObjectKey> {
        self.shared.due.lock().restart();
        let shared = Arc::clone(&self.shared);
        Workers::spawn(count, self.shared.parts.queue.clone(), move |key| {
            let shared = Arc::clone(&shared);
            async move { shared.traced(key).await }
        })
    }

    /// The queue.
    pub fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.shared.parts.queue
    }
}

/// Collects the components of a kind. The example of [`Runner`] adds two.
pub struct Builder<K: Slim> {
    parts: RunnerParts<K>,
    components: Vec<Box<dyn AnyComponent<K>>>,
}

impl<K: Slim> Builder<K> {
    /// Registers a component for this kind.
    #[must_use]
    pub fn component<C: Component<K>>(mut self, component: Arc<C>) -> Self {
        self.register(component);
        self
    }

    /// The same for a builder by reference.
    pub fn register<C: Component<K>>(&mut self, component: Arc<C>) {
        self.components.push(Box::new(component));
    }

    /// The runner.
    pub fn build(self) -> Runner<K> {
        let Self { parts, components } = self;
        let tickets = Tickets::new(&parts.executor, parts.queue.clone());
        let executor = Arc::clone(tickets.executor());
        let switch = parts.switch.clone();
        let runner = Runner {
            shared: Arc::new(Shared {
                parts: RunnerParts { executor, ..parts },
                tickets,
                own: OwnWrites::default(),
                due: Mutex::default(),
                withheld: Mutex::default(),
                unreadable: Mutex::default(),
                unserved: AtomicBool::new(false),
                components,
            }),
        };
        let shared = Arc::downgrade(&runner.shared);
        switch.on_allowed(move || {
            if let Some(shared) = shared.upgrade() {
                shared.hold_again();
            }
        });
        runner
    }
}

impl<K: Slim> Handler<K> for Runner<K> {
    fn on(&self, event: &Event<K>) {
        let shared = &*self.shared;
        let change = match event {
            Event::Added { object, initial } => Change::added(object, *initial),
            Event::Updated { old, new } => Change::updated(old, new),
            Event::Deleted { last, .. } => {
                shared.forget(last.object.key());
                Change::deleted(last)
            }
            Event::Advanced { resource_version } => {
                return shared.free(shared.own.seen(*resource_version));
            }
            Event::Skipped { key: Some(key) } => {
                if shared.own.forget(key) {
                    shared.free(vec![key.clone()]);
                }
                return;
            }
            // An undecodable event may concern any component.
            Event::Skipped { key: None } | Event::Relisted { regressed: true } => {
                return shared.free(shared.own.forget_all());
            }
            Event::Unserved => return shared.unserved.store(true, Ordering::Relaxed),
            Event::Synced => {
                if shared.unserved.swap(false, Ordering::Relaxed) {
                    shared.enqueue_all();
                }
                return;
            }
            Event::Relisted { regressed: false } => return,
        };
        shared.enqueue(&change);
    }
}

impl<K: Slim> Shared<K> {
    /// Enqueues the key of a change that concerns a component.
    fn enqueue(&self, change: &Change<'_, K>) {
        let components = self.components.iter();
        let interest = components.filter_map(|component| component.interest(change));
        if let Some(priority) = interest.reduce(Priority::highest) {
            if priority == Priority::Release {
                self.due.lock().note(change.key());
            }
            self.parts.queue.add(change.key().clone(), priority);
        }
    }

    /// Enqueues every object as after a start.
    fn enqueue_all(&self) {
        let mut objects = Vec::new();
        self.parts
            .store
            .for_each(|object| objects.push(object.clone()));
        for object in &objects {
            self.enqueue(&Change::added(object, true));
        }
    }

    fn free(&self, keys: Vec<ObjectKey>) {
        for key in keys {
            self.parts.queue.add(key, Priority::Release);
        }
    }

    /// Nothing is left to do for a deleted object. A standby has no workers that would find that out, and its queue may
    /// wait for months.
    fn forget(&self, key: &ObjectKey) {
        self.own.forget(key);
        self.parts.queue.remove(key);
        // What was reserved for the key goes back.
        drop(self.tickets.begin(key));
        self.due.lock().forget(key);
        self.withheld.lock().remove(key);
        self.unreadable.lock().remove(key);
    }

    /// Whether a hold may be added now; if not, the key is requeued once it may.
    fn may_hold(&self, key: &ObjectKey) -> bool {
        if self.parts.switch.allows() {
            return true;
        }
        self.withheld.lock().insert(key.clone());
        // The switch may have changed since it was read.
        self.parts.switch.allows() && self.withheld.lock().remove(key)
    }

    fn hold_again(&self) {
        let keys = std::mem::take(&mut *self.withheld.lock());
        for key in keys {
            self.parts.queue.add(key, Priority::Normal);
        }
    }

    fn regarding(&self, object: &K) -> Regarding {
        Regarding {
            resource: self.parts.resource.clone(),
            key: object.key().clone(),
            uid: object.uid().clone(),
        }
    }
}
