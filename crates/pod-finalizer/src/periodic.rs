//! The periodic task: acts on the counts of held pods.
//!
//! It opens and closes the admission policy's gate with the backlog, enqueues pods once a limit no longer applies to
//! them, reports closed namespaces and selectors that look mistyped, and publishes metrics.

mod consumers;
mod reports;
mod switch;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use belayer_core::events::EventRecorder;
use belayer_core::executor::{Executor, Writes};
use belayer_core::http::{ErrorClass, RequestError};
use belayer_core::ticks::Ticks;
use belayer_holds::gate::GateClient;
use belayer_holds::held_objects;
use belayer_holds::holding::HoldSwitch;

use crate::NAME;
use crate::backlog::Opened;
use crate::component::PodFinalizer;
use crate::held_objects::{ActiveLimits, HeldPods};
use crate::snapshot::BacklogLimit;
use switch::Wanted;

pub(crate) use switch::GATE_KEY;

/// Delay before a failed write of the gate is retried.
const RETRY: Duration = Duration::from_secs(5);

/// Delay before a retry if access to the gate is forbidden.
const FORBIDDEN_RETRY: Duration = Duration::from_secs(30);

/// The gate is read again after this time: its data may have been replaced, or a request that was given up may have changed it late.
const REREAD: Duration = Duration::from_secs(60);

/// Acts on the counts of held pods.
pub(crate) struct PeriodicTask {
    finalizer: Arc<PodFinalizer>,
    switch: HoldSwitch,
    events: EventRecorder,
    gate: GateClient,
    shown: Option<Wanted>,
    /// When a failed write is tried again.
    next_try: Option<Instant>,
    /// When the gate is read again.
    reread: Instant,
    last: ActiveLimits,
    consumers: consumers::Consumers,
}

impl PeriodicTask {
    /// Creates the task for `finalizer`. The gate is in Belayer's own `namespace`.
    pub(crate) fn new(
        finalizer: Arc<PodFinalizer>,
        executor: Arc<Executor>,
        switch: HoldSwitch,
        events: EventRecorder,
        namespace: &str,
    ) -> Self {
        Self {
            finalizer,
            switch,
            events,
            gate: GateClient::new(executor, namespace),
            shown: None,
            next_try: None,
            reread: Instant::now(),
            last: ActiveLimits::default(),
            consumers: consumers::Consumers::default(),
        }
    }

    /// Runs until `cancel` is cancelled. Start it once the informers are synced: before that the counts are
    /// incomplete.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        // Gates that an earlier leader closed stay closed until they may open. If the gate cannot be read, only
        // the counts decide.
        match self.gate.read().await {
            Ok(gate) => {
                let held_objects = self.finalizer.held_objects();
                held_objects.adopt_closed(&gate);
            }
            Err(error) => {
                tracing::info!(gate = %self.gate.key(), %error, "could not read which namespaces were closed before");
            }
        }
        self.finalizer.held_objects().settle();
        self.finalizer.begin_to_hold();
        let mut ticks = Ticks::every(held_objects::EVERY, cancel);
        while ticks.next().await.is_some() {
            self.tick().await;
        }
        self.consumers.end(&self.finalizer);
    }

    async fn tick(&mut self) {
        let (opened, now) = self.finalizer.held_objects().settle();
        publish(self.finalizer.held_objects(), &now);
        self.enqueue_opened(&opened, now.backlog);
        if self.finalizer.held_objects().has_eased() {
            self.finalizer.queue_unselected();
        }
        if now != self.last {
            self.report_changes(&now).await;
        }
        self.consumers.visit(&self.finalizer, &self.events);
        self.finalizer.settle_losses();
        self.show(&now).await;
        self.last = now;
    }

    /// Enqueues the pods that waited for a limit. Once the limit of the cluster is over, those of all namespaces are.
    fn enqueue_opened(&self, opened: &Opened, backlog: BacklogLimit) {
        if opened.all {
            self.finalizer.queue_unheld();
        } else if backlog == BacklogLimit::NotReached {
            for namespace in &opened.namespaces {
                self.finalizer.queue_unheld_in(namespace);
            }
        }
    }

    /// Writes the desired state to the gate, unless it contains that state already.
    async fn show(&mut self, now: &ActiveLimits) {
        // While Belayer is being drained, the drain owns the gate; afterwards it is read again.
        if !self.switch.allows() {
            self.shown = None;
            return;
        }
        let wanted = Wanted {
            backlog: now.backlog,
            closed: now.closed.keys().cloned().collect(),
        };
        if self.next_try.is_some_and(|next| Instant::now() < next) {
            return;
        }
        if self.shown.as_ref() == Some(&wanted) && Instant::now() < self.reread {
            return;
        }
        match self.write_gate(&wanted).await {
            Ok(()) => {
                self.shown = Some(wanted);
                self.next_try = None;
                self.reread = Instant::now() + REREAD;
            }
            Err(error) => {
                let delay = match error.class() {
                    ErrorClass::Forbidden => FORBIDDEN_RETRY,
                    _ => RETRY,
                };
                // A dry run writes nothing, and a cluster without Belayer has no gate.
                if self.gate.executor().writes() == Writes::Sent {
                    tracing::info!(gate = %self.gate.key(), %error, retry_in_seconds = delay.as_secs(), "could not update the gate");
                }
                // It may have been written although the answer was lost.
                self.shown = None;
                self.next_try =
                    Some(Instant::now() + delay.max(error.retry_after().unwrap_or_default()));
            }
        }
    }

    async fn write_gate(&self, wanted: &Wanted) -> Result<(), RequestError> {
        let current = self.gate.read().await?;
        let change = wanted.change(&current, self.finalizer.mode());
        if change.is_empty() {
            return Ok(());
        }
        self.gate.write(&current, &change).await?;
        tracing::info!(gate = %self.gate.key(), data = %json!(change), "updated the gate");
        Ok(())
    }
}

/// Reports the held objects as metrics.
fn publish(held_objects: &HeldPods, active: &ActiveLimits) {
    held_objects::publish(NAME, [&**held_objects]);
    let gauge = |name, value: f64| metrics::gauge!(name, "controller" => NAME).set(value);
    let all = if active.backlog == BacklogLimit::Reached {
        1.0
    } else {
        0.0
    };
    gauge(belayer_metrics::BACKLOG_GATE, all);
    gauge(
        belayer_metrics::BACKLOG_NAMESPACES,
        active.closed.len() as f64,
    );
    gauge(belayer_metrics::UNSELECTED_KEPT, held_objects.kept() as f64);
}
