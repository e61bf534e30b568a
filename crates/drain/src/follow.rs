//! How running controllers follow the gate: after every change and every failed watch they read the whole
//! gate again.
//!
//! ```
//! use belayer_drain::follow::GateStatus;
//! use belayer_holds::holding::{HoldSwitch, Holding};
//!
//! let switch = HoldSwitch::new(Holding::Unknown);
//! let status = GateStatus::new(switch.clone());
//! status.namespace_ends(true);
//! assert!(!switch.allows());
//! ```

use std::collections::BTreeMap;
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
use belayer_holds::gate::{Account, Adopted, Change, GateClient, GateObject};
use belayer_holds::holding::{HoldSwitch, Holding};

use crate::opening::{self, Switch, User};

/// Time limit of one watch, in seconds.
const WATCH_SECONDS: u64 = 240;

/// A watch without data for longer than its time limit is broken.
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS + 30);

/// Pause after the first failure, doubled by each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// A watch that ends sooner is broken, or the gate changes often.
const SHORT: Duration = Duration::from_secs(1);

/// Longest pause after a short watch. A drain must be noticed soon, however often the gate changes: until then this
/// process adds finalizers again that the drain has removed.
const LONGEST_PAUSE_AFTER_SHORT: Duration = Duration::from_secs(1);

/// Longest pause between failed reads, well below [`SETTLE`](crate::passes::SETTLE), the time that a drain leaves to
/// the replicas to notice it.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// Time limit of a watch while a switch may not be turned on: the reviews are repeated after it.
const REVIEW_SECONDS: u64 = 20;

/// The switches of the admission policies of this process's components. The [module's
/// example](self) has the status before the gate was read.
#[derive(Debug, Clone, Default)]
pub struct Switches {
    /// Of running components.
    pub on: Vec<Switch>,
    /// Of components that were switched off.
    pub off: Vec<&'static str>,
    /// The Lease with which this process leads, if there is an election.
    pub lease: Option<String>,
}

/// The gate as it was read.
enum Seen {
    /// It does not exist.
    Absent,
    /// Belayer stays drained if it is deleted while it is draining.
    Lasting(GateObject),
    /// Only other accounts own it, such as that of an earlier installation: once it is deleted, its mode is over.
    OfOthers(GateObject),
}

/// State of the gate and of Belayer's namespace. Cheap to clone. The [module's example](self) has
/// the status before the gate was read.
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
    /// The gate as last read, without keys if it did not exist; `None` before the first read.
    gate: Option<GateObject>,
    /// Whether the gate is created as it was if it is deleted while it is draining.
    lasts: bool,
    /// Belayer's namespace exists.
    is_home: bool,
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
        if !std::mem::replace(&mut now.is_home, true) {
            self.0.reread.notify_one();
        }
        self.update_switch(&now);
    }

    /// Notes the state of the gate.
    fn gate(&self, seen: Seen) {
        let mut now = self.0.now.lock();
        let before = now.gate.take();
        let was_draining = before.as_ref().map(GateObject::is_draining);
        let state = match seen {
            // Deleting it does not end a drain.
            Seen::Absent => before
                .filter(|gate| now.lasts && gate.is_draining())
                .unwrap_or_default(),
            Seen::Lasting(state) => {
                now.lasts = true;
                state
            }
            Seen::OfOthers(state) => {
                now.lasts = false;
                state
            }
        };
        match (was_draining, state.is_draining()) {
            (None | Some(false), true) => tracing::warn!(
                "draining: no hold is added, releases continue; run `belayer drain --resume` to end this"
            ),
            (Some(true), false) => tracing::info!("draining ended: holds are added again"),
            _ => {}
        }
        now.gate = Some(state);
        self.update_switch(&now);
    }

    /// The keys with which the gate is created: none, or those of the gate that was deleted while Belayer is drained.
    fn keys(&self) -> Change {
        let now = self.0.now.lock();
        now.gate.as_ref().map(GateObject::keys).unwrap_or_default()
    }

    /// Whether a gate can be created.
    fn has_home(&self) -> bool {
        let now = self.0.now.lock();
        now.is_home && !now.ends
    }

    fn update_switch(&self, now: &Now) {
        let to = match &now.gate {
            _ if now.ends => Holding::Leaving,
            Some(gate) if gate.is_draining() => Holding::Draining,
            Some(_) => Holding::Allowed,
            None => Holding::Unknown,
        };
        self.0.switch.set(to);
    }
}

/// Follows the gate for as long as a process runs. The [module's example](self) has the status
/// before the gate was read.
pub struct Follower {
    gate: GateClient,
    status: GateStatus,
    switches: Switches,
    /// The user of this process, once known.
    user: Mutex<Option<User>>,
    /// The last logged reason to leave each switch off, so that each is logged once.
    obstacles: Mutex<BTreeMap<&'static str, String>>,
    /// Whether it was logged that the gate cannot get its owner.
    is_refusal_logged: AtomicBool,
}

impl Follower {
    /// Follows `gate`, updates `status`, and writes the switches of the policies of these components.
    pub fn new(gate: GateClient, status: GateStatus, switches: Switches) -> Self {
        Self {
            gate,
            status,
            switches,
            user: Mutex::default(),
            obstacles: Mutex::default(),
            is_refusal_logged: AtomicBool::new(false),
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
                Ok((version, seconds)) => self.wait_for_change(&version, seconds).await,
                Err(error) => Err(error),
            };
            let pause = match waited {
                // Until it is read, this process may add finalizers that a drain has removed.
                Ok(Waited::Long) => {
                    failures = 0;
                    logged = None;
                    continue;
                }
                Ok(Waited::Short) => {
                    failures = failures.saturating_add(1);
                    pause_after(failures).min(LONGEST_PAUSE_AFTER_SHORT)
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
        if error.class() == ErrorClass::NotServed {
            tracing::warn!(%gate, "the API server does not serve Gates, so that the admission policies add no hold and \
                `belayer drain` cannot stop this process: install the CRD (belayer crds | kubectl apply -f -)");
        } else if error.class() == ErrorClass::Forbidden {
            tracing::warn!(%gate, error = error.message(), "no permission to read the gate: Belayer adds no holds; \
                grant the Role belayer-gate");
        } else {
            tracing::info!(%gate, error = error.message(), "cannot read or watch the gate; retrying");
        }
    }

    /// Reads the gate, applies it, and returns the version to watch from and the time limit of the watch.
    async fn reread(&self) -> Result<(String, u64), RequestError> {
        let (state, version) = match self.gate.list().await {
            Err(error) if error.class() == ErrorClass::NotServed => {
                self.status.gate(Seen::Absent);
                return Err(error);
            }
            read => read?,
        };
        self.status.gate(self.seen(state.clone()).await?);
        let keeps = self.status.0.keeps_switches.load(Ordering::Relaxed);
        if !keeps || self.gate.executor().writes() == Writes::DryRun {
            return Ok((version, WATCH_SECONDS));
        }
        // A conflicting write is a change, after which this runs again.
        match self.keep(state).await {
            Ok(Kept::Whole) => Ok((version, WATCH_SECONDS)),
            Ok(Kept::Closed) => Ok((version, REVIEW_SECONDS)),
            Err(error) => {
                tracing::info!(error = error.message(), "could not write the gate");
                Ok((version, REVIEW_SECONDS))
            }
        }
    }

    /// Whether the mode of the gate outlasts it.
    async fn seen(&self, state: Option<GateObject>) -> Result<Seen, RequestError> {
        let Some(state) = state else {
            // A gate is gone if its owner is: an account that was created again has another UID.
            *self.user.lock() = None;
            return Ok(Seen::Absent);
        };
        if !state.has_owners() || self.gate.executor().writes() == Writes::DryRun {
            return Ok(Seen::Lasting(state));
        }
        let account = match self.account().await {
            Ok(Some(account)) if state.outlives(&account) => {
                *self.user.lock() = None;
                self.account().await
            }
            account => account,
        };
        match account {
            Ok(Some(account)) if !state.is_owned_by(&account) => Ok(Seen::OfOthers(state)),
            // Until the account is known, the mode counts.
            Err(error) if error.class().is_transient() => {
                self.status.gate(Seen::Lasting(state));
                Err(error)
            }
            Ok(_) | Err(_) => Ok(Seen::Lasting(state)),
        }
    }

    async fn user(&self) -> Result<User, RequestError> {
        let known = self.user.lock().clone();
        Ok(match known {
            Some(user) => user,
            None => {
                let found = User::find(self.gate.executor()).await?;
                self.user.lock().insert(found).clone()
            }
        })
    }

    /// The ServiceAccount of this process, if it has one.
    async fn account(&self) -> Result<Option<Account>, RequestError> {
        let namespace = self.gate.key().namespace().unwrap_or_default();
        Ok(self.user().await?.account(namespace))
    }

    /// Creates the gate, owns it, and sets its switches.
    async fn keep(&self, state: Option<GateObject>) -> Result<Kept, RequestError> {
        if state.is_none() && !self.status.has_home() {
            return Ok(Kept::Whole);
        }
        let user = self.user().await?;
        let account = self.account().await?;
        let Some(state) = state else {
            let keys = self.status.keys();
            self.gate.create(&keys, account.as_ref()).await?;
            tracing::info!(gate = %self.gate.key(), "created the gate");
            return Ok(Kept::Whole);
        };
        if let Some(account) = account.filter(|account| may_adopt(&state, account)) {
            match self.gate.adopt(&state, &account).await {
                Ok(Adopted::Now) => return Ok(Kept::Whole),
                Ok(Adopted::Before) => {}
                // The owner matters only when Belayer is uninstalled. The switches must not wait for it.
                Err(error) if error.class() == ErrorClass::Forbidden => self.log_refusal(&error),
                Err(error) => return Err(error),
            }
        }
        if state.is_draining() {
            return Ok(Kept::Whole);
        }
        self.set_switches(&state, &user).await
    }

    fn log_refusal(&self, error: &RequestError) {
        if !self.is_refusal_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(gate = %self.gate.key(), error = error.message(), "cannot make this ServiceAccount an owner \
                of the gate: when Belayer is uninstalled, delete the gate if it is still there");
        }
    }

    async fn set_switches(&self, state: &GateObject, user: &User) -> Result<Kept, RequestError> {
        let mut on = Vec::new();
        let mut kept = Kept::Whole;
        for switch in &self.switches.on {
            match self.obstacle(state, user, switch).await {
                None => {
                    self.obstacles.lock().remove(switch.key);
                    on.push(switch.key);
                }
                Some(why) => {
                    kept = Kept::Closed;
                    let mut logged = self.obstacles.lock();
                    if logged.get(switch.key) != Some(&why) {
                        let switch = switch.key;
                        tracing::warn!(
                            "the switch of an admission policy stays off: {switch}: {why}"
                        );
                        logged.insert(switch, why);
                    }
                }
            }
        }
        let change = state.to_components(&on, &self.switches.off, self.switches.lease.as_deref());
        if change.is_empty() {
            return Ok(kept);
        }
        self.gate.write(state, &change).await?;
        let switches = change.iter();
        let switches =
            switches.filter_map(|(key, value)| Some(format!("{key}: {}", value.as_deref()?)));
        let switches = switches.collect::<Vec<_>>().join(", ");
        tracing::info!(switches, "wrote the switches of the admission policies");
        Ok(kept)
    }

    /// Why a switch that is off must stay off.
    async fn obstacle(&self, state: &GateObject, user: &User, switch: &Switch) -> Option<String> {
        let mut closed = state.closed_switches([switch.key].into_iter());
        closed.next()?;
        let namespace = self.gate.key().namespace().unwrap_or_default();
        opening::obstacle(self.gate.executor(), user, switch, namespace).await
    }

    /// Returns after a change or the end of the watch.
    async fn wait_for_change(&self, version: &str, seconds: u64) -> Result<Waited, RequestError> {
        let watch = self.gate.watch(version, seconds);
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

/// Whether this account may become an owner of the gate. The gate of an earlier installation must be deleted with that one;
/// if it had another account, only the mode shows that.
fn may_adopt(state: &GateObject, account: &Account) -> bool {
    let lasts = !state.is_draining() || !state.has_owners();
    lasts && !state.outlives(account)
}

/// The result of [`Follower::keep`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// The gate is as it should be, or it was changed and is read again.
    Whole,
    /// A switch stays off until a review is positive.
    Closed,
}

/// How long a watch lasted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waited {
    Long,
    /// Short: a pause follows, so that a gate that changes often is read less often.
    Short,
}

fn pause_after(failures: u32) -> Duration {
    let longer = FIRST_PAUSE * 2_u32.saturating_pow(failures.saturating_sub(1).min(8));
    longer.min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(mode: &str) -> GateObject {
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
            "the state of the namespace does not determine the gate's mode"
        );
        status.gate(Seen::Absent);
        assert_eq!(
            switch.now(),
            Holding::Allowed,
            "without a gate Belayer is not drained"
        );
        assert_eq!(status.keys(), Change::new());
        let drained = state("draining").with(&state("draining").to_drained());
        status.gate(Seen::Lasting(drained.clone()));
        assert_eq!(switch.now(), Holding::Draining);
        status.gate(Seen::Absent);
        assert_eq!(
            switch.now(),
            Holding::Draining,
            "deleting the gate does not end draining"
        );
        assert_eq!(status.keys(), drained.keys(), "it is created as it was");
        status.gate(Seen::Lasting(GateObject::default().with(&status.keys())));
        assert_eq!(switch.now(), Holding::Draining);
        status.gate(Seen::Lasting(state("normal")));
        assert_eq!(switch.now(), Holding::Allowed);
        status.gate(Seen::Absent);
        assert_eq!(
            status.keys(),
            Change::new(),
            "only a gate that is draining is created as it was"
        );
        status.gate(Seen::OfOthers(drained));
        assert_eq!(switch.now(), Holding::Draining);
        status.gate(Seen::Absent);
        assert_eq!(
            switch.now(),
            Holding::Allowed,
            "the drain of an earlier installation ends with its gate"
        );
        assert_eq!(status.keys(), Change::new());
        status.namespace_ends(true);
        status.gate(Seen::Lasting(state("normal")));
        assert_eq!(
            switch.now(),
            Holding::Leaving,
            "the namespace is being deleted"
        );
        status.namespace_ends(false);
        assert_eq!(switch.now(), Holding::Allowed, "the namespace exists again");
    }
}
