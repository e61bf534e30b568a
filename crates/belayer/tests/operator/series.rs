//! Metric series that exist before any event, and their labels.

use std::collections::BTreeSet;
use std::time::Duration;

use belayer::operator::Memory;
use belayer_core::executor::Writes;
use belayer_metrics::{CONSUMER_SILENT, Exporter, INFORMER_OBJECTS};
use belayer_pod_finalizer::profile::config::{PodFinalizerConfig, Settings};
use belayer_sandbox::Gvr;
use belayer_workflow_finalizer::config::WorkflowFinalizerConfig;
use serde_json::json;

use crate::world::{NAMESPACE, World, let_pass};

/// The kinds of all informers.
fn kinds(exporter: &Exporter) -> BTreeSet<String> {
    let text = exporter.render();
    let lines = text.lines();
    let lines = lines.filter(|line| line.starts_with(INFORMER_OBJECTS));
    let kinds = lines.filter_map(|line| line.split("kind=\"").nth(1)?.split('"').next());
    kinds.map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn zero_series_have_the_labels_of_informers() {
    let world = World::new();
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _operator = metrics::with_local_recorder(&recorder, || {
        world.operator(Settings::default(), Writes::Sent)
    });
    assert_eq!(
        kinds(&exporter),
        ["Namespace", "Pod", "Workflow"].map(str::to_owned).into()
    );
}

/// In one series, the informer that works would hide that the other one is silent.
#[tokio::test(start_paused = true)]
async fn two_kinds_of_one_name_have_separate_series() {
    let world = World::new();
    let job = |group, version| {
        let owner =
            json!({ "group": group, "version": version, "kind": "Job", "resource": "jobs" });
        json!({ "owner": owner })
    };
    let owners = json!({ "owners": [job("batch", "v1"), job("batch.volcano.sh", "v1alpha1")] });
    let owners: WorkflowFinalizerConfig = serde_json::from_value(owners).unwrap();
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let _belayer = world.run_with_owners(owners.try_into().unwrap());
    let kinds = kinds(&exporter);
    for kind in ["Job.batch", "Job.batch.volcano.sh"] {
        assert!(kinds.contains(kind), "{kind}: {kinds:?}");
    }
    assert!(!kinds.contains("Job"), "{kinds:?}");
}

/// A reload can remove a kind of owner: its last values would stay, and with them the alert that a consumer is silent.
#[tokio::test(start_paused = true)]
async fn a_kind_that_a_reload_removes_counts_nothing() {
    let world = World::new();
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let sum = |series: &str| -> f64 {
        let text = exporter.render();
        let lines = text.lines().filter(|line| line.starts_with(series));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    };
    let objects = |kind| sum(&format!("{INFORMER_OBJECTS}{{kind=\"{kind}\"}}"));
    let uid = world.workflow("build");
    world.held_pod("step", "build", &uid);
    world.end("step");
    world.delete(&Gvr::PODS, Some(NAMESPACE), "step");
    let memory = Memory::default();
    let before = world.run_remembering(Settings::default(), &memory);
    let_pass(Duration::from_secs(400)).await;
    assert!(sum(CONSUMER_SILENT) > 300.0);
    assert_eq!(objects("Workflow"), 1.0);
    let namespaces = objects("Namespace");
    assert!(namespaces > 0.0);
    let jobs =
        json!({ "name": "jobs", "selector": { "matchLabels": { "app": "job" } }, "capture": true });
    let config: PodFinalizerConfig = serde_json::from_value(json!({ "profiles": [jobs] })).unwrap();
    let settings: Settings = config.try_into().unwrap();
    // As a reload: those before it stop once the caches of the new ones are filled.
    let _after = world.run_remembering(settings, &memory);
    let_pass(Duration::from_secs(5)).await;
    before.stop().await;
    let_pass(Duration::from_secs(60)).await;
    assert_eq!(sum(CONSUMER_SILENT), 0.0);
    assert_eq!(objects("Workflow"), 0.0);
    assert_eq!(
        objects("Namespace"),
        namespaces,
        "both sets watch namespaces"
    );
}
