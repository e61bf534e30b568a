//! The metrics, as in the kubelet.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

use belayer_metrics::exposition::parse;
use belayer_metrics::{ALL, Exporter, config, lifecycle};
use tokio::time::sleep;

use super::world::{Act, SECOND, World, named, soon, stop_within, web};
use crate::{Deadline, Pass};

/// The scraped values after a scene, by name and by the labels other than the controller.
fn scrape<F: Future<Output = ()>>(scene: impl FnOnce(World) -> F) -> BTreeMap<String, f64> {
    let (recorder, exporter) = Exporter::detached().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async { scene(World::new()).await });
    });
    let mut numbers = BTreeMap::new();
    for sample in parse(&exporter.render())
        .unwrap()
        .into_values()
        .flat_map(|it| it.samples)
    {
        let metric = ALL.iter().find(|metric| metric.name == sample.name);
        let declared = metric.unwrap().labels.iter().map(|label| label.name);
        let labels: BTreeSet<_> = sample.labels.keys().map(String::as_str).collect();
        assert_eq!(labels, declared.collect(), "{}", sample.name);
        let of = ["controller", "name"].map(|label| sample.labels.get(label));
        assert!(of.contains(&Some(&"test".to_owned())), "{of:?}");
        let label = |name| sample.labels.get(name).map_or("", String::as_str);
        let name = format!("{} {} {}", sample.name, label("lifecycle"), label("config"));
        numbers.insert(name.trim().to_owned(), sample.value);
    }
    numbers
}

/// The six series, those that are not 0 by name.
fn workers(numbers: &BTreeMap<String, f64>) -> Vec<String> {
    let mut counted = Vec::new();
    for phase in lifecycle::ALL {
        for config in config::ALL {
            let value = numbers[&format!("belayer_workers {phase} {config}")];
            if value > 0.0 {
                counted.push(format!("{phase} {config} {value}"));
            }
        }
    }
    counted
}

#[test]
fn every_combination_is_written_by_each_pass() {
    let numbers = scrape(|world| async move {
        let lifecycles = world.start();
        lifecycles.reconcile(Pass::begin());
    });
    assert!(workers(&numbers).is_empty());
    let gauges: Vec<_> = numbers
        .keys()
        .filter(|name| name.starts_with("belayer_workers "))
        .collect();
    assert_eq!(gauges.len(), 6, "{gauges:?}");
    for name in [
        "belayer_workers_desired",
        "belayer_workers_active",
        "belayer_worker_restarts_total",
        "belayer_worker_orphans_total",
        "belayer_worker_panics_total",
    ] {
        assert_eq!(numbers[name], 0.0);
    }
}

#[test]
fn workers_are_counted_by_phase_and_by_whether_they_are_desired() {
    let numbers = scrape(|world| async move {
        world.script("terminate u-2", [Act::Take(SECOND * 60)]);
        world.script("terminate u-3", [Act::Take(SECOND * 60)]);
        world.script("clean u-4", [Act::Take(SECOND * 60)]);
        let lifecycles = world.start();
        lifecycles.created(&named("a", "u-1"), "a");
        lifecycles.observe(&named("b", "u-2"), stop_within("b", 60));
        lifecycles.created(&named("c", "u-3"), "c");
        lifecycles.deleted(&named("c", "u-3"));
        lifecycles.observe(&named("d", "u-4"), stop_within("d", 60));
        lifecycles.observe(&named("e", "u-5"), stop_within("e", 60));
        // Waits behind u-3.
        lifecycles.created(&named("c", "u-6"), "c");
        sleep(SECOND * 3).await;
    });
    assert_eq!(
        workers(&numbers),
        [
            "sync desired 2",
            "terminating desired 1",
            "terminating orphan 1",
            "terminated desired 1"
        ]
    );
    // All but u-3; u-5 has finished and is still in the store.
    assert_eq!(numbers["belayer_workers_desired"], 5.0);
    assert_eq!(numbers["belayer_workers_active"], 4.0);
    // Its deletion was observed, so it does not count as an orphan.
    assert_eq!(numbers["belayer_worker_orphans_total"], 0.0);
}

#[test]
fn finished_work_is_written_as_zero() {
    let numbers = scrape(|world| async move {
        let lifecycles = world.start();
        lifecycles.created(&web("u-1"), "a");
        sleep(SECOND * 3).await;
        lifecycles.deleted(&web("u-1"));
        sleep(SECOND * 3).await;
    });
    assert!(workers(&numbers).is_empty());
    assert_eq!(numbers["belayer_workers_desired"], 0.0);
}

#[test]
fn an_object_created_again_before_its_work_had_finished_is_a_restart() {
    let numbers = scrape(|world| async move {
        let lifecycles = world.start();
        lifecycles.observe(&web("u-1"), stop_within("a", 60));
        lifecycles.created(&web("u-1"), "b");
        lifecycles.created(&web("u-1"), "c");
        soon(lifecycles.settled()).await;
    });
    assert_eq!(numbers["belayer_worker_restarts_total"], 1.0);
}

#[test]
fn vanished_objects_and_remains_are_orphans() {
    let numbers = scrape(|world| async move {
        let lifecycles = world.start();
        lifecycles.created(&named("a", "u-1"), "a");
        lifecycles.created(&named("b", "u-2"), "b");
        soon(lifecycles.settled()).await;
        // u-1 vanished, u-2 was replaced, u-3 was found.
        let pass = Pass::begin()
            .desired(named("b", "u-9"), "b")
            .found(named("c", "u-3"), Deadline::NONE);
        lifecycles.reconcile(pass);
        soon(lifecycles.settled()).await;
    });
    assert_eq!(numbers["belayer_worker_orphans_total"], 3.0);
}

#[test]
fn panics_are_counted() {
    let numbers = scrape(|world| async move {
        world.script("sync u-1", [Act::Panic, Act::Panic]);
        let lifecycles = world.start();
        lifecycles.created(&web("u-1"), "a");
        sleep(SECOND).await;
        assert_eq!(world.news(), "sync u-1 a, sync u-1 a, sync u-1 a");
    });
    assert_eq!(numbers["belayer_worker_panics_total"], 2.0);
}
