//! `stuck` and `explain` on a hold of a kind for which the configuration has no rule (any more).

use belayer_sandbox::Gvr;
use serde_json::json;

use crate::world::World;

const HOLD: &str = "belayer.dev/workflow-cleanup";

fn deploys_belayer(world: &World) {
    let belayer = json!({
        "metadata": { "name": "belayer" },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "labels": { "a": "b" } },
                "spec": { "containers": [{ "name": "b", "image": "belayer/belayer:0.1.0" }] } } },
    });
    let deployments = Gvr::new("apps", "v1", "deployments");
    world.create(&deployments, Some("default"), belayer);
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_without_a_rule_are_left_to_drain() {
    let world = World::new().await;
    deploys_belayer(&world);
    world.stuck_config_map("own", HOLD, json!({}));
    let stuck = world.run(&["stuck", "-ojson"]).await.json();
    let explained = world.run(&["explain", "cm/own", "-ojson"]).await.json();
    for report in [&stuck, &explained] {
        let group = &report["groups"][0];
        assert_eq!(group["finalizer"], HOLD, "{report:#}");
        assert_eq!(group["verdict"], "held-by-belayer", "{group:#}");
        assert!(!group["proof"].as_array().unwrap().is_empty(), "{group:#}");
        let next = group["next"].to_string();
        assert!(next.contains("belayer drain --unselected"), "{group:#}");
        // Only the configuration that Belayer runs with shows what it still selects.
        assert!(!group["next"][1]["command"].is_string(), "{group:#}");
        assert!(!next.contains("Start Belayer again"), "{group:#}");
    }
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("belayer.yaml");
    std::fs::write(&config, "apiVersion: config.belayer.dev/v1alpha1\n").unwrap();
    let config = config.display().to_string();
    let stuck = ["stuck", "--config", &config, "-ojson"];
    let report = world.run(&stuck).await.json();
    let next = &report["groups"][0]["next"];
    let command = format!("belayer drain --unselected --config {config}");
    assert!(next.to_string().contains(&command), "{report:#}");
}

/// A14: a backup or an archive brings Belayer's finalizers into a cluster without Belayer, on objects of whatever kind.
#[tokio::test(flavor = "multi_thread")]
async fn a14_finalizers_in_a_cluster_without_belayer_are_left_to_drain() {
    let world = World::new().await;
    let belayers = [
        "belayer.dev/pod-status",
        "belayer.dev/pod-recreation",
        "belayer.dev/workflow-cleanup",
        "belayer.dev/pvc-protection",
    ];
    for (index, hold) in belayers.iter().enumerate() {
        world.stuck_config_map(&format!("restored-{index}"), hold, json!({}));
    }
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let groups = report["groups"].as_array().unwrap();
    for hold in belayers {
        let group = groups.iter().find(|group| group["finalizer"] == hold);
        let group = group.unwrap_or_else(|| panic!("nothing about {hold}: {report:#}"));
        assert_eq!(group["verdict"], "controller-gone", "{group:#}");
        assert_eq!(group["next"][0]["command"], "belayer drain", "{group:#}");
        let text = group.to_string();
        assert!(!text.contains("--unselected"), "{group:#}");
    }
}

/// T10: a tenant sets a finalizer of Belayer on a kind that its controller does not hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_on_another_kind_is_named() {
    let world = World::new().await;
    deploys_belayer(&world);
    let hold = "belayer.dev/pvc-protection";
    world.create(
        &Gvr::PODS,
        Some("default"),
        json!({ "metadata": { "name": "web", "finalizers": [hold] },
            "spec": { "containers": [{ "name": "m", "image": "m" }] } }),
    );
    let says = format!("It has a finalizer of Belayer ({hold}).");
    let before = world.run(&["explain", "pod/web"]).await;
    assert!(before.has(&says), "{}", before.out);
    world.delete(&Gvr::PODS, Some("default"), "web");
    let after = world.run(&["explain", "pod/web"]).await;
    assert!(after.has(&says), "{}", after.out);
    assert!(
        after.has(&format!("kept by Belayer's finalizer {hold}")),
        "{}",
        after.out
    );
    assert!(after.has("belayer drain --unselected"), "{}", after.out);
}

/// Belayer may run in another namespace than the default one, and stay drained there.
#[tokio::test(flavor = "multi_thread")]
async fn resume_without_a_gate_says_that_nothing_was_changed() {
    let world = World::new().await;
    let answer = world
        .run(&["drain", "--resume", "--own-namespace=ops"])
        .await;
    assert_eq!(answer.code, 1, "{}", answer.out);
    let words = "no gate ops/belayer-gate exists: nothing was changed";
    assert!(answer.err.contains(words), "{}", answer.err);
}
