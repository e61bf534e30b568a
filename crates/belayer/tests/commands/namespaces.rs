//! `stuck` on namespaces that stay in Terminating.

use belayer_sandbox::{Actor, DeleteOptions, Gvr, Patch, Propagation, Subresource};
use serde_json::{Value, json};

use crate::nodes::dead_webhook;
use crate::world::{World, group};

/// A namespace with these ConfigMaps.
fn namespace(world: &World, name: &str, maps: &[&str]) {
    let namespace = json!({ "metadata": { "name": name } });
    world.create(&Gvr::NAMESPACES, None, namespace);
    for map in maps {
        let map = json!({ "metadata": { "name": map } });
        world.create(&Gvr::CONFIGMAPS, Some(name), map);
    }
}

/// The Lease of kube-controller-manager proves that it does not run.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_whose_content_is_not_deleted_does_not_wait_for_it() {
    let world = World::new().await;
    namespace(&world, "st", &["a"]);
    world.delete(&Gvr::NAMESPACES, None, "st");
    let lease = json!({
        "metadata": { "name": "kube-controller-manager" },
        "spec": { "holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z" },
    });
    let leases = Gvr::new("coordination.k8s.io", "v1", "leases");
    world.create(&leases, Some("kube-system"), lease);
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let group = group(&report, "namespace-content");
    assert_eq!(group["verdict"], "controller-down", "{group:#}");
    let detail = group["objects"][0]["detail"].to_string();
    for says in [
        "none of the remaining objects is being deleted",
        "st/configmaps/a remains",
    ] {
        assert!(detail.contains(says), "{group:#}");
    }
    assert!(!group.to_string().contains("Nothing to do"), "{group:#}");
}

/// Kubernetes deletes the pods first: the other kinds wait for one that is stuck.
#[tokio::test(flavor = "multi_thread")]
async fn the_kinds_that_are_being_deleted_are_named_first() {
    let world = World::new().await;
    namespace(&world, "st", &["a"]);
    for (group, version, plural) in [
        ("", "v1", "limitranges"),
        ("", "v1", "endpoints"),
        ("coordination.k8s.io", "v1", "leases"),
        ("discovery.k8s.io", "v1", "endpointslices"),
        ("", "v1", "serviceaccounts"),
    ] {
        let mut object = json!({ "metadata": { "name": "a" } });
        if plural == "endpointslices" {
            object["addressType"] = json!("IPv4");
            object["endpoints"] = json!([]);
        }
        world.create(&Gvr::new(group, version, plural), Some("st"), object);
    }
    let pod = json!({
        "metadata": { "name": "p", "finalizers": ["example.com/a"] },
        "spec": { "containers": [{ "name": "m", "image": "m" }] },
    });
    world.create(&Gvr::PODS, Some("st"), pod);
    world.delete(&Gvr::PODS, Some("st"), "p");
    world.delete(&Gvr::NAMESPACES, None, "st");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let group = group(&report, "namespace-content");
    let first = group["objects"][0]["detail"][0].as_str().unwrap();
    assert!(first.starts_with("st/pods/p remains"), "{group:#}");
}

/// `explain` reads only the namespace, so that it names the command for what remains; and the API that is down.
#[tokio::test(flavor = "multi_thread")]
async fn explain_of_a_namespace_names_the_next_commands() {
    let world = World::new().await;
    namespace(&world, "st", &[]);
    let kept = json!({ "metadata": { "name": "kept", "finalizers": ["example.com/a"] } });
    world.create(&Gvr::CONFIGMAPS, Some("st"), kept);
    world.delete(&Gvr::CONFIGMAPS, Some("st"), "kept");
    world.delete(&Gvr::NAMESPACES, None, "st");
    let explain = ["explain", "namespace/st", "-ojson"];
    let next = |report: &Value| {
        let group = group(report, "namespace-content");
        group["next"].to_string()
    };
    let explained = world.run(&explain).await.json();
    let stuck = "belayer stuck -n st";
    assert!(next(&explained).contains(stuck), "{explained:#}");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    assert!(!next(&report).contains(stuck), "{report:#}");

    let apis = Gvr::new("apiregistration.k8s.io", "v1", "apiservices");
    let name = "v1.gone.example.com";
    let api = json!({
        "metadata": { "name": name },
        "spec": {
            "group": "gone.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": { "namespace": "default", "name": "gone", "port": 443 },
        },
    });
    world.create(&apis, None, api);
    let down = json!({ "conditions": [{ "type": "Available", "status": "False", "reason": "ServiceNotFound",
        "lastTransitionTime": "2026-01-01T00:00:00Z" }] });
    world.status(&apis, None, name, down);
    let explained = world.run(&explain).await.json();
    let group = group(&explained, "dead-api");
    let command = format!("kubectl delete apiservice {name}");
    assert!(group["next"].to_string().contains(&command), "{group:#}");
}

/// kube-controller-manager reports a failed deletion for any namespace whose pods take long.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_waits_for_its_pods_is_not_blocked_by_a_webhook() {
    let world = World::new().await;
    let namespace = json!({ "metadata": { "name": "st" } });
    world.create(&Gvr::NAMESPACES, None, namespace);
    let pod = json!({
        "metadata": { "name": "p", "finalizers": ["example.com/a"] },
        "spec": { "containers": [{ "name": "m", "image": "m" }] },
    });
    world.create(&Gvr::PODS, Some("st"), pod);
    let cluster = world.sandbox.cluster();
    let (actor, options) = (Actor::new("test"), Default::default());
    for (gvr, place, name) in [(Gvr::PODS, Some("st"), "p"), (Gvr::NAMESPACES, None, "st")] {
        cluster.delete(&actor, &gvr, place, name, &options).unwrap();
    }
    let message = "Failed to delete all resource types, 1 remaining: unexpected items still remain in namespace: st \
                   for gvr: /v1, Resource=pods";
    let status = json!({ "status": { "conditions": [{
        "type": "NamespaceDeletionContentFailure", "status": "True",
        "reason": "ContentDeletionFailed", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] } });
    cluster
        .patch(
            &actor,
            &Gvr::NAMESPACES,
            None,
            "st",
            Patch::Merge(status),
            Subresource::Status,
            &Default::default(),
        )
        .unwrap();
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let groups = report["groups"].as_array().unwrap();
    let waits = groups
        .iter()
        .find(|group| group["cause"] == "namespace-content");
    let waits = waits.unwrap_or_else(|| panic!("{report:#}"));
    assert_eq!(waits["verdict"], "waiting", "{waits:#}");
    assert!(!waits["next"].to_string().contains("rejects"), "{waits:#}");
    let detail = waits["objects"][0]["detail"].to_string();
    assert!(
        detail.contains("st/pods/p remains, which is stuck too: see ["),
        "{waits:#}"
    );
}

/// Only the namespace controller is missing then: no object remains that another command could explain.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_namespace_waits_for_the_namespace_controller() {
    let world = World::new().await;
    namespace(&world, "st", &[]);
    world.delete(&Gvr::NAMESPACES, None, "st");
    for command in [&["stuck"] as &[_], &["explain", "namespace/st"]] {
        let answer = world.run(&[command, &["-ojson"]].concat()).await.json();
        let group = group(&answer, "namespace-content");
        let headline = group["headline"].as_str().unwrap();
        assert!(headline.contains("namespace controller"), "{group:#}");
        assert!(!group.to_string().contains("belayer stuck"), "{group:#}");
        assert!(!group.to_string().contains("remaining"), "{group:#}");
    }
}

/// The namespace controller completes a deletion by an update of this subresource.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_may_reject_the_end_of_a_namespace() {
    let world = World::new().await;
    namespace(&world, "st", &[]);
    world.delete(&Gvr::NAMESPACES, None, "st");
    dead_webhook(
        &world,
        &json!({ "operations": ["UPDATE"], "resources": ["namespaces/finalize"] }),
    );
    for command in [&["stuck"] as &[_], &["explain", "namespace/st"]] {
        let answer = world.run(&[command, &["-ojson"]].concat()).await.json();
        let group = group(&answer, "webhook");
        assert_eq!(group["verdict"], "webhook-down", "{group:#}");
        let proof = group["proof"].to_string();
        assert!(proof.contains("namespaces/finalize"), "{group:#}");
    }
}

/// The garbage collector cannot delete the dependents then.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_may_reject_the_deletion_of_dependents() {
    let world = World::new().await;
    namespace(&world, "st", &["owner"]);
    let cluster = world.sandbox.cluster();
    let owner = cluster.get(&Gvr::CONFIGMAPS, Some("st"), "owner").unwrap();
    let secrets = Gvr::new("", "v1", "secrets");
    let child = json!({ "metadata": { "name": "child", "ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": true,
    }] } });
    world.create(&secrets, Some("st"), child);
    let foreground = DeleteOptions {
        propagation_policy: Some(Propagation::Foreground),
        ..DeleteOptions::default()
    };
    let actor = Actor::new("test");
    cluster
        .delete(&actor, &Gvr::CONFIGMAPS, Some("st"), "owner", &foreground)
        .unwrap();
    let explain = ["explain", "configmap/owner", "-n", "st", "-ojson"];
    let answer = world.run(&explain).await.json();
    assert!(!answer.to_string().contains("belayer stuck"), "{answer:#}");
    let waits = group(&answer, "dependents");
    let steps = waits["next"].to_string();
    assert!(steps.contains("has not processed it"), "{waits:#}");

    dead_webhook(&world, &json!({ "resources": ["secrets"] }));
    for arguments in [&["stuck", "-ojson"] as &[_], &explain] {
        let answer = world.run(arguments).await.json();
        let found = group(&answer, "webhook");
        assert_eq!(found["verdict"], "webhook-down", "{found:#}");
        let proof = found["proof"].to_string();
        assert!(
            proof.contains("intercepts deletions of secrets"),
            "{found:#}"
        );
        let waits = group(&answer, "dependents");
        let steps = waits["next"].to_string();
        assert!(!steps.contains("has not processed it"), "{waits:#}");
    }
}
