use std::collections::HashMap;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use crate::table::ALL;

/// Belayer's prefix.
const PREFIX: &str = "belayer_";

/// Records the metrics of Belayer's libraries under Belayer's names: other programs use the libraries, too. [`Exporter::detached`](crate::Exporter::detached)
/// returns it, and [`Exporter::install`](crate::Exporter::install), as in the [crate's example](crate), installs it.
pub struct Prefixed<R> {
    inner: R,
    /// The full names by those without the prefix.
    names: HashMap<&'static str, &'static str>,
}

impl<R> Prefixed<R> {
    pub(crate) fn new(inner: R) -> Self {
        let names = ALL.iter().map(|metric| metric.name);
        let short = |name: &'static str| Some((name.strip_prefix(PREFIX)?, name));
        Self {
            inner,
            names: names.filter_map(short).collect(),
        }
    }

    fn renamed(&self, key: &Key) -> Option<Key> {
        let full = self.names.get(key.name())?;
        let labels: Vec<_> = key.labels().cloned().collect();
        Some(Key::from_parts(*full, labels))
    }
}

impl<R: Recorder> Recorder for Prefixed<R> {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.inner.describe_counter(name, unit, help);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.inner.describe_gauge(name, unit, help);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.inner.describe_histogram(name, unit, help);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        let renamed = self.renamed(key);
        let key = renamed.as_ref().unwrap_or(key);
        self.inner.register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        let renamed = self.renamed(key);
        let key = renamed.as_ref().unwrap_or(key);
        self.inner.register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        let renamed = self.renamed(key);
        let key = renamed.as_ref().unwrap_or(key);
        self.inner.register_histogram(key, metadata)
    }
}

impl<R> std::fmt::Debug for Prefixed<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prefixed").finish_non_exhaustive()
    }
}
