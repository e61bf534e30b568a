//! PVCs of one name, the pods that use them, and replicas of pvc-protection that all take themselves for the leader.

mod decisions;

use stateright::{Model, Property};

use crate::kit::{can_go_on, never};

/// The most pods and replicas that a model has.
const MOST: usize = 2;

/// A planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// A live read that began before the deletion was seen counts.
    EarlyRead,
    /// The store alone proves that no pod uses the PVC.
    StoreIsProof,
    /// The version that the store had when it was read is not compared with that of the live read.
    OldStore,
    /// A patch has neither UID nor version.
    BarePatch,
    /// A live read is never repeated.
    NoRecheck,
}

/// The model, with its bounds.
#[derive(Debug, Clone)]
pub(crate) struct Pvcs {
    /// Names of pods.
    pub(crate) pods: usize,
    /// Replicas of Belayer.
    pub(crate) replicas: usize,
    /// PVCs of the same name, one after the other.
    pub(crate) pvcs: u8,
    /// How many pods are created.
    pub(crate) created: u8,
    /// How many replicas crash.
    pub(crate) crashes: u8,
    /// The planted fault.
    pub(crate) fault: Option<Fault>,
}

/// A PVC, as the API server or a store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Pvc {
    uid: u8,
    deleting: bool,
    held: bool,
}

/// A pod that refers to the PVC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Pod {
    bound: bool,
    deleting: bool,
}

/// The pods at a version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct AllPods {
    pods: [Option<Pod>; MOST],
    version: u8,
}

/// The last live read of the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Answer {
    read: Read,
    /// Whether it began after the PVC's deletion was seen.
    late: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Read {
    Listed(AllPods),
    StoreReached(u8),
}

/// A patch on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Patch {
    of: Pvc,
    releases: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Replica {
    pvc: Option<Pvc>,
    /// `None` until the store was listed.
    pods: Option<AllPods>,
    answer: Option<Answer>,
    /// A live read: whether it began after the deletion was seen.
    reading: Option<bool>,
    patch: Option<Patch>,
}

/// A state of the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pvc: Option<Pvc>,
    born: u8,
    pods: AllPods,
    created: u8,
    crashed: u8,
    replicas: [Replica; MOST],
    broken: Option<Broken>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Broken {
    InUse,
    Identity,
    LateHold,
}

/// A step. Numbers are pods or replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// A user creates a pod that refers to the PVC.
    CreatePod(usize),
    /// The scheduler binds it: never while the PVC is being deleted.
    Bind(usize),
    /// A user deletes it.
    DeletePod(usize),
    /// Its kubelet has stopped it.
    Stopped(usize),
    /// A user deletes the PVC.
    DeletePvc,
    /// A user creates a PVC of the same name.
    Replace,
    /// A replica's watch delivers the PVC.
    SeePvc(usize),
    /// A replica's watch delivers all pods.
    SeePods(usize),
    /// A replica begins a live read of the pods.
    BeginRead(usize),
    /// The server lists the pods.
    List(usize),
    /// The replica's store has reached the server's version.
    Reach(usize),
    /// A replica decides, and sends a patch.
    Decide(usize),
    /// The patch reaches the server.
    Patch(usize),
    /// A replica crashes. Its patch may still arrive.
    Crash(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Demand {
    Nothing,
    AddHold,
    Release,
    Read,
}

impl Model for Pvcs {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            pvc: Some(pvc(1)),
            born: 1,
            pods: AllPods::default(),
            created: 0,
            crashed: 0,
            replicas: [Replica::default(); MOST],
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.of_others(state, actions);
        self.of_belayer(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.step(&mut next, action);
        if next.pvc.is_some_and(|pvc| pvc.deleting && !pvc.held) {
            next.pvc = None;
        }
        next.replicas[..self.replicas].sort_unstable();
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            never!("IN-USE", Broken::InUse),
            never!("IDENTITY", Broken::Identity),
            never!("NO-LATE-HOLD", Broken::LateHold),
            Property::always("LIVENESS", |model: &Self, state: &State| {
                let is_stuck = state.pvc.is_some_and(|pvc| pvc.deleting)
                    && !state.pods.pods.iter().flatten().any(|pod| pod.bound);
                !is_stuck || model.has_work(state)
            }),
        ]
    }
}

fn pvc(uid: u8) -> Pvc {
    Pvc {
        uid,
        deleting: false,
        held: false,
    }
}

impl AllPods {
    fn set(&mut self, number: usize, pod: Option<Pod>) {
        self.pods[number] = pod;
        self.version += 1;
    }
}

impl Pvcs {
    fn of_others(&self, state: &State, actions: &mut Vec<Action>) {
        for number in 0..self.pods {
            match state.pods.pods[number] {
                None if state.created < self.created => actions.push(Action::CreatePod(number)),
                None => {}
                Some(pod) => {
                    let may_bind = state.pvc.is_some_and(|pvc| !pvc.deleting);
                    if !pod.bound && may_bind {
                        actions.push(Action::Bind(number));
                    }
                    if !pod.deleting {
                        actions.push(Action::DeletePod(number));
                    } else {
                        actions.push(Action::Stopped(number));
                    }
                }
            }
        }
        match state.pvc {
            Some(pvc) if !pvc.deleting => actions.push(Action::DeletePvc),
            None if state.born < self.pvcs => actions.push(Action::Replace),
            Some(_) | None => {}
        }
    }

    fn of_belayer(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, replica) in state.replicas[..self.replicas].iter().enumerate() {
            if replica.pvc != state.pvc {
                actions.push(Action::SeePvc(number));
            }
            if replica.pods != Some(state.pods) {
                actions.push(Action::SeePods(number));
            }
            match self.demand(replica) {
                Demand::AddHold | Demand::Release if replica.patch.is_none() => {
                    actions.push(Action::Decide(number));
                }
                Demand::Read if replica.reading.is_none() && is_news(state, replica) => {
                    actions.push(Action::BeginRead(number));
                }
                _ => {}
            }
            if replica.reading.is_some() {
                actions.push(Action::List(number));
                if replica.pods == Some(state.pods) {
                    actions.push(Action::Reach(number));
                }
            }
            if replica.patch.is_some() {
                actions.push(Action::Patch(number));
            }
            if state.crashed < self.crashes {
                actions.push(Action::Crash(number));
            }
        }
    }

    fn has_work(&self, state: &State) -> bool {
        let mut actions = Vec::new();
        self.of_belayer(state, &mut actions);
        actions.retain(|action| !matches!(action, Action::Crash(_)));
        can_go_on(self, state, actions)
    }

    fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::CreatePod(number) => {
                state.created += 1;
                let pod = Pod {
                    bound: false,
                    deleting: false,
                };
                state.pods.set(number, Some(pod));
            }
            Action::Bind(number) => {
                let pod = state.pods.pods[number].map(|pod| Pod { bound: true, ..pod });
                state.pods.set(number, pod);
            }
            Action::DeletePod(number) => {
                let pod = state.pods.pods[number].filter(|pod| pod.bound);
                let deleted = pod.map(|pod| Pod {
                    deleting: true,
                    ..pod
                });
                state.pods.set(number, deleted);
            }
            Action::Stopped(number) => state.pods.set(number, None),
            Action::DeletePvc => {
                if let Some(pvc) = &mut state.pvc {
                    pvc.deleting = true;
                }
            }
            Action::Replace => {
                state.born += 1;
                state.pvc = Some(pvc(state.born));
            }
            Action::SeePvc(number) => {
                let pvc = state.pvc;
                state.replicas[number].see(pvc);
            }
            Action::SeePods(number) => state.replicas[number].pods = Some(state.pods),
            Action::BeginRead(number) => {
                let replica = &mut state.replicas[number];
                replica.reading = Some(replica.pvc.is_some_and(|pvc| pvc.deleting));
            }
            Action::List(number) => {
                let read = Read::Listed(state.pods);
                state.replicas[number].answered(read);
            }
            Action::Reach(number) => {
                let read = Read::StoreReached(state.pods.version);
                state.replicas[number].answered(read);
            }
            Action::Decide(number) => {
                let replica = &mut state.replicas[number];
                if let Some(of) = replica.pvc {
                    let releases = self.demand(replica) == Demand::Release;
                    replica.patch = Some(Patch { of, releases });
                }
            }
            Action::Patch(number) => self.patch(state, number),
            Action::Crash(number) => {
                state.crashed += 1;
                let replica = &mut state.replicas[number];
                *replica = Replica {
                    patch: replica.patch,
                    ..Replica::default()
                };
            }
        }
    }

    fn patch(&self, state: &mut State, number: usize) {
        let replica = &mut state.replicas[number];
        let Some(Patch { of, releases }) = replica.patch.take() else {
            return;
        };
        let is_bare = self.fault == Some(Fault::BarePatch);
        let Some(live) = state.pvc.filter(|live| is_bare || *live == of) else {
            // A conflict: the PVC is read again.
            replica.see(state.pvc);
            return;
        };
        let is_used = state.pods.pods.iter().flatten().any(|pod| pod.bound);
        if live.uid != of.uid {
            state.broken.get_or_insert(Broken::Identity);
        }
        if releases && is_used {
            state.broken.get_or_insert(Broken::InUse);
        }
        if !releases && live.deleting {
            state.broken.get_or_insert(Broken::LateHold);
        }
        state.pvc = Some(Pvc {
            held: !releases,
            ..live
        });
    }
}

impl Replica {
    fn see(&mut self, pvc: Option<Pvc>) {
        let is_seen = |pvc: Option<Pvc>| pvc.filter(|pvc| pvc.deleting).map(|pvc| pvc.uid);
        if is_seen(self.pvc) != is_seen(pvc) {
            if let Some(answer) = &mut self.answer {
                answer.late = false;
            }
            if let Some(late) = &mut self.reading {
                *late = false;
            }
        }
        self.pvc = pvc;
    }

    fn answered(&mut self, read: Read) {
        if let Some(late) = self.reading.take() {
            self.answer = Some(Answer { read, late });
        }
    }
}

/// Whether a live read would show something else than the last one.
fn is_news(state: &State, replica: &Replica) -> bool {
    let late = replica.pvc.is_some_and(|pvc| pvc.deleting);
    let is_old = |answer: Answer| {
        let at = match answer.read {
            Read::Listed(all) => all.version,
            Read::StoreReached(at) => at,
        };
        answer.late == late && at == state.pods.version
    };
    !replica.answer.is_some_and(is_old)
}
