//! The simulated workflow controller: creates pods, consumes their results, and can be stopped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use belayer_sandbox::simulated::{Agenda, Change, Controller, Interest, Progress, object};
use belayer_sandbox::{
    Actor, ApiError, Cluster, DeleteOptions, Gvr, Patch, Preconditions, Reason, Subresource,
    WriteOptions,
};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::flow::{Act, Fate, Flow, Settle, Uid};
use super::objects::{self, WORKFLOWS, names};
use super::{ARGO, WorkloadEvent};

/// Settings of the simulated workflow controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgoConfig {
    /// Time from a pod's end until its result is in the workflow.
    pub persist_delay: Duration,
}

#[derive(Debug, Clone, Copy)]
enum Command {
    Stop,
    Start,
}

/// Handle of the simulated workflow controller. Commands take effect when it next runs.
#[derive(Debug, Clone)]
pub struct Argo {
    commands: mpsc::UnboundedSender<Command>,
}

impl Argo {
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

pub(crate) struct SimulatedArgo {
    cluster: Cluster,
    actor: Actor,
    config: ArgoConfig,
    power: Power,
    flows: BTreeMap<Uid, Flow>,
    /// Pods by their workflow's UID, for workflows that have not been seen yet.
    early: BTreeMap<Uid, BTreeMap<Uid, Arc<Value>>>,
    agenda: Agenda<Uid>,
    events: mpsc::UnboundedSender<WorkloadEvent>,
    commands: mpsc::UnboundedReceiver<Command>,
    inbox: VecDeque<Command>,
}

impl SimulatedArgo {
    pub(crate) fn new(
        cluster: Cluster,
        config: ArgoConfig,
        events: mpsc::UnboundedSender<WorkloadEvent>,
    ) -> (Self, Argo) {
        let (sender, commands) = mpsc::unbounded_channel();
        let controller = Self {
            cluster,
            actor: Actor::new(ARGO),
            config,
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

    fn run_commands(&mut self, now: Instant) {
        while let Ok(command) = self.commands.try_recv() {
            self.inbox.push_back(command);
        }
        while let Some(command) = self.inbox.pop_front() {
            match (command, self.power) {
                (Command::Stop, _) => self.power = Power::Down,
                (Command::Start, Power::Up) => {}
                (Command::Start, Power::Down) => {
                    self.power = Power::Up;
                    for (uid, flow) in &mut self.flows {
                        flow.resume(now);
                        self.agenda.add(Arc::clone(uid));
                    }
                }
            }
        }
    }

    fn observe_workflow(&mut self, change: &Change, now: Instant) {
        let (Change::Upserted(workflow) | Change::Removed(workflow)) = change;
        let uid: Uid = object::uid(workflow).into();
        if matches!(change, Change::Removed(_)) {
            self.agenda.succeeded(&uid);
            if self.flows.remove(&uid).is_some() {
                let (namespace, name) = name_of(workflow);
                self.send(WorkloadEvent::WorkflowGone { namespace, name });
            }
            return;
        }
        match self.flows.get_mut(&uid) {
            Some(flow) => flow.update(Arc::clone(workflow)),
            None => {
                self.flows
                    .insert(Arc::clone(&uid), Flow::new(Arc::clone(workflow), now));
                for pod in self.early.remove(&uid).unwrap_or_default().into_values() {
                    self.observe_pod(&Change::Upserted(pod), now);
                }
            }
        }
        self.agenda.add(uid);
    }

    fn observe_pod(&mut self, change: &Change, now: Instant) {
        let (Change::Upserted(pod) | Change::Removed(pod)) = change;
        let Some(owner) = workflow_of(pod) else {
            return;
        };
        let id = object::annotation(pod, names::NODE_ID).unwrap_or_default();
        let pod_uid = object::uid(pod);
        let Some(flow) = self.flows.get_mut(&owner) else {
            let early = self.early.entry(Arc::clone(&owner)).or_default();
            match change {
                Change::Upserted(pod) => drop(early.insert(pod_uid.into(), Arc::clone(pod))),
                Change::Removed(_) => drop(early.remove(pod_uid)),
            }
            if early.is_empty() {
                self.early.remove(&owner);
            }
            return;
        };
        let (namespace, name) = name_of(pod);
        let event = match change {
            Change::Upserted(pod) => {
                flow.pod_seen(pod, id, now)
                    .map(|phase| WorkloadEvent::PodEnded {
                        namespace,
                        name,
                        phase,
                    })
            }
            Change::Removed(_) => flow
                .pod_gone(pod_uid, id, now)
                .then_some(WorkloadEvent::ResultLost { namespace, name }),
        };
        if let Some(event) = event {
            self.send(event);
        }
        self.agenda.add(owner);
    }

    fn process(&mut self, uid: &Uid, now: Instant) -> Result<(), ApiError> {
        let Some(flow) = self.flows.get_mut(uid) else {
            return Ok(());
        };
        match flow.next(now, self.config.persist_delay) {
            Act::Wait(until) => {
                if let Some(until) = until {
                    self.agenda.add_at(Arc::clone(uid), until);
                }
                return Ok(());
            }
            Act::Begin => {
                let time = self.cluster.clock().now_rfc3339();
                let status =
                    json!({"phase": "Running", "startedAt": time, "progress": flow.progress()});
                let labels = json!({names::PHASE: "Running"});
                self.patch_workflow(uid, &labels, &status)?;
            }
            Act::Create(numbers) => {
                for number in numbers {
                    self.create(uid, number)?;
                }
            }
            Act::Record(numbers) => self.record(uid, &numbers, now)?,
            Act::Settle(pods) => {
                for (number, settle) in pods {
                    self.settle(uid, number, settle)?;
                }
            }
            Act::Finish(phase) => self.finish(uid, phase)?,
        }
        self.agenda.add(Arc::clone(uid));
        Ok(())
    }

    fn create(&mut self, uid: &Uid, number: usize) -> Result<(), ApiError> {
        let Some(flow) = self.flows.get_mut(uid) else {
            return Ok(());
        };
        let (namespace, name) = name_of(&flow.object);
        let pod = objects::pod(&flow.object, number, &flow.script.pod(&name, number));
        let options = WriteOptions::default();
        let created = self.cluster.create(
            &self.actor,
            &Gvr::PODS,
            Some(&namespace),
            pod.clone(),
            &options,
        );
        let pod = match created {
            Ok(pod) => pod,
            Err(error) if error.reason == Reason::AlreadyExists => {
                let there = self
                    .cluster
                    .get(&Gvr::PODS, Some(&namespace), object::name(&pod))?;
                if workflow_of(&there).as_ref() != Some(uid) {
                    // A pod of an earlier workflow of the same name: it has to be removed first.
                    return Err(error);
                }
                there
            }
            Err(error) => return Err(error),
        };
        flow.created(number, Arc::clone(&pod));
        let (namespace, name) = name_of(&pod);
        self.send(WorkloadEvent::PodCreated { namespace, name });
        Ok(())
    }

    fn record(&mut self, uid: &Uid, numbers: &[usize], now: Instant) -> Result<(), ApiError> {
        let Some(flow) = self.flows.get_mut(uid) else {
            return Ok(());
        };
        let (namespace, workflow) = name_of(&flow.object);
        let time = self.cluster.clock().now_rfc3339();
        let mut nodes = Map::new();
        let mut taken = vec![];
        for number in numbers {
            let Some(node) = flow.nodes.get(number) else {
                continue;
            };
            let id = objects::node_id(&workflow, *number);
            let mut entry = json!({
                "id": id, "name": format!("{workflow}.main({number})"), "type": "Pod",
                "templateName": "main",
            });
            match &node.fate {
                Fate::Running => entry["phase"] = json!("Running"),
                Fate::Ended { phase, at } => {
                    entry["phase"] = json!(phase);
                    entry["finishedAt"] = json!(time);
                    let waited = now.saturating_duration_since(*at);
                    let name = node.pod.as_ref().map(|pod| object::name(pod).to_owned());
                    taken.push(WorkloadEvent::ResultTaken {
                        namespace: namespace.clone(),
                        name: name.unwrap_or_default(),
                        phase: phase.clone(),
                        waited,
                    });
                }
                Fate::Lost { .. } => {
                    entry["phase"] = json!("Error");
                    entry["message"] = json!("pod deleted");
                    entry["finishedAt"] = json!(time);
                }
                Fate::Taken { .. } => continue,
            }
            nodes.insert(id, entry);
        }
        self.patch_workflow(uid, &Value::Null, &json!({"nodes": nodes}))?;
        if let Some(flow) = self.flows.get_mut(uid) {
            flow.recorded(numbers);
        }
        for event in taken {
            self.send(event);
        }
        Ok(())
    }

    fn settle(&mut self, uid: &Uid, number: usize, settle: Settle) -> Result<(), ApiError> {
        let Some(flow) = self.flows.get_mut(uid) else {
            return Ok(());
        };
        if let Some(pod) = flow.nodes.get(&number).and_then(|node| node.pod.as_ref()) {
            match settle_pod(&self.cluster, &self.actor, pod, settle) {
                Err(error) if !matches!(error.code, 404 | 409) => return Err(error),
                // Removed, or replaced by another pod of the same name: nothing to do.
                _ => {}
            }
        }
        flow.settled(number);
        Ok(())
    }

    fn finish(&mut self, uid: &Uid, phase: &str) -> Result<(), ApiError> {
        let Some(flow) = self.flows.get(uid) else {
            return Ok(());
        };
        let (namespace, name) = name_of(&flow.object);
        let time = self.cluster.clock().now_rfc3339();
        let status = json!({"phase": phase, "finishedAt": time, "progress": flow.progress()});
        let labels = json!({names::PHASE: phase, names::COMPLETED: "true"});
        self.patch_workflow(uid, &labels, &status)?;
        if let Some(flow) = self.flows.get_mut(uid) {
            flow.finished(phase);
        }
        self.send(WorkloadEvent::WorkflowFinished {
            namespace,
            name,
            phase: phase.to_owned(),
        });
        Ok(())
    }

    /// The kind has no status subresource: labels and status are one write.
    fn patch_workflow(
        &mut self,
        uid: &Uid,
        labels: &Value,
        status: &Value,
    ) -> Result<(), ApiError> {
        let Some(flow) = self.flows.get_mut(uid) else {
            return Ok(());
        };
        let (namespace, name) = name_of(&flow.object);
        let mut patch = json!({"metadata": {"uid": &**uid}, "status": status});
        if !labels.is_null() {
            patch["metadata"]["labels"] = labels.clone();
        }
        let options = WriteOptions::default();
        let patched = self.cluster.patch(
            &self.actor,
            &WORKFLOWS,
            Some(&namespace),
            &name,
            Patch::Merge(patch),
            Subresource::None,
            &options,
        )?;
        flow.update(patched);
        Ok(())
    }
}

fn settle_pod(
    cluster: &Cluster,
    actor: &Actor,
    pod: &Value,
    settle: Settle,
) -> Result<(), ApiError> {
    let (namespace, name) = (object::namespace(pod), object::name(pod));
    let uid = object::uid(pod);
    match settle {
        Settle::Label => {
            let patch = Patch::Merge(json!({
                "metadata": {"uid": uid, "labels": {names::COMPLETED: "true"}},
            }));
            let options = WriteOptions::default();
            cluster
                .patch(
                    actor,
                    &Gvr::PODS,
                    namespace,
                    name,
                    patch,
                    Subresource::None,
                    &options,
                )
                .map(drop)
        }
        Settle::Delete => {
            let options = DeleteOptions {
                preconditions: Preconditions {
                    uid: Some(uid.to_owned()),
                    resource_version: None,
                },
                ..DeleteOptions::default()
            };
            cluster
                .delete(actor, &Gvr::PODS, namespace, name, &options)
                .map(drop)
        }
    }
}

fn name_of(object: &Value) -> (String, String) {
    (
        object::namespace(object).unwrap_or_default().to_owned(),
        object::name(object).to_owned(),
    )
}

/// The UID of the workflow that controls the pod.
fn workflow_of(pod: &Value) -> Option<Uid> {
    object::items(pod, "/metadata/ownerReferences")
        .iter()
        .find(|owner| {
            object::text(owner, "/kind") == Some("Workflow")
                && owner.get("controller") == Some(&Value::Bool(true))
        })
        .and_then(|owner| object::text(owner, "/uid"))
        .map(Uid::from)
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
        self.run_commands(now);
        if self.power == Power::Down {
            return Progress::Idle { until: None };
        }
        let Some(uid) = self.agenda.pop(now) else {
            return Progress::Idle {
                until: self.agenda.next_timer(),
            };
        };
        match self.process(&uid, now) {
            Ok(()) => self.agenda.succeeded(&uid),
            // Removed: the log has an event for it.
            Err(error) if error.code == 404 => {}
            Err(error) => {
                tracing::debug!(%error, "the simulated workflow controller will retry");
                self.agenda.retry(uid, now);
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
