//! Workflows, pods and PVCs in scenarios.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::control_plane::STEP_IMAGE;

/// The pod-status hold. A literal on purpose: this name is a promise to users.
pub const HOLD: &str = "belayer.dev/pod-status";

/// The hold on workflows.
pub const WORKFLOW_HOLD: &str = "belayer.dev/workflow-cleanup";

/// The label of a workflow's pods.
pub(crate) const WORKFLOW_LABEL: &str = "workflows.argoproj.io/workflow";

/// The label by which the consumer marks a pod whose result it has consumed.
pub(crate) const COMPLETED_LABEL: &str = "workflows.argoproj.io/completed";

/// An owner of pods.
#[derive(Debug, Clone)]
pub struct Workflow {
    /// Its name.
    pub name: String,
    /// Its UID, which differs for another workflow of the same name.
    pub uid: String,
}

impl Workflow {
    /// The name and UID of a created object.
    pub fn of(object: &DynamicObject) -> Result<Self> {
        Ok(Self {
            name: object.name_any(),
            uid: object.uid().context("a workflow without a uid")?,
        })
    }
}

/// A scheduler that does not exist: the scenario binds these pods, or none does.
pub const NO_SCHEDULER: &str = "none";

/// A pod that no scheduler binds: the scenario writes its status.
pub fn pod(name: impl Into<String>) -> PodBuilder {
    PodBuilder {
        name: name.into(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        finalizers: Vec::new(),
        owners: Vec::new(),
        scheduler: NO_SCHEDULER,
        node: None,
        volumes: Vec::new(),
        arguments: Vec::new(),
        requests: Value::Null,
        more: Value::Null,
    }
}

/// Builds a [`pod`].
#[derive(Debug, Clone)]
pub struct PodBuilder {
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    finalizers: Vec<String>,
    owners: Vec<Value>,
    scheduler: &'static str,
    node: Option<String>,
    volumes: Vec<Value>,
    arguments: Vec<String>,
    requests: Value,
    more: Value,
}

impl PodBuilder {
    /// A pod of the workflow, as Argo creates it: with label and owner reference.
    pub fn of(mut self, workflow: &Workflow) -> Self {
        self.owners.push(json!({
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "name": workflow.name,
            "uid": workflow.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }));
        self.label(WORKFLOW_LABEL, &workflow.name)
    }

    /// A pod whose controlling owner is a ConfigMap of this name and UID: its own consumer, selected by the
    /// label `app: batch`.
    pub fn of_batch(self, name: &str, uid: &str) -> Self {
        self.controlled_by("v1", "ConfigMap", (name, uid))
            .label("app", "batch")
    }

    /// A pod whose controlling owner has this API version, kind, name and UID.
    pub fn controlled_by(
        mut self,
        api_version: &str,
        kind: &str,
        (name, uid): (&str, &str),
    ) -> Self {
        self.owners.push(json!({
            "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true,
        }));
        self
    }

    /// With a label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// With an annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    /// With a finalizer, after those added before.
    pub fn finalizer(mut self, name: &str) -> Self {
        self.finalizers.push(name.into());
        self
    }

    /// With the hold, as an earlier Belayer would have left it.
    pub fn held(self) -> Self {
        self.finalizer(HOLD)
    }

    /// Bound to this node at creation.
    pub fn on_node(mut self, node: &str) -> Self {
        self.node = Some(node.into());
        self
    }

    /// With this PVC as a volume.
    pub fn pvc(mut self, pvc: &str) -> Self {
        self.volumes.push(json!({
            "name": format!("v{}", self.volumes.len()),
            "persistentVolumeClaim": { "claimName": pvc },
        }));
        self
    }

    /// With a generic ephemeral volume, whose PVC is named after the pod and this name.
    pub fn ephemeral(mut self, volume: &str) -> Self {
        self.volumes.push(json!({
            "name": volume,
            "ephemeral": { "volumeClaimTemplate": { "spec": pvc_spec() } },
        }));
        self
    }

    /// Bound by the cluster's own scheduler and run by a kubelet.
    pub fn scheduled(mut self) -> Self {
        self.scheduler = "default-scheduler";
        self
    }

    /// With these arguments of its program, which understands for example `exit 0` and `sleep 5`; without any
    /// it waits for SIGTERM.
    pub fn runs(mut self, arguments: &str) -> Self {
        self.arguments = arguments.split_whitespace().map(String::from).collect();
        self
    }

    /// Requests CPUs.
    pub fn cpu(mut self, cpu: &str) -> Self {
        self.requests = json!({ "cpu": cpu });
        self
    }

    /// With further fields of the spec.
    pub fn spec(mut self, fields: Value) -> Self {
        self.more = fields;
        self
    }

    /// A kubelet ignores a volume that no container mounts.
    fn mounts(&self) -> Vec<Value> {
        let mount = |volume: &Value| {
            let name = volume["name"].as_str().unwrap_or_default();
            json!({ "name": name, "mountPath": format!("/mnt/{name}") })
        };
        self.volumes.iter().map(mount).collect()
    }

    /// The object to create.
    pub fn build(&self) -> Result<DynamicObject> {
        let mut document = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "labels": self.labels,
                "annotations": self.annotations,
                "finalizers": self.finalizers,
                "ownerReferences": self.owners,
            },
            "spec": {
                "schedulerName": self.scheduler,
                "nodeName": self.node,
                "volumes": self.volumes,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                // There is no service account whose token could be mounted.
                "automountServiceAccountToken": false,
                "containers": [{
                    "name": "main", "image": STEP_IMAGE, "args": self.arguments,
                    "resources": { "requests": self.requests }, "volumeMounts": self.mounts(),
                }],
            },
        });
        for (field, value) in self.more.as_object().into_iter().flatten() {
            document["spec"][field] = value.clone();
        }
        serde_json::from_value(document).context("a pod")
    }
}

/// The spec of a PVC that nothing provisions.
fn pvc_spec() -> Value {
    json!({
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "resources": { "requests": { "storage": "1Mi" } },
    })
}

/// A PVC; `metadata` may contain further fields.
pub fn pvc(name: &str, mut metadata: Value) -> Result<DynamicObject> {
    metadata["name"] = name.into();
    let document = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": pvc_spec(),
    });
    serde_json::from_value(document).context("a PVC")
}

/// A workflow; `metadata` may contain further fields.
pub fn workflow(name: &str, mut metadata: Value) -> Result<DynamicObject> {
    metadata["name"] = name.into();
    let document = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata,
        "spec": { "entrypoint": "main" },
    });
    serde_json::from_value(document).context("a workflow")
}

/// The status of an ended pod, as a kubelet writes it.
pub fn ended(phase: &str) -> Value {
    let exit_code = i32::from(phase == "Failed");
    json!({ "status": {
        "phase": phase,
        "containerStatuses": [{
            "name": "main", "image": "registry.invalid/step:1", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": exit_code, "reason": "Completed" } },
        }],
    }})
}

/// The finalizers of an object, in order.
pub fn finalizers(object: &impl kube::ResourceExt) -> Vec<&str> {
    object.finalizers().iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workflows_pod_is_labelled_and_owned() {
        let workflow = Workflow {
            name: "w".into(),
            uid: "1-2-3".into(),
        };
        let built = pod("p").of(&workflow).held().build().unwrap();
        assert_eq!(built.labels()[WORKFLOW_LABEL], "w");
        assert_eq!(built.owner_references()[0].uid, "1-2-3");
        assert_eq!(finalizers(&built), [HOLD]);
    }
}
