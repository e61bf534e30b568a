//! What `belayer check` reports about the workflow controllers of Argo Workflows.

use belayer_sandbox::{Actor, Gvr};
use belayer_workload::{WORKFLOWS, workflow_crd};
use rstest::rstest;
use serde_json::{Value, json};

use crate::world::World;

/// What `check` finds about pod-finalizer, with these keys of its profile, in a cluster with workflows that are not processed.
async fn findings(profile: &str) -> String {
    let world = World::new().await;
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, workflow_crd());
    let container = json!({ "env": [{ "name": OWN, "value": "true" }] });
    workflow_controller(&world, &container, 0);
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
        "no Deployment was recognized as the workflow controller for workflows with instance ID theirs in namespace default",
        "the workflow controller for workflows with instance ID ours in namespace default has no ready pod",
    ] {
        assert!(findings.contains(says), "{says}: {findings}");
    }
    // A controller that was not recognized may process them: its workflows are not to be deleted.
    assert_eq!(
        findings.matches("or delete the workflows").count(),
        1,
        "{findings}"
    );
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

/// A22: vendors build the workflow controller under other names, and mirrors rename its image.
#[rstest]
#[case::of_red_hat("ds-pipeline-workflow-controller-dspa", json!({ "image": "quay.io/rhoai/argo-workflowcontroller@sha256:0" }))]
#[case::of_a_mirror("flows", json!({ "image": "mirror/flows:4", "command": ["workflow-controller"] }))]
#[tokio::test(flavor = "multi_thread")]
async fn a22_a_workflow_controller_of_another_name_is_alive(
    #[case] name: &str,
    #[case] container: Value,
) {
    let world = World::new().await;
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, workflow_crd());
    deployment(&world, name, container, 1);
    let workflow = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "spec": {},
        "metadata": { "name": "build", "finalizers": ["workflows.argoproj.io/artifact-gc"] },
    });
    world.create(&WORKFLOWS, Some("default"), workflow);
    let found = world
        .sandbox
        .cluster()
        .get(&WORKFLOWS, Some("default"), "build")
        .unwrap();
    let uid = found["metadata"]["uid"].clone();
    let pod = json!({
        "metadata": { "name": "v1", "finalizers": ["belayer.dev/pod-status"],
            "labels": { "workflows.argoproj.io/workflow": "build" },
            "ownerReferences": [{ "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "build",
                "uid": uid, "controller": true }] },
        "spec": { "containers": [{ "name": "main", "image": "m" }] },
    });
    world.create(&Gvr::PODS, Some("default"), pod);
    world.status(
        &Gvr::PODS,
        Some("default"),
        "v1",
        json!({ "phase": "Succeeded" }),
    );

    let check = world
        .run(&["check", "--controllers=pod-finalizer", "-ojson"])
        .await;
    let findings = check.json()["parts"][2]["findings"].to_string();
    assert!(!findings.contains("unfinished workflow"), "{findings}");
    let explained = world.run(&["explain", "pod/v1", "-n", "default"]).await.out;
    assert!(explained.contains("keeps its hold"), "{explained}");
    assert!(!explained.contains("workflow controller"), "{explained}");

    world.delete(&WORKFLOWS, Some("default"), "build");
    let stuck = world.run(&["stuck", "-ojson"]).await.json().to_string();
    assert!(stuck.contains("controller-alive"), "{stuck}");
    assert!(
        stuck.contains(&format!("deployment default/{name}")),
        "{stuck}"
    );
    assert!(!stuck.contains("controller-gone"), "{stuck}");
}

pub(crate) fn workflow_controller(world: &World, container: &Value, ready: u64) {
    let mut container = container.clone();
    container["image"] = "argoproj/workflow-controller:v3.7.0".into();
    deployment(world, "workflow-controller", container, ready);
}

fn deployment(world: &World, name: &str, mut container: Value, ready: u64) {
    container["name"] = "c".into();
    let controller = json!({
        "metadata": { "name": name },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "a": "c" } },
            "template": { "metadata": { "labels": { "a": "c" } }, "spec": { "containers": [container] } } },
    });
    let deployments = Gvr::new("apps", "v1", "deployments");
    world.create(&deployments, Some("default"), controller);
    let status = json!({ "readyReplicas": ready });
    world.status(&deployments, Some("default"), name, status);
}

const OWN: &str = "ARGO_POD_STATUS_CAPTURE_FINALIZER";

/// A22: the variable may come from a ConfigMap.
#[rstest]
#[case::value_from(json!({ "env": [{ "name": OWN, "valueFrom": { "configMapKeyRef": { "name": "argoenv", "key": "on" } } }] }), Some("ARGO_POD_STATUS_CAPTURE_FINALIZER of"))]
#[case::value_from_another_key(json!({ "env": [{ "name": OWN, "valueFrom": { "configMapKeyRef": { "name": "argoenv", "key": "x" } } }] }), None)]
#[case::env_from(json!({ "envFrom": [{ "configMapRef": { "name": "argoenv" } }, { "secretRef": { "name": "s" } }] }), Some("ARGO_POD_STATUS_CAPTURE_FINALIZER of"))]
#[case::env_precedes(json!({ "env": [{ "name": OWN, "value": "false" }], "envFrom": [{ "configMapRef": { "name": "argoenv" } }] }), None)]
#[case::env_from_another_one(json!({ "envFrom": [{ "configMapRef": { "name": "none" } }] }), None)]
#[case::a_secret(json!({ "env": [{ "name": OWN, "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] }), Some("whether ARGO_POD_STATUS_CAPTURE_FINALIZER of"))]
#[tokio::test(flavor = "multi_thread")]
async fn a22_argos_own_finalizer_is_found_in_a_config_map(
    #[case] container: Value,
    #[case] says: Option<&str>,
) {
    let world = World::new().await;
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, workflow_crd());
    let map = json!({ "metadata": { "name": "argoenv" }, "data": { "on": "true", (OWN): "true" } });
    world.create(&Gvr::CONFIGMAPS, Some("default"), map);
    workflow_controller(&world, &container, 1);
    let answer = world
        .run(&["check", "--controllers=pod-finalizer", "-ojson"])
        .await;
    let findings = answer.json()["parts"][2]["findings"].clone();
    let about = |one: &&Value| one["what"].as_str().unwrap().contains(OWN);
    let found = findings.as_array().unwrap().iter().find(about);
    let what = found.map(|one| one["what"].as_str().unwrap());
    match says {
        Some(says) => assert!(what.unwrap().starts_with(says), "{findings:#}"),
        None => assert_eq!(what, None),
    }
}

/// The workflow controller ignores a pod that it has read, and without its switch it removes its
/// finalizer from no pod.
#[rstest]
#[case::read("true", Some("true"), Some("the result was read"))]
#[case::read_and_off("false", Some("true"), Some("the result was read"))]
#[case::off("false", None, Some("if its workflow has the result"))]
#[case::it_will_remove_it("true", None, None)]
#[tokio::test(flavor = "multi_thread")]
async fn a22_a_pod_that_argo_left_names_the_way_out(
    #[case] switch: &str,
    #[case] completed: Option<&str>,
    #[case] says: Option<&str>,
) {
    let world = World::new().await;
    workflow_controller(
        &world,
        &json!({ "env": [{ "name": OWN, "value": switch }] }),
        1,
    );
    let mut pod = json!({
        "metadata": { "name": "v1", "labels": {}, "finalizers": ["workflows.argoproj.io/status"] },
        "spec": { "containers": [{ "name": "m", "image": "m" }] },
    });
    if let Some(completed) = completed {
        pod["metadata"]["labels"]["workflows.argoproj.io/completed"] = completed.into();
    }
    world.create(&Gvr::PODS, Some("default"), pod);
    world
        .sandbox
        .cluster()
        .delete(
            &Actor::new("test"),
            &Gvr::PODS,
            Some("default"),
            "v1",
            &Default::default(),
        )
        .unwrap();
    for command in [&["stuck"][..], &["explain", "pod/v1", "-n", "default"]] {
        let text = world.run(command).await.out;
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let Some(says) = says else {
            assert!(!text.contains("adopt:"), "{text}");
            assert!(text.contains("check its log"), "{text}");
            continue;
        };
        assert!(
            text.contains("adopt: [workflows.argoproj.io/status]"),
            "{text}"
        );
        assert!(
            text.contains(says) && text.contains("kubectl -n default patch"),
            "{text}"
        );
        assert!(!text.contains("check its log"), "{text}");
    }
}
