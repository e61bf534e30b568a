//! A server that is busy, denies requests, or is partly down.

use std::time::Duration;

use belayer_sandbox::{Actor, Answer, Fault, Gvr, Match, Verb};
use serde_json::json;

use crate::world::{TOOL, World};

fn lists_of(resource: &str) -> Match {
    Match::verb(Verb::List).resource(resource).client(TOOL)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_server_is_waited_for() {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({}));
    let busy = Fault::on(lists_of("configmaps"))
        .times(1)
        .answer(Answer::too_many_requests(Duration::from_secs(1)));
    let busy = world.sandbox.faults().inject(busy);
    let answer = world.run(&["stuck", "-ojson"]).await;
    assert_eq!(answer.code, 3, "{}{}", answer.out, answer.err);
    assert_eq!(answer.json()["summary"]["stuck"], 1);
    assert_eq!(busy.hits(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_cannot_be_listed_is_reported() {
    let world = World::new().await;
    let down = Fault::on(lists_of("services")).answer(Answer::service_unavailable());
    let _down = world.sandbox.faults().inject(down);
    let answer = world.run(&["stuck"]).await;
    assert_eq!(answer.code, 3, "{}", answer.err);
    assert!(
        answer
            .out
            .contains("\nCould not be listed: services (answers 503: "),
        "{}",
        answer.out
    );
}

/// OLM computes its PackageManifests.
#[tokio::test(flavor = "multi_thread")]
async fn computed_objects_without_uids_are_listed() {
    let world = World::new().await;
    let computed = r#"{"metadata": {}, "items": [{"metadata": {"name": "a", "namespace": "b"}}]}"#;
    let answer = Answer::raw(200, "application/json", computed);
    let computed = Fault::on(lists_of("services")).answer(answer);
    let _computed = world.sandbox.faults().inject(computed);
    let answer = world.run(&["stuck"]).await;
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_permissions_every_kind_is_reported() {
    let world = World::new().await;
    let no = Fault::on(Match::verb(Verb::List).client(TOOL)).answer(Answer::forbidden("no"));
    let _no = world.sandbox.faults().inject(no);
    let answer = world.run(&["stuck"]).await;
    assert_eq!(answer.code, 4, "{}", answer.err);
    for says in [
        "Not listed, permission denied: ",
        "pods,",
        "use -n NAME to inspect one namespace",
    ] {
        assert!(answer.has(says), "{says}: {}", answer.out);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invisible_controller_makes_the_verdict_unknown() {
    let world = World::new().await;
    world.stuck_config_map("a", "strimzi.io/topic-operator", json!({}));
    let no = Fault::on(lists_of("deployments")).answer(Answer::forbidden("no"));
    let _no = world.sandbox.faults().inject(no);
    let answer = world.run(&["stuck", "-ojson"]).await;
    let report = answer.json();
    assert_eq!(report["groups"][0]["verdict"], "unknown", "{report}");
    let missing = report["groups"][0]["missing"][0].as_str().unwrap();
    assert!(
        missing.ends_with("deployments, statefulsets and daemonsets: not allowed"),
        "{missing}"
    );
    // No step is suggested that loses data.
    assert!(!answer.out.contains("--type=json"), "{}", answer.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_server_is_one_line_and_exit_code_1() {
    let world = World::new().await;
    world.sandbox.faults().cut_off();
    let answer = world.run(&["stuck"]).await;
    assert_eq!(answer.code, 1);
    assert_eq!(answer.err.lines().count(), 1, "{}", answer.err);
    assert!(
        answer
            .err
            .starts_with("error: cannot reach http://127.0.0.1:"),
        "{}",
        answer.err
    );
}

/// A large cluster has thousands of attachments; to read the node of each would take half a minute.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_nodes_of_stuck_volumes_are_read() {
    let world = World::new().await;
    let attachments = Gvr::new("storage.k8s.io", "v1", "volumeattachments");
    for number in 0..20 {
        let attachment = json!({
            "metadata": {
                "name": format!("csi-{number}"),
                "finalizers": ["external-attacher/csi-example-com"],
            },
            "spec": {
                "attacher": "csi.example.com",
                "nodeName": format!("node-{number}"),
                "source": { "persistentVolumeName": format!("pv-{number}") },
            },
        });
        world.create(&attachments, None, attachment);
    }
    let (actor, options) = (Actor::new("test"), Default::default());
    let cluster = world.sandbox.cluster();
    cluster
        .delete(&actor, &attachments, None, "csi-7", &options)
        .unwrap();
    let reads = Match::verb(Verb::Get).resource("nodes").client(TOOL);
    let reads = Fault::on(reads).answer(Answer::forbidden("no"));
    let reads = world.sandbox.faults().inject(reads);
    let answer = world.run(&["stuck", "-ojson"]).await;
    assert_eq!(answer.json()["summary"]["stuck"], 1, "{}", answer.out);
    assert_eq!(reads.hits(), 1);
}
