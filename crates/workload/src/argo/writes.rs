//! The writes of the simulated controller.

use std::sync::Arc;

use belayer_sandbox::simulated::kubelet::annotations;
use belayer_sandbox::simulated::object;
use belayer_sandbox::{
    ApiError, DeleteOptions, Gvr, Patch, Preconditions, Propagation, Reason, Subresource,
    WriteOptions,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::SimulatedArgo;
use super::flow::{Uid, is_result, name_of, workflow_of};
use crate::model::{Action, Cleanup, TaskResults};
use crate::{WORKFLOWS, WorkloadEvent, names};

impl SimulatedArgo {
    /// Returns whether a pod of an earlier workflow of the same name has the pod's name: it has to be removed first.
    pub(super) fn create(&self, uid: &Uid, pod: Value) -> Result<bool, ApiError> {
        let (namespace, name) = name_of(&pod);
        let options = WriteOptions::default();
        let created = self
            .cluster
            .create(&self.actor, &Gvr::PODS, Some(&namespace), pod, &options);
        match created {
            Ok(_) => self.send(WorkloadEvent::PodCreated { namespace, name }),
            Err(error) if error.reason == Reason::AlreadyExists => {
                let there = self.cluster.get(&Gvr::PODS, Some(&namespace), &name)?;
                return Ok(workflow_of(&there).as_ref() != Some(uid));
            }
            Err(error) => return Err(error),
        }
        Ok(false)
    }

    /// The kind has no status subresource: labels and status are one write.
    pub(super) fn patch(
        &mut self,
        uid: &Uid,
        mut patch: Value,
        now: Instant,
    ) -> Result<(), ApiError> {
        let Some(flow) = self.flows.get_mut(uid) else {
            return Ok(());
        };
        let (namespace, name) = name_of(&flow.object);
        patch["metadata"]["uid"] = json!(&**uid);
        let status = patch["status"].clone();
        let options = WriteOptions::default();
        flow.object = self.cluster.patch(
            &self.actor,
            &WORKFLOWS,
            Some(&namespace),
            &name,
            Patch::Merge(patch),
            Subresource::None,
            &options,
        )?;
        let nodes = status["nodes"].as_object();
        let results = nodes
            .into_iter()
            .flatten()
            .filter(|(_, node)| is_result(node));
        let mut events = vec![];
        for (id, node) in results {
            let of_node = |pod: &&Arc<Value>| object::annotation(pod, names::NODE_ID) == Some(id);
            let Some(pod) = flow.pods.values().find(of_node) else {
                continue;
            };
            if let Some(ended) = flow.ended.remove(object::uid(pod)) {
                events.push(WorkloadEvent::ResultTaken {
                    namespace: namespace.clone(),
                    name: object::name(pod).to_owned(),
                    phase: object::text(node, "/phase").unwrap_or_default().to_owned(),
                    waited: now.saturating_duration_since(ended),
                });
            }
        }
        if let Some(phase @ ("Succeeded" | "Failed" | "Error")) = status["phase"].as_str() {
            // The controller deletes the reports with its last write.
            flow.results = TaskResults::default();
            events.push(WorkloadEvent::WorkflowFinished {
                namespace,
                name,
                phase: phase.to_owned(),
            });
        }
        events.into_iter().for_each(|event| self.send(event));
        Ok(())
    }

    pub(super) fn clean(&self, uid: &Uid, cleanup: &Cleanup) -> Result<(), ApiError> {
        let Some(flow) = self.flows.get(uid) else {
            return Ok(());
        };
        let (namespace, name) = (object::namespace(&flow.object), &cleanup.pod);
        let change = match cleanup.action {
            Action::Label => json!({ "labels": { names::COMPLETED: "true" } }),
            Action::Signal => json!({ "annotations": { annotations::SIGNAL: "true" } }),
            Action::Delete => {
                let options = DeleteOptions {
                    preconditions: Preconditions {
                        uid: Some(cleanup.uid.clone()),
                        resource_version: None,
                    },
                    ..DeleteOptions::default()
                };
                let deleted =
                    self.cluster
                        .delete(&self.actor, &Gvr::PODS, namespace, name, &options);
                return deleted.map(drop);
            }
        };
        let mut patch = json!({ "metadata": change });
        patch["metadata"]["uid"] = json!(cleanup.uid);
        let (patch, options) = (Patch::Merge(patch), WriteOptions::default());
        self.cluster
            .patch(
                &self.actor,
                &Gvr::PODS,
                namespace,
                name,
                patch,
                Subresource::None,
                &options,
            )
            .map(drop)
    }

    pub(super) fn delete(&self, uid: &Uid) -> Result<(), ApiError> {
        let Some(flow) = self
            .flows
            .get(uid)
            .filter(|flow| !object::is_deleting(&flow.object))
        else {
            return Ok(());
        };
        let (namespace, name) = name_of(&flow.object);
        let options = DeleteOptions {
            propagation_policy: Some(Propagation::Background),
            ..DeleteOptions::default()
        };
        self.cluster
            .delete(&self.actor, &WORKFLOWS, Some(&namespace), &name, &options)
            .map(drop)
    }
}
