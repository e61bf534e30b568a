//! The simulated workflow controller: looks at workflows by the model, writes what follows, and can be stopped.

mod flow;
mod writes;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use belayer_sandbox::simulated::{self, Agenda, Change, Controller, Interest, Progress, object};
use belayer_sandbox::{Actor, ApiError, Cluster, Gvr};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::flow::{Flow, Uid, is_significant, name_of, workflow_of};
use super::model::{self, Cleanup, Look, Observed, Rules};
use super::objects::{WORKFLOWS, names};
use super::{ARGO, WorkloadEvent};

#[derive(Debug, Clone, Copy)]
enum Command {
    Stop,
    Start,
}

/// Handle of the simulated workflow controller. Commands take effect when it next runs. Returned
/// by [`Workload::argo`](crate::Workload::argo), for the workload of the [crate's example](crate).
#[derive(Debug, Clone)]
pub struct Argo {
    commands: mpsc::UnboundedSender<Command>,
}

impl Argo {
    /// Starts a controller with these settings, as a task of the current tokio runtime. It stops for good when `cancel`
    /// is cancelled.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn spawn(cluster: &Cluster, rules: Rules, cancel: &CancellationToken) -> Self {
        let (events, _) = mpsc::unbounded_channel();
        let (controller, argo) = SimulatedArgo::new(cluster.clone(), rules, events);
        drop(simulated::spawn(cluster, controller, cancel));
        argo
    }

    /// Stops it: it writes nothing until it is started again.
    pub fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
    }

    /// Starts it again.
    pub fn start(&self) {
        let _ = self.commands.send(Command::Start);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    Up,
    Down,
}

/// What waits to be done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Look(Uid),
    Clean(Uid, Cleanup),
}

pub(crate) struct SimulatedArgo {
    cluster: Cluster,
    actor: Actor,
    rules: Rules,
    power: Power,
    flows: BTreeMap<Uid, Flow>,
    /// Pods by their workflow's UID, for workflows that have not been seen yet.
    early: BTreeMap<Uid, BTreeMap<Uid, Arc<Value>>>,
    agenda: Agenda<Key>,
    events: mpsc::UnboundedSender<WorkloadEvent>,
    commands: mpsc::UnboundedReceiver<Command>,
    inbox: VecDeque<Command>,
}

impl SimulatedArgo {
    pub(crate) fn new(
        cluster: Cluster,
        rules: Rules,
        events: mpsc::UnboundedSender<WorkloadEvent>,
    ) -> (Self, Argo) {
        let (sender, commands) = mpsc::unbounded_channel();
        let controller = Self {
            cluster,
            actor: Actor::new(ARGO),
            rules,
            power: Power::Up,
            flows: BTreeMap::new(),
            early: BTreeMap::new(),
            agenda: Agenda::default(),
            events,
            commands,
            inbox: VecDeque::new(),
        };
        (controller, Argo { commands: sender })
    }

    fn send(&self, event: WorkloadEvent) {
        // The receiver may be gone.
        let _ = self.events.send(event);
    }

    fn run_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.inbox.push_back(command);
        }
        while let Some(command) = self.inbox.pop_front() {
            match (command, self.power) {
                (Command::Stop, _) => self.power = Power::Down,
                (Command::Start, Power::Up) => {}
                (Command::Start, Power::Down) => {
                    self.power = Power::Up;
                    for uid in self.flows.keys() {
                        self.agenda.add(Key::Look(Arc::clone(uid)));
                    }
                }
            }
        }
    }

    /// The controller looks at a workflow some time after the first event since its last look.
    fn look_later(&mut self, uid: Uid, now: Instant) {
        self.agenda.add_at(Key::Look(uid), now + self.rules.requeue);
    }

    fn observe_workflow(&mut self, change: &Change, now: Instant) {
        let (Change::Upserted(workflow) | Change::Removed(workflow)) = change;
        let uid: Uid = object::uid(workflow).into();
        if matches!(change, Change::Removed(_)) {
            self.agenda.succeeded(&Key::Look(Arc::clone(&uid)));
            if self.flows.remove(&uid).is_some() {
                let (namespace, name) = name_of(workflow);
                self.send(WorkloadEvent::WorkflowGone { namespace, name });
            }
            return;
        }
        if let Some(flow) = self.flows.get_mut(&uid) {
            flow.object = Arc::clone(workflow);
            self.look_later(uid, now);
            return;
        }
        self.flows
            .insert(Arc::clone(&uid), Flow::new(Arc::clone(workflow)));
        for pod in self.early.remove(&uid).unwrap_or_default().into_values() {
            self.observe_pod(&Change::Upserted(pod), now);
        }
        self.agenda.add(Key::Look(uid));
    }

    fn observe_pod(&mut self, change: &Change, now: Instant) {
        let (Change::Upserted(pod) | Change::Removed(pod)) = change;
        let Some(owner) = workflow_of(pod) else {
            return;
        };
        let uid: Uid = object::uid(pod).into();
        let Some(flow) = self.flows.get_mut(&owner) else {
            let early = self.early.entry(Arc::clone(&owner)).or_default();
            match change {
                Change::Upserted(pod) => drop(early.insert(uid, Arc::clone(pod))),
                Change::Removed(_) => drop(early.remove(&uid)),
            }
            if early.is_empty() {
                self.early.remove(&owner);
            }
            return;
        };
        let (namespace, name) = name_of(pod);
        let has_result = flow.has_result_of(pod);
        let is_step = object::annotation(pod, names::NODE_ID).is_some();
        let mut event = None;
        let is_news = match change {
            Change::Upserted(pod) => {
                flow.results.observe(pod);
                let old = flow.pods.insert(Arc::clone(&uid), Arc::clone(pod));
                if object::is_ended(pod) && is_step && !has_result && !flow.ended.contains_key(&uid)
                {
                    flow.ended.insert(uid, now);
                    let phase = object::text(pod, "/status/phase")
                        .unwrap_or_default()
                        .to_owned();
                    event = Some(WorkloadEvent::PodEnded {
                        namespace,
                        name,
                        phase,
                    });
                }
                old.is_none_or(|old| is_significant(&old, pod))
            }
            Change::Removed(_) => {
                flow.results.removed(pod);
                flow.ended.remove(&uid);
                let was_there = flow.pods.remove(&uid).is_some();
                if was_there && is_step && !has_result {
                    event = Some(WorkloadEvent::ResultLost { namespace, name });
                }
                true
            }
        };
        event.into_iter().for_each(|event| self.send(event));
        if is_news {
            self.look_later(owner, now);
        }
    }

    fn process(&mut self, key: &Key, now: Instant) -> Result<(), ApiError> {
        match key {
            Key::Look(uid) => self.look(uid, now),
            Key::Clean(uid, cleanup) => match self.clean(uid, cleanup) {
                // Removed, or replaced by another pod of the same name: nothing to do.
                Err(error) if error.code == 409 => Ok(()),
                answer => answer,
            },
        }
    }

    fn look(&mut self, uid: &Uid, now: Instant) -> Result<(), ApiError> {
        let Some(flow) = self.flows.get(uid) else {
            return Ok(());
        };
        let pods: Vec<Arc<Value>> = flow.pods.values().cloned().collect();
        let observed = Observed {
            workflow: &flow.object,
            pods: &pods,
            results: &flow.results,
            now: self.cluster.clock().now(),
        };
        let Look {
            pods,
            patch,
            cleanup,
            delete,
            again,
        } = model::look(&self.rules, &observed);
        for pod in pods {
            // Argo writes the status also if a pod cannot be created: the node of the pod is pending.
            if self.create(uid, pod)? {
                self.agenda
                    .add_at(Key::Look(Arc::clone(uid)), now + self.rules.requeue);
            }
        }
        if let Some(patch) = patch {
            self.patch(uid, patch, now)?;
        }
        for cleanup in cleanup {
            let when = now + cleanup.after;
            self.agenda
                .add_at(Key::Clean(Arc::clone(uid), cleanup), when);
        }
        if let Some(again) = again {
            self.agenda.add_at(Key::Look(Arc::clone(uid)), now + again);
        }
        if delete {
            self.delete(uid)?;
        }
        Ok(())
    }
}

impl Controller for SimulatedArgo {
    fn interest(&self) -> Interest {
        Interest::Only(&[Gvr::PODS, WORKFLOWS])
    }

    fn observe(&mut self, gvr: &Gvr, change: &Change, now: Instant) {
        if gvr.resource == WORKFLOWS.resource {
            self.observe_workflow(change, now);
        } else {
            self.observe_pod(change, now);
        }
    }

    fn work(&mut self, now: Instant) -> Progress {
        self.run_commands();
        if self.power == Power::Down {
            return Progress::Idle { until: None };
        }
        let Some(key) = self.agenda.pop(now) else {
            return Progress::Idle {
                until: self.agenda.next_timer(),
            };
        };
        match self.process(&key, now) {
            Ok(()) => self.agenda.succeeded(&key),
            // Removed: the log has an event for it.
            Err(error) if error.code == 404 => {}
            Err(error) => {
                tracing::debug!(%error, "the simulated workflow controller will retry");
                self.agenda.retry(key, now);
            }
        }
        Progress::Worked
    }

    async fn called(&mut self) {
        match self.commands.recv().await {
            Some(command) => self.inbox.push_back(command),
            None => std::future::pending().await,
        }
    }
}
