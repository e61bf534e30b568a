//! Brings the nodes up to date with their pods.

use std::time::Duration;

use belayer_sandbox::simulated::object;
use serde_json::Value;

use super::spec::Template;
use super::{Action, Kind, Operation, Phase, Version};
use crate::names;

impl Operation<'_> {
    /// Judges each pod, and the nodes whose pod is gone. Returns false if outputs have yet to arrive: nothing else
    /// is done before.
    pub(super) fn reconcile_pods(&mut self) -> bool {
        let version = self.rules.version;
        if let Some(agent) = self.agent {
            self.fail_tasks_of(agent);
        }
        let mut has_all_results = true;
        for (id, pod) in self.pods.clone() {
            has_all_results &= self.assess(&id, pod);
            self.control_execution(&id, pod);
        }
        if !has_all_results {
            return false;
        }
        let is_missing = |id: &String| !self.pods.contains_key(id);
        let open = self.nodes.values().filter(|node| node.kind == Kind::Pod);
        let open = open.filter(|node| !node.is_settled(version) && is_missing(&node.id));
        // A pending node's pod is created again.
        let open: Vec<_> = open
            .filter(|node| node.phase != Phase::Pending)
            .cloned()
            .collect();
        for node in open {
            // Its pod may not have been seen yet.
            if self.since(node.started_at) <= self.rules.requeue {
                self.look.again_in(self.rules.requeue);
                continue;
            }
            self.mark(&node.id, Phase::Error, Some("pod deleted"));
            if let Some(node) = self.nodes.get_mut(&node.id) {
                node.daemoned = None;
            }
            for child in node.children {
                self.mark(&child, Phase::Error, Some("container deleted"));
            }
        }
        true
    }

    /// Judges one pod. Returns false if it succeeded and its outputs have yet to arrive.
    fn assess(&mut self, id: &str, pod: &Value) -> bool {
        let version = self.rules.version;
        let Some(old) = self.nodes.get(id).cloned() else {
            return true;
        };
        let template = self.spec.template(&old.template_name);
        let mut new = old.clone();
        let phase = object::text(pod, "/status/phase");
        let statuses = object::items(pod, "/status/containerStatuses");
        match phase {
            Some("Succeeded") => {
                new.phase = if template.daemon {
                    Phase::Failed
                } else {
                    Phase::Succeeded
                };
                new.daemoned = None;
            }
            Some("Failed") => {
                (new.phase, new.message) = failure(pod, &template);
                new.daemoned = None;
            }
            Some("Running") if template.daemon => {
                let is_ready = |status: &Value| status["ready"] == true;
                if !old.is_fulfilled(version) && statuses.iter().all(is_ready) {
                    new.phase = Phase::Running;
                    new.daemoned = Some(true);
                }
            }
            Some("Running") => new.phase = Phase::Running,
            _ => {
                new.phase = Phase::Pending;
                new.message = pending_reason(pod);
                new.daemoned = None;
            }
        }
        if phase == Some("Running") && is_to_be_stopped(statuses, &template) {
            self.clean(pod, Action::Signal, Duration::ZERO);
        }
        self.assess_containers(id, pod);
        if let Some(wait) = statuses.iter().find(|status| name(status) == "wait") {
            let may_report = phase != Some("Failed") || version == Version::UpTo3_6_4;
            if wait.pointer("/state/running").is_some() && new.phase.is_completed() && may_report {
                new.phase = old.phase;
            }
            // It will never report: this counts from the next look on, if the node changes in this one.
            if exit_code(wait).is_some_and(|code| code != 0)
                && let Some(node) = self.nodes.get_mut(id)
                && node.task_result_synced.is_some()
            {
                node.task_result_synced = Some(true);
            }
        }
        let is_open = old.phase == Phase::Pending
            && !matches!(new.phase, Phase::Pending | Phase::Failed | Phase::Error);
        if is_open && old.message == new.message {
            new.message.clear();
        }
        if new.is_fulfilled(version) && new.finished_at.is_none() {
            new.finished_at = Some(self.now);
        }
        if new == old {
            return true;
        }
        self.has_leaving_pod |= object::is_deleting(pod) && new.is_fulfilled(version);
        let is_reported = self
            .nodes
            .get(id)
            .is_none_or(|node| node.task_result_synced != Some(false));
        if new.phase == Phase::Succeeded && !is_reported {
            return false;
        }
        self.nodes.insert(id.to_owned(), new);
        true
    }

    /// The containers of a container set have nodes of their own.
    fn assess_containers(&mut self, id: &str, pod: &Value) {
        let has_failed = object::text(pod, "/status/phase") == Some("Failed");
        let children = self
            .nodes
            .get(id)
            .map(|node| node.children.clone())
            .unwrap_or_default();
        for status in object::items(pod, "/status/containerStatuses") {
            let named = |child: &&String| {
                let node = self.nodes.get(*child);
                node.is_some_and(|node| {
                    node.kind == Kind::Container && node.display_name == name(status)
                })
            };
            let Some(child) = children.iter().find(named) else {
                continue;
            };
            match exit_code(status) {
                Some(0) => self.mark(child, Phase::Succeeded, None),
                Some(code) => {
                    let phase = if code == 64 {
                        Phase::Error
                    } else {
                        Phase::Failed
                    };
                    let message = format!("{}: ", ended_by(status, code));
                    self.mark(child, phase, Some(&message));
                }
                None if has_failed => {
                    self.mark(
                        child,
                        Phase::Failed,
                        Some("Pod Failed whilst container running"),
                    );
                }
                None if status.pointer("/state/running").is_some() => {
                    self.mark(child, Phase::Running, None);
                }
                None => self.mark(child, Phase::Pending, None),
            }
        }
    }

    /// Stops the pods of a workflow that is to end early.
    fn control_execution(&mut self, id: &str, pod: &Value) {
        let is_fulfilled = self
            .nodes
            .get(id)
            .is_none_or(|node| node.is_fulfilled(self.rules.version));
        let is_on_exit = object::label(pod, names::ON_EXIT).is_some();
        let Some(shutdown) = self.spec.shutdown else {
            return;
        };
        if is_fulfilled || object::is_ended(pod) || self.may_run(is_on_exit) {
            return;
        }
        let action = if object::text(pod, "/status/phase") == Some("Running") {
            Action::Signal
        } else {
            Action::Delete
        };
        self.clean(pod, action, Duration::ZERO);
        let message = format!("workflow shutdown with strategy:  {}", shutdown.name());
        self.mark(id, Phase::Failed, Some(&message));
        let children = self
            .nodes
            .get(id)
            .map(|node| node.children.clone())
            .unwrap_or_default();
        for child in children {
            if self
                .nodes
                .get(&child)
                .is_some_and(|node| !node.phase.is_completed())
            {
                self.mark(&child, Phase::Failed, Some(&message));
            }
        }
    }
}

fn name(status: &Value) -> &str {
    object::text(status, "/name").unwrap_or_default()
}

fn exit_code(status: &Value) -> Option<i64> {
    status
        .pointer("/state/terminated/exitCode")
        .and_then(Value::as_i64)
}

fn ended_by(status: &Value, code: i64) -> String {
    let reason = object::text(status, "/state/terminated/reason").unwrap_or_default();
    format!("{}: {reason} (exit code {code})", name(status))
}

/// A main container has failed, or all have ended, and others still run.
fn is_to_be_stopped(statuses: &[Value], template: &Template) -> bool {
    let mut main = statuses
        .iter()
        .filter(|status| template.is_main(name(status)));
    let has_failed = main
        .clone()
        .any(|status| exit_code(status).is_some_and(|code| code != 0));
    let runs = statuses
        .iter()
        .any(|status| status.pointer("/state/running").is_some());
    runs && (has_failed || main.all(|status| exit_code(status).is_some()))
}

/// Why a pod does not run yet.
fn pending_reason(pod: &Value) -> String {
    let said = |value: &Value, pointer: &str| {
        let reason = object::text(value, &format!("{pointer}/reason"))?;
        let message = object::text(value, &format!("{pointer}/message"));
        Some(message.map_or_else(
            || reason.to_owned(),
            |message| format!("{reason}: {message}"),
        ))
    };
    let containers = object::items(pod, "/status/containerStatuses").iter();
    let waiting = containers
        .filter_map(|status| said(status, "/state/waiting"))
        .next();
    let conditions = object::items(pod, "/status/conditions").iter();
    let unschedulable =
        |condition: &&Value| object::text(condition, "/reason") == Some("Unschedulable");
    let refused = conditions
        .filter(unschedulable)
        .find_map(|condition| said(condition, ""));
    waiting.or(refused).unwrap_or_default()
}

/// How a failed pod counts: main and `wait` decide, killed sidecars do not.
fn failure(pod: &Value, template: &Template) -> (Phase, String) {
    if let Some(message) = object::text(pod, "/status/message") {
        return (Phase::Failed, message.to_owned());
    }
    let order = |status: &&Value| match name(status) {
        main if template.is_main(main) => 1,
        "wait" => 2,
        _ => 3,
    };
    let mut containers: Vec<&Value> = object::items(pod, "/status/containerStatuses")
        .iter()
        .collect();
    containers.sort_by_key(order);
    let inits = object::items(pod, "/status/initContainerStatuses").iter();
    let all: Vec<&Value> = inits.chain(containers).collect();
    if all.is_empty() {
        let message = format!(
            "can't find failed message for pod {} namespace {}",
            object::name(pod),
            object::namespace(pod).unwrap_or_default()
        );
        return (Phase::Failed, message);
    }
    let (mut main, mut wait) = (false, false);
    for status in all {
        if status.pointer("/state/waiting").is_some() {
            let text = |field: &str| {
                object::text(status, &format!("/state/waiting/{field}")).unwrap_or_default()
            };
            let why = format!("{}: {}", text("reason"), text("message"));
            let message = format!(
                "Pod failed before {} container starts due to {why}",
                name(status)
            );
            return (Phase::Error, message);
        }
        let Some(code) = exit_code(status) else {
            continue;
        };
        let is_main = template.is_main(name(status));
        if code == 0 {
            main |= is_main;
            wait |= name(status) == "wait";
            continue;
        }
        let mut message = ended_by(status, code);
        if let Some(more) = object::text(status, "/state/terminated/message") {
            message = format!("{message}: {more}");
        }
        match name(status) {
            "init" | "wait" => return (Phase::Error, message),
            _ if is_main || !matches!(code, 137 | 143) => return (Phase::Failed, message),
            _ => {}
        }
    }
    let lacks = match (main, wait) {
        (true, true) => return (Phase::Succeeded, String::new()),
        (true, false) => "wait container did not complete successfully",
        (false, true) => "main container did not complete successfully",
        (false, false) => "neither main nor wait container completed successfully",
    };
    (Phase::Failed, format!("pod failed: {lacks}"))
}
