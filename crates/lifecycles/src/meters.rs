//! The metrics of lifecycles, as in the kubelet.

use metrics::{Counter, Gauge, SharedString, counter, gauge};
use parking_lot::Mutex;

use super::phase::{Config, Phase};
use super::slot::View;
use super::step::Effects;
use belayer_core::metric_names::WORKER_PANICS;
use belayer_core::object::ObjectKey;

/// Without a program's prefix, which its recorder adds.
const WORKERS: &str = "workers";
const WORKERS_DESIRED: &str = "workers_desired";
const WORKERS_ACTIVE: &str = "workers_active";
const WORKER_RESTARTS: &str = "worker_restarts_total";
const WORKER_ORPHANS: &str = "worker_orphans_total";

const PHASES: [Phase; 3] = [Phase::Sync, Phase::Terminating, Phase::Terminated];
const CONFIGS: [Config; 2] = [Config::Desired, Config::Orphan];

/// Handles, looked up once.
pub(super) struct Meters {
    panics: Counter,
    restarts: Counter,
    orphans: Counter,
    gauges: Mutex<Gauges>,
}

struct Gauges {
    /// By phase, then by config, for every combination.
    workers: [[Gauge; 2]; 3],
    desired: Gauge,
    active: Gauge,
}

/// The values of the gauges.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    workers: [[usize; 2]; 3],
    desired: usize,
    active: usize,
}

impl Count {
    fn add<S>(&mut self, view: &View<S>) {
        if view.config == Config::Desired {
            self.desired += 1;
        }
        if view.phase < Phase::Terminated {
            self.active += 1;
        }
        let phase = PHASES.iter().position(|phase| *phase == view.phase);
        let config = CONFIGS.iter().position(|config| *config == view.config);
        if let (Some(phase), Some(config)) = (phase, config) {
            self.workers[phase][config] += 1;
        }
    }
}

impl Meters {
    pub(super) fn new(controller: &SharedString) -> Self {
        let name = || controller.clone();
        Self {
            panics: counter!(WORKER_PANICS, "name" => name()),
            restarts: counter!(WORKER_RESTARTS, "controller" => name()),
            orphans: counter!(WORKER_ORPHANS, "controller" => name()),
            gauges: Mutex::new(Gauges {
                workers: PHASES.map(|phase| {
                    CONFIGS.map(|config| {
                        gauge!(
                            WORKERS,
                            "controller" => name(),
                            "lifecycle" => phase.label().unwrap_or_default(),
                            "config" => config.label(),
                        )
                    })
                }),
                desired: gauge!(WORKERS_DESIRED, "controller" => name()),
                active: gauge!(WORKERS_ACTIVE, "controller" => name()),
            }),
        }
    }

    pub(super) fn panicked(&self) {
        self.panics.increment(1);
    }

    pub(super) fn count(&self, effects: &Effects) {
        self.restarts.increment(effects.restarts);
        self.orphans.increment(effects.orphans);
    }

    /// Writes every gauge, including those with the value 0.
    pub(super) fn publish<S>(&self, each: impl FnOnce(&mut dyn FnMut(&ObjectKey, View<S>))) {
        let gauges = self.gauges.lock();
        // Taken under the lock: of two concurrent calls the later one publishes the later numbers.
        let mut count = Count::default();
        each(&mut |_, view| count.add(&view));
        for (gauges, counts) in gauges.workers.iter().zip(count.workers) {
            for (gauge, count) in gauges.iter().zip(counts) {
                gauge.set(count as f64);
            }
        }
        gauges.desired.set(count.desired as f64);
        gauges.active.set(count.active as f64);
    }
}
