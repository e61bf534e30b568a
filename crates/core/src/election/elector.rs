//! The driver of an election: sends the requests of the state machine and extends or ends the
//! leadership.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::Client;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::leadership::{Leadership, LeaseGuard};
use super::machine::{AcquireReason, Action, Candidate, LeaseStatus};
use super::record::{Lease, Record, Version};
use super::timing::Timing;
use super::watch::LeaseWatch;
use crate::http::{ErrorClass, PatchKind, Request, RequestError};
use crate::object::{ObjectKey, Resource};
use crate::{clock, rng};

/// Requests per round: a read, a write, and both once more after a conflict.
const REQUESTS_PER_ROUND: usize = 4;

/// How often a resignation is tried after a conflict.
const RESIGNATIONS: usize = 3;

/// An elector that has finished no round for its lease duration plus this time is wedged: each of
/// its requests has a shorter deadline.
const WEDGED_BEYOND: Duration = Duration::from_secs(60);

/// The settings of an election. [`Elector::new`](crate::election::Elector::new) takes them.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The Lease.
    pub lease: ObjectKey,
    /// The holder identity of this process: no other process may have the same. An empty one, which
    /// would mean that the Lease was released, is replaced by a new [`identity`].
    pub identity: String,
    /// Lease duration, renew deadline and retry period.
    pub timing: Timing,
    /// The field manager under which the Lease is written.
    pub field_manager: &'static str,
}

/// Takes part in an election.
///
/// It reads and renews the Lease until it resigns or loses.
///
/// ```no_run
/// use belayer_core::election::{self, Ended, Settings, Timing};
/// use belayer_core::{Elector, ObjectKey};
/// use tokio_util::sync::CancellationToken;
///
/// # async fn lead(client: kube::Client, resign: CancellationToken) {
/// let settings = Settings {
///     lease: ObjectKey::new("default", "my-controller"),
///     identity: election::identity("host-1"),
///     timing: Timing::default(),
///     field_manager: "my-controller",
/// };
/// let (elector, leadership) = Elector::new(client, settings);
/// let election = tokio::spawn(elector.run(resign));
/// leadership.begun().await;
/// println!("this replica leads");
/// if let Ok(Ended::Resigned) = election.await {
///     println!("another replica may lead at once");
/// }
/// # }
/// ```
#[must_use = "an elector does nothing before it runs"]
pub struct Elector {
    client: Client,
    settings: Settings,
    candidate: Candidate,
    guard: LeaseGuard,
    beginning: Instant,
    health: ElectorHealth,
    logged: Option<String>,
    /// Whether it was logged that the lease could not be renewed in time.
    stop_logged: bool,
}

/// How an election ended for this process. [`Elector::run`](crate::election::Elector::run) returns
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The process was asked to resign, and released the lease if it held it.
    Resigned,
    /// This process led, and another one leads now or may have led. The process must end.
    Lost {
        /// Identity of the current leader; empty if it is not known.
        holder: String,
    },
}

/// Reports whether the elector is alive. [`Elector::health`](crate::election::Elector::health)
/// returns it, for a liveness probe.
#[derive(Debug, Clone)]
pub struct ElectorHealth {
    beginning: Instant,
    last_round: Arc<AtomicU64>,
    patience: Duration,
}

impl ElectorHealth {
    /// Whether the elector is wedged: no round has ended for so long that only a restart helps.
    pub fn is_wedged(&self) -> bool {
        let last = Duration::from_millis(self.last_round.load(Ordering::Relaxed));
        self.beginning.elapsed().saturating_sub(last) > self.patience
    }

    fn beat(&self) {
        let now = u64::try_from(self.beginning.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_round.store(now, Ordering::Relaxed);
    }
}

/// A unique identity: the name of the host and a random number of 128 bits.
/// The example of [`Elector`] uses one.
pub fn identity(host: &str) -> String {
    let host = if host.is_empty() {
        "unknown-host"
    } else {
        host
    };
    format!("{host}_{:016x}{:016x}", rng::bits(), rng::bits())
}

impl std::fmt::Debug for Elector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elector")
            .field("settings", &self.settings)
            .field("candidate", &self.candidate)
            .finish_non_exhaustive()
    }
}

impl Elector {
    /// Creates an elector and its leadership. `client` should have a connection of its own: a
    /// renewal must not wait behind a long list.
    pub fn new(client: Client, mut settings: Settings) -> (Self, Leadership) {
        if settings.identity.is_empty() {
            settings.identity = identity("");
        }
        let (guard, leadership) = Leadership::elected();
        let beginning = Instant::now();
        let health = ElectorHealth {
            beginning,
            last_round: Arc::default(),
            patience: settings.timing.lease_duration() + WEDGED_BEYOND,
        };
        let candidate = Candidate::new(&settings.identity, settings.timing);
        let elector = Self {
            client,
            settings,
            candidate,
            guard,
            beginning,
            health,
            logged: None,
            stop_logged: false,
        };
        (elector, leadership)
    }

    /// Reports whether the elector is alive.
    pub fn health(&self) -> ElectorHealth {
        self.health.clone()
    }

    /// Takes part until `resign` is cancelled, which releases the lease, or until the lease is
    /// lost.
    pub async fn run(mut self, resign: CancellationToken) -> Ended {
        let mut watch = LeaseWatch::new(
            self.client.clone(),
            self.settings.lease.clone(),
            self.settings.timing.lease_duration(),
        );
        self.publish(false);
        tracing::info!(lease = %self.settings.lease, identity = self.candidate.identity(), "standing by for the lease");
        loop {
            let round = self.round();
            if let Some(lost) = resign.run_until_cancelled(round).await.flatten() {
                self.guard.end();
                self.publish(false);
                return lost;
            }
            self.health.beat();
            let pause = self.candidate.pause(self.now(), rng::unit());
            let slept = resign.run_until_cancelled(async {
                if self.candidate.status(self.now()) == LeaseStatus::Standby {
                    let since = self.candidate.version().cloned();
                    let (candidate, beginning) = (&mut self.candidate, self.beginning);
                    let seen = |lease| candidate.watched(lease, beginning.elapsed());
                    watch.wait(since.as_ref(), pause, seen).await;
                } else {
                    watch.close();
                    sleep(pause).await;
                }
            });
            if slept.await.is_none() {
                self.resign().await;
                return Ended::Resigned;
            }
        }
    }

    fn now(&self) -> Duration {
        self.beginning.elapsed()
    }

    /// Sends requests until none is due now. Returns how the election ended, if it did.
    async fn round(&mut self) -> Option<Ended> {
        if self.candidate.status(self.now()) == LeaseStatus::InDoubt {
            self.publish(false);
        }
        let mut action = self.candidate.begin(self.now(), clock::now());
        for _ in 0..REQUESTS_PER_ROUND {
            action = match action {
                Action::Read => match self.read().await {
                    Ok(lease) => self.candidate.seen(lease, self.now(), clock::now()),
                    Err(error) => {
                        self.failed("read", &error);
                        return None;
                    }
                },
                Action::Create(record) => self.write(record, None).await?,
                Action::Write(record, version) => self.write(record, Some(version)).await?,
                Action::Wait(_) => {
                    self.log_holder();
                    return None;
                }
                Action::GiveUp { holder } => return Some(Ended::Lost { holder }),
            };
        }
        None
    }

    /// Writes the record and returns the next action: a read after a conflict, otherwise none.
    async fn write(&mut self, record: Record, over: Option<Version>) -> Option<Action> {
        let before = self.candidate.status(self.now());
        let acquire_reason = self.candidate.acquire_reason(self.now());
        let sent = self.now();
        let answer = self.send(&record, over.as_ref()).await;
        match answer {
            Ok(version) => {
                self.candidate.wrote(record, version, sent);
                self.led(before, acquire_reason);
                None
            }
            Err(error) => match error.class() {
                ErrorClass::Conflict | ErrorClass::AlreadyExists => {
                    self.candidate.failed();
                    Some(Action::Read)
                }
                ErrorClass::NotFound if over.is_none() => {
                    self.unopposed(sent);
                    None
                }
                _ => {
                    self.failed("write", &error);
                    None
                }
            },
        }
    }

    /// The namespace of the Lease does not exist, so no replica can hold the Lease. This process
    /// works without it and retries until the namespace exists. A replica that holds the Lease then
    /// takes precedence over this process.
    fn unopposed(&mut self, sent: Duration) {
        self.candidate.found_no_namespace(sent);
        if !self.extend() {
            return self.stopped();
        }
        self.stop_logged = false;
        self.publish(true);
        let state = "without a lease".to_owned();
        if self.logged.as_ref() != Some(&state) {
            tracing::warn!(
                lease = %self.settings.lease,
                "the namespace of the lease does not exist, so no replica can hold the lease: working without \
                leader election (create the namespace, or configure another one for the lease)"
            );
            self.logged = Some(state);
        }
    }

    fn led(&mut self, before: LeaseStatus, acquire_reason: Option<AcquireReason>) {
        if !self.extend() {
            return self.stopped();
        }
        self.stop_logged = false;
        self.logged = None;
        match (before, acquire_reason) {
            (LeaseStatus::Leading { .. }, _) => {}
            (LeaseStatus::InDoubt, Some(AcquireReason::AlreadyHeld)) => {
                self.publish(true);
                tracing::info!(lease = %self.settings.lease, "leading again: no other replica has led in the meantime");
            }
            (LeaseStatus::Standby | LeaseStatus::Alone { .. } | LeaseStatus::InDoubt, _) => {
                self.publish(true);
                tracing::info!(lease = %self.settings.lease, why = acquire_reason.map(AcquireReason::message), "leading");
            }
        }
    }

    /// Extends the leadership, counted from when the request was sent. Returns false if the
    /// response took longer than the renew deadline.
    fn extend(&self) -> bool {
        match self.candidate.status(self.now()).until() {
            Some(until) => {
                self.guard.extend(self.beginning + until);
                true
            }
            None => false,
        }
    }

    async fn read(&self) -> Result<Option<Lease>, RequestError> {
        let request = Request::get(Resource::leases().object_path(&self.settings.lease))
            .timeout(self.candidate.patience(self.now()));
        match request.send(&self.client).await {
            Ok(answer) => Lease::read(&answer.body)
                .map(Some)
                .map_err(|error| RequestError::Decode(error.to_string())),
            Err(error) if error.class() == ErrorClass::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn send(
        &self,
        record: &Record,
        over: Option<&Version>,
    ) -> Result<Option<Version>, RequestError> {
        let lease = &self.settings.lease;
        let request = match over {
            None => Request::post(
                Resource::leases().path(lease.namespace()),
                record.create_body(lease),
            ),
            Some(version) => Request::patch(
                Resource::leases().object_path(lease),
                PatchKind::Merge,
                record.patch_body(version),
            ),
        };
        let answer = request
            .query("fieldManager", self.settings.field_manager)
            .timeout(self.candidate.patience(self.now()))
            .send(&self.client)
            .await?;
        // The write has succeeded even if its response is invalid; the next round reads first.
        Ok(Lease::read(&answer.body).ok().map(|lease| lease.version))
    }

    fn failed(&mut self, verb: &'static str, error: &RequestError) {
        self.candidate.failed();
        let status = self.candidate.status(self.now());
        if status == LeaseStatus::InDoubt {
            self.stopped();
        }
        let reason = error.message();
        let help = match error.class() {
            ErrorClass::Forbidden => {
                "; leader election needs the RBAC permissions get, watch, create and patch of \
                    leases.coordination.k8s.io in that namespace (a single replica can run without election)"
            }
            ErrorClass::NotFound => {
                "; check that the namespace exists, or configure another one for the lease"
            }
            _ => "",
        };
        // The same error is logged only once. How long a response was awaited differs from attempt to attempt.
        let same = match error {
            RequestError::Timeout(_) => "no complete response".to_owned(),
            _ => reason.clone(),
        };
        if self.logged.as_ref() != Some(&same) {
            tracing::warn!(lease = %self.settings.lease, state = status.message(), "could not {verb} the lease: {reason}{help}");
            self.logged = Some(same);
        }
    }

    /// The error that caused it was logged while this process still led, and is not logged again.
    fn stopped(&mut self) {
        self.publish(false);
        if !self.stop_logged {
            let limit = self.settings.timing.renew_deadline();
            tracing::warn!(lease = %self.settings.lease, "stopped writing: the lease could not be renewed for {limit:?}");
            self.stop_logged = true;
        }
    }

    fn log_holder(&mut self) {
        let holder = self.candidate.holder();
        if self.logged.as_deref() != Some(holder) {
            tracing::info!(lease = %self.settings.lease, holder, "another replica is the leader");
            self.logged = Some(holder.to_owned());
        }
    }

    /// Releases the lease, so that the next leader does not wait for its expiry.
    async fn resign(&mut self) {
        for _ in 0..RESIGNATIONS {
            if self
                .candidate
                .resignation(self.now(), clock::now())
                .is_none()
            {
                match self.read().await {
                    // A renewal whose response was lost has changed the version.
                    Ok(lease) => drop(self.candidate.seen(lease, self.now(), clock::now())),
                    Err(_) => break,
                }
            }
            let Some((record, version)) = self.candidate.resignation(self.now(), clock::now())
            else {
                break;
            };
            // From here on this process writes nothing more, whatever the result of this request.
            self.guard.end();
            match self.send(&record, Some(&version)).await {
                Ok(_) => {
                    tracing::info!(lease = %self.settings.lease, "released the lease");
                    break;
                }
                Err(error) => {
                    tracing::debug!(%error, "could not release the lease");
                    self.candidate.failed();
                }
            }
        }
        self.guard.end();
        self.publish(false);
    }

    fn publish(&self, leads: bool) {
        let name = self.settings.lease.name().to_owned();
        metrics::gauge!(belayer_metrics::LEADER, "name" => name).set(f64::from(u8::from(leads)));
    }
}
