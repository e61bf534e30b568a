//! The objects that users create besides workflows.

use std::borrow::Cow;

use belayer_holds::names::{RECREATE_ANNOTATION, WIPE_ANNOTATION};
use belayer_sandbox::Gvr;
use belayer_sandbox::simulated::NodeSpec;
use belayer_sandbox::simulated::kubelet::annotations;
use serde_json::{Value, json};

/// The namespaces of the workflows and of everything else.
pub(crate) const NAMESPACES: [&str; 3] = ["ci", "lab", "shop"];

/// The finalizer of Argo on its pods, which Belayer removes where that is configured.
pub(crate) const ARGOS: &str = "workflows.argoproj.io/status";

/// The label `app` of pods whose consumer reads the records of their outcomes.
pub(crate) const REPORTS: &str = "reports";

/// The node that has room for two pods of [`trainer`].
pub(crate) const SMALL: &str = "node-3";

/// The node that its re-created pods are bound to.
pub(crate) const BIG: &str = "node-1";

/// The actor that binds pods to nodes that have no room for them.
pub(crate) const BATCH: &str = "batch-scheduler";

/// The actor of all node agents.
pub(crate) const AGENT: &str = "node-agent";

/// Jobs, whose controller is not simulated.
pub(crate) const JOBS: Gvr = Gvr {
    group: Cow::Borrowed("batch"),
    version: Cow::Borrowed("v1"),
    resource: Cow::Borrowed("jobs"),
};

/// What node agents have to remove.
pub(crate) const WIPES: Gvr = Gvr {
    group: Cow::Borrowed("belayer.dev"),
    version: Cow::Borrowed("v1alpha1"),
    resource: Cow::Borrowed("nodewipes"),
};

/// Two nodes that are never full, and a small one.
pub(crate) fn nodes() -> Vec<NodeSpec> {
    let mut nodes = NodeSpec::many(2);
    nodes.push(NodeSpec::new(SMALL).cpu("8"));
    nodes
}

/// A PVC.
pub(crate) fn pvc(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

/// A pod that uses a PVC.
pub(crate) fn pvc_user(name: &str, pvc: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "main", "image": "busybox"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": pvc}}],
        },
    })
}

/// A pod of another client, with the name of one that Belayer re-creates.
pub(crate) fn stranger(namespace: &str, name: &str) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    })
}

/// A pod whose consumer reads the record of its outcome. It runs for so many seconds.
pub(crate) fn report(name: &str, seconds: u64) -> Value {
    json!({
        "metadata": {
            "name": name,
            "labels": {"app": REPORTS},
            "annotations": {annotations::RUN_SECONDS: seconds.to_string()},
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "report"}],
        },
    })
}

/// What `kubectl replace --force` creates of a pod, without what Belayer wrote.
pub(crate) fn copy(pod: &Value) -> Value {
    let mut copy = json!({ "metadata": {}, "spec": pod["spec"] });
    for field in [
        "namespace",
        "name",
        "labels",
        "annotations",
        "ownerReferences",
    ] {
        copy["metadata"][field] = pod["metadata"][field].clone();
    }
    if let Some(annotations) = copy["metadata"]["annotations"].as_object_mut() {
        let kept = [RECREATE_ANNOTATION, WIPE_ANNOTATION];
        annotations.retain(|name, _| !name.starts_with("belayer.dev/") || kept.contains(&&**name));
    }
    if let Some(spec) = copy["spec"].as_object_mut() {
        spec.remove("nodeName");
    }
    copy
}

/// A bare pod that requests three cores and re-creation, and waits for [`BATCH`] to bind it. With `wipe`, the node
/// agent has to remove its files first.
pub(crate) fn trainer(name: &str, wipe: bool) -> Value {
    json!({
        "metadata": {"name": name, "annotations": {
            RECREATE_ANNOTATION: "true", WIPE_ANNOTATION: wipe.to_string(),
        }},
        "spec": {
            "restartPolicy": "Never",
            "schedulerName": BATCH,
            "containers": [{"name": "main", "image": "trainer", "resources": {"requests": {"cpu": "3"}}}],
        },
    })
}
