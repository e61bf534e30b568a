//! Metric series that exist before any event.

use std::collections::BTreeSet;

use belayer_core::executor::Writes;
use belayer_metrics::{Exporter, INFORMER_OBJECTS};
use belayer_pod_finalizer::profile::config::Settings;

use crate::world::World;

#[tokio::test(start_paused = true)]
async fn zero_series_have_the_labels_of_informers() {
    let world = World::new();
    let (recorder, exporter) = Exporter::detached().unwrap();
    let _operator = metrics::with_local_recorder(&recorder, || {
        world.operator(Settings::default(), Writes::Sent)
    });
    let text = exporter.render();
    let kinds: BTreeSet<&str> = text
        .lines()
        .filter(|line| line.starts_with(INFORMER_OBJECTS))
        .filter_map(|line| line.split("kind=\"").nth(1)?.split('"').next())
        .collect();
    assert_eq!(kinds, ["Namespace", "Pod", "Workflow"].into());
}
