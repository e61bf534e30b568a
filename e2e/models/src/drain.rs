//! A drain beside running replicas: pods, a PVC and its user, and replicas that follow the gate late.
//!
//! A drain waits until every replica has followed the gate and no request from before is on its way. It has seconds for
//! that instead (`SETTLE`), which this model does not have.

use std::time::Duration;

use belayer_core::logical_time::LogicalTime;
use belayer_core::object::{ObjectKey, Resource, ResourceVersion, Uid};
use belayer_core::slim::ObjectMeta;
use belayer_drain::decide::{Purpose, Usage, Verdict, View, decide};
use belayer_drain::evidence::Order;
use belayer_holds::names::{KUBERNETES_PVC_PROTECTION, POD_STATUS_HOLD, PVC_PROTECTION_HOLD};
use belayer_holds::selection::Selected;
use belayer_pvc_protection::uses::Users;
use jiff::Timestamp;
use stateright::{Model, Property};

use crate::kit::{can_go_on, never};

/// The most replicas and pods that a model has.
const MOST: usize = 2;

/// The object after the pods.
const PVC: usize = MOST;

/// A finalizer of another controller.
const OTHERS: &str = "example.com/keep";

/// A planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The drain does not wait until the replicas have followed the gate.
    NoSettle,
    /// The replicas do not follow the gate.
    GateIgnored,
    /// All finalizers are removed.
    OthersToo,
    /// The pods are listed before the PVC is read.
    EarlyList,
    /// A patch has neither UID nor version.
    BarePatch,
    /// One pass is enough.
    OnePass,
}

/// The model, with its bounds.
#[derive(Debug, Clone)]
pub(crate) struct Draining {
    /// Pods.
    pub(crate) pods: usize,
    /// Replicas of Belayer.
    pub(crate) replicas: usize,
    /// How many pods are created during the run.
    pub(crate) created: u8,
    /// Whether Kubernetes protects the PVC as well.
    pub(crate) protected: bool,
    /// The planted fault.
    pub(crate) fault: Option<Fault>,
}

/// A pod or the PVC, as the API server has it, or a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Object {
    uid: u8,
    held: bool,
    foreign: bool,
    deleting: bool,
}

/// A replica.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Replica {
    /// What it knows of the gate: whether Belayer is draining.
    gate: Option<bool>,
    /// A patch that adds a hold to this version.
    patch: Option<(usize, Object)>,
}

/// How far the drain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Progress {
    Off,
    /// Reads this object next.
    Read(usize),
    /// Has read this object, with the list of users that began then.
    Listed(usize, Object, bool),
    /// Sends a patch of this version.
    Patch(usize, Object),
    /// Between two passes.
    Between,
    Done,
}

/// A state of the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    objects: [Option<Object>; MOST + 1],
    /// Whether a pod that uses the PVC is bound; `None`: there is no such pod.
    user: Option<bool>,
    created: u8,
    last_uid: u8,
    draining: bool,
    replicas: [Replica; MOST],
    progress: Progress,
    /// Whether this pass has changed anything.
    changed: bool,
    /// Whether the pass before changed nothing.
    quiet: bool,
    /// Whether this pass reports the PVC as in use.
    left: bool,
    /// The list of the PVC's users from before it was read, for a planted fault.
    early: bool,
    broken: Option<Broken>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Broken {
    Foreign,
    InUse,
    Identity,
}

/// A step. Numbers are objects or replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// A user creates a pod.
    Create(usize),
    /// A user deletes an object.
    Delete(usize),
    /// A user creates a pod that uses the PVC.
    CreateUser,
    /// The scheduler binds it: never while the PVC is being deleted.
    Bind,
    /// The pod that uses the PVC is gone.
    UserGone,
    /// An admin starts the drain: the gate is closed.
    Drain,
    /// The drain takes its next step.
    Proceed,
    /// A replica reads the gate.
    Follow(usize),
    /// A replica decides to add a hold.
    Decide(usize, usize),
    /// Its patch reaches the server.
    Patch(usize),
}

impl Model for Draining {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut objects = [None; MOST + 1];
        for (uid, object) in objects[..self.pods].iter_mut().enumerate() {
            // Only the first has a finalizer of another controller.
            *object = Some(Object {
                uid: uid as u8,
                held: true,
                foreign: uid == 0,
                deleting: false,
            });
        }
        objects[PVC] = Some(Object {
            uid: PVC as u8,
            held: true,
            foreign: self.protected,
            deleting: false,
        });
        vec![State {
            objects,
            user: None,
            created: 0,
            last_uid: PVC as u8,
            draining: false,
            replicas: [Replica::default(); MOST],
            progress: Progress::Off,
            changed: false,
            quiet: false,
            left: false,
            early: false,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, object) in state.objects.iter().enumerate() {
            match object {
                None if number < self.pods && state.created < self.created => {
                    actions.push(Action::Create(number));
                }
                None => {}
                Some(object) if !object.deleting => actions.push(Action::Delete(number)),
                Some(_) => {}
            }
        }
        let may_bind = state.objects[PVC].is_some_and(|pvc| !pvc.deleting);
        match state.user {
            None if state.created < self.created => actions.push(Action::CreateUser),
            None => {}
            Some(bound) => {
                if !bound && may_bind {
                    actions.push(Action::Bind);
                }
                actions.push(Action::UserGone);
            }
        }
        if state.progress == Progress::Off {
            actions.push(Action::Drain);
        }
        self.of_belayer(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.step(&mut next, action);
        for object in &mut next.objects {
            if object.is_some_and(|one| one.deleting && !one.held && !one.foreign) {
                *object = None;
            }
        }
        next.replicas[..self.replicas].sort_unstable();
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("DRAINED", |_, state: &State| {
                let [pods @ .., pvc] = &state.objects;
                let is_held = |object: &Object| object.held;
                state.progress != Progress::Done
                    || !pods.iter().flatten().any(is_held)
                        && (state.left || !pvc.as_ref().is_some_and(is_held))
            }),
            never!("FOREIGN", Broken::Foreign),
            never!("IN-USE", Broken::InUse),
            never!("IDENTITY", Broken::Identity),
            Property::always("LIVENESS", |model: &Self, state: &State| {
                let is_over = matches!(state.progress, Progress::Off | Progress::Done);
                is_over || model.has_work(state)
            }),
        ]
    }
}

impl Draining {
    fn of_belayer(&self, state: &State, actions: &mut Vec<Action>) {
        let waits = state.progress == Progress::Between && state.quiet && !self.is_settled(state);
        let is_over = matches!(state.progress, Progress::Off | Progress::Done);
        if !waits && !is_over {
            actions.push(Action::Proceed);
        }
        for (number, replica) in state.replicas[..self.replicas].iter().enumerate() {
            if replica.gate != Some(state.draining) {
                actions.push(Action::Follow(number));
            }
            let may_hold = replica.gate == Some(false) || self.fault == Some(Fault::GateIgnored);
            match replica.patch {
                Some(_) => actions.push(Action::Patch(number)),
                None if may_hold => {
                    let pods = (0..self.pods).filter(|pod| {
                        let object = state.objects[*pod];
                        object.is_some_and(|pod| crate::pods::would_hold(pod.held, pod.deleting))
                    });
                    actions.extend(pods.map(|pod| Action::Decide(number, pod)));
                }
                None => {}
            }
        }
    }

    fn is_settled(&self, state: &State) -> bool {
        let followed = |replica: &Replica| replica.gate == Some(true) && replica.patch.is_none();
        match self.fault {
            Some(Fault::NoSettle | Fault::GateIgnored) => true,
            _ => state.replicas[..self.replicas].iter().all(followed),
        }
    }

    fn has_work(&self, state: &State) -> bool {
        let mut actions = Vec::new();
        self.of_belayer(state, &mut actions);
        can_go_on(self, state, actions)
    }

    fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::Create(number) => {
                state.created += 1;
                state.last_uid += 1;
                state.objects[number] = Some(Object {
                    uid: state.last_uid,
                    held: false,
                    foreign: false,
                    deleting: false,
                });
            }
            Action::Delete(number) => {
                if let Some(object) = &mut state.objects[number] {
                    object.deleting = true;
                    // The other controllers do their part.
                    object.foreign &= number == PVC;
                }
            }
            Action::CreateUser => {
                state.created += 1;
                state.user = Some(false);
            }
            Action::Bind => state.user = Some(true),
            Action::UserGone => state.user = None,
            Action::Drain => {
                state.draining = true;
                state.progress = Progress::Read(0);
            }
            Action::Proceed => self.proceed(state),
            Action::Follow(number) => {
                let draining = state.draining;
                state.replicas[number].gate = Some(draining);
            }
            Action::Decide(number, pod) => {
                let object = state.objects[pod];
                let replica = &mut state.replicas[number];
                replica.patch = object.map(|object| (pod, object));
                // It follows the gate before it adds another one.
                replica.gate = Some(state.draining);
            }
            Action::Patch(number) => {
                if let Some((pod, of)) = state.replicas[number].patch.take() {
                    self.patch(state, pod, of, true);
                }
            }
        }
    }

    /// The next step of the drain.
    fn proceed(&self, state: &mut State) {
        state.progress = match state.progress {
            Progress::Read(number) if number > PVC => {
                let quiet = !state.changed;
                let is_last = quiet && state.quiet || self.fault == Some(Fault::OnePass);
                (state.quiet, state.changed) = (quiet, false);
                if is_last {
                    Progress::Done
                } else {
                    Progress::Between
                }
            }
            Progress::Read(number) => match state.objects[number] {
                None => Progress::Read(number + 1),
                Some(object) => {
                    let verdict = self.decide(number, object, None);
                    if verdict.list_pods {
                        let bound = state.user == Some(true);
                        Progress::Listed(number, object, bound)
                    } else if verdict.release.is_empty() {
                        Progress::Read(number + 1)
                    } else {
                        Progress::Patch(number, object)
                    }
                }
            },
            Progress::Listed(number, object, bound) => {
                let bound = match self.fault {
                    Some(Fault::EarlyList) => state.early,
                    _ => bound,
                };
                let verdict = self.decide(number, object, Some(bound));
                state.left |= !verdict.keep.is_empty();
                if verdict.release.is_empty() {
                    Progress::Read(number + 1)
                } else {
                    Progress::Patch(number, object)
                }
            }
            Progress::Patch(number, of) => {
                state.changed = true;
                if self.patch(state, number, of, false) {
                    Progress::Read(number + 1)
                } else {
                    Progress::Read(number)
                }
            }
            Progress::Between => {
                state.early = state.user == Some(true);
                state.left = false;
                Progress::Read(0)
            }
            over @ (Progress::Off | Progress::Done) => over,
        };
    }

    /// Adds or removes the hold. Returns whether the server accepted the patch.
    fn patch(&self, state: &mut State, number: usize, of: Object, holds: bool) -> bool {
        let is_bare = self.fault == Some(Fault::BarePatch);
        let Some(live) = state.objects[number].filter(|live| is_bare || *live == of) else {
            return false;
        };
        if live.uid != of.uid {
            state.broken.get_or_insert(Broken::Identity);
        }
        let foreign = live.foreign && (holds || self.fault != Some(Fault::OthersToo));
        if foreign != live.foreign {
            state.broken.get_or_insert(Broken::Foreign);
        }
        let is_unprotected = number == PVC && !foreign && live.deleting;
        if !holds && is_unprotected && state.user == Some(true) {
            state.broken.get_or_insert(Broken::InUse);
        }
        state.objects[number] = Some(Object {
            held: holds,
            foreign,
            ..live
        });
        true
    }

    /// The drain's own decision about an object. `bound`: whether the PVC has a user, by a list that began after the PVC
    /// was read.
    fn decide(&self, number: usize, object: Object, bound: Option<bool>) -> Verdict {
        let is_pvc = number == PVC;
        let (kind, hold, foreign) = if is_pvc {
            let kind = Resource::new("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
            (kind, PVC_PROTECTION_HOLD, KUBERNETES_PVC_PROTECTION)
        } else {
            (Resource::pods(), POD_STATUS_HOLD, OTHERS)
        };
        let held = object.held.then_some(hold);
        let foreign = object.foreign.then_some(foreign);
        let meta = ObjectMeta {
            finalizers: held.into_iter().chain(foreign).map(Into::into).collect(),
            deletion_timestamp: object.deleting.then(now),
            ..ObjectMeta::new(
                ObjectKey::new("shop", format!("object-{number}")),
                Uid::new(format!("uid-{}", object.uid)),
                ResourceVersion::new(1),
            )
        };
        let seen = LogicalTime::now();
        let usage = bound.map(|bound| Usage::Listed {
            users: bound.then_some("web").into_iter().collect::<Users>(),
            begun: LogicalTime::now(),
        });
        let view = View {
            kind: &kind,
            meta: &meta,
            seen,
            selected: &|_| Selected::No,
            usage: usage.as_ref(),
            recorded: None,
        };
        decide(&view, &Purpose::Everything(Order::of_the_admin()))
    }
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_secs(1_000_000)
}
