//! What a seed decides.

use std::collections::BTreeSet;
use std::time::Duration;

use belayer_demo::setup::Tuning;
use belayer_workload::{PodGc, Profile};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{RngExt as _, SeedableRng as _};

use crate::event::user::{LATER, UserAction};
use crate::event::{Event, tenant};
use crate::fault::{FaultKind, WATCHED};
use crate::objects::NAMESPACES;

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

/// From this seed on, runs are small: a few objects, one story of at most a minute and a half, often a single replica. Most faults
/// need few objects, and a large run takes as long as three small ones. Earlier seeds keep their plans.
pub(crate) const SMALL: u64 = 1_000_000;

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
        }
    }

    /// A small run: one story, or a mixture.
    fn small(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x5a11_0000_0000_0000);
        let rng = &mut rng;
        let wipes = rng.random_bool(0.4);
        let mut events = Vec::new();
        let story = rng.random_range(0..14);
        match story {
            0 => outage(wipes, rng, &mut events),
            9 => restarted_kubelet(rng, &mut events),
            RETRY | RETRY_AND_FAILOVER => retry(story == RETRY_AND_FAILOVER, rng, &mut events),
            FAILOVER.. => failover(rng, &mut events),
            1..=3 => stale_kind(rng, &mut events),
            4 => slow_and_killed(rng, &mut events),
            5 => lost_node(rng, &mut events),
            _ => mixture(rng, &mut events),
        }
        let namespaces = &NAMESPACES[..rng.random_range(1..=2)];
        let replicas = if story >= RETRY_AND_FAILOVER {
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
        let size = Size {
            story: last.max().unwrap_or_default() + Duration::from_secs(2),
            recovery: Duration::from_secs(75),
            namespaces,
            replicas,
        };
        let is_retried = [RETRY, RETRY_AND_FAILOVER].contains(&story);
        let workload = Profile {
            namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
            workflows: rng.random_range(usize::from(is_retried)..=2),
            pods_per_workflow: rng.random_range(1..=3),
            life: Duration::from_secs(1)..=Duration::from_secs(if story >= FAILOVER {
                rng.random_range(10..40)
            } else {
                rng.random_range(2..15)
            }),
            failure_ratio: if is_retried { 0.7 } else { 0.2 },
            ..workload(seed, rng)
        };
        Self {
            seed,
            size,
            workload,
            events: in_order(events),
            skew: *[0, 0, 0, 0, -90, 90].choose(rng).unwrap_or(&0),
            rejections: *[0.0, 0.1, 0.6].choose(rng).unwrap_or(&0.0),
            wipes,
            tuning: Tuning {
                record_ttl: Duration::from_secs(*[20, 3_600].choose(rng).unwrap_or(&20)),
                ..tuning(rng)
            },
        }
    }

    /// The plan with these events only.
    pub(crate) fn only(mut self, numbers: &BTreeSet<usize>) -> Self {
        self.events.retain(|event| numbers.contains(&event.number));
        self
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

fn tuning(rng: &mut StdRng) -> Tuning {
    Tuning {
        backoff: *[1, 1, 20].choose(rng).unwrap_or(&1),
        node_lost_delay: Duration::from_secs(*[0, 20].choose(rng).unwrap_or(&0)),
        ..Tuning::default()
    }
}

/// A few faults and events of any kind within half a minute.
fn mixture(rng: &mut StdRng, events: &mut Vec<(Duration, Event)>) {
    let within = |rng: &mut StdRng| Duration::from_secs_f64(rng.random_range(0.0..25.0));
    for kind in some_of(&FaultKind::ALL, 3, rng) {
        let lasts = Duration::from_secs(rng.random_range(1..15));
        events.push((within(rng), fault(kind, lasts)));
    }
    let later = LATER.map(|action| Event::User(action, 0));
    let all: Vec<Event> = Event::ALL.into_iter().chain(later).collect();
    for template in some_of(&all, 7, rng) {
        for _ in 0..rng.random_range(1..=2) {
            events.push((within(rng), template.with(rng.random())));
        }
    }
}

/// The numbers of the stories about retried workflows: most of their pods fail.
const RETRY: u64 = 10;
const RETRY_AND_FAILOVER: u64 = 11;

/// The stories from this number on have two replicas, as that before them.
const FAILOVER: u64 = 12;

/// A user retries failed workflows, perhaps while Belayer does not see them. With `failover` the leader sees them and is stopped, and
/// the replica that leads then has not seen them.
fn retry(failover: bool, rng: &mut StdRng, events: &mut Vec<(Duration, Event)>) {
    let mut at = Duration::from_secs(rng.random_range(20..70));
    if failover {
        let stale = Event::Fault {
            kind: FaultKind::Stale("workflows"),
            lasts: Duration::from_secs(60),
            replica: Some(2),
        };
        events.push((at, stale));
        at += Duration::from_secs(1);
        let ended = at + Duration::from_secs_f64(rng.random_range(8.0..25.0));
        events.push((ended, Event::Stop(0)));
    }
    for _ in 0..rng.random_range(1..=3) {
        let retry = Event::User(UserAction::RetryWorkflow, rng.random());
        let lasts = Duration::from_secs(rng.random_range(5..30));
        if rng.random_bool(0.4) {
            events.push((at, fault(FaultKind::Stale("workflows"), lasts)));
            at += Duration::from_secs_f64(rng.random_range(0.0..1.0));
        }
        events.push((at, retry));
        for _ in 0..rng.random_range(0..=3) {
            at += Duration::from_secs_f64(rng.random_range(0.5..10.0));
            let actions = [UserAction::DeletePod, UserAction::DeletePods];
            let delete = *actions.choose(rng).unwrap_or(&UserAction::DeletePods);
            events.push((at, Event::User(delete, rng.random())));
        }
        at += Duration::from_secs(rng.random_range(10..30));
    }
}

/// The watch of one kind delivers nothing to one replica. Then the other one, the leader, is stopped, killed or cut off, and the
/// first one leads with an old cache.
fn failover(rng: &mut StdRng, events: &mut Vec<(Duration, Event)>) {
    let Some(kind) = WATCHED.choose(rng).copied() else {
        return;
    };
    let (create, delete) = actions_on(kind);
    let mut act = |actions: &[UserAction], at: Duration, rng: &mut StdRng| {
        if let Some(action) = actions.choose(rng) {
            events.push((at, Event::User(*action, rng.random())));
        }
    };
    let begun = Duration::from_secs_f64(rng.random_range(1.0..4.0));
    let mut at = begun;
    if kind == "namespaces" {
        // The first replica sees a new namespace of that name, the second one still that which is being deleted.
        // Its pods need a tenth of a second to stop.
        at -= Duration::from_millis(50);
        act(&[UserAction::DeleteNamespace], at, rng);
        at += Duration::from_secs_f64(rng.random_range(5.0..20.0));
        act(&[UserAction::CreateNamespace], at, rng);
        act(
            &[UserAction::CreateWorkflow],
            at + Duration::from_secs(1),
            rng,
        );
    }
    for _ in 0..rng.random_range(1..=2) {
        at += Duration::from_secs_f64(rng.random_range(0.1..2.0));
        act(create, at, rng);
    }
    let ended = at + Duration::from_secs_f64(rng.random_range(0.1..6.0));
    at = ended;
    for pause in [1.0..8.0, 15.0..25.0] {
        for _ in 0..rng.random_range(0..=2) {
            act(delete, at, rng);
            at += Duration::from_secs_f64(rng.random_range(0.1..2.0));
        }
        at += Duration::from_secs_f64(rng.random_range(pause));
    }
    let of = |replica, kind, seconds| Event::Fault {
        kind,
        lasts: Duration::from_secs(seconds),
        replica: Some(replica),
    };
    events.push((begun, of(2, FaultKind::Stale(kind), 70)));
    if rng.random_bool(0.3) {
        events.push((begun, of(2, FaultKind::NoLiveReads, 50)));
    }
    let end = match rng.random_range(0..4) {
        0 | 1 => Event::Stop(0),
        2 => Event::Kill(0),
        _ => of(1, FaultKind::CutOff, 40),
    };
    events.push((ended, end));
}

/// What users do to create objects of this kind, or others that depend on them, and to delete them.
fn actions_on(kind: &str) -> (&'static [UserAction], &'static [UserAction]) {
    match kind {
        "workflows" => (
            &[UserAction::CreateWorkflow],
            &[
                UserAction::DeletePod,
                UserAction::DeletePods,
                UserAction::DeleteWorkflow,
                UserAction::ReplaceByForce,
            ],
        ),
        "persistentvolumeclaims" => (&[UserAction::UsePvc], &[UserAction::DeletePvc]),
        "podrecreations" => (
            &[UserAction::Overcommit],
            &[
                UserAction::DeleteRejectedPod,
                UserAction::TakeName,
                UserAction::CopyPod,
            ],
        ),
        "namespaces" => (
            &[UserAction::CreateNamespace, UserAction::CreateWorkflow],
            &[
                UserAction::DeleteNamespace,
                UserAction::DeletePod,
                UserAction::DeletePods,
            ],
        ),
        _ => (
            &[
                UserAction::UsePvc,
                UserAction::UsePvc,
                UserAction::Overcommit,
            ],
            &[
                UserAction::DeletePvc,
                UserAction::ForceDeletePod,
                UserAction::DeletePods,
            ],
        ),
    }
}

/// As [`stale`], with users who act on the kind that Belayer does not see.
fn stale_kind(rng: &mut StdRng, events: &mut Vec<(Duration, Event)>) {
    let Some(kind) = WATCHED.choose(rng).copied() else {
        return;
    };
    let (create, delete) = actions_on(kind);
    let mut at = Duration::from_secs_f64(rng.random_range(0.0..8.0));
    let lasts = Duration::from_secs(rng.random_range(12..35));
    let stale = FaultKind::Stale(kind);
    events.push((at, fault(stale, lasts)));
    if rng.random_bool(0.3) {
        let kind = FaultKind::NoLiveReads;
        events.push((at, fault(kind, lasts)));
    }
    for _ in 0..rng.random_range(1..=3) {
        for (actions, most) in [(create, 1), (delete, 3)] {
            for _ in 0..rng.random_range(1..=most) {
                at += Duration::from_secs_f64(rng.random_range(0.1..3.0));
                if let Some(action) = actions.choose(rng) {
                    events.push((at, Event::User(*action, rng.random())));
                }
            }
        }
    }
}

/// Requests of Belayer are slow, lost or forbidden. Meanwhile a tenant removes finalizers of pods, and users delete pods; in
/// half of the stories all replicas are killed, too.
fn slow_and_killed(rng: &mut StdRng, events: &mut Vec<(Duration, Event)>) {
    let lasts = Duration::from_secs(30);
    for kind in [FaultKind::Slow, FaultKind::LostAnswer, FaultKind::Forbidden] {
        if rng.random_bool(0.6) {
            events.push((Duration::ZERO, fault(kind, lasts)));
        }
    }
    let kills = rng.random_bool(0.5);
    let create = Event::User(UserAction::Overcommit, rng.random());
    let mut at = Duration::from_secs(rng.random_range(1..4));
    events.push((at, create));
    for _ in 0..rng.random_range(1..=4) {
        at += Duration::from_secs_f64(rng.random_range(0.0..6.0));
        if kills {
            events.push((at, Event::KillAll));
        }
        for _ in 0..rng.random_range(0..=4) {
            at += Duration::from_secs_f64(rng.random_range(0.0..0.5));
            let choice = rng.random();
            let event = match rng.random_range(0..6) {
                0 => Event::User(UserAction::ForceDeletePod, choice),
                1 | 2 => Event::User(UserAction::DeletePods, choice),
                _ => Event::Meddle(tenant::strip_pod(choice)),
            };
            events.push((at, event));
        }
        if kills {
            at += Duration::from_secs_f64(rng.random_range(0.0..3.0));
            events.push((at, Event::Start));
        }
    }
}

/// Pods run on a node whose kubelet restarts and rejects them, as the node has changed. In half of the stories no replica runs
/// from before they are bound until after they are rejected.
fn restarted_kubelet(rng: &mut StdRng, events: &mut Vec<(Duration, Event)>) {
    let create = Event::User(UserAction::CreateTrainers, rng.random());
    let taint = Event::Taint(2);
    let mut at = BIND - Duration::from_secs(1);
    let story = [
        (create, 0.2..1.0),
        (Event::KillAll, 12.0..30.0),
        (taint, 1.0..6.0),
        (Event::Untaint, 0.0..3.0),
        (Event::Start, 0.0..1.0),
    ];
    let is_seen = rng.random_bool(0.5);
    for (event, after) in story {
        if !(is_seen && matches!(event, Event::KillAll | Event::Start)) {
            events.push((at, event));
        }
        at += Duration::from_secs_f64(rng.random_range(after));
    }
}

/// A node loses its connection for a while, or is destroyed, and the pods of a namespace are deleted.
fn lost_node(rng: &mut StdRng, events: &mut Vec<(Duration, Event)>) {
    let create = Event::User(UserAction::CreateWorkflow, rng.random());
    let lost = if rng.random_bool(0.8) {
        Event::Vanish(rng.random())
    } else {
        Event::Destroy(rng.random())
    };
    let delete = Event::User(UserAction::DeletePods, rng.random());
    let mut at = Duration::from_secs(1);
    for (event, after) in [
        (create, 0.2..8.0),
        (lost, 0.0..10.0),
        (delete, 30.0..70.0),
        (Event::ComeBack, 0.0..1.0),
    ] {
        events.push((at, event));
        at += Duration::from_secs_f64(rng.random_range(after));
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
