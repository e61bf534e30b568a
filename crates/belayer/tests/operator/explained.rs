//! Decisions of `explain` on live reads, for the rows that need more than the pod, its owner and its
//! namespace.

use std::sync::Arc;
use std::time::Duration;

use belayer_core::client;
use belayer_core::executor::{Bounds, Executor, Writes};
use belayer_core::informer::{Decoder as _, Decoders, JsonDecoder};
use belayer_core::slim::{DecodeContext, Interner, Keep, Pod};
use belayer_holds::decision::Row;
use belayer_holds::names::FIELD_MANAGER;
use belayer_holds::namespace::NamespaceReader;
use belayer_holds::owner::OwnerReader;
use belayer_pod_finalizer::argo::NodeReader;
use belayer_pod_finalizer::component;
use belayer_pod_finalizer::decide::decide;
use belayer_pod_finalizer::explain::Looks;
use belayer_pod_finalizer::outcome::{Outcomes, crd};
use belayer_pod_finalizer::profile::config::{PodFinalizerConfig, Settings};
use belayer_pod_finalizer::row;
use belayer_pod_finalizer::snapshot::Gate;
use belayer_pod_finalizer::status::NODE_ID;
use belayer_sandbox::{Gvr, Subresource};
use belayer_workload::WORKFLOWS;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::world::{NAMESPACE, World};

struct Explainer {
    looks: Looks,
    pods: JsonDecoder<Pod>,
}

impl Explainer {
    fn new(world: &World, settings: &Settings) -> Self {
        let client = client::in_process(world.service());
        let executor = Arc::new(Executor::new(
            client,
            FIELD_MANAGER,
            Bounds::default(),
            Writes::Sent,
        ));
        let context = |keep: Keep| DecodeContext {
            keep,
            interner: Interner::default(),
        };
        let profiles = settings.profiles.clone();
        let owners = Decoders::new(JsonDecoder::new(context(component::keep_of_owners(
            &profiles,
        ))));
        let namespaces = Decoders::new(JsonDecoder::new(context(component::keep_of_namespaces())));
        Self {
            pods: JsonDecoder::new(context(component::keep_of_pods(&profiles))),
            looks: Looks {
                profiles,
                owners: Arc::new(OwnerReader::new(Arc::clone(&executor), owners)),
                namespaces: Arc::new(NamespaceReader::new(Arc::clone(&executor), namespaces)),
                nodes: Arc::new(NodeReader::new(Arc::clone(&executor))),
                executor,
                resync: Duration::from_secs(600),
            },
        }
    }

    fn pod(&self, world: &World, name: &str) -> Pod {
        let pod = world.find(name).unwrap().to_string();
        self.pods.decode_object(pod.as_bytes()).unwrap()
    }

    async fn row(&self, world: &World, name: &str) -> Row {
        let pod = self.pod(world, name);
        let snapshot = self.looks.snapshot(&pod, Gate::Open).await.unwrap();
        decide(&snapshot, Timestamp::now()).row
    }
}

fn settings(profile: &Value) -> Settings {
    let config = json!({ "profiles": [profile] });
    let config: PodFinalizerConfig = serde_json::from_value(config).unwrap();
    config.try_into().unwrap()
}

fn capturing() -> Settings {
    settings(&json!({ "builtIn": "argo", "capture": true }))
}

/// A held pod that has ended, of a workflow that has not.
fn ended_pod(world: &World) {
    let uid = world.workflow("build");
    world.held_pod("a", "build", &uid);
    world.end("a");
}

#[tokio::test(start_paused = true)]
async fn explain_reads_the_workflow_status_like_the_controller() {
    let world = World::new();
    ended_pod(&world);
    let node = json!({ "metadata": { "annotations": { NODE_ID: "build-1" } } });
    world.patch(&Gvr::PODS, "a", node);
    let explainer = Explainer::new(&world, &Settings::default());
    assert_eq!(explainer.row(&world, "a").await, row::KEEP);

    let fulfilled = json!({ "status": { "nodes": { "build-1": { "phase": "Succeeded" } } } });
    world.patch_in(
        &WORKFLOWS,
        Some(NAMESPACE),
        "build",
        fulfilled,
        Subresource::None,
    );
    assert_eq!(explainer.row(&world, "a").await, row::NODE_FULFILLED);
}

#[tokio::test(start_paused = true)]
async fn explain_reads_the_outcome_record() {
    let world = World::new();
    world.create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, crd());
    ended_pod(&world);
    let explainer = Explainer::new(&world, &capturing());
    assert_eq!(explainer.row(&world, "a").await, row::CAPTURE);

    let pod = explainer.pod(&world, "a");
    let outcomes = Outcomes::new(Duration::from_secs(60));
    outcomes
        .record(&pod, &explainer.looks.executor)
        .await
        .unwrap();
    // Argo reads pods only.
    assert_eq!(explainer.row(&world, "a").await, row::KEEP);

    let batch = json!({ "name": "batch", "selector": { "matchLabels": { "app": "batch" } },
        "capture": true });
    let explainer = Explainer::new(&world, &settings(&batch));
    let theirs = json!({ "metadata": { "labels": { "app": "batch" }, "ownerReferences": null } });
    world.patch(&Gvr::PODS, "a", theirs);
    assert_eq!(explainer.row(&world, "a").await, row::CAPTURED);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_written_does_not_stop_the_rows_below() {
    let world = World::new();
    ended_pod(&world);
    let explainer = Explainer::new(&world, &capturing());
    assert_eq!(explainer.row(&world, "a").await, row::KEEP);
}
