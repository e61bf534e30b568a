//! How running controllers follow the gate: level, not edge. Any sign of a change, or of trouble, only
//! means to read it again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use belayer_core::ambient;
use belayer_core::executor::Writes;
use belayer_core::http::{ErrorClass, RequestError};
use belayer_holds::holding::{HoldSwitch, Holding};

use crate::gate::{Gate, State};

/// How long one watch lasts.
const WATCH_SECONDS: u64 = 240;

/// A watch that is silent for longer than it was asked for is dead.
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS + 30);

/// The pause after the first failure, doubled by each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// A watch that ends sooner than this does not work, or there are many changes in a row.
const SHORT: Duration = Duration::from_secs(1);

/// The longest pause between two looks that fail.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The switches of the admission policies of this process's components.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Switches {
    /// Of components that run.
    pub on: Vec<&'static str>,
    /// Of components that were switched off.
    pub off: Vec<&'static str>,
}

/// What is known of Belayer's home. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Home(Arc<Known>);

#[derive(Debug)]
struct Known {
    switch: HoldSwitch,
    now: Mutex<Now>,
    /// Whether this process keeps the switches of the policies: one does, of all replicas.
    keeps_switches: AtomicBool,
    look: Notify,
}

#[derive(Debug, Default)]
struct Now {
    /// What the gate says; `None` before anything is known.
    gate: Option<Holding>,
    /// Belayer's own namespace is being deleted: with it go the rights to let anything go.
    ends: bool,
}

impl Home {
    /// A home about which nothing is known; `switch` is turned as soon as something is.
    pub fn new(switch: HoldSwitch) -> Self {
        Self(Arc::new(Known {
            switch,
            now: Mutex::default(),
            keeps_switches: AtomicBool::new(false),
            look: Notify::new(),
        }))
    }

    /// Whether this process is the one of all replicas that writes.
    pub fn keep_switches(&self, keeps: bool) {
        self.0.keeps_switches.store(keeps, Ordering::Relaxed);
        self.0.look.notify_one();
    }

    /// Belayer's own namespace is being deleted, or is there (again).
    pub fn namespace_ends(&self, ends: bool) {
        let mut now = self.0.now.lock();
        if ends && !now.ends {
            tracing::warn!(
                "Belayer's own namespace is being deleted: no hold is added any more; run `belayer drain` from \
                 a machine of an admin, or what is held stays held"
            );
        }
        now.ends = ends;
        self.turn(&now);
    }

    /// The gate was read; `None` if it is not there.
    fn gate(&self, state: Option<&State>) {
        let mut now = self.0.now.lock();
        let said = match state {
            Some(state) if state.is_draining() => Holding::Draining,
            Some(_) => Holding::Allowed,
            // Whoever deletes it while Belayer is drained does not want more holds.
            None => now.gate.unwrap_or(Holding::Allowed),
        };
        if now.gate != Some(said) {
            match said {
                Holding::Draining => tracing::warn!(
                    "draining: no hold is added, releases go on; `belayer drain --resume` ends this"
                ),
                _ if now.gate.is_some() => {
                    tracing::info!("draining is over: holds are added again");
                }
                _ => {}
            }
        }
        now.gate = Some(said);
        self.turn(&now);
    }

    fn turn(&self, now: &Now) {
        let to = match (now.ends, now.gate) {
            (true, _) => Holding::Leaving,
            (false, Some(said)) => said,
            (false, None) => Holding::Unknown,
        };
        self.0.switch.set(to);
    }
}

/// Follows the gate for as long as a process runs.
pub struct Follower {
    gate: Gate,
    home: Home,
    switches: Switches,
}

impl Follower {
    /// Follows `gate`, tells `home`, and keeps the switches of the policies as the components are.
    pub fn new(gate: Gate, home: Home, switches: Switches) -> Self {
        Self {
            gate,
            home,
            switches,
        }
    }

    /// Runs until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled(self.follow()).await;
    }

    async fn follow(&self) {
        let mut failures = 0_u32;
        // What was logged last, so that every cause is logged once.
        let mut said: Option<String> = None;
        loop {
            let waited = match self.look().await {
                Ok(version) => self.wait_for_change(&version).await,
                Err(error) => Err(error),
            };
            let pause = match waited {
                Ok(Waited::Long) => {
                    failures = 0;
                    said = None;
                    FIRST_PAUSE
                }
                Ok(Waited::Short) => {
                    failures = failures.saturating_add(1);
                    pause_after(failures)
                }
                Err(error) => {
                    let cause = error.to_string();
                    if said.as_ref() != Some(&cause) {
                        self.complain(&error);
                        said = Some(cause);
                    }
                    failures = failures.saturating_add(1);
                    pause_after(failures).max(error.retry_after().unwrap_or_default())
                }
            };
            // A known change needs no watch.
            let pause = sleep(pause.mul_f64(0.5 + ambient::unit() / 2.0));
            tokio::select! {
                () = pause => {}
                () = self.home.0.look.notified() => {}
            }
        }
    }

    fn complain(&self, error: &RequestError) {
        let gate = self.gate.key();
        if error.class() == ErrorClass::Forbidden {
            tracing::warn!(%gate, error = error.in_words(), "no permission to read the gate ConfigMap: no hold is added until it \
                shows that Belayer is not drained; grant the Role belayer-gate");
        } else {
            tracing::info!(%gate, error = error.in_words(), "the gate ConfigMap cannot be read or watched: trying again");
        }
    }

    /// Reads the gate, acts on it, and says from which version it can be watched.
    async fn look(&self) -> Result<String, RequestError> {
        let (state, version) = self.gate.list().await?;
        self.home.gate(state.as_ref());
        if let Some(state) = state.filter(|state| !state.is_draining()) {
            self.set_switches(&state).await;
        }
        Ok(version)
    }

    async fn set_switches(&self, state: &State) {
        let change = state.to_components(&self.switches.on, &self.switches.off);
        let keeps = self.home.0.keeps_switches.load(Ordering::Relaxed);
        if !keeps || change.is_empty() || self.gate.executor().writes() == Writes::DryRun {
            return;
        }
        // Whoever wrote at the same time causes another look, which comes back to this.
        match self.gate.write(state, &change).await {
            Ok(()) => {
                let switches = change.iter().map(|(key, word)| format!("{key}: {word}"));
                let switches = switches.collect::<Vec<_>>().join(", ");
                tracing::info!(switches, "switches of the admission policies written");
            }
            Err(error) => {
                tracing::info!(
                    error = error.in_words(),
                    "the switches of the admission policies could not be written"
                );
            }
        }
    }

    /// Returns once something has happened, or the watch has ended: in any case it is read again.
    async fn wait_for_change(&self, version: &str) -> Result<Waited, RequestError> {
        let watch = self.gate.watch(version, WATCH_SECONDS);
        let begun = Instant::now();
        let changed = async {
            let mut stream = watch.open(self.gate.executor().client()).await?;
            // An end without an event is no failure: the watch has a time limit.
            if let Ok(piece) = tokio::time::timeout(SILENCE, stream.chunk()).await {
                piece?;
            }
            Ok::<_, RequestError>(())
        };
        tokio::select! {
            biased;
            changed = changed => changed?,
            () = self.home.0.look.notified() => return Ok(Waited::Long),
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
    /// So short that there is a pause before the next one, longer each time. A gate that keeps changing is
    /// read less often by that as well.
    Short,
}

fn pause_after(failures: u32) -> Duration {
    let longer = FIRST_PAUSE * 2_u32.saturating_pow(failures.saturating_sub(1).min(8));
    longer.min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(mode: &str) -> State {
        serde_json::from_value::<std::collections::BTreeMap<String, String>>(
            serde_json::json!({ "mode": mode }),
        )
        .map(State::with_data)
        .unwrap()
    }

    #[test]
    fn the_switch_follows_what_is_known() {
        let switch = HoldSwitch::new(Holding::Unknown);
        let home = Home::new(switch.clone());
        home.namespace_ends(false);
        assert_eq!(
            switch.now(),
            Holding::Unknown,
            "a namespace says nothing of the gate"
        );
        home.gate(None);
        assert_eq!(switch.now(), Holding::Allowed, "no gate, no draining");
        home.gate(Some(&state("draining")));
        assert_eq!(switch.now(), Holding::Draining);
        home.gate(None);
        assert_eq!(
            switch.now(),
            Holding::Draining,
            "a gate that was deleted allows nothing"
        );
        home.gate(Some(&state("normal")));
        assert_eq!(switch.now(), Holding::Allowed);
        home.namespace_ends(true);
        home.gate(Some(&state("normal")));
        assert_eq!(switch.now(), Holding::Leaving, "home is being deleted");
        home.namespace_ends(false);
        assert_eq!(switch.now(), Holding::Allowed, "a new one");
    }
}
