//! The queue's metrics, with client-go's names.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, SharedString, counter, gauge, histogram};
use parking_lot::Mutex;

use super::durations::Durations;
use super::priority::Priority;

pub(crate) use crate::metric_names::WORKER_PANICS;
pub(crate) use belayer_metrics::{
    WORKQUEUE_ADDS as ADDS, WORKQUEUE_DEPTH as DEPTH, WORKQUEUE_LONGEST_RUNNING as LONGEST_RUNNING,
    WORKQUEUE_QUEUE_DURATION as QUEUE_DURATION, WORKQUEUE_RETRIES as RETRIES,
    WORKQUEUE_UNFINISHED_WORK as UNFINISHED_WORK, WORKQUEUE_WORK_DURATION as WORK_DURATION,
};

/// Whether a queue reports metrics. Part of the [`Options`](crate::workqueue::Options).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Metering {
    /// Through the [`metrics`] facade. The recorder must be installed before the queue is created:
    /// handles are looked up once.
    #[default]
    On,
    /// Not at all.
    Off,
}

/// The content of a queue at one point in time. Returned by
/// [`WorkQueue::snapshot`](crate::workqueue::WorkQueue::snapshot).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueSnapshot {
    /// Keys ready to be worked on by priority, in the order of [`Priority::ALL`]. As in client-go,
    /// a key that was added again while it is processed is included.
    pub depth: [usize; 3],
    /// Keys that are not due yet.
    pub delayed: usize,
    /// Keys being processed.
    pub processing: usize,
    /// Distinct keys in the queue: ready, delayed, processing, and those that are only kept for
    /// their failures.
    pub known: usize,
    /// How often a key became ready so far; adds that merged with a ready key are not counted.
    pub adds: u64,
    /// Failures with backoff so far.
    pub retries: u64,
    /// The sum of the times for which the keys being processed have been processed.
    pub unfinished: Duration,
    /// The longest of these times.
    pub longest: Duration,
}

impl QueueSnapshot {
    /// Ready keys of this priority.
    #[must_use]
    pub fn depth(&self, priority: Priority) -> usize {
        self.depth[priority.index()]
    }

    /// Ready keys of all priorities.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.depth.iter().sum()
    }
}

/// Handles, looked up once. The queue keeps counters under its lock, where they cost nothing, and
/// publishes them with the gauges; durations are reported in batches.
pub(super) struct Meters {
    metering: Metering,
    queue_duration: Histogram,
    work_duration: Histogram,
    published: Mutex<Published>,
}

struct Published {
    adds_seen: u64,
    retries_seen: u64,
    adds: Counter,
    retries: Counter,
    depth: [Gauge; 3],
    unfinished: Gauge,
    longest: Gauge,
}

impl Meters {
    pub(super) fn new(name: &SharedString, metering: Metering) -> Self {
        match metering {
            Metering::On => Self::on(name),
            Metering::Off => Self::off(),
        }
    }

    fn on(name: &SharedString) -> Self {
        Self {
            metering: Metering::On,
            queue_duration: histogram!(QUEUE_DURATION, "name" => name.clone()),
            work_duration: histogram!(WORK_DURATION, "name" => name.clone()),
            published: Mutex::new(Published {
                adds_seen: 0,
                retries_seen: 0,
                adds: counter!(ADDS, "name" => name.clone()),
                retries: counter!(RETRIES, "name" => name.clone()),
                depth: Priority::ALL
                    .map(|priority| gauge!(DEPTH, "name" => name.clone(), "priority" => priority.as_str())),
                unfinished: gauge!(UNFINISHED_WORK, "name" => name.clone()),
                longest: gauge!(LONGEST_RUNNING, "name" => name.clone()),
            }),
        }
    }

    fn off() -> Self {
        Self {
            metering: Metering::Off,
            queue_duration: Histogram::noop(),
            work_duration: Histogram::noop(),
            published: Mutex::new(Published {
                adds_seen: 0,
                retries_seen: 0,
                adds: Counter::noop(),
                retries: Counter::noop(),
                depth: [const { Gauge::noop() }; 3],
                unfinished: Gauge::noop(),
                longest: Gauge::noop(),
            }),
        }
    }

    /// The collection of durations; `None` if metrics are off.
    pub(super) fn durations(&self) -> Option<Durations> {
        (self.metering == Metering::On).then(Durations::default)
    }

    pub(super) fn report(&self, durations: Option<Durations>) {
        let Some(Durations { waited, worked }) = durations else {
            return;
        };
        for (nanos, histogram) in [
            (waited, &self.queue_duration),
            (worked, &self.work_duration),
        ] {
            for nanos in nanos {
                histogram.record(nanos as f64 / 1e9);
            }
        }
    }

    pub(super) fn publish(&self, snapshot: impl FnOnce() -> QueueSnapshot) {
        if self.metering == Metering::Off {
            return;
        }
        let mut published = self.published.lock();
        // Taken under the lock: of two refreshes the later one publishes the later numbers.
        let now = snapshot();
        published.adds.increment(now.adds - published.adds_seen);
        published.adds_seen = now.adds;
        published
            .retries
            .increment(now.retries - published.retries_seen);
        published.retries_seen = now.retries;
        for (gauge, depth) in published.depth.iter().zip(now.depth) {
            gauge.set(depth as f64);
        }
        published.unfinished.set(now.unfinished.as_secs_f64());
        published.longest.set(now.longest.as_secs_f64());
    }
}

/// The panics caught in the handlers of one queue.
pub(super) fn panics(name: &SharedString, metering: Metering) -> Counter {
    match metering {
        Metering::On => counter!(WORKER_PANICS, "name" => name.clone()),
        Metering::Off => Counter::noop(),
    }
}
