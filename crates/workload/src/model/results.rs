//! Which outputs the pods of a workflow have reported: what the WorkflowTaskResults of a real cluster show.

use std::collections::BTreeMap;
use std::time::Duration;

use belayer_sandbox::simulated::object;
use serde_json::Value;

use super::{Operation, Version};
use crate::names;

/// For two minutes after a node's end its outputs may still arrive although its pod is gone.
const RECENTLY_DELETED: Duration = Duration::from_secs(120);
/// For ten minutes after a node's end its outputs may still arrive.
const RECENTLY_COMPLETED: Duration = Duration::from_secs(600);
/// The exit code of a container that was killed before it could report.
const KILLED: i64 = 137;

/// The outputs of one workflow's pods, by the keys of their nodes: whether they are complete. A
/// `wait` container announces its report when it starts, and completes it when it ends by itself
/// or is asked to stop. Part of [`Observed`](crate::model::Observed), beside the
/// [rules](crate::model).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskResults {
    complete: BTreeMap<String, bool>,
}

impl TaskResults {
    /// Learns from a version of a pod.
    pub fn observe(&mut self, pod: &Value) {
        let Some(id) = object::annotation(pod, names::NODE_ID) else {
            return;
        };
        let Some(wait) = wait(pod) else {
            return;
        };
        if text(wait, "/state/running/startedAt") {
            self.complete.entry(id.to_owned()).or_insert(false);
        }
        if text(wait, "/state/terminated/startedAt") {
            let code = wait
                .pointer("/state/terminated/exitCode")
                .and_then(Value::as_i64);
            if code == Some(KILLED) {
                self.complete.entry(id.to_owned()).or_insert(false);
            } else {
                self.complete.insert(id.to_owned(), true);
            }
        }
    }

    /// The pod is gone from the API. On a node that exists its containers still end in order.
    pub fn removed(&mut self, pod: &Value) {
        let conditions = object::items(pod, "/status/conditions").iter();
        let is_lost = conditions
            .filter_map(|condition| object::text(condition, "/reason"))
            .any(|reason| reason == "DeletionByPodGC");
        let runs = wait(pod).is_some_and(|wait| text(wait, "/state/running/startedAt"));
        if let Some(id) = object::annotation(pod, names::NODE_ID)
            && runs
            && !is_lost
        {
            self.complete.insert(id.to_owned(), true);
        }
    }
}

fn wait(pod: &Value) -> Option<&Value> {
    let mut containers = object::items(pod, "/status/containerStatuses").iter();
    containers.find(|container| object::text(container, "/name") == Some("wait"))
}

fn text(value: &Value, pointer: &str) -> bool {
    object::text(value, pointer).is_some()
}

impl Operation<'_> {
    /// Records which outputs have arrived.
    pub(super) fn reconcile_results(&mut self, results: &TaskResults) {
        for (id, complete) in &results.complete {
            let has_pod = self.pods.contains_key(id);
            let Some(node) = self.nodes.get_mut(id) else {
                continue;
            };
            if node.task_result_synced.is_some() {
                node.task_result_synced = Some(*complete);
            }
            if *complete || !node.phase.is_completed() {
                continue;
            }
            let since_end = node.finished_at.map_or(Duration::MAX, |end| {
                Duration::try_from(self.precise.duration_since(end)).unwrap_or_default()
            });
            let is_recently_gone = !has_pod && since_end <= RECENTLY_DELETED;
            let waits = match self.rules.version {
                // A node without its outputs never counts as completed here.
                Version::From4_0 => continue,
                Version::UpTo3_7_18 => is_recently_gone || since_end <= RECENTLY_COMPLETED,
                Version::UpTo3_6_4 | Version::UpTo3_7_0 if has_pod => continue,
                Version::UpTo3_6_4 | Version::UpTo3_7_0 => is_recently_gone,
            };
            if waits {
                self.look.again_in(self.rules.requeue);
            } else if node.task_result_synced.is_some() {
                node.task_result_synced = Some(true);
            }
        }
    }

    /// Whether outputs have yet to arrive.
    pub(super) fn lacks_results(&self) -> bool {
        self.nodes
            .values()
            .any(|node| node.task_result_synced == Some(false))
    }
}
