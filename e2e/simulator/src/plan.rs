//! What a seed decides.

mod settings;
mod story;

use std::collections::BTreeSet;
use std::time::Duration;

use belayer_checker::Settings;
use belayer_core::election::Timing;
use belayer_demo::setup::Tuning;
use belayer_holds::selection::MaxUnselected;
use belayer_workload::{PodGc, Profile};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{RngExt as _, SeedableRng as _};

use crate::event::Event;
use crate::event::user::UserAction;

use crate::fault::FaultKind;
use crate::objects::NAMESPACES;
use crate::replica::Controllers;
use settings::{more_settings, policy, profiles, tuning};
use story::Story;

/// How long events occur.
pub(crate) const STORY: Duration = Duration::from_secs(90);

/// How often the batch scheduler binds its pods.
pub(crate) const BIND: Duration = Duration::from_secs(5);

/// From this seed on, runs reject more pods, users delete rejected ones, and faults of watches may concern one kind of object:
/// without that, ten thousand runs do not find every planted fault. Earlier seeds keep their plans, so that those that have failed repeat what failed.
pub(crate) const MORE_REJECTIONS: u64 = 100_000;

/// From this seed on, users also take the names of pods, copy pods and create namespaces anew, pods are rejected and deleted while
/// Belayer is down, and the configuration differs. Earlier seeds keep their plans.
pub(crate) const MORE_NAMES: u64 = 300_000;

/// From this seed on, runs are small: a few objects, one story, often a single replica. Most faults
/// need few objects, and a large run takes as long as three small ones. These plans change with each new story; a plan that fails becomes a test by its
/// events. Earlier seeds keep their plans.
pub(crate) const SMALL: u64 = 1_000_000;

/// From this seed on, outcomes are recorded in some runs, in some the gate closes above one or two waiting pods, and in half of them
/// requests take time also while nothing fails, so that events arrive meanwhile.
pub(crate) const MORE_SETTINGS: u64 = 10_000_000;

/// From this seed on, the profile for Argo has other settings in some runs, and there may be a second profile.
pub(crate) const PROFILES: u64 = 40_000_000;

/// From this seed on, re-creation has other policies and low rate limits in some runs, and in some an admin has Belayer ignore a
/// namespace for a while.
pub(crate) const POLICIES: u64 = 50_000_000;

/// From this seed on, runs are shorter: users create only one or two kinds of objects in the healthy cluster, it waits half as long for
/// them, and most elections have longer durations.
pub(crate) const SHORT: u64 = 60_000_000;

/// From this seed on, runs also reach rules that others hardly reach: workflows wait for their archive, PVCs belong to workflows or are
/// protected by Kubernetes, Belayer stops holding PVCs, and pods that request re-creation belong to Jobs.
pub(crate) const MORE_RULES: u64 = 70_000_000;

/// From this seed on, writes may be carried out long after Belayer has given them up, pods may be denied for more than an hour, and pods
/// that are re-created may belong to workflows.
pub(crate) const LATE_REQUESTS: u64 = 80_000_000;

/// How large a run is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// How long events occur.
    pub(crate) story: Duration,
    /// How long after the last fault Belayer needs until it serves every request at once: the longest pause before it repeats
    /// a failed list or watch, and an election.
    pub(crate) recovery: Duration,
    /// Where users create objects.
    pub(crate) namespaces: &'static [&'static str],
    /// How many replicas of Belayer; a single one has no leader election.
    pub(crate) replicas: usize,
}

impl Size {
    const LARGE: Self = Self {
        story: STORY,
        recovery: Duration::from_secs(120),
        namespaces: &NAMESPACES,
        replicas: 2,
    };
}

/// A run, before it is carried out.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The seed, also of all random choices during the run.
    pub(crate) seed: u64,
    /// How large it is.
    pub(crate) size: Size,
    /// The workflows.
    pub(crate) workload: Profile,
    /// What happens when, ordered by time. A number identifies an event in commands.
    pub(crate) events: Vec<Planned>,
    /// How far Belayer's wall clock is ahead of the API server's, in seconds.
    pub(crate) skew: i64,
    /// The ratio of pods that their node rejects at random.
    pub(crate) rejections: f64,
    /// Whether the nodes of rejected pods are wiped.
    pub(crate) wipes: bool,
    /// Belayer's configuration.
    pub(crate) tuning: Tuning,
    /// How long each request of the controllers takes.
    pub(crate) latency: Duration,
    /// The durations of the election.
    pub(crate) timing: Timing,
    /// What users create once the cluster is healthy.
    pub(crate) healthy: Vec<UserAction>,
}

/// One event of a plan.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    /// Its number in the plan of its seed.
    pub(crate) number: usize,
    /// When it happens, from the start.
    pub(crate) at: Duration,
    /// What happens.
    pub(crate) event: Event,
}

impl Plan {
    /// The plan of a seed. Each seed switches a random subset of the kinds of faults and of events on, so that
    /// runs differ in kind and not only in time.
    pub(crate) fn of(seed: u64) -> Self {
        if seed >= SMALL {
            return Self::small(seed);
        }
        let mut rng = StdRng::seed_from_u64(seed ^ 0x5eed_0f00_d000_0000);
        let workload = workload(seed, &mut rng);
        let kinds = some_of(&FaultKind::ALL, 5, &mut rng);
        let templates = some_of(&Event::ALL, 11, &mut rng);
        let mut events = Vec::new();
        for kind in kinds {
            for _ in 0..rng.random_range(1..=2) {
                let lasts = Duration::from_secs(rng.random_range(2..40));
                events.push((moment(&mut rng), fault(kind, lasts)));
            }
        }
        for template in templates {
            for _ in 0..rng.random_range(1..=3) {
                events.push((moment(&mut rng), template.with(rng.random())));
            }
        }
        let more = (seed >= MORE_REJECTIONS).then(|| more_rejections(seed, &mut events));
        let more_names = (seed >= MORE_NAMES).then(|| more_names(seed, &mut events));
        let skews = [0, 0, 0, -90, 90, -86_400, 86_400];
        Self {
            seed,
            size: Size::LARGE,
            workload,
            events: in_order(events),
            skew: skews.choose(&mut rng).copied().unwrap_or_default(),
            rejections: {
                let few = [0.0, 0.0, 0.1].choose(&mut rng).copied();
                more.or(few).unwrap_or_default()
            },
            wipes: more_names.map_or_else(|| rng.random_bool(0.3), |(wipes, _)| wipes),
            tuning: more_names.map_or_else(Tuning::default, |(_, tuning)| tuning),
            latency: Duration::ZERO,
            timing: Timing::default(),
            healthy: in_healthy_cluster(&Settings::default()),
        }
    }

    /// A small run: one story, or a mixture.
    fn small(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x5a11_0000_0000_0000);
        let rng = &mut rng;
        let wipes = rng.random_bool(0.4);
        let story = Story::choose(rng);
        let mut events = story.events(wipes, rng);
        let namespaces = &NAMESPACES[..rng.random_range(1..=2)];
        let replicas = if story.has_failover() {
            2
        } else {
            *[1, 1, 2].choose(rng).unwrap_or(&1)
        };
        if replicas == 2 {
            for (_, event) in &mut events {
                if let Event::Fault { replica, .. } = event
                    && rng.random_bool(0.4)
                {
                    *replica = replica.or(Some(rng.random_range(1..=2)));
                }
            }
        }
        let last = events.iter().map(|(at, event)| match event {
            Event::Fault { lasts, .. } => *at + *lasts,
            _ => *at,
        });
        let mut size = Size {
            story: last.max().unwrap_or_default() + Duration::from_secs(2),
            recovery: Duration::from_secs(75),
            namespaces,
            replicas,
        };
        let is_retried = matches!(story, Story::Retry { .. });
        let mut workload = Profile {
            namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
            workflows: rng.random_range(usize::from(is_retried)..=2),
            pods_per_workflow: rng.random_range(1..=3),
            life: Duration::from_secs(1)..=Duration::from_secs(if story == Story::Failover {
                rng.random_range(10..40)
            } else {
                rng.random_range(2..15)
            }),
            failure_ratio: if is_retried { 0.7 } else { 0.2 },
            ..workload(seed, rng)
        };
        let skew = *[0, 0, 0, 0, -90, 90].choose(rng).unwrap_or(&0);
        let mut rejections = *[0.0, 0.1, 0.6].choose(rng).unwrap_or(&0.0);
        let mut tuning = Tuning {
            record_ttl: Duration::from_secs(*[20, 3_600].choose(rng).unwrap_or(&20)),
            ..tuning(rng)
        };
        let mut latency = Duration::ZERO;
        if seed >= MORE_SETTINGS {
            tuning = more_settings(tuning, rng);
            latency = Duration::from_millis(*[0, 0, 5, 100].choose(rng).unwrap_or(&5));
        }
        if seed >= PROFILES {
            tuning.profiles = profiles(tuning.profiles, rng);
            more_events(&tuning.profiles, size.story, &mut events, rng);
        }
        if seed >= POLICIES {
            tuning.policy = policy(tuning.policy, rng);
            tuning.is_rate_limited = rng.random_bool(0.3);
            if rng.random_bool(0.3) {
                ignored(size.story, &mut events, rng);
                if rng.random_bool(0.3) {
                    tuning.max_unselected = MaxUnselected::Count(1);
                }
            }
        }
        if seed >= MORE_RULES {
            workload.archives = rng.random_bool(0.4);
            tuning.profiles.until_archived = workload.archives && rng.random_bool(0.7);
            more_rules(size.story, &mut events, rng);
        }
        if seed >= LATE_REQUESTS {
            tuning.recreates_of_workflows = rng.random_bool(0.7);
            late_requests(size.story, &mut events, rng);
            if rng.random_bool(0.02) {
                size.story = denied(&mut events, rng);
                // A denied request is repeated after up to ten minutes.
                size.recovery = Duration::from_secs(700);
                rejections = 0.6;
            }
        }
        let mut healthy = in_healthy_cluster(&tuning.profiles);
        let mut timing = Timing::default();
        if seed >= SHORT {
            healthy.shuffle(rng);
            healthy.truncate(rng.random_range(1..=2));
            if rng.random_bool(0.7) {
                timing = patient();
            }
        }
        Self {
            seed,
            size,
            workload,
            events: in_order(events),
            skew,
            rejections,
            wipes,
            tuning,
            latency,
            timing,
            healthy,
        }
    }

    /// Whether the gate closes above very few waiting pods.
    pub(crate) fn limits_backlog(&self) -> bool {
        self.tuning.backlog_threshold < Tuning::default().backlog_threshold
    }

    /// The plan with these events only.
    pub(crate) fn only(mut self, numbers: &BTreeSet<usize>) -> Self {
        self.events.retain(|event| numbers.contains(&event.number));
        self
    }

    /// Whether it has any fault.
    pub(crate) fn has_faults(&self) -> bool {
        let mut events = self.events.iter();
        events.any(|planned| matches!(planned.event, Event::Fault { .. }))
    }

    /// Whether it has a fault of this kind.
    pub(crate) fn has(&self, wanted: FaultKind) -> bool {
        let mut events = self.events.iter();
        events.any(|planned| matches!(planned.event, Event::Fault { kind, .. } if kind == wanted))
    }

    /// The numbers of its events.
    pub(crate) fn numbers(&self) -> BTreeSet<usize> {
        self.events.iter().map(|event| event.number).collect()
    }
}

/// What users create in the healthy cluster: reports only if their outcomes are recorded.
fn in_healthy_cluster(profiles: &Settings) -> Vec<UserAction> {
    let reports = profiles.recorded_app.map(|_| UserAction::CreateReports);
    let always = [
        UserAction::CreateWorkflow,
        UserAction::UsePvc,
        UserAction::Overcommit,
    ];
    always.into_iter().chain(reports).collect()
}

/// Three times the usual durations. The recovery is longer than a lease.
fn patient() -> Timing {
    let [lease, deadline, retry] = [45, 30, 6].map(Duration::from_secs);
    Timing::new(lease, deadline, retry).unwrap_or_default()
}

fn workload(seed: u64, rng: &mut StdRng) -> Profile {
    let strategies = [
        PodGc::Never,
        PodGc::OnPodCompletion,
        PodGc::OnPodSuccess,
        PodGc::OnWorkflowCompletion,
        PodGc::OnWorkflowSuccess,
    ];
    Profile {
        namespaces: NAMESPACES[..rng.random_range(1..=2)]
            .iter()
            .map(|name| (*name).to_owned())
            .collect(),
        workflows: rng.random_range(1..=4),
        pods_per_workflow: rng.random_range(1..=8),
        pods_per_second: rng.random_range(0.5..20.0),
        life: Duration::from_secs(1)..=Duration::from_secs(rng.random_range(2..40)),
        failure_ratio: 0.2,
        rejection_ratio: *[0.0, 0.0, 0.2].choose(rng).unwrap_or(&0.0),
        persist_delay: Duration::from_millis(rng.random_range(100..3_000)),
        pod_gc: strategies.choose(rng).copied().unwrap_or(PodGc::Never),
        seed,
        ..Profile::default()
    }
}

/// Adds events, and returns the ratio of rejected pods.
fn more_rejections(seed: u64, events: &mut Vec<(Duration, Event)>) -> f64 {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x7e1e_c7ed_0000_0000);
    for action in [UserAction::Overcommit, UserAction::DeleteRejectedPod] {
        for _ in 0..rng.random_range(0..=4) {
            events.push((moment(&mut rng), Event::User(action, rng.random())));
        }
    }
    *[0.0, 0.1, 0.6].choose(&mut rng).unwrap_or(&0.0)
}

/// Adds events. Returns whether nodes are wiped, and the configuration.
fn more_names(seed: u64, events: &mut Vec<(Duration, Event)>) -> (bool, Tuning) {
    let mut rng = StdRng::seed_from_u64(seed ^ 0x7a3e_5000_0000_0000);
    for action in [
        UserAction::TakeName,
        UserAction::CopyPod,
        UserAction::CreateNamespace,
    ] {
        if rng.random_bool(0.4) {
            for _ in 0..rng.random_range(1..=3) {
                events.push((moment(&mut rng), Event::User(action, rng.random())));
            }
        }
    }
    let wipes = rng.random_bool(0.3);
    if rng.random_bool(0.3) {
        outage(wipes, &mut rng, events);
    }
    if rng.random_bool(0.4) {
        stale(&mut rng, events);
    }
    (wipes, tuning(&mut rng))
}

/// What only matters with some profiles.
fn more_events(
    profiles: &Settings,
    story: Duration,
    events: &mut Vec<(Duration, Event)>,
    rng: &mut StdRng,
) {
    let reports = profiles.recorded_app.map(|_| UserAction::CreateReports);
    let argos = profiles.adopts.map(|_| UserAction::AddArgosFinalizer);
    let deletes = [
        UserAction::DeletePod,
        UserAction::DeletePods,
        UserAction::ForceDeletePod,
    ];
    for action in reports.into_iter().chain(argos) {
        for _ in 0..rng.random_range(1..=3) {
            let at = story.mul_f64(rng.random::<f64>());
            events.push((at, Event::User(action, rng.random())));
            let soon = at + Duration::from_secs_f64(rng.random_range(0.0..20.0));
            if let Some(delete) = deletes.choose(rng)
                && soon < story
            {
                events.push((soon, Event::User(*delete, rng.random())));
            }
        }
    }
    if profiles.records_outcomes() && rng.random_bool(0.3) {
        let lasts = story.mul_f64(rng.random_range(0.1..0.6));
        let at = (story - lasts).mul_f64(rng.random::<f64>());
        events.push((at, fault(FaultKind::Stale("podoutcomes"), lasts)));
    }
}

/// What the rules of PVCs of workflows, of PVCs that Kubernetes protects, of workflows that another program keeps, and of pods of a
/// Job are about.
fn more_rules(story: Duration, events: &mut Vec<(Duration, Event)>, rng: &mut StdRng) {
    let mut add = |actions: &[UserAction], rng: &mut StdRng| {
        let mut at = story.mul_f64(rng.random_range(0.0..0.7));
        for action in actions {
            events.push((at.min(story), Event::User(*action, rng.random())));
            at += Duration::from_secs_f64(rng.random_range(0.5..20.0));
        }
    };
    if rng.random_bool(0.4) {
        add(
            &[UserAction::UseWorkflowsPvc, UserAction::DeleteWorkflowsPvc],
            rng,
        );
    }
    if rng.random_bool(0.3) {
        let actions = [
            UserAction::UsePvc,
            UserAction::ProtectPvcs,
            UserAction::DeletePvc,
        ];
        add(&actions, rng);
    }
    if rng.random_bool(0.3) {
        add(&[UserAction::KeepWorkflow], rng);
    }
    if rng.random_bool(0.4) {
        add(&[UserAction::CreateJob, UserAction::DeleteJob], rng);
    }
    if rng.random_bool(0.1) {
        add(&[UserAction::CreateAgent], rng);
    }
    if rng.random_bool(0.2) {
        let from = story.mul_f64(rng.random::<f64>());
        events.push((from, Event::Reload(Controllers::ADVISES)));
    }
}

/// Writes are handled late while names are taken and become free again, and pods of workflows are re-created.
fn late_requests(story: Duration, events: &mut Vec<(Duration, Event)>, rng: &mut StdRng) {
    let within = |rng: &mut StdRng| story.mul_f64(rng.random::<f64>());
    if rng.random_bool(0.7) {
        let lasts = Duration::from_secs(rng.random_range(5..40));
        let at = within(rng);
        events.push((at, fault(FaultKind::HandledLate, lasts)));
        let mut at = at;
        for action in [
            UserAction::Overcommit,
            UserAction::TakeName,
            UserAction::DeletePods,
        ] {
            if rng.random_bool(0.6) {
                events.push((at.min(story), Event::User(action, rng.random())));
            }
            at += Duration::from_secs_f64(rng.random_range(0.5..15.0));
        }
    }
    if rng.random_bool(0.3) {
        let mut at = within(rng);
        let ends = [
            UserAction::DeleteWorkflow,
            UserAction::DeleteWorkflowForeground,
            UserAction::KeepWorkflow,
        ];
        let end = *ends.choose(rng).unwrap_or(&UserAction::DeleteWorkflow);
        for action in [
            UserAction::CreateWorkflow,
            UserAction::CreateWorkflowsTrainers,
            end,
        ] {
            events.push((at.min(story), Event::User(action, rng.random())));
            at += Duration::from_secs_f64(rng.random_range(0.5..10.0));
        }
    }
}

/// Pods that are re-created are denied for more than an hour. Returns when it is over.
fn denied(events: &mut Vec<(Duration, Event)>, rng: &mut StdRng) -> Duration {
    let begun = Duration::from_secs_f64(rng.random_range(0.0..30.0));
    let lasts = Duration::from_secs(rng.random_range(3_700..4_500));
    events.push((begun, fault(FaultKind::DeniedPods, lasts)));
    for _ in 0..2 {
        let at = begun.mul_f64(rng.random_range(0.5..1.5));
        let create = Event::User(UserAction::Overcommit, rng.random());
        events.push((at, create));
    }
    begun + lasts + Duration::from_secs(2)
}

/// An admin has Belayer ignore a namespace, and removes the label again unless the run ends first.
fn ignored(story: Duration, events: &mut Vec<(Duration, Event)>, rng: &mut StdRng) {
    let from = story.mul_f64(rng.random::<f64>());
    let until = from + Duration::from_secs_f64(rng.random_range(0.5..40.0));
    events.push((from, Event::Ignore(rng.random())));
    if until < story {
        events.push((until, Event::IgnoreNone));
    }
}

/// A fault of all replicas.
fn fault(kind: FaultKind, lasts: Duration) -> Event {
    Event::Fault {
        kind,
        lasts,
        replica: None,
    }
}

/// Numbered by their times.
fn in_order(mut events: Vec<(Duration, Event)>) -> Vec<Planned> {
    events.sort_by_key(|(at, _)| *at);
    let numbered = events.into_iter().enumerate();
    numbered
        .map(|(number, (at, event))| Planned { number, at, event })
        .collect()
}

/// Pods get their holds and are rejected while what would replace them is down: Belayer, or with `wipes` the node agents. Their
/// user deletes one of them before it is up again.
fn outage(wipes: bool, rng: &mut StdRng, events: &mut Vec<(Duration, Event)>) {
    let bound = BIND * rng.random_range(1..10);
    let mut at = bound - Duration::from_secs(1);
    let (down, up) = if wipes {
        (Event::StopAgents, Event::StartAgents)
    } else {
        (Event::KillAll, Event::Start)
    };
    let create = Event::User(UserAction::CreateTrainers, rng.random());
    let delete = Event::User(UserAction::DeleteRejectedPod, rng.random());
    for (event, after) in [
        (create, 0.9..1.2),
        (down, 1.0..8.0),
        (delete, 15.0..40.0),
        (up, 0.0..1.0),
    ] {
        events.push((at, event));
        at += Duration::from_secs_f64(rng.random_range(after));
    }
}

/// Belayer sees nothing of one kind of objects, and perhaps cannot read owners either, while users create and delete some.
fn stale(rng: &mut StdRng, events: &mut Vec<(Duration, Event)>) {
    let mut at = moment(rng).mul_f64(0.6);
    let mut add = |kind, at, rng: &mut StdRng| {
        let lasts = Duration::from_secs(rng.random_range(15..40));
        events.push((at, fault(kind, lasts)));
    };
    add(FaultKind::StaleKind, at, rng);
    if rng.random_bool(0.4) {
        add(FaultKind::NoLiveReads, at, rng);
    }
    let create = [
        UserAction::CreateWorkflow,
        UserAction::UsePvc,
        UserAction::Overcommit,
    ];
    let delete = [
        UserAction::DeletePvc,
        UserAction::DeletePods,
        UserAction::DeletePod,
        UserAction::DeleteWorkflow,
        UserAction::ForceDeletePod,
    ];
    for _ in 0..4 {
        for (actions, after) in [(&create[..], 0.1..4.0), (&delete[..], 0.1..2.0)] {
            at += Duration::from_secs_f64(rng.random_range(after));
            if let Some(action) = actions.choose(rng) {
                events.push((at, Event::User(*action, rng.random())));
            }
        }
    }
}

/// At most `most` of these, in random order.
fn some_of<T: Copy>(all: &[T], most: usize, rng: &mut StdRng) -> Vec<T> {
    let mut all = all.to_vec();
    all.shuffle(rng);
    all.truncate(rng.random_range(0..=most));
    all
}

fn moment(rng: &mut StdRng) -> Duration {
    STORY.mul_f64(rng.random::<f64>())
}
