//! Pods, their workflow, its consumer, a user, and replicas of pod-finalizer that all take themselves for the leader.
//!
//! Two workflows of one name follow each other, and so do pods of one name. Watches deliver late and skip versions, live
//! reads and patches take their time, and replicas crash.

mod decisions;
mod state;

use stateright::{Model, Property};

use crate::kit::{can_go_on, never};

pub(crate) use decisions::would_hold;

/// The most names of pods and replicas that a model has.
const MOST: usize = 2;

/// A planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// The workflow of the name is taken for the pod's, whatever its UID.
    OwnerByName,
    /// A live read that began before the pod was seen counts.
    EarlyRead,
    /// A patch has neither UID nor version.
    BarePatch,
    /// A store that has not been read yet counts as empty, and an owner that it does not show as gone.
    UnknownIsAbsent,
    /// The end of a pod counts as the reading of its result.
    EndedIsConsumed,
    /// The deletion of the owner is not looked at.
    OwnerDeletionIgnored,
}

/// The model, with its bounds.
#[derive(Debug, Clone)]
pub(crate) struct Pods {
    /// Names of pods.
    pub(crate) names: usize,
    /// Replicas of Belayer.
    pub(crate) replicas: usize,
    /// Workflows of the same name, one after the other.
    pub(crate) workflows: u8,
    /// How often the workflow is retried.
    pub(crate) retries: u8,
    /// How many replicas crash.
    pub(crate) crashes: u8,
    /// Whether an admission policy holds pods from the start.
    pub(crate) policy: bool,
    /// The planted fault.
    pub(crate) fault: Option<Fault>,
}

/// The workflow, as the API server or a store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Workflow {
    uid: u8,
    version: u8,
    deleting: bool,
    finished: bool,
}

/// A pod, as the API server or a store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Pod {
    uid: u8,
    owner: u8,
    ended: bool,
    deleting: bool,
    held: bool,
    /// The consumer's label.
    taken: bool,
}

/// What no API object shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Truth {
    /// It ended by itself, and was held then.
    has_result: bool,
    /// The consumer has read the result.
    is_read: bool,
}

/// The last live read of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Answer {
    /// `None`: it is gone.
    state: Option<Workflow>,
    /// For each name: whether the read began after the pod was first seen.
    late: [bool; MOST],
}

/// A patch on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Patch {
    name: usize,
    /// The version that it names.
    of: Pod,
    releases: bool,
}

/// A replica: its stores, its live read and its patch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Replica {
    pods: [Option<Pod>; MOST],
    /// `None` until the store was listed.
    workflow: Option<Option<Workflow>>,
    answers: [Option<Answer>; 2],
    /// The UID of the workflow that is being read, and for each name whether the read began after the pod was seen.
    reading: Option<(u8, [bool; MOST])>,
    patch: Option<Patch>,
}

/// A state of the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    workflow: Option<Workflow>,
    born: u8,
    retried: u8,
    crashed: u8,
    last_uid: u8,
    pods: [Option<Pod>; MOST],
    truth: [Truth; MOST],
    /// Pods that the workflow has yet to create.
    due: [bool; MOST],
    replicas: [Replica; MOST],
    /// The first violation of a patch or a removal.
    broken: Option<Broken>,
}

/// What a step has violated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Broken {
    /// RESULTS.
    Result,
    /// IDENTITY.
    Identity,
    /// NO-LATE-HOLD.
    LateHold,
}

/// A step. Numbers are names of pods or replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// The workflow controller creates a pod.
    Create(usize),
    /// A pod ends, by itself or by its deletion.
    End(usize),
    /// The consumer reads a result and labels the pod.
    Take(usize),
    /// The consumer has read everything and labels the workflow.
    Finish,
    /// A finished workflow is started again, with a new pod of this name.
    Retry(usize),
    /// A user or the consumer deletes a pod.
    Delete(usize),
    /// A user deletes the workflow in the background.
    DeleteWorkflow,
    /// A user deletes the workflow in the foreground.
    DeleteInForeground,
    /// The garbage collector deletes a pod whose workflow is gone.
    Collect(usize),
    /// A user creates a workflow of the same name.
    Replace,
    /// A replica's watch delivers the pod of a name.
    SeePod(usize, usize),
    /// A replica's watch delivers the workflow.
    SeeWorkflow(usize),
    /// A replica begins a live read of the workflow with this UID.
    BeginRead(usize, u8),
    /// The server answers it.
    EndRead(usize),
    /// A replica decides about the pod of a name, and sends a patch.
    Decide(usize, usize),
    /// The patch reaches the server.
    Patch(usize),
    /// A replica crashes. Its patch may still arrive.
    Crash(usize),
}

/// What a decision demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Demand {
    Nothing,
    AddHold,
    Release,
    Read,
}

impl Model for Pods {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut due = [false; MOST];
        due[..self.names].fill(true);
        vec![State {
            workflow: Some(workflow(1)),
            born: 1,
            retried: 0,
            crashed: 0,
            last_uid: 0,
            pods: [None; MOST],
            truth: [Truth::default(); MOST],
            due,
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
        next.remove_what_is_done();
        next.replicas[..self.replicas].sort_unstable();
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            never!("RESULTS", Broken::Result),
            never!("IDENTITY", Broken::Identity),
            never!("NO-LATE-HOLD", Broken::LateHold),
            Property::always("LIVENESS", |model: &Self, state: &State| {
                !state.has_stuck_pod() || model.has_work(state)
            }),
        ]
    }
}

fn workflow(uid: u8) -> Workflow {
    Workflow {
        uid,
        version: 1,
        deleting: false,
        finished: false,
    }
}

impl Pods {
    fn of_others(&self, state: &State, actions: &mut Vec<Action>) {
        for name in 0..self.names {
            let owner = state.workflow.filter(|owner| !owner.deleting);
            match &state.pods[name] {
                None => {
                    if owner.is_some_and(|owner| !owner.finished) && state.due[name] {
                        actions.push(Action::Create(name));
                    }
                    if owner.is_some_and(|owner| owner.finished) && state.retried < self.retries {
                        actions.push(Action::Retry(name));
                    }
                }
                Some(pod) => {
                    if !pod.ended {
                        actions.push(Action::End(name));
                    }
                    if !pod.deleting {
                        actions.push(Action::Delete(name));
                        if state.owner_of(pod).is_none() {
                            actions.push(Action::Collect(name));
                        }
                    }
                    if pod.ended && !pod.taken && state.owner_of(pod).is_some() {
                        actions.push(Action::Take(name));
                    }
                }
            }
        }
        match state.workflow {
            Some(owner) => {
                let is_done = |name: usize| {
                    !state.due[name]
                        && state.pods[name].is_none_or(|pod| pod.owner != owner.uid || pod.ended)
                };
                if !owner.deleting && !owner.finished && (0..self.names).all(is_done) {
                    actions.push(Action::Finish);
                }
                if !owner.deleting {
                    actions.extend([Action::DeleteWorkflow, Action::DeleteInForeground]);
                }
            }
            None if state.born < self.workflows => actions.push(Action::Replace),
            None => {}
        }
    }

    fn of_belayer(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, replica) in state.replicas[..self.replicas].iter().enumerate() {
            for name in 0..self.names {
                if replica.pods[name] != state.pods[name] {
                    actions.push(Action::SeePod(number, name));
                }
                let demand = self.demand(replica, name);
                match (demand, replica.pods[name]) {
                    (Demand::AddHold | Demand::Release, _) if replica.patch.is_none() => {
                        actions.push(Action::Decide(number, name));
                    }
                    (Demand::Read, Some(pod))
                        if replica.reading.is_none() && is_news(state, replica, &pod) =>
                    {
                        actions.push(Action::BeginRead(number, pod.owner));
                    }
                    _ => {}
                }
            }
            if replica.workflow != Some(state.workflow) {
                actions.push(Action::SeeWorkflow(number));
            }
            if replica.reading.is_some() {
                actions.push(Action::EndRead(number));
            }
            if replica.patch.is_some() {
                actions.push(Action::Patch(number));
            }
            if state.crashed < self.crashes {
                actions.push(Action::Crash(number));
            }
        }
    }

    /// Whether Belayer still has something to do.
    fn has_work(&self, state: &State) -> bool {
        let mut actions = Vec::new();
        self.of_belayer(state, &mut actions);
        actions.retain(|action| !matches!(action, Action::Crash(_)));
        can_go_on(self, state, actions)
    }

    fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::Create(name) => {
                if let Some(owner) = state.workflow {
                    state.last_uid += 1;
                    state.due[name] = false;
                    state.pods[name] = Some(Pod {
                        uid: state.last_uid,
                        owner: owner.uid,
                        ended: false,
                        deleting: false,
                        held: self.policy,
                        taken: false,
                    });
                }
            }
            Action::End(name) => {
                if let Some(pod) = &mut state.pods[name] {
                    pod.ended = true;
                    state.truth[name].has_result = pod.held && !pod.deleting;
                }
            }
            Action::Take(name) => {
                if let Some(pod) = &mut state.pods[name] {
                    pod.taken = true;
                    state.truth[name].is_read = true;
                }
            }
            Action::Finish => {
                if let Some(owner) = &mut state.workflow {
                    owner.finished = true;
                    owner.version += 1;
                    state
                        .truth
                        .iter_mut()
                        .for_each(|truth| truth.is_read = true);
                }
            }
            Action::Retry(name) => {
                if let Some(owner) = &mut state.workflow {
                    owner.finished = false;
                    owner.version += 1;
                    state.retried += 1;
                    state.due[name] = true;
                }
            }
            Action::Delete(name) | Action::Collect(name) => {
                if let Some(pod) = &mut state.pods[name] {
                    pod.deleting = true;
                }
            }
            Action::DeleteWorkflow => state.workflow = None,
            Action::DeleteInForeground => {
                if let Some(owner) = &mut state.workflow {
                    owner.deleting = true;
                    owner.version += 1;
                    for pod in state.pods.iter_mut().flatten() {
                        pod.deleting |= pod.owner == owner.uid;
                    }
                }
            }
            Action::Replace => {
                state.born += 1;
                state.workflow = Some(workflow(state.born));
                state.due[..self.names].fill(true);
            }
            Action::SeePod(number, name) => {
                let pod = state.pods[name];
                state.replicas[number].see(name, pod);
            }
            Action::SeeWorkflow(number) => {
                state.replicas[number].workflow = Some(state.workflow);
            }
            Action::BeginRead(number, uid) => {
                let replica = &mut state.replicas[number];
                replica.reading = Some((uid, replica.pods.map(|pod| pod.is_some())));
            }
            Action::EndRead(number) => {
                let replica = &mut state.replicas[number];
                if let Some((uid, late)) = replica.reading.take() {
                    let found = state.workflow.filter(|owner| owner.uid == uid);
                    replica.answers[usize::from(uid) - 1] = Some(Answer { state: found, late });
                }
            }
            Action::Decide(number, name) => {
                let replica = &mut state.replicas[number];
                if let Some(of) = replica.pods[name] {
                    let releases = self.demand(replica, name) == Demand::Release;
                    replica.patch = Some(Patch { name, of, releases });
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
        let Some(Patch { name, of, releases }) = replica.patch.take() else {
            return;
        };
        let live = state.pods[name];
        let is_bare = self.fault == Some(Fault::BarePatch);
        let Some(pod) = live.filter(|pod| is_bare || *pod == of) else {
            // A conflict: the pod is read again.
            replica.see(name, live);
            return;
        };
        if pod.uid != of.uid {
            state.broken.get_or_insert(Broken::Identity);
        }
        if !releases && pod.deleting {
            state.broken.get_or_insert(Broken::LateHold);
        }
        state.pods[name] = Some(Pod {
            held: !releases,
            ..pod
        });
    }
}

impl Replica {
    fn see(&mut self, name: usize, pod: Option<Pod>) {
        let is_same = |other: Pod| pod.is_some_and(|pod| pod.uid == other.uid);
        if !self.pods[name].is_some_and(is_same) {
            // What has been read so far says nothing about a pod that was not known.
            for answer in self.answers.iter_mut().flatten() {
                answer.late[name] = false;
            }
            if let Some((_, late)) = &mut self.reading {
                late[name] = false;
            }
        }
        self.pods[name] = pod;
    }
}

/// Whether a live read would show something else than the last one.
fn is_news(state: &State, replica: &Replica, pod: &Pod) -> bool {
    let would = Answer {
        state: state.workflow.filter(|owner| owner.uid == pod.owner),
        late: replica.pods.map(|pod| pod.is_some()),
    };
    replica.answers[usize::from(pod.owner) - 1] != Some(would)
}
