//! `stuck` on pods that no kubelet terminates.

use std::time::Duration;

use belayer_sandbox::{Answer, Fault, Gvr, Match, Verb};
use rstest::rstest;
use serde_json::{Value, json};

use crate::world::{TOOL, World, group};

fn pod(world: &World, finalizers: &Value, phase: &str) {
    let pod = json!({
        "metadata": { "name": "p", "finalizers": finalizers },
        "spec": { "nodeName": "n1", "containers": [{ "name": "m", "image": "m" }] },
    });
    world.create(&Gvr::PODS, Some("default"), pod);
    world.status(&Gvr::PODS, Some("default"), "p", json!({ "phase": phase }));
}

/// A webhook whose service has no endpoint. `changes` replaces fields of its rule, and its `matchPolicy`.
pub(crate) fn dead_webhook(world: &World, changes: &Value) {
    let mut webhook = json!({
        "name": "pods.guard.example.com", "failurePolicy": "Fail", "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": { "service": { "namespace": "default", "name": "guard" } },
        "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"] }],
    });
    for (key, value) in changes.as_object().unwrap() {
        match key.as_str() {
            "matchPolicy" => webhook[key] = value.clone(),
            key => webhook["rules"][0][key] = value.clone(),
        }
    }
    let configuration = json!({ "metadata": { "name": "guard" }, "webhooks": [webhook] });
    let webhooks = "validatingwebhookconfigurations";
    let webhooks = Gvr::new("admissionregistration.k8s.io", "v1", webhooks);
    world.create(&webhooks, None, configuration);
}

/// A pod whose node is ready, one second past its grace period.
async fn stuck_pod(world: &World) {
    let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    let nodes = Gvr::new("", "v1", "nodes");
    world.create(&nodes, None, json!({ "metadata": { "name": "n1" } }));
    world.status(&nodes, None, "n1", ready);
    pod(world, &json!([]), "Running");
    world.delete_in(1, &Gvr::PODS, Some("default"), "p");
    tokio::time::sleep(Duration::from_millis(2_100)).await;
}

/// The kubelet's last step is a deletion without a grace period. Rules match as in the API server.
#[rstest]
#[case::deletions(json!({}), Some("webhook-down"))]
#[case::updates(json!({ "operations": ["UPDATE"] }), None)]
#[case::pods_and_their_subresources(json!({ "resources": ["pods/*"] }), Some("webhook-down"))]
#[case::a_subresource(json!({ "resources": ["pods/status"] }), None)]
#[case::all_kinds(json!({ "resources": ["*"] }), Some("webhook-down"))]
#[case::namespaced_kinds(json!({ "resources": ["*"], "scope": "Namespaced" }), Some("webhook-down"))]
#[case::cluster_scoped_kinds(json!({ "resources": ["*"], "scope": "Cluster" }), None)]
#[case::all_versions(json!({ "apiVersions": ["*"] }), Some("webhook-down"))]
#[case::another_version(json!({ "apiVersions": ["v2"], "matchPolicy": "Exact" }), None)]
#[case::a_version_that_may_be_equivalent(json!({ "apiVersions": ["v2"] }), Some("unknown"))]
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_may_reject_the_deletion_of_a_pod(
    #[case] changes: Value,
    #[case] verdict: Option<&str>,
) {
    let world = World::new().await;
    stuck_pod(&world).await;
    dead_webhook(&world, &changes);
    let report = world.run(&["stuck", "-ojson"]).await.json();
    assert_eq!(report["summary"]["stuck"], 1, "{report:#}");
    let Some(verdict) = verdict else {
        assert!(!report.to_string().contains("guard"), "{report:#}");
        return;
    };
    let group = group(&report, "webhook");
    assert_eq!(group["verdict"], verdict, "{group:#}");
    let proof = group["proof"].to_string();
    for says in ["intercepts deletions", "no kubelet can delete its pods"] {
        assert_eq!(proof.contains(says), verdict != "unknown", "{group:#}");
    }
    let missing = group["missing"].to_string();
    let says = "its rules list other versions of this kind";
    assert_eq!(missing.contains(says), verdict == "unknown", "{group:#}");
}

/// The API server calls the external name of such a service, which has no EndpointSlices.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_outside_the_cluster_is_not_dead() {
    let world = World::new().await;
    stuck_pod(&world).await;
    dead_webhook(&world, &json!({}));
    let service = json!({
        "metadata": { "name": "guard" },
        "spec": { "type": "ExternalName", "externalName": "guard.example.com" },
    });
    let services = Gvr::new("", "v1", "services");
    world.create(&services, Some("default"), service);
    let report = world.run(&["stuck", "-ojson"]).await.json();
    assert_eq!(report["summary"]["stuck"], 1, "{report:#}");
    let groups = report["groups"].to_string();
    assert!(!groups.contains("guard"), "{report:#}");
}

/// Who may read one namespace only may not read webhooks: one of them may be dead.
#[rstest]
#[case::configurations(
    "validatingwebhookconfigurations",
    "validatingwebhookconfigurations.admissionregistration.k8s.io"
)]
#[case::endpoints(
    "endpointslices",
    "endpointslices.discovery.k8s.io of service default/guard"
)]
#[case::services("services", "services of default/guard")]
#[tokio::test(flavor = "multi_thread")]
async fn unread_webhooks_are_reported(#[case] denied: &str, #[case] says: &str) {
    let world = World::new().await;
    world.create(
        &Gvr::NAMESPACES,
        None,
        json!({ "metadata": { "name": "st" } }),
    );
    let kept = json!({ "metadata": { "name": "a", "finalizers": ["example.com/a"] } });
    world.create(&Gvr::CONFIGMAPS, Some("st"), kept);
    world.delete(&Gvr::CONFIGMAPS, Some("st"), "a");
    dead_webhook(&world, &json!({ "operations": ["*"], "resources": ["*"] }));
    for verb in [Verb::Get, Verb::List] {
        let reads = Match::verb(verb).resource(denied).client(TOOL);
        let denied = Fault::on(reads).answer(Answer::forbidden("no"));
        world.sandbox.faults().inject(denied);
    }
    let stuck = world.run(&["stuck", "-n", "st", "-ojson"]).await.json();
    let unseen = stuck["unseen"].as_array().unwrap();
    let is_it = |one: &&Value| one["resource"] == says && one["reason"] == "not-allowed";
    assert_eq!(unseen.iter().filter(is_it).count(), 1, "{stuck:#}");
    assert_eq!(stuck["summary"]["complete"], false, "{stuck:#}");
    let explain = ["explain", "configmap/a", "-n", "st", "-ojson"];
    let explained = world.run(&explain).await.json();
    let missing = explained["missing"].to_string();
    let words = "whether a webhook without a ready endpoint rejects";
    assert!(missing.contains(words), "{explained:#}");
    assert!(missing.contains(says), "{explained:#}");
    assert!(
        !missing.contains("objects of these kinds remain"),
        "{explained:#}"
    );
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

/// Who has only the ClusterRole view may not read nodes.
#[rstest]
#[case::a_node_that_may_not_be_read(Verb::Get, "nodes")]
#[case::pods_that_may_not_be_listed(Verb::List, "pods")]
#[case::a_node_without_a_condition(Verb::Get, "none")]
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_a_next_step_if_its_node_is_unknown(#[case] verb: Verb, #[case] denied: &str) {
    let world = World::new().await;
    stuck_pod(&world).await;
    let nodes = Gvr::new("", "v1", "nodes");
    if denied == "none" {
        world.status(&nodes, None, "n1", json!({ "conditions": null }));
    }
    let reads = Match::verb(verb).resource(denied).client(TOOL);
    let no = Fault::on(reads).answer(Answer::forbidden("no"));
    world.sandbox.faults().inject(no);
    let report = world.run(&["explain", "pod/p", "-ojson"]).await.json();
    let group = group(&report, "node");
    assert_eq!(group["verdict"], "unknown", "{group:#}");
    let step = group["next"][0].to_string();
    assert!(
        step.contains("kubectl -n default describe pods p"),
        "{group:#}"
    );
    let role = "belayer-viewer";
    assert_eq!(step.contains(role), denied == "nodes", "{group:#}");
}
