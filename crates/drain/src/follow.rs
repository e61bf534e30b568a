//! How running controllers follow the gate: after every change and every failed watch they read the whole
//! ConfigMap again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use belayer_core::executor::Writes;
use belayer_core::http::{ErrorClass, RequestError};
use belayer_core::rng;
use belayer_holds::gate::{GateClient, GateConfigMap};
use belayer_holds::holding::{HoldSwitch, Holding};

/// Time limit of one watch, in seconds.
const WATCH_SECONDS: u64 = 240;

/// A watch without data for longer than its time limit is broken.
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS + 30);

/// Pause after the first failure, doubled by each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// A watch that ends sooner is broken, or the ConfigMap changes often.
const SHORT: Duration = Duration::from_secs(1);

/// Longest pause between failed reads.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The switches of the admission policies of this process's components.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Switches {
    /// Of running components.
    pub on: Vec<&'static str>,
    /// Of components that were switched off.
    pub off: Vec<&'static str>,
}

/// State of the gate ConfigMap and of Belayer's namespace. Cheap to clone.
#[derive(Debug, Clone)]
pub struct GateStatus(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    switch: HoldSwitch,
    now: Mutex<Now>,
    /// Whether this process writes the switches of the policies: only the leader does.
    keeps_switches: AtomicBool,
    reread: Notify,
}

#[derive(Debug, Default)]
struct Now {
    /// State of the gate; `None` before the first read.
    gate: Option<Holding>,
    /// Belayer's namespace is being deleted, and with it the RBAC permissions to remove finalizers.
    ends: bool,
}

impl GateStatus {
    /// An unknown state; every change is copied to `switch`.
    pub fn new(switch: HoldSwitch) -> Self {
        Self(Arc::new(Inner {
            switch,
            now: Mutex::default(),
            keeps_switches: AtomicBool::new(false),
            reread: Notify::new(),
        }))
    }

    /// Sets whether this process writes the switches: true on the leader.
    pub fn keep_switches(&self, keeps: bool) {
        self.0.keeps_switches.store(keeps, Ordering::Relaxed);
        self.0.reread.notify_one();
    }

    /// Notes whether Belayer's namespace is being deleted.
    pub fn namespace_ends(&self, ends: bool) {
        let mut now = self.0.now.lock();
        if ends && !now.ends {
            tracing::warn!(
                "Belayer's own namespace is being deleted: no hold is added any more; run `belayer drain` as an \
                 admin, or the held objects stay held"
            );
        }
        now.ends = ends;
        self.update_switch(&now);
    }

    /// Notes the state of the gate; `None` if the ConfigMap does not exist.
    fn gate(&self, state: Option<&GateConfigMap>) {
        let mut now = self.0.now.lock();
        let holding = match state {
            Some(state) if state.is_draining() => Holding::Draining,
            Some(_) => Holding::Allowed,
            // If it was deleted while Belayer is drained, Belayer stays drained.
            None => now.gate.unwrap_or(Holding::Allowed),
        };
        if now.gate != Some(holding) {
            match holding {
                Holding::Draining => tracing::warn!(
                    "draining: no hold is added, releases continue; run `belayer drain --resume` to end this"
                ),
                _ if now.gate.is_some() => {
                    tracing::info!("draining ended: holds are added again");
                }
                _ => {}
            }
        }
        now.gate = Some(holding);
        self.update_switch(&now);
    }

    fn update_switch(&self, now: &Now) {
        let to = match (now.ends, now.gate) {
            (true, _) => Holding::Leaving,
            (false, Some(holding)) => holding,
            (false, None) => Holding::Unknown,
        };
        self.0.switch.set(to);
    }
}

/// Follows the gate for as long as a process runs.
pub struct Follower {
    gate: GateClient,
    status: GateStatus,
    switches: Switches,
}

impl Follower {
    /// Follows `gate`, updates `status`, and writes the switches of the policies of these components.
    pub fn new(gate: GateClient, status: GateStatus, switches: Switches) -> Self {
        Self {
            gate,
            status,
            switches,
        }
    }

    /// Runs until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow()).await;
    }

    async fn follow(&self) {
        let mut failures = 0_u32;
        // The last logged cause, so that each cause is logged once.
        let mut logged: Option<String> = None;
        loop {
            let waited = match self.reread().await {
                Ok(version) => self.wait_for_change(&version).await,
                Err(error) => Err(error),
            };
            let pause = match waited {
                Ok(Waited::Long) => {
                    failures = 0;
                    logged = None;
                    FIRST_PAUSE
                }
                Ok(Waited::Short) => {
                    failures = failures.saturating_add(1);
                    pause_after(failures)
                }
                Err(error) => {
                    let cause = error.to_string();
                    if logged.as_ref() != Some(&cause) {
                        self.log(&error);
                        logged = Some(cause);
                    }
                    failures = failures.saturating_add(1);
                    pause_after(failures).max(error.retry_after().unwrap_or_default())
                }
            };
            // A notification ends the pause.
            let pause = sleep(pause.mul_f64(0.5 + rng::unit() / 2.0));
            tokio::select! {
                () = pause => {}
                () = self.status.0.reread.notified() => {}
            }
        }
    }

    fn log(&self, error: &RequestError) {
        let gate = self.gate.key();
        if error.class() == ErrorClass::Forbidden {
            tracing::warn!(%gate, error = error.message(), "no permission to read the gate ConfigMap: no hold is added until it \
                shows that Belayer is not drained; grant the Role belayer-gate");
        } else {
            tracing::info!(%gate, error = error.message(), "cannot read or watch the gate ConfigMap; retrying");
        }
    }

    /// Reads the gate, applies it, and returns the version to watch from.
    async fn reread(&self) -> Result<String, RequestError> {
        let (state, version) = self.gate.list().await?;
        self.status.gate(state.as_ref());
        if let Some(state) = state.filter(|state| !state.is_draining()) {
            self.set_switches(&state).await;
        }
        Ok(version)
    }

    async fn set_switches(&self, state: &GateConfigMap) {
        let change = state.to_components(&self.switches.on, &self.switches.off);
        let keeps = self.status.0.keeps_switches.load(Ordering::Relaxed);
        if !keeps || change.is_empty() || self.gate.executor().writes() == Writes::DryRun {
            return;
        }
        // A conflicting write is a change, after which this runs again.
        match self.gate.write(state, &change).await {
            Ok(()) => {
                let switches = change.iter();
                let switches =
                    switches.filter_map(|(key, value)| Some(format!("{key}: {}", (*value)?)));
                let switches = switches.collect::<Vec<_>>().join(", ");
                tracing::info!(switches, "wrote the switches of the admission policies");
            }
            Err(error) => {
                tracing::info!(
                    error = error.message(),
                    "could not write the switches of the admission policies"
                );
            }
        }
    }

    /// Returns after a change or the end of the watch.
    async fn wait_for_change(&self, version: &str) -> Result<Waited, RequestError> {
        let watch = self.gate.watch(version, WATCH_SECONDS);
        let begun = Instant::now();
        let changed = async {
            let mut stream = watch.open(self.gate.executor().streams()).await?;
            // The end of a watch without an event is not a failure: it has a time limit.
            if let Ok(piece) = tokio::time::timeout(SILENCE, stream.chunk()).await {
                piece?;
            }
            Ok::<_, RequestError>(())
        };
        tokio::select! {
            biased;
            changed = changed => changed?,
            () = self.status.0.reread.notified() => return Ok(Waited::Long),
        }
        Ok(if begun.elapsed() < SHORT {
            Waited::Short
        } else {
            Waited::Long
        })
    }
}

/// How long a watch lasted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waited {
    Long,
    /// Short: a pause follows, longer each time, so that a gate that changes often is read less often.
    Short,
}

fn pause_after(failures: u32) -> Duration {
    let longer = FIRST_PAUSE * 2_u32.saturating_pow(failures.saturating_sub(1).min(8));
    longer.min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(mode: &str) -> GateConfigMap {
        let gate = serde_json::json!({ "data": { "mode": mode } });
        serde_json::from_value(gate).unwrap()
    }

    #[test]
    fn the_switch_follows_gate_and_namespace() {
        let switch = HoldSwitch::new(Holding::Unknown);
        let status = GateStatus::new(switch.clone());
        status.namespace_ends(false);
        assert_eq!(
            switch.now(),
            Holding::Unknown,
            "the namespace does not tell the gate's mode"
        );
        status.gate(None);
        assert_eq!(
            switch.now(),
            Holding::Allowed,
            "without a gate Belayer is not drained"
        );
        status.gate(Some(&state("draining")));
        assert_eq!(switch.now(), Holding::Draining);
        status.gate(None);
        assert_eq!(
            switch.now(),
            Holding::Draining,
            "deleting the gate does not end draining"
        );
        status.gate(Some(&state("normal")));
        assert_eq!(switch.now(), Holding::Allowed);
        status.namespace_ends(true);
        status.gate(Some(&state("normal")));
        assert_eq!(
            switch.now(),
            Holding::Leaving,
            "the namespace is being deleted"
        );
        status.namespace_ends(false);
        assert_eq!(switch.now(), Holding::Allowed, "the namespace exists again");
    }
}
