//! The pods: one informer, one queue and one runner for all components that hold pods.

use std::sync::Arc;

use belayer_core::facts::Wake;
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::{Keep, Pod};
use belayer_core::workqueue::{Priority, WorkQueue};
use belayer_holds::names;
use belayer_holds::runner::{self, Component, Runner};

use super::Shared;
use super::feed::{BackgroundTask, InformerHandle, Watched, WorkerGroup};
use crate::PodIndex;

/// Name of the queue.
const QUEUE: &str = "pods";

/// What the components that hold pods share.
pub struct Pods {
    /// Their informer.
    pub watched: Watched<Pod>,
    /// Their queue.
    pub queue: WorkQueue<ObjectKey>,
    runner: runner::Builder<Pod>,
    workers: usize,
    beside: Vec<BackgroundTask>,
}

impl Pods {
    /// Pods whose labels and annotations in `keep` somebody reads, and which are found by `indexes`.
    pub fn new(shared: &Shared, keep: Keep, indexes: &[PodIndex]) -> Self {
        let watched = Watched::new(
            &shared.client,
            Resource::pods(),
            shared.decoders(keep),
            |builder| {
                indexes
                    .iter()
                    .fold(builder, |builder, index| index(builder))
            },
        );
        let queue = WorkQueue::new(QUEUE);
        let runner = Runner::builder(shared.runner(&watched, &queue, names::POD_HOLDS));
        Self {
            watched,
            queue,
            runner,
            workers: 0,
            beside: Vec::new(),
        }
    }

    /// Registers the rules of a component, which wants so many workers.
    pub fn register<C: Component<Pod>>(&mut self, component: Arc<C>, workers: usize) {
        self.runner.register(component);
        self.workers = self.workers.max(workers);
    }

    /// Runs `task` beside the workers.
    pub fn run_beside(&mut self, task: BackgroundTask) {
        self.beside.push(task);
    }

    /// Wakes pods that waited for an answer.
    pub fn wake(&self) -> Wake {
        let queue = self.queue.clone();
        Arc::new(move |key| queue.add(key, Priority::Release))
    }

    /// Ready to run. What the components note about an event is done before their runner sees it.
    pub fn finish(self) -> (InformerHandle, WorkerGroup) {
        let Self {
            mut watched,
            queue,
            runner,
            workers,
            beside,
        } = self;
        let runner = runner.build();
        watched.informer().add_handler(Arc::new(runner.clone()));
        let feed = watched.into_feed();
        let crew = WorkerGroup {
            name: QUEUE,
            queue,
            needs: vec![feed.state()],
            start: Box::new(move || runner.work(workers)),
            beside,
        };
        (feed, crew)
    }
}
