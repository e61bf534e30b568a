//! The pods: one informer, one queue and one runner for all controllers that hold pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use belayer_core::object::{ObjectKey, Resource};
use belayer_core::queries::Enqueue;
use belayer_core::slim::{Keep, Pod};
use belayer_core::workqueue::{Priority, WorkQueue};
use belayer_holds::names;
use belayer_holds::runner::{self, Component, Runner, RunnerParts};

use super::Shared;
use super::informer_handle::{BackgroundTask, InformerHandle, Watched, WorkerGroup};
use crate::{Hold, PodIndex};

/// Name of the queue.
const QUEUE: &str = "pods";

/// What the controllers that hold pods share. Returned by a
/// [`ControllerContext`](crate::context::ControllerContext) to a [`Controller`](crate::Controller)
/// that holds pods.
pub struct Pods {
    /// The informer.
    pub watched: Watched<Pod>,
    /// The queue.
    pub queue: WorkQueue<ObjectKey>,
    runner: runner::Builder<Pod>,
    workers: usize,
    background: Vec<BackgroundTask>,
}

impl Pods {
    /// An informer of pods that keeps the labels and annotations in `keep` and has `indexes`, and a runner that may change
    /// the finalizers of `holds` on pods, and those of controllers that are off.
    pub fn new(shared: &Shared, keep: Keep, indexes: &[PodIndex], holds: &[Hold]) -> Self {
        let watched = Watched::new(
            &shared.watches,
            Resource::pods(),
            shared.decoders(keep),
            |builder| {
                indexes
                    .iter()
                    .fold(builder, |builder, index| index(builder))
            },
        );
        let queue = WorkQueue::new(QUEUE);
        let on_pods = holds.iter().filter(|hold| hold.kind == watched.resource);
        let configured = on_pods.flat_map(|hold| &hold.finalizers);
        let finalizers: BTreeSet<_> = names::POD_HOLDS.iter().chain(configured).copied().collect();
        let runner = Runner::builder(RunnerParts {
            finalizers: finalizers.into_iter().collect(),
            ..shared.runner(&watched, &queue, &[])
        });
        Self {
            watched,
            queue,
            runner,
            workers: 0,
            background: Vec::new(),
        }
    }

    /// Registers the rules of a component that requires this many workers.
    pub fn register<C: Component<Pod>>(&mut self, component: Arc<C>, workers: usize) {
        self.runner.register(component);
        self.workers = self.workers.max(workers);
    }

    /// Runs `task` alongside the workers.
    pub fn run_in_background(&mut self, task: BackgroundTask) {
        self.background.push(task);
    }

    /// Enqueues pods that waited for an answer.
    pub fn enqueue(&self) -> Enqueue {
        let queue = self.queue.clone();
        Arc::new(move |key| queue.add(key, Priority::Release))
    }

    /// Returns the informer and the workers. The components' event handlers run before that of the
    /// runner.
    pub fn finish(self) -> (InformerHandle, WorkerGroup) {
        let Self {
            mut watched,
            queue,
            runner,
            workers,
            background,
        } = self;
        let runner = runner.build();
        watched.informer().add_handler(Arc::new(runner.clone()));
        let handle = watched.into_handle();
        let workers_of_pods = WorkerGroup {
            name: QUEUE,
            queue,
            needs: vec![handle.state()],
            start: Box::new(move || runner.work(workers)),
            background,
        };
        (handle, workers_of_pods)
    }
}
