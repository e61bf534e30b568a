//! Keeps the metrics of a test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use parking_lot::Mutex;

#[derive(Default)]
pub(crate) struct Recorded {
    counters: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    gauges: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    histograms: Mutex<BTreeMap<String, Arc<Samples>>>,
}

#[derive(Default)]
struct Samples(Mutex<Vec<f64>>);

impl HistogramFn for Samples {
    fn record(&self, value: f64) {
        self.0.lock().push(value);
    }
}

fn series(key: &Key) -> String {
    let labels: Vec<_> = key
        .labels()
        .map(|label| format!("{}={}", label.key(), label.value()))
        .collect();
    format!("{}{{{}}}", key.name(), labels.join(","))
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::clone(
            self.counters.lock().entry(series(key)).or_default(),
        ))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::clone(
            self.gauges.lock().entry(series(key)).or_default(),
        ))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::clone(
            self.histograms.lock().entry(series(key)).or_default(),
        ))
    }
}

impl Recorded {
    /// The series of the counters, gauges and histograms.
    pub(crate) fn names(&self) -> [Vec<String>; 3] {
        [
            self.counters.lock().keys().cloned().collect(),
            self.gauges.lock().keys().cloned().collect(),
            self.histograms.lock().keys().cloned().collect(),
        ]
    }

    pub(crate) fn counter(&self, series: &str) -> u64 {
        self.counters.lock()[series].load(Ordering::Relaxed)
    }

    pub(crate) fn gauge(&self, series: &str) -> f64 {
        f64::from_bits(self.gauges.lock()[series].load(Ordering::Relaxed))
    }

    pub(crate) fn samples(&self, series: &str) -> Vec<f64> {
        self.histograms.lock()[series].0.lock().clone()
    }
}
