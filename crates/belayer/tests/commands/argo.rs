//! What `belayer check` reports about the workflow controllers of Argo Workflows.

use belayer_sandbox::Gvr;
use belayer_workload::{WORKFLOWS, workflow_crd};
use rstest::rstest;
use serde_json::json;

use crate::world::World;

/// What `check` finds about pod-finalizer, with these keys of its profile, in a cluster with workflows that are not processed.
async fn findings(profile: &str) -> String {
    let world = World::new().await;
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, workflow_crd());
    let container = json!({
        "name": "c", "image": "argoproj/workflow-controller:v3.7.0",
        "env": [{ "name": "ARGO_POD_STATUS_CAPTURE_FINALIZER", "value": "true" }],
    });
    let controller = json!({
        "metadata": { "name": "workflow-controller" },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "a": "c" } },
            "template": { "metadata": { "labels": { "a": "c" } }, "spec": { "containers": [container] } } },
    });
    let deployments = Gvr::new("apps", "v1", "deployments");
    world.create(&deployments, Some("default"), controller);
    let map = json!({
        "metadata": { "name": "workflow-controller-configmap" }, "data": { "instanceID": "ours" },
    });
    world.create(&Gvr::CONFIGMAPS, Some("default"), map);
    let quiet =
        json!({ "metadata": { "name": "quiet", "labels": { "belayer.dev/ignore": "true" } } });
    world.create(&Gvr::NAMESPACES, None, quiet);
    for (namespace, name, instance, completed) in [
        ("default", "waits", "ours", "false"),
        ("default", "lost", "theirs", "false"),
        ("default", "done", "theirs", "true"),
        ("kube-system", "system", "theirs", "false"),
        ("quiet", "ignored", "theirs", "false"),
    ] {
        let workflow = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "spec": {},
            "metadata": { "name": name, "labels": {
                "workflows.argoproj.io/controller-instanceid": instance,
                "workflows.argoproj.io/completed": completed,
            } },
        });
        world.create(&WORKFLOWS, Some(namespace), workflow);
    }
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("belayer.yaml");
    let keys = format!("podFinalizer: {{profiles: [{{builtIn: argo, {profile}}}]}}");
    std::fs::write(
        &config,
        format!("apiVersion: config.belayer.dev/v1alpha1\n{keys}\n"),
    )
    .unwrap();
    let config = format!("--config={}", config.display());
    let answer = world
        .run(&["check", "--controllers=pod-finalizer", &config, "-ojson"])
        .await;
    answer.json()["parts"][2]["findings"].to_string()
}

/// A22: workflows that no workflow controller processes, and a controller that holds pods by its own finalizer.
#[rstest]
#[case::not_adopted("[]", true)]
#[case::adopted("[workflows.argoproj.io/status]", false)]
#[tokio::test(flavor = "multi_thread")]
async fn a22_unprocessed_workflows_and_argos_own_finalizer_are_reported(
    #[case] adopt: &str,
    #[case] reported: bool,
) {
    let findings = findings(&format!("adopt: {adopt}")).await;
    let own = "ARGO_POD_STATUS_CAPTURE_FINALIZER of deployment default/workflow-controller";
    assert_eq!(findings.contains(own), reported, "{findings}");
    for says in [
        "1 unfinished workflow in namespace default",
        "no workflow controller of this cluster processes workflows with instance ID theirs in namespace default",
        "the workflow controller for workflows with instance ID ours in namespace default has no ready pod",
    ] {
        assert!(findings.contains(says), "{says}: {findings}");
    }
    // Belayer holds nothing there.
    for not in ["2 unfinished", "namespace kube-system", "namespace quiet"] {
        assert!(!findings.contains(not), "{findings}");
    }
}

/// Without a profile that holds pods, none stay.
#[tokio::test(flavor = "multi_thread")]
async fn unprocessed_workflows_do_not_matter_if_pods_are_only_observed() {
    let findings = findings("mode: observe").await;
    assert!(!findings.contains("unfinished workflow"), "{findings}");
}
