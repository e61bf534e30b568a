//! Retries: a node whose children are the attempts.

use super::spec::{Policy, Retry, Template};
use super::{Caller, Node, Operation, Phase};

/// Texts of errors that pass: the start of those that Argo knows.
const TRANSIENT: [&str; 4] = [
    "exceeded quota",
    "TLS handshake timeout",
    "i/o timeout",
    "connection reset by peer",
];

impl Operation<'_> {
    pub(super) fn execute_with_retries(
        &mut self,
        name: &str,
        template: &Template,
        retry: &Retry,
        caller: Caller<'_>,
    ) -> String {
        let version = self.rules.version;
        let id = self.init_retry(name, template, caller);
        self.judge_attempts(&id, retry);
        let attempts = self.attempts(&id);
        if self
            .nodes
            .get(&id)
            .is_some_and(|node| node.is_fulfilled(version))
        {
            return id;
        }
        let attempt = match attempts.last() {
            Some(last) if !last.is_settled(version) => last.name.clone(),
            _ => format!("{name}({})", attempts.len()),
        };
        let child = self.execute_once(&attempt, template, caller);
        let is_settled = self
            .nodes
            .get(&child)
            .is_some_and(|node| node.is_settled(version));
        self.add_child(&id, child);
        if is_settled {
            self.judge_attempts(&id, retry);
        }
        id
    }

    fn attempts(&self, id: &str) -> Vec<Node> {
        let children = self
            .nodes
            .get(id)
            .into_iter()
            .flat_map(|node| &node.children);
        children
            .filter_map(|child| self.nodes.get(child).cloned())
            .collect()
    }

    /// Finishes the node, unless another attempt follows.
    fn judge_attempts(&mut self, id: &str, retry: &Retry) {
        let attempts = self.attempts(id);
        let Some(last) = attempts
            .last()
            .filter(|last| last.is_settled(self.rules.version))
        else {
            return;
        };
        if !last.phase.is_failed() {
            self.mark(id, Phase::Succeeded, None);
            return;
        }
        let message = if let Some(shutdown) = self.spec.shutdown {
            format!("Stopped with strategy '{}'", shutdown.name())
        } else if !follows(retry.retry_policy, last) {
            last.message.clone()
        } else if retry.limit.is_some_and(|limit| attempts.len() > limit) {
            "No more retries left".to_owned()
        } else {
            return;
        };
        self.mark(id, last.phase, Some(&message));
    }
}

/// Whether another attempt follows this one.
fn follows(policy: Policy, last: &Node) -> bool {
    match policy {
        Policy::Always => true,
        Policy::OnFailure => last.phase == Phase::Failed,
        Policy::OnError => last.phase == Phase::Error,
        Policy::OnTransientError => TRANSIENT.iter().any(|text| last.message.contains(text)),
    }
}
