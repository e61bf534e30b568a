//! The run: the gate, the policies, then passes until there is nothing left to do.

mod pass;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use belayer_core::executor::Executor;
use belayer_core::http::RequestError;
use belayer_core::object::Resource;
use belayer_core::words::one_or_many;
use belayer_inspect::kinds::discover;
use belayer_inspect::reader::{Reader, Trouble, explain};

use crate::decide::Purpose;
use crate::findings::Findings;
use crate::gate::Gate;
use crate::passes::{Next, Outcome, Pass, Passes, SETTLE, outcome};
use crate::progress::Progress;
use crate::records::Records;
use crate::report::{API_VERSION, NewHolds, Refused, Report, Taken, Unseen};
use crate::selection::Selection;
use crate::site::{GateState, Site};
use crate::users::Users;

/// The pause after a discovery that failed, doubled each time.
const DISCOVERY_PAUSE: Duration = Duration::from_millis(500);

/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// A server that has not answered at all within this time is reported.
const FIRST_ANSWER: Duration = Duration::from_millis(1500);

/// A server that has answered before and does not for this time is reported as well.
const NO_ANSWER: Duration = Duration::from_secs(10);

/// Where to look.
#[derive(Debug, Clone)]
pub enum Kinds {
    /// At every kind that the server has.
    Served,
    /// At these.
    These(Vec<Resource>),
}

/// What a run is made of.
pub struct Parts {
    /// Sends what is written; with [`Writes::DryRun`](belayer_core::executor::Writes::DryRun) a run says what it would do.
    pub executor: Arc<Executor>,
    /// Sends what is read.
    pub reader: Reader,
    /// Belayer's own namespace.
    pub namespace: String,
    /// What is wanted.
    pub purpose: Purpose,
    /// Where to look.
    pub kinds: Kinds,
    /// What is still selected, where that matters.
    pub selection: Box<dyn Selection>,
    /// How long it may take without progress. See [`Passes`].
    pub timeout: Duration,
    /// Namespaces whose holds do not affect the outcome: they are removed, and new ones there do not keep
    /// the run from ending.
    pub except_namespaces: Vec<String>,
}

/// Takes holds off a cluster.
pub struct Drain {
    site: Site,
    purpose: Purpose,
    kinds: Kinds,
    selection: Box<dyn Selection>,
    timeout: Duration,
    except_namespaces: Vec<String>,
    users: Users,
    records: Records,
}

/// Why nothing can be done at all.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// The kinds that the server has could not be read.
    #[error("the kinds that the server has could not be read: {0}")]
    Discovery(String),
    /// The server has not given one usable answer within the timeout.
    #[error("the server does not answer")]
    Unreachable {
        /// Why, if that is known.
        trouble: Option<Trouble>,
    },
}

impl Drain {
    /// A run, not yet begun.
    pub fn new(parts: Parts) -> Self {
        let Parts {
            executor,
            reader,
            namespace,
            purpose,
            kinds,
            selection,
            timeout,
            except_namespaces,
        } = parts;
        let records = Records::new(Arc::clone(&executor), reader.clone());
        Self {
            site: Site {
                gate: Gate::new(Arc::clone(&executor), &namespace),
                executor,
                reader: reader.clone(),
                namespace,
            },
            purpose,
            kinds,
            selection,
            timeout,
            records,
            except_namespaces,
            users: Users::new(reader),
        }
    }

    /// Whether everything goes, and with it whatever would add more.
    fn is_everything(&self) -> bool {
        matches!(self.purpose, Purpose::Everything(_))
    }

    /// Leaves draining mode: holds are added again. Says which switches of admission policies are
    /// off all the same, and by what word, because they were off before the drain.
    ///
    /// # Errors
    ///
    /// As the requests that write the gate; a timeout if they do not end within the run's.
    pub async fn resume(
        &self,
        progress: &dyn Progress,
    ) -> Result<Vec<(String, String)>, RequestError> {
        if self.site.is_dry_run() {
            return Ok(Vec::new());
        }
        tokio::select! {
            biased;
            ended = self.end_draining() => ended,
            () = tokio::time::sleep(self.timeout) => Err(RequestError::Timeout(self.timeout)),
            () = self.report_silence(progress) => Err(RequestError::Timeout(self.timeout)),
        }
    }

    async fn end_draining(&self) -> Result<Vec<(String, String)>, RequestError> {
        // The namespace first: what may be held again must not be left alone.
        for (what, why) in self.site.mark("false").await {
            tracing::warn!(
                what,
                why,
                "the annotation belayer.dev/drained could not be reset"
            );
        }
        self.site.open_gate().await
    }

    /// Runs to its end. Without progress it ends after the timeout.
    ///
    /// # Errors
    ///
    /// When the server does not answer, or its kinds cannot be read.
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
            outcome: Outcome::Error,
            exit_code: 1,
            timed_out: false,
            gate: GateState::Untouched,
            new_holds: NewHolds::default(),
            except_namespaces: self.except_namespaces.clone(),
            left: Vec::new(),
            refused: Vec::new(),
            failed: Vec::new(),
            unseen: Vec::new(),
            dead_apis: Vec::new(),
            handed_over: 0,
            notes: Vec::new(),
            passes: 0,
            objects: 0,
            seconds: 0.0,
        };
        let ended = tokio::select! {
            biased;
            ended = self.passes(started, &mut report, progress) => Some(ended?),
            () = contact.silence(self.timeout) => None,
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
                    format!("the API server stopped giving usable answers: {trouble}")
                }
                None => "the API server stopped answering".to_owned(),
            });
        }
        report.exit_code = report.outcome.exit_code();
        report.seconds = started.elapsed().as_secs_f64();
        Ok(report)
    }

    /// Reports that the server does not answer, once until it answers again. Never ends.
    async fn report_silence(&self, progress: &dyn Progress) {
        let contact = self.site.reader.contact();
        loop {
            contact.silence_from(FIRST_ANSWER, NO_ANSWER).await;
            progress.waiting(contact.trouble().as_ref());
            contact.answer().await;
        }
    }

    /// Passes until there is nothing left to do, and what follows the last.
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
        self.look_for_excepted(report, progress).await;
        let mut passes = Passes::new(self.timeout, settle);
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
                    // From now on the API server has to learn of it.
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
            // Everything had been handled: what is here now has been added since.
            let since = passes.only_new_holds_since();
            let next = if report.taken.dry_run {
                Next::Stop(outcome(&pass))
            } else {
                passes.next(&pass, started.elapsed())
            };
            match (since, passes.only_new_holds_since()) {
                (Some(since_pass), Some(_)) => {
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
                        progress.step(&pass_in_words(&pass));
                    }
                    tokio::time::sleep(pause).await;
                }
                Next::Stop(outcome) => {
                    report.timed_out = passes.is_late(started.elapsed());
                    report.outcome = outcome;
                    if outcome == Outcome::Clean {
                        report.new_holds = NewHolds::default();
                    }
                    report.notes.extend(in_excepted(report, excepted));
                    break;
                }
            }
        }
        self.finish(report).await;
        if self.is_everything() {
            report.notes.extend(self.site.without_its_namespace().await);
        }
        Ok(())
    }

    /// Warns of a namespace that is to be ignored and does not exist: its name may be mistyped. It is no
    /// error, because the namespace may have been deleted since.
    async fn look_for_excepted(&self, report: &mut Report, progress: &dyn Progress) {
        for name in &self.except_namespaces {
            if self.site.lacks_namespace(name).await {
                let note = format!("namespace {name} does not exist (--except-namespace)");
                progress.step(&format!("warning: {note}"));
                report.notes.push(note);
            }
        }
    }

    /// The kinds to look at. A server that is away for a moment is waited for.
    async fn kinds(&self, report: &mut Report) -> Result<Vec<Resource>, DrainError> {
        if let Kinds::These(kinds) = &self.kinds {
            return Ok(kinds.clone());
        }
        let mut pause = DISCOVERY_PAUSE;
        // Nothing else can be done meanwhile: the pauses between the attempts count as silence.
        let _waiting = self.site.reader.contact().waiting();
        loop {
            match discover(&self.site.reader).await {
                Ok(discovered) => {
                    let dead = discovered.dead.iter().map(|dead| Unseen {
                        what: dead.group_version.clone(),
                        why: dead.why.clone(),
                    });
                    report.dead_apis = dead.collect();
                    let kinds = discovered.kinds.iter();
                    return Ok(kinds.map(|kind| kind.resource.clone()).collect());
                }
                // The caller ends the run if this takes too long.
                Err(error) if error.class().is_transient() => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => return Err(DrainError::Discovery(explain(&error))),
            }
        }
    }

    /// Stops whatever adds holds. Done before every pass: whoever puts it back meanwhile is met.
    /// Whether anything was changed.
    async fn close(
        &self,
        kinds: &[Resource],
        found: &mut Findings,
        report: &mut Report,
        progress: &dyn Progress,
    ) -> bool {
        let mut changed = false;
        let refused = |what: &str, error: &RequestError| Refused {
            what: what.to_owned(),
            why: explain(error),
            code: error.api().map_or(0, |api| api.code),
        };
        if !self.site.is_dry_run() {
            match self.site.close_gate().await {
                Ok(gate) => {
                    changed |= gate == GateState::Draining;
                    if report.passes == 0 || gate == GateState::Draining {
                        report.gate = gate;
                        progress.step(&gate_in_words(gate, &self.site.gate.key().to_string()));
                    }
                }
                Err(error) => found
                    .refused
                    .push(refused("set the gate to draining", &error)),
            }
        }
        let policies = match self.site.policies(kinds).await {
            Ok(policies) => policies,
            Err(why) => {
                found.hidden.push(Unseen {
                    what: "admission policies".to_owned(),
                    why,
                });
                return changed;
            }
        };
        for policy in policies {
            let name = format!("{}/{}", policy.kind, policy.name);
            if policy.foreign {
                let note = format!(
                    "{name} ties a hold of ours and is not labelled app.kubernetes.io/name=belayer: remove it yourself"
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
                Err(error) => found
                    .refused
                    .push(refused(&format!("remove {name}"), &error)),
            }
        }
        changed
    }

    /// What follows the last pass.
    async fn finish(&self, report: &mut Report) {
        if !self.is_everything() || report.taken.dry_run {
            return;
        }
        if report.outcome != Outcome::Clean || report.gate == GateState::NoNamespace {
            return;
        }
        for (what, why) in self.site.mark("true").await {
            report.notes.push(format!(
                "{what} could not be annotated as drained ({why}): the policy that guards it still refuses its \
                 deletion"
            ));
        }
    }
}

/// What is left to do in the namespaces that do not affect the outcome.
fn in_excepted(report: &Report, objects: u64) -> Option<String> {
    (objects > 0).then(|| {
        format!(
            "the last pass found {} with holds in {} (--except-namespace): holds that are added there from now on \
             stay until whoever adds them removes them, or drain runs again",
            one_or_many(objects, "object", "objects"),
            report.except_namespaces.join(", ")
        )
    })
}

fn gate_in_words(gate: GateState, key: &str) -> String {
    match gate {
        GateState::WasDraining => format!("the gate {key} says draining already"),
        GateState::Draining => {
            format!("the gate {key} says draining: no replica and no policy adds a hold any more")
        }
        GateState::NoNamespace => {
            "Belayer's namespace is not there: nobody is left to be told".to_owned()
        }
        GateState::Untouched => format!("the gate {key} was not touched"),
    }
}

fn pass_in_words(pass: &Pass) -> String {
    let mut parts = vec![format!("{} let go", pass.released)];
    for (count, what) in [
        (pass.refused, "refused"),
        (pass.unsettled, "to be tried again"),
        (pass.left, "must stay"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    parts.join(", ")
}
