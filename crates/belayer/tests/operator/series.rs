//! Metric series that exist before any event, and their labels.

use std::collections::BTreeSet;

use belayer_core::executor::Writes;
use belayer_metrics::{Exporter, INFORMER_OBJECTS};
use belayer_pod_finalizer::profile::config::Settings;
use belayer_workflow_finalizer::config::WorkflowFinalizerConfig;
use serde_json::json;

use crate::world::World;

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
