//! A run: sets the gate, deletes the policies, then repeats passes until nothing is left to do. A
//! drain ends with an [outcome](crate::passes).

mod pass;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use belayer_core::executor::Executor;
use belayer_core::http::RequestError;
use belayer_core::object::Resource;
use belayer_core::words::one_or_many;
use belayer_holds::gate::GateClient;
use belayer_holds::names::NAMESPACE_GUARD;
use belayer_inspect::kinds::discover;
use belayer_inspect::reader::{Reader, Trouble, explain};

use crate::decide::Purpose;
use crate::findings::Findings;
use crate::passes::{Next, Outcome, Pass, Passes, SETTLE, outcome};
use crate::progress::Progress;
use crate::records::Records;
use crate::report::{API_VERSION, NewHolds, Report, Taken, Unseen};
use crate::scan::Scanned;
use crate::selection::Selection;
pub use crate::site::Resumed;
use crate::site::{Closed, GateState, Site, is_policy_kind};
use crate::users::Users;

/// Pause after a first request that failed, doubled by each further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// Pause after the last change, so that an uninstall that follows does not meet a policy that was deleted.
const NOTICED: Duration = Duration::from_secs(2);

/// Time without any response after which the server is reported.
const FIRST_ANSWER: Duration = Duration::from_millis(1500);

/// Time without a response after which a server that has answered before is reported.
const NO_ANSWER: Duration = Duration::from_secs(10);

/// Note about a gate that is not deleted with Belayer.
const WITHOUT_OWNER: &str = "Belayer's ServiceAccount could not be read, so that the gate stays when Belayer is uninstalled, and \
    a later installation stays in draining mode: after it, run `belayer drain --resume`";

/// The kinds that a run covers. A drain ends with an [outcome](crate::passes).
#[derive(Debug, Clone)]
pub enum Kinds {
    /// Every kind that the API serves.
    Served,
    /// Only these.
    These(Vec<Resource>),
    /// Of the kinds that the API serves, in whatever version, these and the policies that add holds.
    Among(Vec<Resource>),
}

/// Parts that a run is built from. A drain ends with an [outcome](crate::passes).
pub struct DrainParts {
    /// Sends writes; with [`Writes::DryRun`](belayer_core::executor::Writes::DryRun) a run reports what it would do.
    pub executor: Arc<Executor>,
    /// Sends reads.
    pub reader: Reader,
    /// Belayer's own namespace.
    pub namespace: String,
    /// Which holds to remove.
    pub purpose: Purpose,
    /// The kinds to list.
    pub kinds: Kinds,
    /// Reports what is still selected, for [`Purpose::Unselected`].
    pub selection: Box<dyn Selection>,
    /// Longest time without progress. See [`Passes`].
    pub timeout: Duration,
    /// Namespaces whose holds do not affect the outcome: their holds are removed, but new ones do not prolong
    /// the run.
    pub except_namespaces: Vec<String>,
}

/// Removes holds from a cluster. A drain ends with an [outcome](crate::passes).
pub struct Drain {
    site: Site,
    parts: DrainParts,
    users: Users,
    records: Records,
}

/// Why a run could not start. A drain ends with an [outcome](crate::passes).
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// Discovery failed. The message names the cause, so that it is not a source as well.
    #[error("cannot list the kinds that the API serves: {}", explain(.0))]
    Discovery(RequestError),
    /// The gate cannot be read or written.
    #[error("cannot write the gate: {}", explain(.0))]
    Gate(RequestError),
    /// The server did not send a usable response within the timeout.
    #[error("the API server does not answer")]
    Unreachable {
        /// Cause, if known.
        trouble: Option<Trouble>,
    },
}

impl Drain {
    /// Creates a run without starting it.
    pub fn new(parts: DrainParts) -> Self {
        let (executor, reader) = (&parts.executor, &parts.reader);
        Self {
            site: Site {
                gate: GateClient::new(Arc::clone(executor), &parts.namespace),
                executor: Arc::clone(executor),
                reader: reader.clone(),
                namespace: parts.namespace.clone(),
            },
            records: Records::new(Arc::clone(executor), reader.clone()),
            users: Users::new(reader.clone()),
            parts,
        }
    }

    /// Whether every hold is removed, and with them the policies that add holds.
    fn is_everything(&self) -> bool {
        matches!(self.parts.purpose, Purpose::Everything(_))
    }

    /// Ends draining mode: holds are added again. Retries while the server is unavailable.
    ///
    /// # Errors
    ///
    /// If the server did not send a usable response within the run's timeout, or refuses a request.
    pub async fn resume(&self, progress: &dyn Progress) -> Result<Resumed, DrainError> {
        let contact = self.site.reader.contact();
        contact.begin();
        let resumed = async {
            let _waiting = contact.waiting();
            let mut pause = FIRST_PAUSE;
            let mut written = false;
            loop {
                match self.site.open_gate(&mut written).await {
                    Err(error) if error.class().is_transient() => {
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                    ended => return ended.map_err(DrainError::Gate),
                }
            }
        };
        let unreachable = || DrainError::Unreachable {
            trouble: contact.trouble(),
        };
        tokio::select! {
            biased;
            ended = resumed => ended,
            () = tokio::time::sleep(self.parts.timeout) => Err(unreachable()),
            () = self.report_silence(progress) => Err(unreachable()),
        }
    }

    /// Runs to the end, or until there is no progress for the timeout.
    ///
    /// # Errors
    ///
    /// If the server does not answer, or discovery fails.
    pub async fn run(&self, progress: &dyn Progress) -> Result<Report, DrainError> {
        let started = Instant::now();
        let contact = self.site.reader.contact();
        contact.begin();
        let mut report = Report {
            api_version: API_VERSION,
            kind: "DrainReport",
            taken: Taken {
                dry_run: self.site.is_dry_run(),
                ..Taken::default()
            },
            exit_code: 1,
            except_namespaces: self.parts.except_namespaces.clone(),
            configured_kinds: !matches!(self.parts.kinds, Kinds::Served),
            ..Report::default()
        };
        let ended = tokio::select! {
            biased;
            ended = self.passes(started, &mut report, progress) => Some(ended?),
            () = contact.silence(self.parts.timeout) => None,
            () = self.report_silence(progress) => None,
        };
        if ended.is_none() {
            let trouble = contact.trouble();
            if !contact.is_made() {
                return Err(DrainError::Unreachable { trouble });
            }
            report.timed_out = true;
            report.outcome = Outcome::Error;
            report.notes.push(match trouble {
                Some(trouble) => {
                    format!("the API server stopped sending usable responses: {trouble}")
                }
                None => "the API server stopped responding".to_owned(),
            });
        }
        report.exit_code = report.outcome.exit_code();
        report.seconds = started.elapsed().as_secs_f64();
        Ok(report)
    }

    /// Reports each time that the server stops answering. Never returns.
    async fn report_silence(&self, progress: &dyn Progress) {
        let contact = self.site.reader.contact();
        loop {
            contact.silence_from(FIRST_ANSWER, NO_ANSWER).await;
            progress.waiting(contact.trouble().as_ref());
            contact.answer().await;
        }
    }

    /// Repeats passes until nothing is left to do, then finishes the run.
    async fn passes(
        &self,
        started: Instant,
        report: &mut Report,
        progress: &dyn Progress,
    ) -> Result<(), DrainError> {
        let settle = if self.is_everything() && !report.taken.dry_run {
            SETTLE
        } else {
            Duration::ZERO
        };
        self.check_excepted(report, progress).await;
        let mut passes = Passes::new(self.parts.timeout, settle);
        loop {
            let mut pass = Pass {
                begun: started.elapsed(),
                ..Pass::default()
            };
            let mut found = Findings::default();
            let kinds = self.kinds(report).await?;
            if self.is_everything() {
                let changed = self.close(&kinds, &mut found, report, progress).await;
                if changed {
                    // The API servers notice the change late: let it settle from here.
                    passes.settle_at(started.elapsed() + settle);
                }
            }
            self.pass(&kinds, &mut pass, &mut found, report, progress)
                .await;
            report.passes += 1;
            report.left = found.left;
            report.refused = found.refused;
            report.failed = found.failed;
            report.unseen = found.hidden;
            report.unseen.extend(found.unseen);
            let excepted = found.excepted;
            // The previous passes handled everything: holds found now are new.
            let since = passes.only_new_holds_since();
            let next = if report.taken.dry_run {
                Next::Stop(outcome(&pass))
            } else {
                passes.next(&pass, started.elapsed())
            };
            match (since, passes.only_new_holds_since()) {
                (Some(since_pass), Some(still)) if since_pass == still => {
                    report.new_holds.since_pass = since_pass;
                    for (namespace, objects) in found.released {
                        *report.new_holds.namespaces.entry(namespace).or_default() += objects;
                    }
                }
                _ => report.new_holds = NewHolds::default(),
            }
            match next {
                Next::Again(pause) => {
                    if pass.released > 0 || pass.unsettled > 0 || pass.refused > 0 {
                        progress.step(&pass_text(&pass));
                    }
                    tokio::time::sleep(pause).await;
                }
                Next::Stop(outcome) => {
                    report.timed_out = passes.timed_out();
                    report.outcome = outcome;
                    if outcome == Outcome::Clean {
                        report.new_holds = NewHolds::default();
                    }
                    if self.finish(report).await == Finished::NotDraining {
                        progress.step(
                            "draining was ended meanwhile, by `belayer drain --resume` or another client: once more",
                        );
                        continue;
                    }
                    report.notes.extend(in_excepted(report, excepted));
                    break;
                }
            }
        }
        if matches!(self.parts.kinds, Kinds::Served) && !report.unseen.is_empty() {
            report.notes.push(
                "with --configured-kinds, drain lists only the kinds that the configuration (--config) holds".to_owned(),
            );
        }
        if self.is_everything() {
            report.notes.extend(self.site.without_its_namespace().await);
        }
        Ok(())
    }

    /// Warns of an excepted namespace that does not exist: its name may be mistyped. Not an error, because
    /// the namespace may have been deleted.
    async fn check_excepted(&self, report: &mut Report, progress: &dyn Progress) {
        for name in &self.parts.except_namespaces {
            if self.site.lacks_namespace(name).await {
                let note = format!("namespace {name} does not exist (--except-namespace)");
                progress.step(&format!("warning: {note}"));
                report.notes.push(note);
            }
        }
    }

    /// The kinds to list. Retries while the server is unavailable.
    async fn kinds(&self, report: &mut Report) -> Result<Vec<Resource>, DrainError> {
        if let Kinds::These(kinds) = &self.parts.kinds {
            return Ok(kinds.clone());
        }
        let mut pause = FIRST_PAUSE;
        // Nothing else runs during this: the pauses count as silence of the server.
        let _waiting = self.site.reader.contact().waiting();
        loop {
            match discover(&self.site.reader).await {
                Ok(discovered) => {
                    let dead = discovered.dead.iter().map(|dead| Unseen {
                        what: dead.group_version.clone(),
                        why: dead.why.clone(),
                        unauthenticated: false,
                    });
                    report.dead_apis = dead.collect();
                    let kinds = discovered.kinds.iter().map(|kind| &kind.resource);
                    return Ok(kinds.filter(|kind| self.covers(kind)).cloned().collect());
                }
                // The caller ends the run if this takes too long.
                Err(error) if error.class().is_transient() => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => return Err(DrainError::Discovery(error)),
            }
        }
    }

    /// Whether a run lists this served kind.
    fn covers(&self, served: &Resource) -> bool {
        match &self.parts.kinds {
            Kinds::Served | Kinds::These(_) => true,
            Kinds::Among(some) => {
                some.iter().any(|kind| kind.is_same_kind(served)) || is_policy_kind(served)
            }
        }
    }

    /// Sets the gate and deletes the policies that add holds. Runs before every pass, in case another client
    /// restores them. Returns whether it changed anything.
    async fn close(
        &self,
        kinds: &[Resource],
        found: &mut Findings,
        report: &mut Report,
        progress: &dyn Progress,
    ) -> bool {
        let mut changed = false;
        if !self.site.is_dry_run() {
            match self.site.close_gate().await {
                Ok(Closed {
                    gate,
                    is_without_owner,
                }) => {
                    if is_without_owner {
                        report.notes.push(WITHOUT_OWNER.to_owned());
                    }
                    if matches!(gate, GateState::Draining | GateState::WasDraining) {
                        progress.draining();
                    }
                    changed |= gate == GateState::Draining;
                    if report.gate == GateState::Untouched || gate == GateState::Draining {
                        report.gate = gate;
                        progress.step(&gate_text(gate, &self.site.gate.key().to_string()));
                    }
                }
                Err(error) => found.note_step("set the gate to draining", &error),
            }
        }
        let policies = match self.site.policies(kinds).await {
            Ok(policies) => policies,
            Err((kind, error)) => {
                let Scanned { hidden, unseen, .. } = Scanned::failed(&kind, &error);
                found.note_unlisted(hidden, unseen);
                return changed;
            }
        };
        for policy in policies {
            let name = format!("{}/{}", policy.kind, policy.name);
            if policy.is_of_others {
                let note = format!(
                    "{name} adds a finalizer of Belayer but is not labelled app.kubernetes.io/name=belayer: delete it yourself"
                );
                if !report.notes.contains(&note) {
                    report.notes.push(note);
                }
                continue;
            }
            match self.site.remove(&policy).await {
                Ok(()) => {
                    changed = true;
                    if !report.taken.policies.contains(&name) {
                        let done = if report.taken.dry_run {
                            "would remove"
                        } else {
                            "removed"
                        };
                        progress.step(&format!("{done} {name}"));
                        report.taken.policies.push(name);
                    }
                }
                Err(error) => found.note_step(&format!("remove {name}"), &error),
            }
        }
        changed
    }

    /// Marks the cluster as drained after the last pass.
    async fn finish(&self, report: &mut Report) -> Finished {
        if !self.is_everything() || report.taken.dry_run {
            return Finished::Ended;
        }
        if report.outcome != Outcome::Clean || report.gate == GateState::Untouched {
            return Finished::Ended;
        }
        let mut failure = None;
        let unguarded = async {
            let _waiting = self.site.reader.contact().waiting();
            let mut pause = FIRST_PAUSE;
            loop {
                match self.unguard(report.gate).await {
                    Err(error) if error.class().is_transient() => {
                        failure = Some(error);
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                    ended => return ended,
                }
            }
        };
        let why = match tokio::time::timeout(self.parts.timeout, unguarded).await {
            // The API servers notice it late.
            Ok(Ok(Unguarded::Now)) => {
                tokio::time::sleep(NOTICED).await;
                return Finished::Ended;
            }
            Ok(Ok(Unguarded::Before)) => return Finished::Ended,
            Ok(Ok(Unguarded::NotDraining)) => return Finished::NotDraining,
            Ok(Err(error)) => Some(error),
            Err(_) => {
                report.timed_out = true;
                report.outcome = Outcome::Error;
                failure
            }
        };
        let why = why.map_or_else(|| "no answer".to_owned(), |error| explain(&error));
        report.notes.push(format!(
            "could not end the guard of Belayer's namespace and CRDs: {why}; while the policy {NAMESPACE_GUARD} denies their \
             deletion: kubectl delete validatingadmissionpolicybinding {NAMESPACE_GUARD}"
        ));
        Finished::Ended
    }

    /// Ends the guard of the namespace and the CRDs. Without a gate there is none to mark, and the guard denies every
    /// deletion.
    async fn unguard(&self, gate: GateState) -> Result<Unguarded, RequestError> {
        // Belayer may run in another namespace, which stays guarded.
        let is_elsewhere = matches!(gate, GateState::NoNamespace | GateState::NotInstalled);
        if is_elsewhere && !self.site.is_guarded().await? {
            return Ok(Unguarded::Before);
        }
        if !self.site.mark().await? {
            return Ok(Unguarded::NotDraining);
        }
        Ok(match self.site.remove_guard().await? {
            true => Unguarded::Now,
            false => Unguarded::Before,
        })
    }
}

/// Whether a run has ended.
#[derive(PartialEq, Eq)]
enum Finished {
    Ended,
    /// Holds may have been added since the last pass.
    NotDraining,
}

/// Result of [`Drain::unguard`].
enum Unguarded {
    /// There was no guard.
    Before,
    /// The guard was removed.
    Now,
    /// The gate is not draining any more, and the guard stays.
    NotDraining,
}

/// Note about holds in namespaces that do not affect the outcome.
fn in_excepted(report: &Report, objects: u64) -> Option<String> {
    (objects > 0).then(|| {
        format!(
            "the last pass found {} with holds in {} (--except-namespace): a hold that is added there from now on \
             stays until its owner removes it or drain runs again",
            one_or_many(objects, "object", "objects"),
            report.except_namespaces.join(", ")
        )
    })
}

fn gate_text(gate: GateState, key: &str) -> String {
    match gate {
        GateState::WasDraining => format!("gate {key}: mode was draining already"),
        GateState::Draining => {
            format!(
                "gate {key}: set mode to draining; no replica and no policy adds a hold any more"
            )
        }
        GateState::NoNamespace => {
            "Belayer's namespace does not exist: no gate to set".to_owned()
        }
        GateState::NotInstalled => format!(
            "gate {key}: does not exist, and was not created because Belayer's ServiceAccount does not exist either"
        ),
        GateState::NotServed => {
            "the API server does not serve Gates, so drain cannot stop a running Belayer; delete its Deployments"
                .to_owned()
        }
        GateState::Untouched => format!("gate {key}: not changed"),
    }
}

fn pass_text(pass: &Pass) -> String {
    let mut parts = vec![format!("{} released", pass.released)];
    for (count, what) in [
        (pass.refused, "denied"),
        (pass.unsettled, "to retry"),
        (pass.left, "kept"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    parts.join(", ")
}
