//! The state that the handles of lifecycles and their workers share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use metrics::SharedString;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::meters::Meters;
use super::object::Identity;
use super::slots::Slots;
use super::step::Effects;
use super::work::Lifecycle;
use belayer_core::object::ObjectKey;
use belayer_core::ticks::Ticks;

/// How often the gauges are written: the interval of the kubelet's housekeeping.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(2);

pub(super) struct Shared<L: Lifecycle> {
    pub(super) slots: Slots<Arc<L::Snapshot>>,
    pub(super) work: L,
    pub(super) controller: SharedString,
    pub(super) resync: Option<Duration>,
    pub(super) meters: Meters,
    /// Notified whenever work has ended or a worker has gone to sleep.
    pub(super) changed: Notify,
    pub(super) stop: CancellationToken,
    pub(super) runtime: Handle,
    pub(super) tasks: TaskTracker,
}

impl<L: Lifecycle> Shared<L> {
    pub(super) fn report(&self, key: &ObjectKey, effects: Effects) {
        self.meters.count(&effects);
        for finished in effects.finished {
            let object = Identity::new(key.clone(), finished.uid);
            tracing::debug!(controller = &*self.controller, %object, end = ?finished.end, "finished");
            let reported = catch_unwind(AssertUnwindSafe(|| {
                self.work.finished(&object, finished.end);
            }));
            if let Err(panic) = reported {
                self.panicked(&object, &*panic);
            }
        }
        self.changed.notify_waiters();
    }

    pub(super) fn panicked(&self, object: &Identity, panic: &(dyn std::any::Any + Send)) {
        self.meters.panicked();
        tracing::error!(
            controller = &*self.controller,
            %object,
            panic = belayer_core::workqueue::panic_message(panic),
            "worker panicked"
        );
    }

    pub(super) fn close(&self) {
        for mut calls in self.slots.close() {
            calls.fire();
        }
        self.stop.cancel();
        self.tasks.close();
    }

    pub(super) async fn wait_until(&self, reached: impl Fn(&Slots<Arc<L::Snapshot>>) -> bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if reached(&self.slots) {
                return;
            }
            changed.await;
        }
    }

    pub(super) fn publish_metrics(&self) {
        self.meters.publish(|visit| self.slots.for_each(visit));
    }

    /// Publishes the gauges periodically.
    pub(super) async fn publish_until_stopped(self: Arc<Self>) {
        let mut ticks = Ticks::every(PUBLISH_INTERVAL, self.stop.clone());
        while ticks.next().await.is_some() {
            self.publish_metrics();
        }
    }
}
