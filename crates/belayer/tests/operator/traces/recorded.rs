//! Facts recorded about each pod: when something became true that a release can depend on.

use std::time::Duration;

use serde_json::Value;

use super::recording::{Recording, Version, node_id};

/// Delay after which kube-controller-manager's pod garbage collection deletes a pod without Node.
const QUARANTINE: Duration = Duration::from_secs(40);

/// Events of one pod, by the clock of its recording. `None`: it did not happen.
#[derive(Debug, Default, Clone)]
pub(super) struct RecordedRun {
    pub(super) created: Duration,
    /// The first version with a deletion timestamp.
    pub(super) deleted: Option<Duration>,
    /// The first version with a final phase.
    pub(super) ended: Option<Duration>,
    /// Whether an init or main container ever ran.
    pub(super) started: bool,
    /// The first version that shows that its node is lost.
    pub(super) given_up: Option<Duration>,
    /// The workflow's status has its result: the phase, and the outputs.
    pub(super) taken: Option<Duration>,
    /// Its label shows that the result was read.
    pub(super) labelled: Option<Duration>,
    /// The workflow's labels show that it finished.
    pub(super) finished: Option<Duration>,
    /// The workflow was deleted.
    pub(super) owner_deleted: Option<Duration>,
}

impl RecordedRun {
    pub(super) fn of(recording: &Recording, uid: &str) -> Self {
        let versions = recording.versions.iter().filter(|v| v.uid() == uid);
        let mut run = Self::default();
        let mut node = None;
        for (number, pod) in versions.filter(|pod| !pod.gone).enumerate() {
            if number == 0 {
                run.created = pod.at;
                node = node_id(pod).map(str::to_owned);
            }
            run.see_pod(pod);
        }
        for workflow in recording.workflow() {
            run.see_workflow(workflow, node.as_deref());
        }
        run
    }

    fn see_pod(&mut self, pod: &Version) {
        let at = pod.at;
        let status = &pod.object["status"];
        if pod.grace().is_some() {
            self.deleted.get_or_insert(at);
        }
        if status["phase"] == "Succeeded" || status["phase"] == "Failed" {
            self.ended.get_or_insert(at);
        }
        let conditions = status["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        if conditions.any(|condition| condition["reason"] == "DeletionByPodGC") {
            self.given_up.get_or_insert(at);
        }
        for list in ["initContainerStatuses", "containerStatuses"] {
            let containers = status[list].as_array().into_iter().flatten();
            let mut states = containers.map(|container| &container["state"]);
            self.started |= states.any(|state| state["waiting"].is_null() && !state.is_null());
        }
        if pod.metadata("labels")["workflows.argoproj.io/completed"] == "true" {
            self.labelled.get_or_insert(at);
        }
    }

    fn see_workflow(&mut self, workflow: &Version, node: Option<&str>) {
        let at = workflow.at;
        if workflow.gone || workflow.grace().is_some() {
            self.owner_deleted.get_or_insert(at);
        }
        // The state of the same node for an earlier pod does not count.
        if at < self.created {
            return;
        }
        let finished = workflow.metadata("labels")["workflows.argoproj.io/completed"] == "true";
        if finished {
            self.finished.get_or_insert(at);
        }
        let Some(node) = node.map(|node| &workflow.object["status"]["nodes"][node]) else {
            return;
        };
        let fulfilled = ["Succeeded", "Failed", "Error"].map(Value::from);
        if fulfilled.contains(&node["phase"]) && node["taskResultSynced"] != false {
            self.taken.get_or_insert(at);
        }
    }

    /// When the consumer first showed, in any way, that it has the result.
    pub(super) fn consumed(&self) -> Option<Duration> {
        let said = [self.taken, self.labelled, self.finished];
        said.into_iter().flatten().min()
    }

    /// When that must be visible without waiting for anything else: by a label at once, by the status only once the pod
    /// is being deleted.
    pub(super) fn consumed_plainly(&self) -> Option<Duration> {
        let by_status = self
            .taken
            .zip(self.deleted)
            .map(|(taken, deleted)| taken.max(deleted));
        let said = [by_status, self.labelled, self.finished];
        said.into_iter().flatten().min()
    }

    /// When it was visible that its node, and the pod with it, was given up.
    pub(super) fn lost(&self) -> Option<Duration> {
        self.given_up
            .zip(self.deleted)
            .map(|(up, deleted)| up.max(deleted))
    }

    /// When its end, caused by its deletion, was visible.
    pub(super) fn ended_by_deletion(&self) -> Option<Duration> {
        if self.started {
            self.ended
        } else {
            self.deleted
        }
    }
}

/// When the Node of these pods was deleted, if it was. Nodes were not recorded: the time is derived from the first
/// pod that was given up.
pub(super) fn machine_lost(recording: &Recording) -> Option<Duration> {
    let pods = recording.steps().into_values().flatten();
    let given_up = pods.filter_map(|uid| RecordedRun::of(recording, &uid).given_up);
    given_up.min().map(|at| at.saturating_sub(QUARANTINE))
}
