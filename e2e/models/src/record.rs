//! The record of a re-creation: two leaders, the kubelet, a user, and the node agent.
//!
//! A step of a leader has several requests: reads, a write, and after a create another read. Between any two of them
//! everything else may happen, and a leader may crash while its write is on the way.
//!
//! Two assumptions: a start is visible at once, and a create arrives before a started pod of the same name could be stopped
//! and removed. Without the second, a create that an old leader has sent runs the pod once more after a user has deleted it:
//! the API has no precondition for a create that names another object.

mod decisions;
mod state;

use stateright::{Model, Property};

use crate::kit::{can_go_on, never};

use state::{Broken, Pod, Rec, RecordStep, Seen, State, Stored};

/// The UID of the first pod.
const FIRST: u8 = 1;

/// The most replicas that a model has.
const MOST: usize = 2;

/// A planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// A pod is deleted by name.
    DeleteByName,
    /// A status is written without comparing versions.
    NoCompare,
    /// The pod is created before the attempt is reserved.
    NoReservation,
    /// The hold of a re-created pod is released before its record names it.
    ReleasedEarly,
    /// A record ends as soon as the store shows no pod: no live read confirms it.
    StoreIsProof,
    /// The number of attempts is not limited.
    NoBudget,
    /// The rejected pod is deleted before its record exists.
    DeletedBeforeRecord,
    /// The agent wipes whatever pod has the name.
    WipeByName,
}

/// The model, with its bounds.
#[derive(Debug, Clone)]
pub(crate) struct Recreation {
    /// Replicas of Belayer.
    pub(crate) replicas: usize,
    /// How many times the pod is re-created at most.
    pub(crate) retries: u8,
    /// How many pods a user deletes.
    pub(crate) deletions: u8,
    /// How many other pods of the name a user creates.
    pub(crate) others: u8,
    /// Whether the node is wiped.
    pub(crate) wipe: bool,
    /// How many replicas crash.
    pub(crate) crashes: u8,
    /// The planted fault.
    pub(crate) fault: Option<Fault>,
}

/// A step. Numbers are replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// The kubelet starts the pod.
    Start,
    /// The kubelet rejects the pod.
    Reject,
    /// A user deletes the pod.
    Delete,
    /// A user creates another pod of the name.
    CreateOther,
    /// The node agent wipes the node of the rejected pod.
    Wipe,
    /// A replica's watch delivers the pod.
    SeePod(usize),
    /// A replica's watch delivers the record.
    SeeRecord(usize),
    /// A replica's watch delivers the list of wipes.
    SeeWipe(usize),
    /// A replica decides about the record, and begins a step.
    Decide(usize),
    /// The next request of the step reaches the server.
    Proceed(usize),
    /// A replica decides about the hold, and sends a patch.
    DecideHold(usize),
    /// That patch reaches the server.
    Patch(usize),
    /// A replica crashes; its write may still arrive.
    Crash(usize),
    /// The write of a replica that has crashed arrives.
    Late,
}

impl Model for Recreation {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.of_users(state, actions);
        self.of_nodes(state, actions);
        self.of_belayer(state, actions);
        if state.crashed < self.crashes {
            actions.extend((0..self.replicas).map(Action::Crash));
        }
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
            never!("RAN-ONCE", Broken::RanTwice),
            never!("IDENTITY", Broken::Identity),
            Property::always("ONE-POD", |model: &Self, state: &State| {
                // Each leader creates the pod of an attempt at most once.
                let leaders = model.replicas as u8 + model.crashes;
                let created = state.last_uid - FIRST - state.others;
                created <= model.retries * leaders
                    && state
                        .record
                        .is_none_or(|record| record.attempts <= model.retries)
            }),
            never!("DECLARED", Broken::Undeclared),
            never!("WIPE", Broken::Wipe),
            Property::always("NO-LOSS", |_, state: &State| {
                state.by_users || state.pod.is_some() || state.record.is_some()
            }),
            Property::always("LIVENESS", |model: &Self, state: &State| {
                let is_stuck = state.pod.is_some_and(|pod| pod.deleting);
                !is_stuck || model.has_work(state)
            }),
            // Whatever happens, the chain ends as the kubelet has decided, unless a user interferes.
            Property::always("ENDS", |model: &Self, state: &State| {
                state.by_users || state.has_ended_well() || model.has_work(state)
            }),
        ]
    }
}

impl Recreation {
    fn of_users(&self, state: &State, actions: &mut Vec<Action>) {
        if state.deletions < self.deletions && state.pod.is_some_and(|pod| !pod.deleting) {
            actions.push(Action::Delete);
        }
        if state.others < self.others && state.pod.is_none() {
            actions.push(Action::CreateOther);
        }
    }

    fn of_nodes(&self, state: &State, actions: &mut Vec<Action>) {
        if state
            .pod
            .is_some_and(|pod| pod.seen == Seen::Pending && !pod.deleting)
        {
            actions.push(Action::Start);
            if state.rejections <= self.retries {
                actions.push(Action::Reject);
            }
        }
        if state.wipe.is_some_and(|(_, done)| !done) {
            actions.push(Action::Wipe);
        }
    }

    fn of_belayer(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, replica) in state.replicas[..self.replicas].iter().enumerate() {
            if replica.pod != Stored::Known(state.pod) {
                actions.push(Action::SeePod(number));
            }
            if replica.record != Stored::Known(state.record) {
                actions.push(Action::SeeRecord(number));
            }
            if replica.wipe != state.wipe {
                actions.push(Action::SeeWipe(number));
            }
            match replica.step {
                Some(_) => actions.push(Action::Proceed(number)),
                None if !replica.waits && self.decide(replica).is_some() => {
                    actions.push(Action::Decide(number));
                }
                None => {}
            }
            match replica.patch {
                Some(_) => actions.push(Action::Patch(number)),
                None if self.decide_hold(replica).is_some() => {
                    actions.push(Action::DecideHold(number));
                }
                None => {}
            }
        }
        if state.late.is_some() {
            actions.push(Action::Late);
        }
    }

    /// Whether Belayer, the kubelet or the agent still has something to do.
    fn has_work(&self, state: &State) -> bool {
        let mut actions = Vec::new();
        self.of_nodes(state, &mut actions);
        self.of_belayer(state, &mut actions);
        can_go_on(self, state, actions)
    }

    fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::Start => state.start(),
            Action::Reject => {
                state.rejections += 1;
                if let Some(pod) = &mut state.pod {
                    pod.seen = Seen::Rejected;
                }
            }
            Action::Delete => {
                state.deletions += 1;
                state.by_users = true;
                if let Some(pod) = &mut state.pod {
                    pod.deleting = true;
                }
            }
            Action::CreateOther => {
                state.others += 1;
                state.by_users = true;
                state.last_uid += 1;
                state.pod = Some(Pod::of_user(state.last_uid, false));
            }
            Action::Wipe => {
                let Some((uid, _)) = state.wipe else { return };
                let by_name = self.fault == Some(Fault::WipeByName);
                let wiped = state.pod.filter(|pod| by_name || pod.uid == uid);
                if wiped.is_some_and(|pod| pod.seen != Seen::Rejected) {
                    state.broken.get_or_insert(Broken::Wipe);
                }
                state.wipe = Some((uid, true));
            }
            Action::SeePod(number) => {
                let pod = state.pod;
                state.replicas[number].see_pod(pod);
            }
            Action::SeeRecord(number) => {
                let record = state.record;
                state.replicas[number].see_record(record);
            }
            Action::SeeWipe(number) => {
                let replica = &mut state.replicas[number];
                replica.waits = false;
                replica.wipe = state.wipe;
            }
            Action::Decide(number) => {
                let step = self.decide(&state.replicas[number]);
                let replica = &mut state.replicas[number];
                replica.step = step;
                // Until a store changes or the step does something.
                replica.waits = true;
            }
            Action::Proceed(number) => {
                if let Some(step) = state.replicas[number].step.take() {
                    let before = (state.pod, state.record, state.wipe);
                    let next = self.proceed(state, step);
                    let is_same = before == (state.pod, state.record, state.wipe);
                    let replica = &mut state.replicas[number];
                    replica.waits &= next.is_some() || is_same;
                    replica.step = next;
                }
            }
            Action::DecideHold(number) => {
                let patch = self.decide_hold(&state.replicas[number]);
                state.replicas[number].patch = patch;
            }
            Action::Patch(number) => {
                let Some((of, releases)) = state.replicas[number].patch.take() else {
                    return;
                };
                match &mut state.pod {
                    Some(pod) if *pod == of => pod.held = !releases,
                    // A conflict: the pod is read again.
                    other => {
                        let live = *other;
                        state.replicas[number].see_pod(live);
                    }
                }
            }
            Action::Crash(number) => {
                state.crashed += 1;
                let step = std::mem::take(&mut state.replicas[number]).step;
                state.late = state.late.or(step.and_then(RecordStep::on_the_way));
            }
            Action::Late => {
                if let Some(step) = state.late.take() {
                    self.proceed(state, step);
                }
            }
        }
    }

    /// One request of a step. Returns what follows it.
    fn proceed(&self, state: &mut State, step: RecordStep) -> Option<RecordStep> {
        let is = |fault| self.fault == Some(fault);
        match step {
            RecordStep::ReadCandidate(uid) => {
                let live = state.pod.filter(|pod| pod.uid == uid && pod.is_candidate());
                live.map(|pod| RecordStep::CreateRecord(pod.uid))
            }
            RecordStep::CreateRecord(uid) => {
                if state.record.is_none() {
                    state.record = Some(Rec::new(uid));
                }
                None
            }
            RecordStep::ReadPod { base, next, gone } => {
                let live = state.pod;
                if live.is_some_and(|pod| pod.uid == gone) && !is(Fault::StoreIsProof) {
                    return None;
                }
                if let Some(pod) = live
                    && pod.attempt > 0
                    && base.is_creating()
                {
                    return None;
                }
                let is_other = live.is_some_and(|pod| pod.attempt == 0);
                let next = if is_other && next.is_waiting() {
                    base.ended()
                } else {
                    next
                };
                Some(RecordStep::Write { base, next })
            }
            RecordStep::ReadName { base, rejected } => match state.pod {
                Some(pod) if pod.uid != rejected && pod.attempt == 0 => Some(RecordStep::Write {
                    base,
                    next: base.ended(),
                }),
                _ => None,
            },
            RecordStep::ReadRejected { base, next, uid } => {
                let live = state.pod?;
                let is_rejected = live.seen == Seen::Rejected;
                let is_same = live.uid == uid && !live.deleting && is_rejected;
                is_same.then_some(RecordStep::Write { base, next })
            }
            RecordStep::Write { base, next } => {
                let is_same = state.record == Some(base);
                if is_same || (is(Fault::NoCompare) && state.record.is_some()) {
                    state.write(base, next);
                }
                None
            }
            RecordStep::ReadToDelete { base, uid } => {
                if state.record != Some(base) {
                    return None;
                }
                let is_made = |pod: Pod| pod.uid != uid || pod.attempt > 0;
                let may = base.rejected == uid || state.pod.is_some_and(is_made);
                may.then_some(RecordStep::DeletePod(uid))
            }
            RecordStep::DeletePod(uid) => {
                let by_name = is(Fault::DeleteByName);
                if let Some(pod) = state.pod.as_mut().filter(|pod| by_name || pod.uid == uid) {
                    if pod.uid != uid {
                        state.broken.get_or_insert(Broken::Identity);
                    }
                    pod.deleting = true;
                }
                None
            }
            RecordStep::ReadToCreate { base, attempt } => {
                (state.record == Some(base)).then_some(RecordStep::CreatePod {
                    attempt,
                    rejected: base.rejected,
                    base,
                })
            }
            RecordStep::CreatePod {
                attempt,
                rejected,
                base,
            } => {
                if state.pod.is_some() {
                    return Some(RecordStep::ReadName { base, rejected });
                }
                let uid = state.create(attempt);
                Some(RecordStep::ReadRecord { attempt, uid })
            }
            RecordStep::ReadRecord { attempt, uid } => {
                let is_wanted = state.record.is_some_and(|record| {
                    record.is_creating() && record.attempts == attempt || record.pod == uid
                });
                (!is_wanted).then_some(RecordStep::DeletePod(uid))
            }
            RecordStep::Annotate(uid) => {
                if let Some(pod) = state.pod.as_mut().filter(|pod| pod.uid == uid) {
                    pod.marked = true;
                }
                None
            }
            RecordStep::RequestWipe(uid) => {
                let live = state.pod;
                if live.is_some_and(|pod| pod.uid == uid && pod.seen == Seen::Rejected) {
                    let known = state.wipe.filter(|(known, _)| *known == uid);
                    state.wipe = known.or(Some((uid, false)));
                }
                None
            }
        }
    }
}
