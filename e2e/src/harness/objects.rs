//! Workflows, pods and claims, as scenarios need them.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// The hold under test. Written out here on purpose: users see this very name.
pub const HOLD: &str = "belayer.dev/pod-status";

/// The hold on workflows.
pub const WORKFLOW_HOLD: &str = "belayer.dev/workflow-cleanup";

/// The label that makes a pod one of a workflow's.
pub(crate) const WORKFLOW_LABEL: &str = "workflows.argoproj.io/workflow";

/// The label by which the consumer says that it has taken the result.
pub(crate) const COMPLETED_LABEL: &str = "workflows.argoproj.io/completed";

/// An owner of pods.
#[derive(Debug, Clone)]
pub struct Workflow {
    /// Its name.
    pub name: String,
    /// Its UID: what tells it from another of the same name.
    pub uid: String,
}

impl Workflow {
    /// What identifies the created object.
    ///
    /// # Errors
    /// When the server gave no UID.
    pub fn of(object: &DynamicObject) -> Result<Self> {
        Ok(Self {
            name: object.name_any(),
            uid: object.uid().context("a workflow without a uid")?,
        })
    }
}

/// A pod that no scheduler binds: its status is what the scenario writes.
#[must_use]
pub fn pod(name: impl Into<String>) -> PodBuilder {
    PodBuilder {
        name: name.into(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        finalizers: Vec::new(),
        owners: Vec::new(),
        scheduler: "nobody",
        node: None,
        volumes: Vec::new(),
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
}

impl PodBuilder {
    /// One of the workflow's pods, as Argo makes them: labelled, owned, deleted before its owner.
    #[must_use]
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

    /// One that a ConfigMap of this name and UID stands for the controller of: a consumer of its own,
    /// known by the label `app: batch`.
    #[must_use]
    pub fn of_batch(mut self, name: &str, uid: &str) -> Self {
        self.owners.push(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": true,
        }));
        self.label("app", "batch")
    }

    /// With a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// With an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    /// With a finalizer, after those given before.
    #[must_use]
    pub fn finalizer(mut self, name: &str) -> Self {
        self.finalizers.push(name.into());
        self
    }

    /// With the hold, as a Belayer of earlier would have left it.
    #[must_use]
    pub fn held(self) -> Self {
        self.finalizer(HOLD)
    }

    /// Bound to this node from the beginning.
    #[must_use]
    pub fn on_node(mut self, node: &str) -> Self {
        self.node = Some(node.into());
        self
    }

    /// Using this claim.
    #[must_use]
    pub fn claim(mut self, claim: &str) -> Self {
        self.volumes.push(json!({
            "name": format!("v{}", self.volumes.len()),
            "persistentVolumeClaim": { "claimName": claim },
        }));
        self
    }

    /// With a generic ephemeral volume, whose claim is called after the pod and this name.
    #[must_use]
    pub fn ephemeral(mut self, volume: &str) -> Self {
        self.volumes.push(json!({
            "name": volume,
            "ephemeral": { "volumeClaimTemplate": { "spec": claim_spec() } },
        }));
        self
    }

    /// Bound to a node by the cluster's own scheduler and run by its kubelet.
    #[must_use]
    pub fn scheduled(mut self) -> Self {
        self.scheduler = "default-scheduler";
        self
    }

    /// A volume that no container mounts is not looked at by a kubelet.
    fn mounts(&self) -> Vec<Value> {
        let mount = |volume: &Value| {
            let name = volume["name"].as_str().unwrap_or_default();
            json!({ "name": name, "mountPath": format!("/mnt/{name}") })
        };
        self.volumes.iter().map(mount).collect()
    }

    /// The object to create.
    ///
    /// # Errors
    /// Never in practice: the document is a pod.
    pub fn build(&self) -> Result<DynamicObject> {
        let document = json!({
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
                // There is no account whose token could be mounted.
                "automountServiceAccountToken": false,
                "containers": [{
                    "name": "main", "image": "registry.invalid/step:1", "volumeMounts": self.mounts(),
                }],
            },
        });
        serde_json::from_value(document).context("a pod")
    }
}

/// A claim that nothing provisions.
fn claim_spec() -> Value {
    json!({
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "resources": { "requests": { "storage": "1Mi" } },
    })
}

/// A claim; `metadata` may say more than its name.
///
/// # Errors
/// Never in practice: the document is a claim.
pub fn claim(name: &str, mut metadata: Value) -> Result<DynamicObject> {
    metadata["name"] = name.into();
    let document = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim_spec(),
    });
    serde_json::from_value(document).context("a claim")
}

/// The finalizers of an object, in order.
#[must_use]
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
