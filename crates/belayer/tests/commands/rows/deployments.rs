//! pod-recreation runs in a separate Deployment with a separate Lease: a finalizer is judged by those of its
//! controller.

use belayer_sandbox::{Fault, Match, Verb};

use super::*;
use crate::world::TOOL;

const BELAYER: &str = "belayer";
const APART: &str = "belayer-pod-recreation";

impl Stage {
    /// Both Deployments, of which this one is down, and a stuck pod for each: the evidence for its release exists.
    async fn without(down: &str) -> Self {
        let stage = Self::new().await;
        let cluster = stage.world.sandbox.cluster();
        let first = cluster.get(&deployments(), Some("belayer-system"), BELAYER);
        let mut second = (*first.unwrap()).clone();
        second["metadata"] = json!({ "name": APART });
        stage.create(&deployments(), "belayer-system", second);
        for name in [BELAYER, APART] {
            stage.leads(name, name != down);
        }
        for (name, metadata) in [
            ("status", of("another", json!({}))),
            (
                "recreation",
                json!({ "finalizers": ["belayer.dev/pod-recreation"] }),
            ),
        ] {
            let mut metadata = metadata;
            metadata["name"] = json!(name);
            // Not bound to a node, so that it has no grace period.
            let pod = json!({
                "metadata": metadata, "spec": { "containers": [{ "name": "m", "image": "m" }] },
            });
            stage.create(&Gvr::PODS, "yard", pod);
            stage.delete(&Gvr::PODS, Some("yard"), name);
        }
        stage
    }

    /// The pods of a Deployment, and its Lease of the same name.
    fn leads(&self, name: &str, is_up: bool) {
        let ready = json!({ "readyReplicas": u8::from(is_up) });
        self.status(&deployments(), "belayer-system", name, ready);
        let now = jiff::Timestamp::now();
        let renewed = if is_up {
            now
        } else {
            now - jiff::SignedDuration::from_hours(1)
        };
        let lease = json!({
            "metadata": { "name": name },
            "spec": {
                "holderIdentity": format!("{name}-x_0"), "leaseDurationSeconds": 60,
                "renewTime": format!("{renewed:.6}"),
            },
        });
        let leases = Gvr::new("coordination.k8s.io", "v1", "leases");
        self.world.create(&leases, Some("belayer-system"), lease);
    }

    fn gate(&self, lease_of_recreations: &str) {
        let place = |lease: &str| format!("belayer-system/{lease}");
        let data = json!({
            "mode": "normal", "hold": "on", "lease.hold": place(BELAYER),
            "holdRecreations": "on", "lease.holdRecreations": place(lease_of_recreations),
        });
        self.world.gate("belayer-system", &data);
    }

    /// The group of this pod, by `stuck` and by `explain`.
    async fn groups_of(&self, pod: &str) -> [Value; 2] {
        let stuck = self.world.run(&["stuck", "-ojson"]).await.json();
        let object = format!("pod/{pod}");
        let explain = ["explain", &object, "-n", "yard", "-ojson"];
        let explained = self.world.run(&explain).await.json();
        [stuck, explained].map(|report| {
            let mut groups = report["groups"].as_array().unwrap().iter();
            let found = groups.find(|group| group["objects"][0]["name"] == pod);
            let found = found.unwrap_or_else(|| panic!("{pod}: {report:#}"));
            found.clone()
        })
    }
}

fn is_down(group: &Value, deployment: &str) {
    assert_eq!(group["verdict"], "controller-down", "{group:#}");
    let proof = group["proof"].to_string();
    let pods = format!("deployment belayer-system/{deployment}: 0 of 1 pods ready");
    assert!(proof.contains(&pods), "{group:#}");
    let next = &group["next"][0];
    let says = next["say"].as_str().unwrap();
    assert!(says.starts_with("Make Belayer run again"), "{group:#}");
    let command = format!("kubectl -n belayer-system describe deployment/{deployment}");
    assert_eq!(next["command"], command, "{group:#}");
}

fn is_up(group: &Value, deployment: &str) {
    assert_eq!(group["verdict"], "held-by-belayer", "{group:#}");
    let proof = group["proof"].to_string();
    let ready = format!("deployment belayer-system/{deployment}: 1 of 1 pods ready");
    assert!(proof.contains(&ready), "{group:#}");
    let next = group["next"].to_string();
    assert!(next.contains("a running Belayer releases"), "{group:#}");
}

#[rstest]
#[case::of_pod_recreation(APART, ("recreation", APART), ("status", BELAYER))]
#[case::of_the_others(BELAYER, ("status", BELAYER), ("recreation", APART))]
#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_is_judged_by_the_deployment_of_its_controller(
    #[case] down: &str,
    #[case] waiting: (&str, &str),
    #[case] other: (&str, &str),
) {
    let stage = Stage::without(down).await;
    stage.gate(APART);
    for group in stage.groups_of(waiting.0).await {
        is_down(&group, waiting.1);
        let proof = group["proof"].to_string();
        let lease = format!("lease belayer-system/{} was last renewed", waiting.1);
        assert!(proof.contains(&lease), "{group:#}");
    }
    for group in stage.groups_of(other.0).await {
        is_up(&group, other.1);
        let proof = group["proof"].to_string();
        let lease = format!("lease belayer-system/{} was last renewed", other.1);
        assert!(proof.contains(&lease), "{group:#}");
    }
}

/// The rest of Belayer is installed.
#[rstest]
#[case::of_pod_recreation(
    APART,
    "recreation",
    "it releases the object at once, on that evidence"
)]
#[case::of_the_others(BELAYER, "kept", "it releases the object once nothing is missing")]
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_deployment_is_named(
    #[case] deleted: &str,
    #[case] pod: &str,
    #[case] then: &str,
) {
    let stage = Stage::without(deleted).await;
    stage.gate(APART);
    stage.delete(&deployments(), Some("belayer-system"), deleted);
    let workflow = stage.workflow("yard", json!({}));
    // It has a result, which its workflow has not read.
    let kept = json!({
        "metadata": of(&workflow, json!({ "name": "kept" })),
        "spec": { "containers": [{ "name": "m", "image": "m" }] },
        "status": { "phase": "Succeeded" },
    });
    stage.create(&Gvr::PODS, "yard", kept);
    stage.delete(&Gvr::PODS, Some("yard"), "kept");
    let first = async || {
        let groups = stage.groups_of(pod).await;
        groups.map(|group| group["next"][0]["say"].clone())
    };
    let named = format!("Install Belayer's Deployment belayer-system/{deleted} again: {then}");
    assert_eq!(first().await, [&*named, &*named]);
    for name in [BELAYER, APART].into_iter().filter(|name| *name != deleted) {
        stage.delete(&deployments(), Some("belayer-system"), name);
    }
    let all = format!("Install Belayer again: {then}");
    assert_eq!(first().await, [&*all, &*all]);
}

/// The configuration names only the Lease of the other Deployment.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_gate_pod_recreation_is_judged_by_its_deployment() {
    let stage = Stage::without(APART).await;
    stage.gate(APART);
    let denied = Fault::on(Match::any().resource("gates").client(TOOL));
    let denied = denied.answer(belayer_sandbox::Answer::forbidden("no"));
    let _denied = stage.world.sandbox.faults().inject(denied);
    for group in stage.groups_of("recreation").await {
        is_down(&group, APART);
    }
    for group in stage.groups_of("status").await {
        is_up(&group, BELAYER);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_that_runs_all_controllers_has_the_only_lease() {
    let stage = Stage::new().await;
    stage.leads(BELAYER, true);
    stage.gate(BELAYER);
    let pod = json!({
        "metadata": { "name": "recreation", "finalizers": ["belayer.dev/pod-recreation"] },
        "spec": { "containers": [{ "name": "m", "image": "m" }] },
    });
    stage.create(&Gvr::PODS, "yard", pod);
    stage.delete(&Gvr::PODS, Some("yard"), "recreation");
    for group in stage.groups_of("recreation").await {
        is_up(&group, BELAYER);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gate_is_read_once_and_only_for_a_finalizer_of_belayer() {
    let stage = Stage::new().await;
    stage.leads(BELAYER, true);
    stage.gate(BELAYER);
    let reads = |resource: &str| {
        let recorder = stage.world.sandbox.recorder();
        recorder.requests(TOOL, Verb::Get, resource)
    };
    let theirs = "strimzi.io/topic-operator";
    stage.world.stuck_config_map("theirs", theirs, json!({}));
    stage.world.run(&["stuck", "-ojson"]).await;
    assert_eq!(reads("gates.belayer.dev"), 0);
    let belayers = "belayer.dev/pod-recreation";
    for name in ["a", "b"] {
        stage.world.stuck_config_map(name, belayers, json!({}));
    }
    stage.world.run(&["stuck", "-ojson"]).await;
    assert_eq!(reads("gates.belayer.dev"), 1);
    assert_eq!(reads("leases.coordination.k8s.io"), 1);
}
