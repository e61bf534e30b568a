use std::sync::Arc;

use metrics::{Counter, Gauge, SharedString};
use tokio::time::Instant;

use super::BadObject;
use crate::metric_names as names;

/// The metrics of an informer, and a log line for each bad object.
pub(super) struct Telemetry {
    kind: SharedString,
    objects: Gauge,
    /// How many of the objects in the gauge are this informer's. During a reload two informers of a kind run.
    held: f64,
    lag: Gauge,
    bad_objects: Counter,
    contact: Instant,
}

impl Telemetry {
    /// `kind` is the label of its metrics.
    pub(super) fn new(kind: Arc<str>) -> Self {
        let kind = SharedString::from(kind);
        Self {
            objects: metrics::gauge!(names::INFORMER_OBJECTS, "kind" => kind.clone()),
            held: 0.0,
            lag: metrics::gauge!(names::INFORMER_LAG, "kind" => kind.clone()),
            bad_objects: metrics::counter!(names::INFORMER_BAD_OBJECTS, "kind" => kind.clone()),
            contact: Instant::now(),
            kind,
        }
    }

    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    /// Records a valid response: the store is as fresh as it can be.
    pub(super) fn contacted(&mut self) {
        self.contact = Instant::now();
        self.lag.set(0.0);
    }

    /// Records that time has passed without a response.
    pub(super) fn waited(&self) {
        self.lag.set(self.contact.elapsed().as_secs_f64());
    }

    pub(super) fn holds(&mut self, objects: usize) {
        // `f64` is exact up to 2^53 objects.
        #[allow(clippy::cast_precision_loss)]
        let objects = objects as f64;
        self.objects.increment(objects - self.held);
        self.held = objects;
    }

    pub(super) fn listed(&self, cause: &'static str) {
        let kind = self.kind.clone();
        metrics::counter!(names::INFORMER_RELISTS, "kind" => kind, "cause" => cause).increment(1);
    }

    pub(super) fn skipped(&self, bad: &BadObject) {
        self.bad_objects.increment(1);
        let key = bad.key.as_ref().map(tracing::field::debug);
        tracing::warn!(kind = %self.kind, key, why = %bad.why, "skipped an object that cannot be decoded");
    }
}

impl Drop for Telemetry {
    /// An informer that has ended is not silent and has no objects.
    fn drop(&mut self) {
        self.lag.set(0.0);
        self.holds(0);
    }
}
