//! `stuck` on PersistentVolumes and their attachments.

use belayer_sandbox::Gvr;
use rstest::rstest;
use serde_json::{Value, json};

use crate::world::{World, group};

const ATTACHER: &str = "external-attacher/csi-example-com";

fn volumes() -> Gvr {
    Gvr::new("", "v1", "persistentvolumes")
}

fn attachments() -> Gvr {
    Gvr::new("storage.k8s.io", "v1", "volumeattachments")
}

/// A PersistentVolume that is being deleted.
fn volume(world: &World, finalizers: &Value, phase: &str) {
    volume_of(world, finalizers, phase, Value::Null);
}

/// One that is bound to the PVC with this UID.
fn volume_of(world: &World, finalizers: &Value, phase: &str, pvc: Value) {
    let volume = json!({
        "metadata": { "name": "pv", "finalizers": finalizers },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteMany"],
            "csi": { "driver": "csi.example.com", "volumeHandle": "v" },
            "claimRef": { "namespace": "shop", "name": "data", "uid": pvc },
        },
    });
    world.create(&volumes(), None, volume);
    let status = json!({ "phase": phase, "message": "the disk is in use" });
    world.status(&volumes(), None, "pv", status);
    world.delete(&volumes(), None, "pv");
}

fn attachment(world: &World, name: &str, attached: bool) {
    let attachment = json!({
        "metadata": { "name": name, "finalizers": [ATTACHER] },
        "spec": {
            "attacher": "csi.example.com", "nodeName": name, "source": { "persistentVolumeName": "pv" },
        },
    });
    world.create(&attachments(), None, attachment);
    let status = json!({ "attached": attached });
    world.status(&attachments(), None, name, status);
}

/// The controller of a driver, whose pods are not ready.
fn driver(world: &World, name: &str, image: &str) {
    let driver = json!({
        "metadata": { "name": name },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [
                { "name": "driver", "image": "registry.example.com/driver:1" },
                { "name": "sidecar", "image": image },
            ] } } },
    });
    let deployments = Gvr::new("apps", "v1", "deployments");
    world.create(&deployments, Some("default"), driver);
}

/// The deletion of an attachment is the order to detach the volume: nothing else has to be deleted first.
#[tokio::test(flavor = "multi_thread")]
async fn an_attachment_waits_for_its_attacher_alone() {
    let world = World::new().await;
    let attacher = "registry.k8s.io/sig-storage/csi-attacher:v4";
    driver(&world, "example-csi-controller", attacher);
    attachment(&world, "n1", true);
    world.delete(&attachments(), None, "n1");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let group = group(&report, ATTACHER);
    assert_eq!(group["cause"], "volume-attached", "{group:#}");
    assert_eq!(group["verdict"], "controller-down", "{group:#}");
    let proof = group["proof"].to_string();
    let pods = "deployment default/example-csi-controller: 0 of 1 pods ready";
    assert!(proof.contains(pods), "{group:#}");
    let next = group["next"].to_string();
    assert!(!next.contains("must be deleted first"), "{group:#}");
    let detail = group["objects"][0]["detail"][0].as_str().unwrap();
    assert!(detail.contains("pv is attached to n1"), "{group:#}");
}

/// Every driver runs the same sidecars: those of another driver prove nothing. A pod that holds the Lease of the driver's
/// sidecar shows which workload that is, whatever its name.
#[rstest]
#[case::of_the_driver("csi-controller", "csi-controller-0", "controller-down")]
#[case::of_another_driver("efs-csi-controller", "example-0", "unknown")]
#[tokio::test(flavor = "multi_thread")]
async fn the_sidecars_of_another_driver_do_not_count(
    #[case] name: &str,
    #[case] holder: &str,
    #[case] verdict: &str,
) {
    let world = World::new().await;
    driver(&world, name, "registry.k8s.io/sig-storage/csi-attacher:v4");
    let lease = json!({
        "metadata": { "name": "external-attacher-leader-csi-example-com" },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z" },
    });
    let leases = Gvr::new("coordination.k8s.io", "v1", "leases");
    world.create(&leases, Some("default"), lease);
    attachment(&world, "n1", true);
    world.delete(&attachments(), None, "n1");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let group = group(&report, ATTACHER);
    assert_eq!(group["verdict"], verdict, "{group:#}");
    let text = group.to_string();
    let of_another =
        format!("apart from deployment default/{name}, which may belong to other drivers");
    assert_eq!(
        text.contains(&of_another),
        verdict == "unknown",
        "{group:#}"
    );
    assert_eq!(
        text.contains(&format!("deployment/{name}")),
        verdict != "unknown",
        "{group:#}"
    );
    assert!(
        text.contains("lease default/external-attacher-leader-csi-example-com"),
        "{group:#}"
    );
    let missing = "no CSIDriver csi.example.com exists";
    assert_eq!(text.contains(missing), verdict == "unknown", "{group:#}");
}

/// Pods of a node that does not exist cannot be the next step.
#[rstest]
#[case::exists(true, "waiting", "list the pods of the node")]
#[case::does_not_exist(
    false,
    "node-gone",
    "Make sure that the machine of the node does not run"
)]
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_on_a_node_that_is_gone_does_not_wait_for_its_pods(
    #[case] exists: bool,
    #[case] verdict: &str,
    #[case] says: &str,
) {
    let world = World::new().await;
    if exists {
        world.create(&Gvr::NODES, None, json!({ "metadata": { "name": "n1" } }));
    }
    attachment(&world, "n1", true);
    volume(&world, &json!([ATTACHER]), "Released");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let group = group(&report, ATTACHER);
    assert_eq!(group["verdict"], verdict, "{group:#}");
    assert!(
        group["next"][0]["say"].as_str().unwrap().contains(says),
        "{group:#}"
    );
}

/// A volume that several nodes may write to has an attachment for each.
#[tokio::test(flavor = "multi_thread")]
async fn every_attachment_of_a_volume_counts() {
    let world = World::new().await;
    attachment(&world, "n1", false);
    attachment(&world, "n2", true);
    volume(&world, &json!([ATTACHER]), "Released");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let group = group(&report, ATTACHER);
    assert_eq!(group["cause"], "volume-attached", "{group:#}");
    let proof = group["proof"].to_string();
    assert!(proof.contains("pv is attached to n2"), "{group:#}");
}

/// The disk is deleted after the PVC. Its controller writes the phase, and may be down.
#[rstest]
#[case::bound("Bound", true, Value::Null, "volume-bound", "waiting")]
#[case::bound_to_a_claim_that_is_gone("Bound", false, Value::Null, "finalizer", "controller-down")]
#[case::bound_to_an_earlier_claim("Bound", true, json!("another"), "finalizer", "controller-down")]
#[case::released("Released", false, Value::Null, "finalizer", "controller-down")]
#[tokio::test(flavor = "multi_thread")]
async fn a_bound_volume_waits_for_its_claim_whatever_its_finalizer(
    #[case] phase: &str,
    #[case] has_claim: bool,
    #[case] uid: Value,
    #[case] cause: &str,
    #[case] verdict: &str,
) {
    const PROVISIONER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
    let world = World::new().await;
    let provisioner = "registry.k8s.io/sig-storage/csi-provisioner:v5";
    driver(&world, "example-csi-controller", provisioner);
    let is_earlier = !uid.is_null();
    let finalizers = json!([PROVISIONER, "kubernetes.io/pv-protection"]);
    volume_of(&world, &finalizers, phase, uid);
    if has_claim {
        let shop = json!({ "metadata": { "name": "shop" } });
        world.create(&Gvr::NAMESPACES, None, shop);
        let pvcs = Gvr::new("", "v1", "persistentvolumeclaims");
        let pvc = json!({ "metadata": { "name": "data" }, "spec": {
            "accessModes": ["ReadWriteMany"], "resources": { "requests": { "storage": "1Gi" } }, "volumeName": "pv",
        } });
        world.create(&pvcs, Some("shop"), pvc);
    }
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let group = group(&report, PROVISIONER);
    assert_eq!(group["cause"], cause, "{group:#}");
    assert_eq!(group["verdict"], verdict, "{group:#}");
    let detail = group["objects"][0]["detail"].to_string();
    let says = match phase {
        "Bound" if is_earlier => {
            "shop/persistentvolumeclaims/data was replaced by another PVC of that name"
        }
        "Bound" if has_claim => "shop/persistentvolumeclaims/data is bound to it",
        "Bound" => "shop/persistentvolumeclaims/data no longer exists",
        _ => "its status reports: the disk is in use",
    };
    assert!(detail.contains(says), "{group:#}");
}
