//! The end of a workflow, and what becomes of its pods.

use std::time::Duration;

use belayer_sandbox::simulated::object;

use super::spec::Shutdown;
use super::{Action, Caller, Kind, Operation, Phase};
use crate::names;
use crate::script::PodGc;

impl Operation<'_> {
    /// Whether a pod may still run, when the workflow is to end early.
    pub(super) fn may_run(&self, is_on_exit: bool) -> bool {
        match self.spec.shutdown {
            None => true,
            Some(Shutdown::Stop) => is_on_exit,
            Some(Shutdown::Terminate) => false,
        }
    }

    /// Fails the nodes that wait without a pod of their own, when the workflow is to end early.
    pub(super) fn fail_nodes_without_pods(&mut self) {
        let Some(shutdown) = self.spec.shutdown else {
            return;
        };
        let version = self.rules.version;
        let message = format!("Stopped with strategy '{}'", shutdown.name());
        let open = self
            .nodes
            .values()
            .filter(|node| !node.is_fulfilled(version));
        let ends = |kind: Kind, children: &[String]| match kind {
            Kind::Suspend | Kind::Http => true,
            Kind::Retry => {
                let mut nodes = children.iter().filter_map(|child| self.nodes.get(child));
                nodes.all(|child| child.is_fulfilled(version))
            }
            _ => false,
        };
        let ending = open.filter(|node| ends(node.kind, &node.children));
        let is_exempt = |name: &str| name.contains(".onExit") && self.may_run(true);
        let ending: Vec<String> = ending
            .filter(|node| !is_exempt(&node.name))
            .map(|node| node.id.clone())
            .collect();
        for id in ending {
            self.mark(&id, Phase::Failed, Some(&message));
        }
    }

    /// Finishes the workflow when its entrypoint, and the exit handler after it, have finished.
    pub(super) fn finish(&mut self, entry: &str) {
        let version = self.rules.version;
        let Some(node) = self
            .nodes
            .get(entry)
            .filter(|node| node.is_fulfilled(version))
            .cloned()
        else {
            return;
        };
        let mut exit = None;
        if let Some(handler) = self.spec.on_exit.clone() {
            let name = format!("{}.onExit", self.name);
            let exists = self.nodes.values().any(|node| node.name == name);
            if exists || self.may_run(true) {
                let caller = Caller {
                    boundary: "",
                    is_on_exit: true,
                };
                let template = self.spec.template(&handler);
                let id = self.execute(&name, &template, caller);
                exit = self.nodes.get(&id).cloned();
                if !exit.as_ref().is_some_and(|exit| exit.is_fulfilled(version)) {
                    return;
                }
            }
        }
        let stopped = self.spec.shutdown.filter(|_| node.phase.is_failed());
        let message = match stopped {
            Some(shutdown) => format!("Stopped with strategy '{}'", shutdown.name()),
            None => node.message,
        };
        match exit.filter(|exit| exit.phase.is_failed() && !node.phase.is_failed()) {
            Some(exit) => self.complete(exit.phase, exit.message),
            None if node.phase.is_failed() => self.complete(node.phase, message),
            None => self.complete(Phase::Succeeded, String::new()),
        }
    }

    fn complete(&mut self, phase: Phase, message: String) {
        if self.lacks_results() || self.nodes.values().any(|node| node.is_daemoned()) {
            self.end_daemons("");
            return;
        }
        self.phase = Some(phase);
        self.message = message;
        self.finished = Some(self.now);
        if let Some(agent) = self.agent
            && self.nodes.values().any(|node| node.kind == Kind::Http)
        {
            self.clean(agent, Action::Delete, Duration::ZERO);
        }
    }

    /// Stops what runs beside the steps of this node.
    pub(super) fn end_daemons(&mut self, boundary: &str) {
        let daemons = self
            .nodes
            .values_mut()
            .filter(|node| node.boundary == boundary && node.is_daemoned());
        let mut ended = vec![];
        for node in daemons {
            node.phase = Phase::Succeeded;
            node.daemoned = None;
            ended.push(node.id.clone());
        }
        for id in ended {
            if let Some(pod) = self.pods.get(&id).copied() {
                self.clean(pod, Action::Signal, Duration::ZERO);
            }
        }
    }

    /// Labels or deletes the pods whose result was read.
    pub(super) fn clean_up(&mut self) {
        let (strategy, delay) = (self.spec.pod_gc.strategy(), self.spec.pod_gc.delay());
        let is_completed = self.phase.is_some_and(Phase::is_completed);
        for (id, pod) in self.pods.clone() {
            let is_settled = self
                .nodes
                .get(&id)
                .is_some_and(|node| node.is_settled(self.rules.version));
            if !is_settled || object::label(pod, names::COMPONENT).is_some() {
                continue;
            }
            let phase = object::text(pod, "/status/phase");
            let action = match strategy {
                PodGc::Never => Action::Label,
                PodGc::OnPodCompletion => Action::Delete,
                PodGc::OnWorkflowCompletion if is_completed => Action::Delete,
                PodGc::OnWorkflowSuccess if self.phase == Some(Phase::Succeeded) => Action::Delete,
                PodGc::OnPodSuccess if phase == Some("Succeeded") => Action::Delete,
                PodGc::OnPodSuccess if phase == Some("Failed") => Action::Label,
                _ if is_completed => Action::Label,
                _ => continue,
            };
            let after = if action == Action::Delete {
                delay
            } else {
                Duration::ZERO
            };
            self.clean(pod, action, after);
        }
    }

    /// Deletes a finished workflow when its time has come.
    pub(super) fn expire(&mut self) {
        let ttl = self.spec.ttl_strategy;
        let by_phase = match self.phase {
            Some(Phase::Succeeded) => ttl.seconds_after_success,
            _ => ttl.seconds_after_failure,
        };
        let seconds = by_phase.or(ttl.seconds_after_completion);
        let Some(limit) = seconds.and_then(|seconds| u64::try_from(seconds).ok()) else {
            return;
        };
        let left = Duration::from_secs(limit).saturating_sub(self.since(self.finished));
        self.look.delete = left.is_zero();
        if !left.is_zero() {
            self.look.again_in(left);
        }
    }
}
