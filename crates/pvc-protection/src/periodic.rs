//! The periodic task: publishes metrics of the held objects and logs advice.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use belayer_core::executor::Writes;
use belayer_core::ticks::Ticks;
use belayer_holds::held_objects;

use crate::advice::{Advice, SWITCH_OFF};
use crate::component::{NAME, PvcProtection};
use crate::config::Mode;

/// How often signs are collected. This reads every PVC in the store.
const SIGNS_EVERY: Duration = Duration::from_secs(30);

/// The same advice is not given again within this time.
const REPEAT_AFTER: Duration = Duration::from_secs(60 * 60);

/// Publishes metrics and logs advice.
pub(crate) struct PeriodicTask {
    protection: Arc<PvcProtection>,
    writes: Writes,
    given: HashMap<&'static str, Instant>,
}

impl PeriodicTask {
    /// Creates the task for `protection`. A replica that does not write gives no advice.
    pub(crate) fn new(protection: Arc<PvcProtection>, writes: Writes) -> Self {
        Self {
            protection,
            writes,
            given: HashMap::new(),
        }
    }

    /// Runs until `cancel` is cancelled. Start it once the informers are synced: before that the stores are
    /// incomplete.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        match self.protection.mode() {
            Mode::Advise => tracing::info!(
                "pvc-protection adds no finalizer and only reports which pods a PVC waits for; to hold PVCs, set \
                 pvcProtection.finalizer"
            ),
            Mode::Own => {}
            Mode::InPlace => tracing::info!(
                "pvc-protection works in place of kube-controller-manager's \
                 persistentvolumeclaim-protection-controller, which must be off: {SWITCH_OFF}"
            ),
        }
        self.protection.release_tracker().clear();
        let mut ticks = Ticks::every(held_objects::EVERY, cancel);
        let mut next_signs = Instant::now();
        while ticks.next().await.is_some() {
            held_objects::publish(NAME, [self.protection.held_objects()]);
            if self.writes == Writes::Sent && next_signs <= Instant::now() {
                next_signs = Instant::now() + SIGNS_EVERY;
                self.advise();
            }
        }
    }

    fn advise(&mut self) {
        let signs = self.protection.signs(belayer_core::clock::now());
        for advice in Advice::on(self.protection.mode(), signs) {
            let lately = |given: &Instant| given.elapsed() < REPEAT_AFTER;
            if !self.given.get(advice.name()).is_some_and(lately) {
                self.given.insert(advice.name(), Instant::now());
                tracing::warn!(advice = advice.name(), "{advice}");
            }
        }
    }
}
