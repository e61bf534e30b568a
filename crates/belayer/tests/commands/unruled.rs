//! `stuck` and `explain` on a hold of a kind for which the configuration has no rule (any more).

use belayer_sandbox::{Actor, Gvr};
use serde_json::json;

use crate::world::World;

const HOLD: &str = "belayer.dev/workflow-cleanup";

#[tokio::test(flavor = "multi_thread")]
async fn holds_without_a_rule_are_left_to_drain() {
    let world = World::new().await;
    let map = json!({ "metadata": { "name": "own", "finalizers": [HOLD] } });
    world.create(&Gvr::CONFIGMAPS, Some("default"), map);
    let (actor, options) = (Actor::new("test"), Default::default());
    let cluster = world.sandbox.cluster();
    cluster
        .delete(&actor, &Gvr::CONFIGMAPS, Some("default"), "own", &options)
        .unwrap();
    let stuck = world.run(&["stuck", "-ojson"]).await.json();
    let explained = world.run(&["explain", "cm/own", "-ojson"]).await.json();
    for report in [&stuck, &explained] {
        let group = &report["groups"][0];
        assert_eq!(group["finalizer"], HOLD, "{report:#}");
        assert_eq!(group["verdict"], "held-by-belayer", "{group:#}");
        let next = group["next"].to_string();
        assert!(next.contains("belayer drain --unselected"), "{group:#}");
        assert!(!next.contains("Start Belayer again"), "{group:#}");
    }
}
