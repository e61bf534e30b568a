//! What happens in a small run.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::{BIND, fault, outage, some_of};
use crate::event::user::{LATER, UserAction};
use crate::event::{Event, tenant};
use crate::fault::{FaultKind, WATCHED};

/// What happens in a small run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Story {
    Mixture,
    Outage,
    StaleKind,
    SlowAndKilled,
    LostNode,
    RestartedKubelet,
    Retry { failover: bool },
    Failover,
    Frozen,
}

/// The more often one is listed, the more often it is chosen.
const STORIES: [Story; 15] = [
    Story::Mixture,
    Story::Mixture,
    Story::Mixture,
    Story::Outage,
    Story::StaleKind,
    Story::StaleKind,
    Story::StaleKind,
    Story::SlowAndKilled,
    Story::LostNode,
    Story::RestartedKubelet,
    Story::Retry { failover: false },
    Story::Retry { failover: true },
    Story::Failover,
    Story::Failover,
    Story::Frozen,
];

impl Story {
    pub(super) fn choose(rng: &mut StdRng) -> Self {
        *STORIES.choose(rng).unwrap_or(&Self::Mixture)
    }

    /// Whether it needs two replicas.
    pub(super) fn has_failover(self) -> bool {
        matches!(
            self,
            Self::Failover | Self::Frozen | Self::Retry { failover: true }
        )
    }

    pub(super) fn events(self, wipes: bool, rng: &mut StdRng) -> Vec<(Duration, Event)> {
        let mut events = Vec::new();
        match self {
            Self::Mixture => mixture(rng, &mut events),
            Self::Outage => outage(wipes, rng, &mut events),
            Self::StaleKind => stale_kind(rng, &mut events),
            Self::SlowAndKilled => slow_and_killed(rng, &mut events),
            Self::LostNode => lost_node(rng, &mut events),
            Self::RestartedKubelet => restarted_kubelet(rng, &mut events),
            Self::Retry { failover } => retry(failover, rng, &mut events),
            Self::Failover => failover(rng, &mut events),
            Self::Frozen => frozen(rng, &mut events),
        }
        events
    }
}

/// A fault of this replica, for so many seconds.
fn fault_of(replica: usize, kind: FaultKind, seconds: u64) -> Event {
    Event::Fault {
        kind,
        lasts: Duration::from_secs(seconds),
        replica: Some(replica),
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

/// Belayer sees nothing of one kind of objects, and users create and delete some of that kind.
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

/// The watch of one kind delivers nothing to replica 2. Then replica 1, the leader, is stopped, killed or cut off, and replica 2 leads
/// with an old cache.
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
        // Replica 1 sees the new namespace of that name, replica 2 the old one, which is being deleted: its pods need a tenth of a
        // second to stop.
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
    events.push((begun, fault_of(2, FaultKind::Stale(kind), 70)));
    if rng.random_bool(0.3) {
        events.push((begun, fault_of(2, FaultKind::NoLiveReads, 50)));
    }
    let end = match rng.random_range(0..4) {
        0 | 1 => Event::Stop(0),
        2 => Event::Kill(0),
        _ => fault_of(1, FaultKind::CutOff, 40),
    };
    events.push((ended, end));
}

/// The leader election of replica 1, the leader, gets no CPU time until its Lease has expired. Meanwhile users create and delete pods, and
/// writes arrive late.
fn frozen(rng: &mut StdRng, events: &mut Vec<(Duration, Event)>) {
    let begun = Duration::from_secs_f64(rng.random_range(1.0..4.0));
    events.push((begun, Event::Freeze(0)));
    events.push((begun, fault_of(1, FaultKind::Late, 25)));
    let (create, delete) = actions_on("pods");
    let mut at = begun;
    for actions in [create, delete, create, delete] {
        at += Duration::from_secs_f64(rng.random_range(0.0..5.0));
        if let Some(action) = actions.choose(rng) {
            events.push((at, Event::User(*action, rng.random())));
        }
    }
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
            &[
                UserAction::CreateNamespace,
                UserAction::CreateWorkflow,
                UserAction::Overcommit,
            ],
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
                UserAction::CreateWorkflow,
            ],
            &[
                UserAction::DeletePvc,
                UserAction::ForceDeletePod,
                UserAction::DeletePods,
                UserAction::DeleteWorkflow,
            ],
        ),
    }
}

/// A user retries failed workflows. In half of the stories without `failover` Belayer has not seen their end: until after the retry it is
/// down, or it neither sees workflows nor reads them. With `failover` the leader sees the retries and is stopped, and the replica that leads then has not
/// seen them.
fn retry(failover: bool, rng: &mut StdRng, events: &mut Vec<(Duration, Event)>) {
    let is_blind = !failover && rng.random_bool(0.5);
    let mut at = Duration::from_secs(if is_blind {
        // A pod is known to be of an earlier run only if the retry came more than a minute after its creation.
        rng.random_range(62..80)
    } else {
        rng.random_range(20..70)
    });
    if is_blind {
        let begun = Duration::from_secs_f64(rng.random_range(0.5..4.0));
        let lasts = at - begun + Duration::from_secs_f64(rng.random_range(0.2..5.0));
        if rng.random_bool(0.5) {
            events.push((begun, Event::KillAll));
            events.push((begun + lasts, Event::Start));
        } else {
            for kind in [FaultKind::Stale("workflows"), FaultKind::NoLiveReads] {
                events.push((begun, fault(kind, lasts)));
            }
        }
    }
    if failover {
        events.push((at, fault_of(2, FaultKind::Stale("workflows"), 60)));
        at += Duration::from_secs(1);
        let ended = at + Duration::from_secs_f64(rng.random_range(8.0..25.0));
        events.push((ended, Event::Stop(0)));
    }
    for _ in 0..rng.random_range(1..=3) {
        if !failover && rng.random_bool(0.4) {
            let lasts = Duration::from_secs(rng.random_range(5..30));
            events.push((at, fault(FaultKind::Stale("workflows"), lasts)));
            at += Duration::from_secs_f64(rng.random_range(0.0..1.0));
        }
        events.push((at, Event::User(UserAction::RetryWorkflow, rng.random())));
        for _ in 0..rng.random_range(0..=3) {
            at += Duration::from_secs_f64(rng.random_range(0.5..10.0));
            let actions = [UserAction::DeletePod, UserAction::DeletePods];
            let delete = *actions.choose(rng).unwrap_or(&UserAction::DeletePods);
            events.push((at, Event::User(delete, rng.random())));
        }
        at += Duration::from_secs(rng.random_range(10..30));
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
    // The small node, which new pods are bound to.
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
