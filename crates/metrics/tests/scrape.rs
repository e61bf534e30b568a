//! The scraped metrics.
#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

use std::collections::BTreeSet;

use belayer_metrics::exposition::{Families, parse};
use belayer_metrics::{
    ALL, Exporter, Kind, Known, KnownValues, Values, bound_code, bound_method, build_info,
    describe_all, priority,
};

const VERSION: &str = "0.0.0-test";

fn known() -> KnownValues {
    KnownValues::new()
        .with(Known::Controller, ["pod-finalizer"])
        .with(Known::Evidence, ["OwnerGone", "Consumed"])
        .with(Known::Queue, ["pods"])
        .with(Known::Lease, ["belayer"])
        .with(Known::Kind, ["pods", "namespaces"])
        .with(Known::Query, ["owner"])
        .with(Known::Answer, ["gone", "there"])
}

fn scrape(record: impl Fn()) -> Families {
    let (recorder, exporter) = Exporter::detached().unwrap();
    metrics::with_local_recorder(&recorder, || {
        describe_all();
        known().write_zeros();
        build_info(VERSION);
        record();
        exporter.upkeep();
        parse(&exporter.render()).unwrap()
    })
}

#[test]
fn the_scraped_metrics_match_the_table() {
    let families = scrape(|| {
        metrics::counter!("rest_client_requests_total", "code" => bound_code(Some(200)), "method" => bound_method("GET")).increment(1);
        metrics::counter!("belayer_release_denied_total", "controller" => "pod-finalizer", "code" => bound_code(Some(403))).increment(1);
        metrics::counter!("belayer_unread_pods_total", "judgement" => "NodeLost", "mode" => "enforce", "pod_namespace" => "ci").increment(1);
        for gauge in [
            "belayer_oldest_wipe_seconds",
            "belayer_wipes_pending",
            "belayer_config_last_reload_successful",
        ] {
            metrics::gauge!(gauge).set(1.0);
        }
        metrics::gauge!("belayer_breaker_open", "scope" => "node").set(1.0);
        metrics::gauge!("belayer_api_waiting", "queue" => "live-reads").set(1.0);
    });
    let scraped: BTreeSet<&str> = families.keys().map(String::as_str).collect();
    let table: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
    // The limits of a process may be unlimited; then they have no series.
    let optional = BTreeSet::from(["process_virtual_memory_max_bytes", "process_max_fds"]);
    assert_eq!(
        scraped.difference(&table).collect::<Vec<_>>(),
        Vec::<&&str>::new()
    );
    let missing: BTreeSet<_> = table.difference(&scraped).copied().collect();
    assert!(missing.is_subset(&optional), "not scraped: {missing:?}");
    for metric in ALL {
        let Some(family) = families.get(metric.name) else {
            continue;
        };
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        assert_eq!(family.kind, kind, "{}", metric.name);
        assert_eq!(family.help.as_deref(), Some(metric.help), "{}", metric.name);
        for sample in &family.samples {
            let have: BTreeSet<_> = sample.labels.keys().filter(|l| *l != "le").collect();
            let want: BTreeSet<_> = metric.labels.iter().map(|l| l.name.to_owned()).collect();
            assert_eq!(have, want.iter().collect(), "{}", metric.name);
            for label in metric.labels {
                if let Values::Fixed(values) | Values::Within(values) = label.values {
                    assert!(values.contains(&sample.labels[label.name].as_str()));
                }
            }
        }
    }
}

#[test]
fn zeros_are_written_at_the_start() {
    let families = scrape(|| ());
    let releases = &families["belayer_releases_total"];
    for evidence in ["OwnerGone", "Consumed"] {
        let labels = [("controller", "pod-finalizer"), ("evidence", evidence)];
        assert_eq!(releases.value(&labels), Some(0.0), "{evidence}");
    }
    for priority in priority::ALL {
        let labels = [("name", "pods"), ("priority", priority)];
        assert_eq!(
            families["workqueue_depth"].value(&labels),
            Some(0.0),
            "{priority}"
        );
    }
    let durations = &families["belayer_release_duration_seconds"];
    assert_eq!(
        durations
            .samples
            .iter()
            .filter(|s| s.name.ends_with("_bucket"))
            .count(),
        19
    );
    assert_eq!(durations.sum("_count"), 0.0);
    assert_eq!(
        families["belayer_events_dropped_total"].value(&[]),
        Some(0.0)
    );
    assert_eq!(
        families["belayer_build_info"].value(&[("version", VERSION)]),
        Some(1.0)
    );
}

#[test]
fn zeros_do_not_reset_existing_series() {
    let families = scrape(|| {
        metrics::counter!("belayer_holds_added_total", "controller" => "pod-finalizer")
            .increment(3);
        metrics::gauge!("belayer_holds", "controller" => "pod-finalizer").set(7.0);
        known().write_zeros();
    });
    let controller = [("controller", "pod-finalizer")];
    assert_eq!(
        families["belayer_holds_added_total"].value(&controller),
        Some(3.0)
    );
    assert_eq!(families["belayer_holds"].value(&controller), Some(7.0));
}

#[test]
fn unknown_label_values_get_no_zeros() {
    let (recorder, exporter) = Exporter::detached().unwrap();
    let text = metrics::with_local_recorder(&recorder, || {
        KnownValues::new()
            .with(Known::Controller, ["pod-finalizer"])
            .write_zeros();
        exporter.render()
    });
    let families = parse(&text).unwrap();
    assert!(families.contains_key("belayer_holds"));
    assert!(
        !families.contains_key("belayer_releases_total"),
        "no evidence is known"
    );
    assert!(
        !families.contains_key("rest_client_requests_total"),
        "codes are the server's"
    );
    assert!(families.contains_key("belayer_events_dropped_total"));
    for gauge in [
        "belayer_wipes_pending",
        "belayer_config_last_reload_successful",
    ] {
        assert!(
            !families.contains_key(gauge),
            "{gauge}: this process may never set it"
        );
    }
}

#[test]
fn a_process_has_one_recorder() {
    let exporter = Exporter::install().unwrap();
    assert!(Exporter::install().is_err());
    let families = parse(&exporter.render()).unwrap();
    assert!(
        families["process_resident_memory_bytes"]
            .value(&[])
            .unwrap()
            > 0.0
    );
}
