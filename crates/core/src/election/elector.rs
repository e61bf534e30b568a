//! The driver: asks the server what the state machine wants to know, and moves the leadership.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::Client;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::leadership::{Leadership, LeaseGuard};
use super::machine::{AcquireReason, Ask, Candidate, LeaseStatus};
use super::record::{Lease, Record, Version};
use super::timing::Timing;
use crate::ambient;
use crate::http::{ErrorClass, PatchKind, Request, RequestError};
use crate::object::{ObjectKey, Resource};

/// Asks within one round: a look, a write, and both once more after a conflict.
const ASKS_PER_ROUND: usize = 4;

/// How often a resignation that met a conflict or an error is tried.
const RESIGNATIONS: usize = 3;

/// An elector that has finished no round for this long beyond its lease duration is wedged: each
/// of its requests has a shorter deadline.
const WEDGED_BEYOND: Duration = Duration::from_secs(60);

/// What an election is about.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The Lease.
    pub lease: ObjectKey,
    /// Our name in it: no other process may have the same. One that is empty, which would say that the
    /// Lease was given back, is replaced by an [`identity`] of its own.
    pub identity: String,
    /// The three times.
    pub timing: Timing,
    /// The field manager under which the Lease is written.
    pub field_manager: &'static str,
}

/// Takes part in an election.
pub struct Elector {
    client: Client,
    settings: Settings,
    candidate: Candidate,
    guard: LeaseGuard,
    beginning: Instant,
    health: ElectorHealth,
    told: Option<String>,
}

/// How an election ended for us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// We were told to, and gave the lease back if we had it.
    Resigned,
    /// We led, and another does now, or might have. The process is to end.
    Lost {
        /// Who leads; empty if it is not known.
        holder: String,
    },
}

/// Shows whether the elector is alive, and who leads.
#[derive(Debug, Clone)]
pub struct ElectorHealth {
    beginning: Instant,
    last_round: Arc<AtomicU64>,
    patience: Duration,
}

impl ElectorHealth {
    /// Whether it hangs: no round has ended for so long that only a restart helps.
    pub fn is_wedged(&self) -> bool {
        let last = Duration::from_millis(self.last_round.load(Ordering::Relaxed));
        self.beginning.elapsed().saturating_sub(last) > self.patience
    }

    fn beat(&self) {
        let now = u64::try_from(self.beginning.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_round.store(now, Ordering::Relaxed);
    }
}

/// A name that no other process has: that of the host, and a number of 128 bits.
pub fn identity(host: &str) -> String {
    let host = if host.is_empty() { "belayer" } else { host };
    format!("{host}_{:016x}{:016x}", ambient::bits(), ambient::bits())
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
    /// A candidate, and the leadership that it will have. `client` should have a connection of its own:
    /// a renewal must not wait behind a long list.
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
            told: None,
        };
        (elector, leadership)
    }

    /// Shows whether it is alive.
    pub fn health(&self) -> ElectorHealth {
        self.health.clone()
    }

    /// Takes part until `resign` is cancelled, which gives the lease back, or until it is lost.
    pub async fn run(mut self, resign: CancellationToken) -> Ended {
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
            let pause = self.candidate.pause(self.now(), ambient::unit());
            let slept = resign.run_until_cancelled(tokio::time::sleep(pause)).await;
            if slept.is_none() {
                self.resign().await;
                return Ended::Resigned;
            }
        }
    }

    fn now(&self) -> Duration {
        self.beginning.elapsed()
    }

    /// Asks until there is nothing more to ask now. Answers if the election is over.
    async fn round(&mut self) -> Option<Ended> {
        if self.candidate.status(self.now()) == LeaseStatus::InDoubt {
            self.publish(false);
        }
        let mut ask = self.candidate.begin(self.now(), ambient::now());
        for _ in 0..ASKS_PER_ROUND {
            ask = match ask {
                Ask::Look => match self.look().await {
                    Ok(lease) => self.candidate.seen(lease, self.now(), ambient::now()),
                    Err(error) => {
                        self.failed("read", &error);
                        return None;
                    }
                },
                Ask::Create(record) => self.write(record, None).await?,
                Ask::Write(record, version) => self.write(record, Some(version)).await?,
                Ask::Wait(_) => {
                    self.tell_holder();
                    return None;
                }
                Ask::GiveUp { holder } => return Some(Ended::Lost { holder }),
            };
        }
        None
    }

    /// Writes, and says what to ask next: to look again after a conflict, nothing otherwise.
    async fn write(&mut self, record: Record, over: Option<Version>) -> Option<Ask> {
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
                    Some(Ask::Look)
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

    /// The namespace of the Lease does not exist: nobody can hold it. Then this process works, and
    /// asks again until there is a namespace. Whoever holds the Lease then has won against it.
    fn unopposed(&mut self, sent: Duration) {
        self.candidate.is_alone(sent);
        if !self.extend() {
            return;
        }
        self.publish(true);
        let told = "without a lease".to_owned();
        if self.told.as_ref() != Some(&told) {
            tracing::warn!(
                lease = %self.settings.lease,
                "the namespace of the lease does not exist, so that nobody can hold it: working without \
                 an election; --leader-elect-resource-namespace names another"
            );
            self.told = Some(told);
        }
    }

    fn led(&mut self, before: LeaseStatus, acquire_reason: Option<AcquireReason>) {
        if !self.extend() {
            return;
        }
        self.told = None;
        match (before, acquire_reason) {
            (LeaseStatus::Leading { .. }, _) => {}
            (LeaseStatus::InDoubt, Some(AcquireReason::Ours)) => {
                self.publish(true);
                tracing::info!(lease = %self.settings.lease, "leading again: nobody else has led meanwhile");
            }
            (LeaseStatus::Standby | LeaseStatus::Alone { .. } | LeaseStatus::InDoubt, _) => {
                self.publish(true);
                tracing::info!(lease = %self.settings.lease, why = acquire_reason.map(AcquireReason::in_words), "leading");
            }
        }
    }

    /// Moves the leadership. Counted from when the request was sent: if the answer took longer than the
    /// deadline, this is no leave.
    fn extend(&self) -> bool {
        match self.candidate.status(self.now()).until() {
            Some(until) => {
                self.guard.extend(self.beginning + until);
                true
            }
            None => false,
        }
    }

    async fn look(&self) -> Result<Option<Lease>, RequestError> {
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
        // An answer that cannot be read is still a success; the next round looks first.
        Ok(Lease::read(&answer.body).ok().map(|lease| lease.version))
    }

    fn failed(&mut self, verb: &'static str, error: &RequestError) {
        self.candidate.failed();
        let status = self.candidate.status(self.now());
        if status == LeaseStatus::InDoubt {
            self.publish(false);
        }
        let reason = error.in_words();
        let help = match error.class() {
            ErrorClass::Forbidden => {
                "; the election needs get, create and patch of leases.coordination.k8s.io in that \
                 namespace (--leader-elect=false runs one replica without)"
            }
            ErrorClass::NotFound => {
                "; does the namespace exist? --leader-elect-resource-namespace names another"
            }
            _ => "",
        };
        // The same again and again is told once.
        if self.told.as_deref() != Some(reason.as_str()) {
            tracing::warn!(lease = %self.settings.lease, state = status.in_words(), "could not {verb} the lease: {reason}{help}");
            self.told = Some(reason);
        }
    }

    fn tell_holder(&mut self) {
        let holder = self.candidate.holder();
        if self.told.as_deref() != Some(holder) {
            tracing::info!(lease = %self.settings.lease, holder, "another leads");
            self.told = Some(holder.to_owned());
        }
    }

    /// Gives the lease back, so that the next leader need not wait for its end.
    async fn resign(&mut self) {
        for _ in 0..RESIGNATIONS {
            if self
                .candidate
                .resignation(self.now(), ambient::now())
                .is_none()
            {
                match self.look().await {
                    // A renewal whose answer was lost has changed the version.
                    Ok(lease) => drop(self.candidate.seen(lease, self.now(), ambient::now())),
                    Err(_) => break,
                }
            }
            let Some((record, version)) = self.candidate.resignation(self.now(), ambient::now())
            else {
                break;
            };
            // From here on nothing is written any more, whatever becomes of this request.
            self.guard.end();
            match self.send(&record, Some(&version)).await {
                Ok(_) => {
                    tracing::info!(lease = %self.settings.lease, "the lease was given back");
                    break;
                }
                Err(error) => {
                    tracing::debug!(%error, "the lease was not given back");
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
