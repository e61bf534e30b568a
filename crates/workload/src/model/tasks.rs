//! HTTP templates: a pod of the workflow, the agent, sends their requests and reports the answers.

use std::time::Duration;

use belayer_sandbox::simulated::object;
use jiff::Timestamp;
use serde_json::Value;

use super::node::hashed;
use super::{Kind, Node, Operation, Phase, pods};

/// How often the agent reports.
const REPORTED_EVERY: Duration = Duration::from_secs(10);

impl Operation<'_> {
    /// Takes the answers of HTTP templates, and creates the pod that asks.
    pub(super) fn reconcile_tasks(&mut self) {
        let version = self.rules.version;
        let open = |node: &&Node| node.kind == Kind::Http && !node.is_settled(version);
        let open: Vec<Node> = self.nodes.values().filter(open).cloned().collect();
        if open.is_empty() {
            return;
        }
        self.look.again_in(self.rules.requeue);
        let Some(agent) = self.agent else {
            let pod = pods::agent(self.workflow, &hashed(self.name, "agent"));
            self.look.pods.push(pod);
            return;
        };
        self.fail_tasks_of(agent);
        let started = object::text(agent, "/status/containerStatuses/0/state/running/startedAt");
        let Some(started) = started.and_then(|text| text.parse::<Timestamp>().ok()) else {
            return;
        };
        for node in open {
            let asked = node.started_at.map(|asked| asked.max(started));
            if self.since(asked) >= REPORTED_EVERY {
                self.mark(&node.id, Phase::Succeeded, None);
            }
        }
    }

    /// A failed agent fails the HTTP nodes that wait for it.
    pub(super) fn fail_tasks_of(&mut self, agent: &Value) {
        if object::text(agent, "/status/phase") != Some("Failed") {
            return;
        }
        let reason = object::text(agent, "/status/message").unwrap_or_default();
        let message = format!("agent pod failed with reason:\"{reason}\"");
        let version = self.rules.version;
        let open = self.nodes.values().filter(|node| node.kind == Kind::Http);
        let open: Vec<String> = open
            .filter(|node| !node.is_fulfilled(version))
            .map(|node| node.id.clone())
            .collect();
        for id in open {
            self.mark(&id, Phase::Error, Some(&message));
        }
    }
}
