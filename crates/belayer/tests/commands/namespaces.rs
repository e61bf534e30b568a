//! `stuck` on namespaces that stay in Terminating.

use belayer_sandbox::{Actor, Gvr, Patch, Subresource};
use serde_json::json;

use crate::world::World;

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
