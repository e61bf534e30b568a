//! `stuck` on namespaces that stay in Terminating.

use belayer_sandbox::{Actor, DeleteOptions, Gvr, Propagation};
use serde_json::{Value, json};

use crate::nodes::dead_webhook;
use crate::world::{World, group};

/// A namespace with these ConfigMaps.
pub(crate) fn namespace(world: &World, name: &str, maps: &[&str]) {
    let namespace = json!({ "metadata": { "name": name } });
    world.create(&Gvr::NAMESPACES, None, namespace);
    for map in maps {
        let map = json!({ "metadata": { "name": map } });
        world.create(&Gvr::CONFIGMAPS, Some(name), map);
    }
}

/// kube-controller-manager does not renew its Lease.
pub(crate) fn manager_stops(world: &World) {
    let lease = json!({
        "metadata": { "name": "kube-controller-manager" },
        "spec": { "holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z" },
    });
    let leases = Gvr::new("coordination.k8s.io", "v1", "leases");
    world.create(&leases, Some("kube-system"), lease);
}

/// The namespace has these conditions, each with its message.
pub(crate) fn conditions(world: &World, name: &str, conditions: &[(&str, &str)]) {
    let conditions = conditions.iter().map(|(kind, message)| {
        json!({
            "type": kind, "status": "True", "reason": "Any", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    });
    let status = json!({ "conditions": conditions.collect::<Vec<_>>() });
    world.status(&Gvr::NAMESPACES, None, name, status);
}

/// Deletes a ConfigMap with the propagation policy Foreground.
pub(crate) fn delete_in_the_foreground(world: &World, namespace: &str, name: &str) {
    let foreground = DeleteOptions {
        propagation_policy: Some(Propagation::Foreground),
        ..DeleteOptions::default()
    };
    let (cluster, actor) = (world.sandbox.cluster(), Actor::new("test"));
    cluster
        .delete(&actor, &Gvr::CONFIGMAPS, Some(namespace), name, &foreground)
        .unwrap();
}

/// An APIService whose service does not exist.
fn dead_api(world: &World, name: &str) {
    let (version, group) = name.split_once('.').unwrap();
    let apis = Gvr::new("apiregistration.k8s.io", "v1", "apiservices");
    let api = json!({
        "metadata": { "name": name },
        "spec": {
            "group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": { "namespace": "default", "name": "gone", "port": 443 },
        },
    });
    world.create(&apis, None, api);
    let down = json!({ "conditions": [{ "type": "Available", "status": "False", "reason": "ServiceNotFound",
        "lastTransitionTime": "2026-01-01T00:00:00Z" }] });
    world.status(&apis, None, name, down);
}

/// The Lease of kube-controller-manager proves that it does not run.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_whose_content_is_not_deleted_does_not_wait_for_it() {
    let world = World::new().await;
    namespace(&world, "st", &["a"]);
    world.delete(&Gvr::NAMESPACES, None, "st");
    manager_stops(&world);
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

    let name = "v1.gone.example.com";
    dead_api(&world, name);
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
    conditions(
        &world,
        "st",
        &[("NamespaceDeletionContentFailure", message)],
    );
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

/// The API that is down does not keep the objects of other APIs.
#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_deletion_is_reported_beside_an_api_that_is_down() {
    let world = World::new().await;
    namespace(&world, "st", &["a"]);
    world.delete(&Gvr::NAMESPACES, None, "st");
    dead_api(&world, "v1.gone.example.com");
    let message = "Failed to delete all resource types, 1 remaining: configmaps \"a\" is forbidden: policy denies";
    conditions(
        &world,
        "st",
        &[("NamespaceDeletionContentFailure", message)],
    );
    for command in [&["stuck"] as &[_], &["explain", "namespace/st"]] {
        let answer = world.run(&[command, &["-ojson"]].concat()).await.json();
        let groups = answer["groups"].as_array().unwrap();
        let of_verdict = |verdict: &str| {
            let mut groups = groups.iter();
            let is_it = |g: &&Value| g["cause"] == "namespace-content" && g["verdict"] == verdict;
            let found = groups.find(is_it);
            found.unwrap_or_else(|| panic!("{answer:#}")).to_string()
        };
        let api = of_verdict("api-down");
        assert!(!api.contains("by itself"), "{api}");
        assert!(
            of_verdict("waiting").contains("policy denies"),
            "{answer:#}"
        );
    }
}

/// A Secret in the namespace `st` that blocks the deletion of the ConfigMap `owner` there.
fn dependent(world: &World, name: &str, finalizers: Value) -> Gvr {
    let cluster = world.sandbox.cluster();
    let owner = cluster.get(&Gvr::CONFIGMAPS, Some("st"), "owner").unwrap();
    let secrets = Gvr::new("", "v1", "secrets");
    let child = json!({ "metadata": { "name": name, "finalizers": finalizers, "ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": true,
    }] } });
    world.create(&secrets, Some("st"), child);
    secrets
}

/// Dependents that nothing deletes wait for the garbage collector.
#[tokio::test(flavor = "multi_thread")]
async fn dependents_that_are_not_deleted_are_no_reason_to_wait() {
    let world = World::new().await;
    namespace(&world, "st", &["owner"]);
    let secrets = dependent(&world, "child", json!(["example.com/a"]));
    delete_in_the_foreground(&world, "st", "owner");
    manager_stops(&world);
    for command in [&["stuck"] as &[_], &["explain", "cm/owner", "-n", "st"]] {
        let answer = world.run(&[command, &["-ojson"]].concat()).await.json();
        let owner = group(&answer, "dependents");
        assert_eq!(owner["verdict"], "controller-down", "{owner:#}");
        let text = owner.to_string();
        assert!(
            text.contains("kube-system/kube-controller-manager was last renewed"),
            "{owner:#}"
        );
        assert!(
            text.contains("st/secrets/child is not being deleted yet"),
            "{owner:#}"
        );
        assert!(!text.contains("Nothing to do"), "{owner:#}");
    }
    world.delete(&secrets, Some("st"), "child");
    let answer = world.run(&["stuck", "-ojson"]).await.json();
    let owner = group(&answer, "dependents");
    assert_eq!(owner["verdict"], "waiting", "{owner:#}");
    assert!(
        owner["next"].to_string().contains("Nothing to do"),
        "{owner:#}"
    );
}

/// The garbage collector cannot delete the dependents then.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_may_reject_the_deletion_of_dependents() {
    let world = World::new().await;
    namespace(&world, "st", &["owner"]);
    dependent(&world, "child", json!([]));
    delete_in_the_foreground(&world, "st", "owner");
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
