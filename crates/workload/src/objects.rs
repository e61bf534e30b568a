//! The objects of a workload, as in a real Argo Workflows installation.

use std::borrow::Cow;

use belayer_sandbox::Gvr;
use belayer_sandbox::simulated::kubelet::annotations;
use belayer_sandbox::simulated::object;
use serde_json::{Value, json};

use super::script::{PodScript, WorkflowScript};

/// `argoproj.io/v1alpha1` workflows.
pub const WORKFLOWS: Gvr = Gvr {
    group: Cow::Borrowed("argoproj.io"),
    version: Cow::Borrowed("v1alpha1"),
    resource: Cow::Borrowed("workflows"),
};

/// Labels and annotations of Argo Workflows. The simulated controller of the [crate's
/// example](crate) writes them.
pub mod names {
    /// Label: the pod's workflow, by name.
    pub const WORKFLOW: &str = "workflows.argoproj.io/workflow";
    /// Label, on pods and workflows: `"true"` once the result is consumed.
    pub const COMPLETED: &str = "workflows.argoproj.io/completed";
    /// Label of a completed workflow that is archived: `Pending` until then.
    pub const ARCHIVING: &str = "workflows.argoproj.io/workflow-archiving-status";
    /// Label of a workflow: its phase.
    pub const PHASE: &str = "workflows.argoproj.io/phase";
    /// Label: the pod is no step of its workflow, but answers HTTP templates or deletes artifacts.
    pub const COMPONENT: &str = "workflows.argoproj.io/component";
    /// Label: the pod belongs to the exit handler.
    pub const ON_EXIT: &str = "workflows.argoproj.io/on-exit";
    /// Annotation: the key of the pod's node in the workflow's `status.nodes`.
    pub const NODE_ID: &str = "workflows.argoproj.io/node-id";
    /// Annotation: the name of the pod's node.
    pub const NODE_NAME: &str = "workflows.argoproj.io/node-name";
    /// Annotation: when the pod is deleted, as `STRATEGY/DELAY`.
    pub const POD_GC_STRATEGY: &str = "workflows.argoproj.io/pod-gc-strategy";
}

/// The definition of the Workflow kind. As in the real one there is no status subresource, and
/// unknown fields are allowed. It is installed before the first [`workflow`](crate::workflow) is
/// created.
#[must_use]
pub fn workflow_crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "workflows.argoproj.io"},
        "spec": {
            "group": "argoproj.io",
            "scope": "Namespaced",
            "names": {
                "plural": "workflows", "singular": "workflow", "kind": "Workflow",
                "listKind": "WorkflowList", "shortNames": ["wf"],
            },
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {
                        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    },
                }},
                "additionalPrinterColumns": [
                    {"name": "Status", "type": "string", "jsonPath": ".status.phase"},
                    {"name": "Progress", "type": "string", "jsonPath": ".status.progress"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
}

/// A namespace.
///
/// ```
/// assert_eq!(belayer_workload::namespace("shop")["metadata"]["name"], "shop");
/// ```
#[must_use]
pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// A workflow with a script.
///
/// ```
/// use belayer_workload::{WorkflowScript, workflow};
///
/// let nightly = workflow("shop", "nightly", &WorkflowScript::default());
/// assert_eq!(nightly["kind"], "Workflow");
/// ```
#[must_use]
pub fn workflow(namespace: &str, name: &str, script: &WorkflowScript) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"namespace": namespace, "name": name},
        "spec": script.to_spec(),
    })
}

/// The key of a pod in its workflow's `status.nodes`.
pub(crate) fn node_id(workflow: &str, number: usize) -> String {
    format!("{workflow}-{number}")
}

/// The reference to a workflow that its pods have.
pub(crate) fn owner_reference(workflow: &Value) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "name": object::name(workflow),
        "uid": object::uid(workflow),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// A pod of an existing workflow: `workflow` is the object as the API server returned it.
/// [`workflow`](crate::workflow) makes the workflow that is created first.
#[must_use]
pub fn pod(workflow: &Value, number: usize, script: &PodScript) -> Value {
    let owner = object::name(workflow);
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": object::namespace(workflow),
            "name": format!("{owner}-main-{number}"),
            "labels": {names::WORKFLOW: owner, names::COMPLETED: "false"},
            "annotations": {
                names::NODE_ID: node_id(owner, number),
                names::NODE_NAME: format!("{owner}.main({number})"),
                annotations::RUN_SECONDS: format!("{:.3}", script.life.as_secs_f64()),
                annotations::EXIT_CODE: script.exit_code.to_string(),
            },
            "ownerReferences": [owner_reference(workflow)],
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "main", "image": "busybox:1", "command": ["sleep"],
                 "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}},
                {"name": "wait", "image": "argoexec:1"},
            ],
        },
    });
    let metadata = &mut pod["metadata"]["annotations"];
    if let Some(reason) = &script.reject_reason {
        metadata[annotations::REJECT_REASON] = json!(reason);
    }
    if let Some(strategy) = WorkflowScript::read(workflow).pod_gc.strategy() {
        metadata[names::POD_GC_STRATEGY] = json!(format!("{strategy}/0s"));
    }
    pod
}
