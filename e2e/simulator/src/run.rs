//! One run, from its start to the judgement.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use belayer_checker::{BELAYER, Evidence, Findings, check};
use belayer_core::simulated;
use belayer_demo::setup;
use belayer_holds::runner::Observer;
use belayer_sandbox::simulated::{KubeletConfig, RejectionChance, SimulatedControllers};
use belayer_sandbox::{Epoch, Fault, FaultHandle, Gvr, Match, Sandbox, Verb, WatchEnd, Write};
use belayer_workload::{User, WORKFLOWS, Workload};
use jiff::{SignedDuration, Timestamp};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::checks;
use crate::coverage::{Coverage, Rules};
use crate::event::admin::Admin;
use crate::event::others::KUBERNETES;
use crate::event::user::UserAction;
use crate::event::{Event, Stage, tenant};
use crate::fault::FaultKind;
use crate::nodes::Nodes;
use crate::objects::{self, AGENT, BATCH};
use crate::plan::{
    BIND, MORE_NAMES, MORE_REJECTIONS, MORE_RULES, POLICIES, PROFILES, Plan, SHORT, SMALL,
};
use crate::replica::{Controllers, ELECTION, Replica, Setup, instance};

/// How long nothing may be written in a settled cluster.
const QUIET: Duration = Duration::from_secs(60);

/// The invariant that counts when the cluster has settled for the first time.
const PROMPT: &str = "PROMPT";

/// How many periods of [`QUIET`] the cluster has to settle.
const PATIENCE: usize = 40;

/// Only the namespaces of workflows exist otherwise.
const CREATE_NAMESPACES: Event = Event::User(UserAction::CreateNamespace, 0);

/// The start of every run.
const EPOCH: i64 = 1_800_000_000;

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Every violated invariant, as a sentence.
    pub(crate) violations: Vec<String>,
    /// What was reached.
    pub(crate) coverage: Coverage,
    /// The API server's record of all writes.
    pub(crate) record: Vec<Write>,
    /// The folder with the files of the nodes.
    home: Option<String>,
}

impl Outcome {
    /// The API server's record of all writes, one per line.
    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = self.record.iter().map(line);
        // The folder with the files of the nodes has another name in each run.
        match &self.home {
            Some(home) => lines.map(|line| line.replace(home, "HOME")).collect(),
            None => lines.collect(),
        }
    }

    /// A digest of [`Self::lines`] (FNV-1a).
    pub(crate) fn digest(&self) -> u64 {
        let lines = self.lines();
        let bytes = lines.iter().flat_map(|line| line.bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// A run that could not begin.
    fn failed(why: &str) -> Self {
        Self {
            violations: vec![why.to_owned()],
            ..Self::default()
        }
    }
}

thread_local! {
    /// Whether this thread carries out a run.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    /// Panics of the run on this thread.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Carries out a plan.
pub(crate) fn run(plan: &Plan) -> Outcome {
    record_panics();
    RUNNING.set(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        match runtime {
            Ok(runtime) => runtime.block_on(story(plan)),
            Err(error) => Outcome::failed(&format!("cannot create a runtime: {error}")),
        }
    }));
    RUNNING.set(false);
    let mut outcome = outcome.unwrap_or_default();
    let panics = PANICS.with_borrow_mut(std::mem::take);
    outcome
        .violations
        .extend(panics.into_iter().map(|text| format!("PANIC: {text}")));
    outcome
}

/// A panic of any task is a violation, also one that its runtime catches.
fn record_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if RUNNING.get() {
                PANICS.with_borrow_mut(|panics| panics.push(info.to_string()));
            } else {
                usual(info);
            }
        }));
    });
}

async fn story(plan: &Plan) -> Outcome {
    let sandbox = sandbox(plan);
    let clock = sandbox.cluster().clock().clone();
    let skew = Arc::new(AtomicI64::new(plan.skew));
    let ahead = Arc::clone(&skew);
    let _simulated = simulated::simulate(plan.seed, move || {
        let now = clock.now();
        let ahead = SignedDuration::from_secs(ahead.load(Ordering::Relaxed));
        now.checked_add(ahead).unwrap_or(now)
    });
    if let Err(error) = setup::install(&User::new(sandbox.cluster().clone()), plan.tuning) {
        return Outcome::failed(&format!("cannot install Belayer: {error:#}"));
    }
    let stop = CancellationToken::new();
    let mut workload = Workload::run(sandbox.cluster(), plan.workload.clone(), &stop);
    let argo = workload.argo().clone();
    let drained = tokio::spawn(async move { while workload.next_event().await.is_some() {} });
    let rules = Arc::new(Rules::default());
    let observer: Arc<dyn Observer> = rules.clone();
    let replicas = (1..=plan.size.replicas)
        .map(|number| {
            let setup = Setup {
                number,
                sandbox: sandbox.clone(),
                observer: Arc::clone(&observer),
                tuning: plan.tuning,
                timing: plan.timing,
                is_alone: plan.size.replicas == 1,
            };
            Replica::new(setup)
        })
        .collect();
    let nodes = if plan.seed >= MORE_RULES && plan.wipes {
        match Nodes::start(&sandbox, &stop) {
            Ok(nodes) => Some(nodes),
            Err(error) => return Outcome::failed(&format!("cannot create files: {error}")),
        }
    } else {
        None
    };
    let mut stage = Stage {
        nodes,
        script: plan.workload.workflow_script(),
        sandbox,
        argo,
        replicas,
        namespaces: plan.size.namespaces,
        created: 0,
        controller_bits: 4 + u32::from(plan.seed >= PROFILES) + u32::from(plan.seed >= MORE_RULES),
        wipes: plan.wipes,
        skew,
        admin: Admin::default(),
        copies: Vec::new(),
    };
    if plan.seed >= MORE_NAMES {
        stage.carry_out(CREATE_NAMESPACES).await;
    }
    slow_down(plan, &stage);
    stage.carry_out(Event::Start).await;
    stage.carry_out(Event::StartAgents).await;
    let mut coverage = events(plan, &mut stage).await;
    let healthy_from = recover(plan, &mut stage).await;
    let outcome = judge(plan, &stage, healthy_from).await;
    for replica in &mut stage.replicas {
        replica.kill();
    }
    stage.admin.stop_agents();
    stop.cancel();
    drop(drained.await);
    coverage.merge(rules.take());
    coverage.merge(outcome.coverage);
    Outcome {
        coverage,
        violations: outcome.violations,
        record: outcome.record,
        home: stage.nodes.as_ref().map(Nodes::home),
    }
}

fn sandbox(plan: &Plan) -> Sandbox {
    let rejections = (plan.rejections > 0.0).then(|| RejectionChance {
        probability: plan.rejections,
        reasons: vec!["OutOfcpu".to_owned(), "NodeAffinity".to_owned()],
    });
    let kubelet = KubeletConfig {
        nodes: objects::nodes(),
        rejections,
        seed: plan.seed,
        ..KubeletConfig::default()
    };
    let epoch = Timestamp::from_second(EPOCH).unwrap_or_default();
    Sandbox::builder()
        .seed(plan.seed)
        .epoch(Epoch::Fixed(epoch))
        .controllers(SimulatedControllers::all().kubelet(kubelet))
        .build()
}

/// Requests of the controllers take their time.
fn slow_down(plan: &Plan, stage: &Stage) {
    if !plan.latency.is_zero() {
        let requests = [Verb::Get, Verb::Create, Verb::Patch, Verb::Delete];
        let requests = Match::verbs(requests).client(BELAYER);
        let slow = Fault::on(requests).delay(plan.latency);
        stage.sandbox.faults().inject(slow);
    }
}

/// What happens at a time.
enum Due {
    Begin(usize),
    End(usize),
    Bind,
}

/// Carries out the events of the plan at their times.
async fn events(plan: &Plan, stage: &mut Stage) -> Coverage {
    let mut coverage = Coverage::default();
    let begun = Instant::now();
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let mut due: Vec<(Duration, Due)> = Vec::new();
    for (index, planned) in plan.events.iter().enumerate() {
        due.push((planned.at, Due::Begin(index)));
        if let Event::Fault { lasts, .. } = planned.event {
            due.push((planned.at + lasts, Due::End(index)));
        }
    }
    let binds = (1..)
        .map(|number| BIND * number)
        .take_while(|at| *at < plan.size.story);
    due.extend(binds.map(|at| (at, Due::Bind)));
    due.sort_by_key(|(at, _)| *at);
    let mut faults: Vec<(usize, FaultHandle)> = Vec::new();
    for (at, due) in due {
        tokio::time::sleep_until(begun + at).await;
        match due {
            Due::Bind => {
                stage.create_copies();
                stage.bind_waiting();
                // Archiving takes some seconds.
                if (at.as_secs() / BIND.as_secs() + plan.seed).is_multiple_of(3) {
                    stage.let_others_finish();
                }
            }
            Due::Begin(index) => {
                let event = plan.events[index].event;
                match event {
                    Event::Fault { kind, replica, .. } => {
                        for fault in kind.draw(replica, plan.seed >= MORE_REJECTIONS, &mut rng) {
                            faults.push((index, stage.sandbox.faults().inject(fault)));
                        }
                    }
                    event => {
                        coverage.add(event.name(), 1);
                        stage.carry_out(event).await;
                    }
                }
            }
            Due::End(index) => {
                let event = plan.events[index].event;
                if let Event::Fault {
                    kind: FaultKind::Stale(kind),
                    replica,
                    ..
                } = event
                    && rng.random_bool(0.5)
                {
                    // Belayer lists again, and never learns of objects that were created and deleted meanwhile.
                    let of = replica.map_or(BELAYER.to_owned(), |one| instance(BELAYER, one));
                    let watches = Match::watches().client(of).resource(kind);
                    stage
                        .sandbox
                        .faults()
                        .end_watches(&watches, WatchEnd::Expired);
                }
                let stops = matches!(event, Event::Fault { kind, .. } if kind.stops_watches());
                for (fault, handle) in &faults {
                    if *fault == index {
                        let hits = handle.hits();
                        coverage.add(event.name(), if stops { 1 } else { hits });
                        handle.remove();
                    }
                }
            }
        }
    }
    coverage
}

/// All faults have ended; everything that is down starts again, users create objects that a healthy cluster must serve, and
/// delete what would never end. Returns the first write of the healthy cluster.
async fn recover(plan: &Plan, stage: &mut Stage) -> usize {
    let faults = stage.sandbox.faults();
    faults.clear();
    slow_down(plan, stage);
    if plan.has(FaultKind::LateEvents) {
        // The events of a watch that began then would be late for ever.
        faults.end_watches(&Match::watches(), WatchEnd::Break);
    }
    stage.carry_out(Event::StartArgo).await;
    stage.carry_out(Event::ComeBack).await;
    stage.carry_out(Event::Untaint).await;
    if plan.seed >= POLICIES {
        stage.carry_out(Event::IgnoreNone).await;
    }
    tenant::clean_up(stage);
    stage.remove_kept();
    stage.carry_out(Event::StartAgents).await;
    stage.admin.stop_drain();
    stage.carry_out(Event::Resume).await;
    stage.give_controllers(Controllers::ALL).await;
    stage.carry_out(Event::Start).await;
    tokio::time::sleep(plan.size.recovery).await;
    stage.bind_waiting();
    if plan.seed >= MORE_NAMES {
        stage.carry_out(CREATE_NAMESPACES).await;
    }
    let healthy_from = stage.sandbox.recorder().writes().len();
    let choices = if plan.seed < SMALL {
        0..plan.size.namespaces.len() as u64
    } else {
        let one = plan.seed % 2;
        one..one + 1
    };
    stage.create_in_healthy_cluster(choices, &plan.healthy);
    for _ in 0..2 {
        tokio::time::sleep(BIND).await;
        stage.bind_waiting();
    }
    stage.delete_in_healthy_cluster();
    let pause = if plan.seed < SHORT { QUIET } else { QUIET / 2 };
    tokio::time::sleep(pause).await;
    stage.bind_waiting();
    stage.let_others_finish();
    tokio::time::sleep(pause).await;
    stage.delete_bare_objects();
    healthy_from
}

/// Waits until the cluster has settled, and checks all invariants. A write that was refused is repeated after up to
/// ten minutes, so that a quiet minute does not mean that nothing more happens.
async fn judge(plan: &Plan, stage: &Stage, healthy_from: usize) -> Outcome {
    let recorder = stage.sandbox.recorder();
    let mut findings = Findings::default();
    let mut late: Option<Vec<String>> = None;
    let mut is_settled = false;
    for _ in 0..PATIENCE {
        stage.let_others_finish();
        let mark = recorder.mark();
        tokio::time::sleep(QUIET).await;
        let mut written = recorder.since(mark);
        written.retain(|write| write.changed() && !is_heartbeat(write));
        is_settled = written.is_empty();
        if is_settled {
            findings = findings_of(plan, stage, &written, healthy_from);
            late.get_or_insert_with(|| broken(&findings, |name| name == PROMPT));
            if broken(&findings, |name| name == "LIVENESS").is_empty() {
                break;
            }
        } else {
            // Pods may have been re-created in the meantime; nothing would ever end them.
            stage.delete_bare_objects();
        }
    }
    // While the gate is closed nothing is held.
    let is_judged = |name: &str| name != PROMPT && !(name == "HELD" && plan.limits_backlog());
    let mut violations = broken(&findings, is_judged);
    violations.extend(late.unwrap_or_default());
    let record = recorder.writes();
    violations.extend(checks::all(plan, stage, &record));
    violations.extend(stage.nodes.iter().flat_map(Nodes::violations));
    if !is_settled {
        let minutes = QUIET.as_secs() * PATIENCE as u64 / 60;
        violations.push(format!(
            "SETTLED: {minutes} min after the last fault the cluster still changes"
        ));
    }
    let mut coverage = checks::transitions(&record, &mut violations);
    for check in &findings.checks {
        coverage.add(format!("invariant {}", check.name), check.seen as u64);
    }
    Outcome {
        violations,
        coverage,
        record,
        home: None,
    }
}

/// The violations of the invariants that are wanted by their names.
fn broken(findings: &Findings, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let checks = findings.checks.iter();
    checks
        .filter(|check| is_wanted(check.name))
        .flat_map(|check| {
            let name = check.name;
            check.broken.iter().map(move |how| format!("{name}: {how}"))
        })
        .collect()
}

fn findings_of(
    plan: &Plan,
    stage: &Stage,
    written_in_quiet: &[Write],
    healthy_from: usize,
) -> Findings {
    let kinds = [
        Gvr::PODS,
        WORKFLOWS,
        Gvr::PERSISTENTVOLUMECLAIMS,
        Gvr::NAMESPACES,
    ];
    let left: Vec<_> = kinds.iter().flat_map(|gvr| stage.list(gvr, None)).collect();
    check(&Evidence {
        writes: &stage.sandbox.recorder().writes(),
        left: &left,
        quiet: QUIET,
        written_in_quiet,
        others: &[BATCH, ELECTION, AGENT, KUBERNETES],
        healthy_from: Some(healthy_from),
        settings: plan.tuning.profiles,
    })
}

/// Writes that a cluster at rest makes for ever.
fn is_heartbeat(write: &Write) -> bool {
    ["leases", "nodes"].contains(&&*write.resource.resource)
}

/// A write in one line, with the time since the start and the body of the request, or the object if there is none.
fn line(write: &Write) -> String {
    let at = write.at.as_millisecond() - EPOCH * 1_000;
    let seconds = at as f64 / 1_000.0;
    let body = write
        .body
        .as_deref()
        .or(write.object.as_deref())
        .map(ToString::to_string)
        .unwrap_or_default();
    format!(
        "{:>5} {seconds:>8.3}  {}  {body}",
        write.index,
        write.summary()
    )
}
