//! The objects that users create besides workflows: a database on a PVC, and bare pods.

use belayer_holds::names::RECREATE_ANNOTATION;
use belayer_sandbox::simulated::NodeSpec;
use serde_json::{Value, json};

use super::BATCH;

/// The database's namespace.
pub(super) const SHOP: &str = "shop";
/// The database's PVC.
pub(super) const PVC: &str = "data";
/// Its pods.
pub(super) const DATABASE: [&str; 2] = ["db-0", "db-1"];
/// The namespace of the bare pods.
pub(super) const LAB: &str = "lab";
/// The bare pod that runs from the start.
pub(super) const SERVING: &str = "serve";
/// The node that has room for two training pods, and not for three.
pub(super) const SMALL: &str = "node-4";
/// The node with the label that [`SERVING`] asks for.
pub(super) const SPOT: &str = "node-3";
/// The label of the spot node.
pub(super) const POOL: (&str, &str) = ("pool", "spot");

/// Three nodes that are never full, one of them of the spot pool, and a small one.
pub(super) fn nodes() -> Vec<NodeSpec> {
    let (label, value) = POOL;
    let big = NodeSpec::many(3).into_iter().map(|node| {
        if node.name == SPOT {
            node.label(label, value)
        } else {
            node
        }
    });
    big.chain([NodeSpec::new(SMALL).cpu("8")]).collect()
}

/// A PVC.
pub(super) fn pvc(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "10Gi"}},
        },
    })
}

/// A pod of the database, with its data on a PVC.
pub(super) fn database(name: &str, pvc: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "db", "image": "postgres:18",
                "volumeMounts": [{"name": "data", "mountPath": "/var/lib/postgresql"}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": pvc}}],
        },
    })
}

/// A bare pod that requests three cores and re-creation. The second scheduler binds it.
pub(super) fn training(name: &str) -> Value {
    let resources = json!({"requests": {"cpu": "3"}});
    let mut pod = bare(name, json!({"image": "trainer:7", "resources": resources}));
    pod["spec"]["schedulerName"] = json!(BATCH);
    pod
}

/// A bare pod for the spot pool that requests re-creation.
pub(super) fn serving() -> Value {
    let mut pod = bare(SERVING, json!({"image": "server:2"}));
    let (label, value) = POOL;
    pod["spec"]["nodeSelector"] = json!({ label: value });
    pod
}

fn bare(name: &str, mut container: Value) -> Value {
    container["name"] = json!("main");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {RECREATE_ANNOTATION: "true"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    })
}
