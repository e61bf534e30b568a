//! `stuck` and `explain` for users who may not read everything: what is unknown is reported as unknown, with a step.

use belayer_sandbox::{Answer, Fault, Gvr, Match, Verb};
use rstest::rstest;
use serde_json::{Value, json};

use crate::namespaces::{conditions, delete_in_the_foreground, manager_stops, namespace};
use crate::world::{TOOL, World, group};

/// This user may no longer do this.
fn deny(world: &World, verb: Verb, resource: &str) {
    let requests = Match::verb(verb).resource(resource).client(TOOL);
    let no = Fault::on(requests).answer(Answer::forbidden("no"));
    world.sandbox.faults().inject(no);
}

/// A role for the kinds of a namespace does not include the namespace itself.
#[rstest]
#[case::it_may_be_listed(&[Verb::Get], 3)]
#[case::it_may_not_be_listed(&[Verb::Get, Verb::List], 4)]
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_may_not_be_read_is_listed_or_reported(
    #[case] denied: &[Verb],
    #[case] code: i32,
) {
    let world = World::new().await;
    for (name, finalizers) in [("other", json!([])), ("st", json!(["example.com/a"]))] {
        let namespace = json!({ "metadata": { "name": name, "finalizers": finalizers } });
        world.create(&Gvr::NAMESPACES, None, namespace);
        world.delete(&Gvr::NAMESPACES, None, name);
    }
    for verb in denied {
        deny(&world, *verb, "namespaces");
    }
    let answer = world.run(&["stuck", "-n", "st", "-ojson"]).await;
    assert_eq!(answer.code, code, "{}{}", answer.out, answer.err);
    let report = answer.json();
    if code == 3 {
        assert_eq!(report["summary"]["stuck"], 1, "{report:#}");
        let _own = group(&report, "example.com/a");
        return;
    }
    let unseen = &report["unseen"][0];
    assert_eq!(unseen["resource"], "namespaces st", "{report:#}");
    assert_eq!(unseen["reason"], "not-allowed", "{report:#}");
}

/// Objects that nothing deletes are nothing to wait for, whatever else the namespace contains.
#[rstest]
#[case::the_controller_is_down(true, "controller-down")]
#[case::unknown(false, "unknown")]
#[tokio::test(flavor = "multi_thread")]
async fn content_that_is_not_deleted_is_no_reason_to_wait(
    #[case] is_down: bool,
    #[case] verdict: &str,
) {
    let world = World::new().await;
    namespace(&world, "st", &["a"]);
    world.delete(&Gvr::NAMESPACES, None, "st");
    if is_down {
        manager_stops(&world);
    }
    deny(&world, Verb::List, "secrets");
    deny(&world, Verb::List, "nodes");
    for command in [&["stuck"] as &[_], &["explain", "namespace/st"]] {
        let answer = world.run(&[command, &["-ojson"]].concat()).await.json();
        let group = group(&answer, "namespace-content");
        assert_eq!(group["verdict"], verdict, "{group:#}");
        assert!(!group.to_string().contains("Nothing to do"), "{group:#}");
        let missing = group["missing"].to_string();
        assert!(missing.contains("secrets"), "{group:#}");
        assert!(!missing.contains("nodes"), "{group:#}");
    }
}

/// No namespace contains nodes, and no ConfigMap can own them.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespaced_owner_does_not_wait_for_cluster_scoped_kinds() {
    let world = World::new().await;
    namespace(&world, "st", &["owner"]);
    delete_in_the_foreground(&world, "st", "owner");
    deny(&world, Verb::List, "nodes");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let group = group(&report, "foregroundDeletion");
    assert_eq!(group["cause"], "finalizer", "{group:#}");
}

/// The namespace controller counts the objects of all kinds.
#[tokio::test(flavor = "multi_thread")]
async fn the_conditions_prove_what_may_not_be_listed() {
    let world = World::new().await;
    namespace(&world, "st", &[]);
    world.delete(&Gvr::NAMESPACES, None, "st");
    let remaining = "Some resources are remaining: secrets. has 1 resource instances";
    let finalizers =
        "Some content in the namespace has finalizers remaining: x.io/y in 1 resource instances";
    let says = [
        ("NamespaceContentRemaining", remaining),
        ("NamespaceFinalizersRemaining", finalizers),
    ];
    conditions(&world, "st", &says);
    deny(&world, Verb::List, "secrets");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let waits = group(&report, "namespace-content");
    assert_eq!(waits["verdict"], "waiting", "{waits:#}");
    for says in [remaining, finalizers] {
        assert!(waits["proof"].to_string().contains(says), "{waits:#}");
    }
    let steps = waits["next"].to_string();
    assert!(steps.contains("belayer stuck -n st"), "{waits:#}");

    manager_stops(&world);
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let waits = group(&report, "namespace-content");
    assert_eq!(waits["verdict"], "controller-down", "{waits:#}");
    assert!(waits["proof"].to_string().contains(remaining), "{waits:#}");
}

/// What was listed is shown although the namespace itself may not be read.
#[tokio::test(flavor = "multi_thread")]
async fn the_content_of_a_namespace_that_may_not_be_read_is_shown() {
    let world = World::new().await;
    namespace(&world, "st", &["a"]);
    world.delete(&Gvr::NAMESPACES, None, "st");
    deny(&world, Verb::Get, "namespaces");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let found = may(&report, "namespace-content", "may wait for the deletion");
    let detail = found["objects"][0]["detail"].to_string();
    assert!(detail.contains("st/configmaps/a remains"), "{found:#}");
}

/// A headline states only what is known, and each group has a step.
fn may<'a>(report: &'a Value, what: &str, says: &str) -> &'a Value {
    let found = group(report, what);
    assert_eq!(found["verdict"], "unknown", "{found:#}");
    let headline = found["headline"].as_str().unwrap();
    assert!(headline.contains(says), "{found:#}");
    let step = found["next"][0]["command"].as_str().unwrap();
    assert!(step.starts_with("kubectl "), "{found:#}");
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_may_be_in_use_by_pods_that_may_not_be_listed() {
    let world = World::new().await;
    let finalizer = "kubernetes.io/pvc-protection";
    let pvc = json!({
        "metadata": { "name": "c", "finalizers": [finalizer] },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    let pvcs = Gvr::new("", "v1", "persistentvolumeclaims");
    world.create(&pvcs, Some("default"), pvc);
    world.delete(&pvcs, Some("default"), "c");
    deny(&world, Verb::List, "pods");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let _found = may(&report, finalizer, "may be in use by pods");
}

#[rstest]
#[case::its_pvc("kubernetes.io/pv-protection", Verb::Get, "may wait for the bound PVC")]
#[case::its_attachments(
    "external-attacher/csi-example-com",
    Verb::List,
    "may wait for the volume to be detached"
)]
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_may_wait_for_what_may_not_be_read(
    #[case] finalizer: &str,
    #[case] verb: Verb,
    #[case] says: &str,
) {
    let world = World::new().await;
    let volumes = Gvr::new("", "v1", "persistentvolumes");
    let volume = json!({
        "metadata": { "name": "pv", "finalizers": [finalizer] },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "csi": { "driver": "csi.example.com", "volumeHandle": "v" },
        },
    });
    world.create(&volumes, None, volume);
    world.delete(&volumes, None, "pv");
    let denied = match verb {
        Verb::Get => "persistentvolumes",
        _ => "volumeattachments",
    };
    deny(&world, verb, denied);
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let _found = may(&report, finalizer, says);
}
