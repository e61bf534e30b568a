//! `stuck` on pods that no kubelet terminates.

use std::time::Duration;

use belayer_sandbox::Gvr;
use rstest::rstest;
use serde_json::{Value, json};

use crate::world::{World, group};

fn pod(world: &World, finalizers: &Value, phase: &str) {
    let pod = json!({
        "metadata": { "name": "p", "finalizers": finalizers },
        "spec": { "nodeName": "n1", "containers": [{ "name": "m", "image": "m" }] },
    });
    world.create(&Gvr::PODS, Some("default"), pod);
    world.status(&Gvr::PODS, Some("default"), "p", json!({ "phase": phase }));
}

/// The kubelet's last step is a deletion without a grace period.
#[rstest]
#[case::deletions("DELETE", true)]
#[case::updates("UPDATE", false)]
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_may_reject_the_deletion_of_a_pod(
    #[case] operation: &str,
    #[case] is_in_the_way: bool,
) {
    let world = World::new().await;
    let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    let nodes = Gvr::new("", "v1", "nodes");
    world.create(&nodes, None, json!({ "metadata": { "name": "n1" } }));
    world.status(&nodes, None, "n1", ready);
    pod(&world, &json!([]), "Running");
    world.delete_in(1, &Gvr::PODS, Some("default"), "p");
    let webhooks = Gvr::new(
        "admissionregistration.k8s.io",
        "v1",
        "validatingwebhookconfigurations",
    );
    let configuration = json!({
        "metadata": { "name": "guard" },
        "webhooks": [{
            "name": "pods.guard.example.com", "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": { "service": { "namespace": "default", "name": "guard" } },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": ["pods"] }],
        }],
    });
    world.create(&webhooks, None, configuration);
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    let report = world.run(&["stuck", "-ojson"]).await.json();
    assert_eq!(report["summary"]["stuck"], 1, "{report:#}");
    if !is_in_the_way {
        assert!(!report.to_string().contains("guard"), "{report:#}");
        return;
    }
    let group = group(&report, "webhook");
    assert_eq!(group["verdict"], "webhook-down", "{group:#}");
    let proof = group["proof"].to_string();
    for says in ["intercepts deletions", "no kubelet can delete its pods"] {
        assert!(proof.contains(says), "{group:#}");
    }
}

/// The controller of the finalizer may wait for the pod's end, which nothing reports.
#[rstest]
#[case::running("Running", true)]
#[case::terminated("Failed", false)]
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_a_finalizer_on_a_missing_node(#[case] phase: &str, #[case] is_lost: bool) {
    let world = World::new().await;
    pod(&world, &json!(["batch.kubernetes.io/job-tracking"]), phase);
    world.delete(&Gvr::PODS, Some("default"), "p");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    if !is_lost {
        assert!(!report.to_string().contains("node-gone"), "{report:#}");
        return;
    }
    let group = group(&report, "node");
    assert_eq!(group["verdict"], "node-gone", "{group:#}");
    let text = group.to_string();
    assert!(!text.contains("has no finalizer"), "{group:#}");
    assert!(!text.contains("--force"), "{group:#}");
}
