//! The outputs of commands that pages show.

use std::path::Path;

use belayer_sandbox::{Answer, Fault, Gvr, Match};
use belayer_workload::{WORKFLOWS, workflow_crd};
use serde_json::json;

use crate::argo::workflow_controller;
use crate::check::manifests;
use crate::status::{lease, namespace, pod};
use crate::world::World;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Without ages and with lines joined, which differ from run to run.
fn normal(text: &str) -> String {
    let words = text.split_whitespace().map(|word| {
        let number = word.trim_end_matches(['s', 'm', 'h', 'd']);
        let is_age = number != word && number.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_age = is_age && number.starts_with(|c: char| c.is_ascii_digit());
        if is_age { "<age>" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Asserts that the page shows this output between the comments `<!-- NAME -->` and `<!-- end NAME -->`. After a change
/// of a text run the tests with `UPDATE_SNAPSHOTS=1`.
fn is_shown(page: &str, name: &str, output: &str) {
    let path = Path::new(ROOT).join(page);
    let text = std::fs::read_to_string(&path).unwrap();
    let begin = format!("<!-- {name} -->\n```text\n");
    let end = format!("```\n<!-- end {name} -->\n");
    let (head, rest) = text.split_once(&begin).unwrap();
    let (shown, tail) = rest.split_once(&end).unwrap();
    if normal(shown) == normal(output) {
        return;
    }
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, format!("{head}{begin}{output}{end}{tail}")).unwrap();
        return;
    }
    panic!(
        "{page} is not up to date: run UPDATE_SNAPSHOTS=1 cargo test --workspace --test commands\n{output}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readme_shows_what_stuck_prints() {
    let world = World::new().await;
    let cluster = Path::new(ROOT).join("e2e/fixtures/broken-cluster.yaml");
    world.sandbox.load(cluster).unwrap();
    let stuck = world.run(&["stuck"]).await;
    assert_eq!(stuck.code, 3, "{}", stuck.err);
    is_shown("README.md", "stuck", &stuck.out);
}

/// The manifests that `kubectl apply -k` applies, running replicas, and a workflow whose pod was deleted.
async fn installed() -> World {
    let world = World::new().await;
    let kustomization =
        std::fs::read_to_string(Path::new(ROOT).join("deploy/manifests/kustomization.yaml"))
            .unwrap();
    let files = kustomization
        .lines()
        .filter_map(|line| line.strip_prefix("- ")?.strip_suffix(".yaml"));
    manifests(&world, &files.collect::<Vec<_>>());
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, workflow_crd());
    let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    for name in ["belayer", "belayer-pod-recreation"] {
        for replica in ["a", "b"] {
            let replica = format!("{name}-{replica}");
            let labels = json!({ "labels": { "app.kubernetes.io/name": name } });
            pod(&world, "belayer-system", &replica, labels);
            world.status(&Gvr::PODS, Some("belayer-system"), &replica, ready.clone());
        }
        lease(&world, name, &format!("{name}-a_0"));
    }
    // The metrics of a leader, through the API server's proxy.
    let metrics = Match::any().path_prefix("/api/v1/namespaces/belayer-system/pods/belayer-a");
    let metrics = Fault::on(metrics).answer(Answer::raw(200, "text/plain", ""));
    world.sandbox.faults().inject(metrics);
    let on = json!({ "mode": "normal", "hold": "on", "holdWorkflows": "on", "holdClaims": "on",
        "holdRecreations": "on" });
    world.gate("belayer-system", &on);
    workflow_controller(&world, &json!({}), 1);
    namespace(&world, "ci");
    let workflow = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "spec": {},
        "status": { "phase": "Running", "nodes": { "build-1": { "phase": "Running" } } },
        "metadata": { "name": "build", "finalizers": ["belayer.dev/workflow-cleanup"] },
    });
    world.create(&WORKFLOWS, Some("ci"), workflow);
    let workflow = world
        .sandbox
        .cluster()
        .get(&WORKFLOWS, Some("ci"), "build")
        .unwrap();
    let metadata = json!({
        "finalizers": ["belayer.dev/pod-status"],
        "labels": { "workflows.argoproj.io/workflow": "build" },
        "annotations": { "workflows.argoproj.io/node-id": "build-1" },
        "ownerReferences": [{ "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "build",
            "uid": workflow["metadata"]["uid"], "controller": true }],
    });
    pod(&world, "ci", "build-1", metadata);
    let ended = json!({ "phase": "Succeeded" });
    world.status(&Gvr::PODS, Some("ci"), "build-1", ended);
    world.delete(&Gvr::PODS, Some("ci"), "build-1");
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_about_the_installation_shows_what_check_and_status_print() {
    let world = installed().await;
    for (name, args) in [
        ("check", &["check", "--service-account"][..]),
        ("status", &["status"]),
    ] {
        let answer = world.run(args).await;
        assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
        is_shown("docs/src/install/install.md", name, &answer.out);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_about_waiting_objects_shows_what_explain_prints() {
    let world = installed().await;
    let answer = world.run(&["explain", "pod/build-1", "-n", "ci"]).await;
    assert_eq!(answer.code, 3, "{}{}", answer.out, answer.err);
    is_shown(
        "docs/src/troubleshooting/will-not-go.md",
        "explain",
        &answer.out,
    );
}
