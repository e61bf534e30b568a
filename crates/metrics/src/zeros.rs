//! Initial zeros. Prometheus cannot see an increase in a series that begins with its first event,
//! so every series that is known at the start is written as zero.

use std::collections::HashMap;

use crate::table::{ALL, Kind, Known, Label, Metric, Values};

/// Names that are known when the program, or one component of it, starts. The [crate's
/// example](crate) names a controller and its evidence.
#[derive(Debug, Default, Clone)]
pub struct KnownValues(HashMap<Known, Vec<String>>);

impl KnownValues {
    /// No known names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds names to a list.
    #[must_use]
    pub fn with<S: Into<String>>(
        mut self,
        known: Known,
        values: impl IntoIterator<Item = S>,
    ) -> Self {
        self.0
            .entry(known)
            .or_default()
            .extend(values.into_iter().map(Into::into));
        self
    }

    /// Writes zeros for every metric whose label values are all known, one for every combination. A
    /// series that exists keeps its value. A gauge gets them only if one of its labels has known
    /// values: otherwise a process that never sets it would report 0 as a measured value.
    ///
    /// Call it once per controller, with that controller's kinds of evidence, and once per type of
    /// query, with its answers: combinations with those of another one do not exist.
    pub fn write_zeros(&self) {
        for metric in ALL {
            if let Some(combinations) = self.combinations(metric) {
                for labels in combinations {
                    zero(metric, &labels);
                }
            }
        }
    }

    /// Every combination of label values; `None` if one of them is not known, or if there is to be no zero.
    fn combinations(&self, metric: &Metric) -> Option<Vec<Vec<(&'static str, String)>>> {
        let names_process = |label: &Label| matches!(label.values, Values::Known(_));
        if metric.kind == Kind::Gauge && !metric.labels.iter().any(names_process) {
            return None;
        }
        let mut combinations = vec![Vec::new()];
        for label in metric.labels {
            let values: Vec<String> = match label.values {
                Values::Within(_) | Values::Namespaces => return None,
                Values::Fixed(values) => values.iter().map(ToString::to_string).collect(),
                Values::Known(known) => self.0.get(&known)?.clone(),
            };
            combinations = combinations
                .into_iter()
                .flat_map(|so_far| {
                    values.iter().map(move |value| {
                        let mut labels = so_far.clone();
                        labels.push((label.name, value.clone()));
                        labels
                    })
                })
                .collect();
        }
        Some(combinations)
    }
}

/// Creates one series with the value 0; an existing one keeps its value.
/// [`KnownValues::write_zeros`](crate::KnownValues::write_zeros) calls it for all series of the
/// table, as in the [crate's example](crate).
pub fn zero(metric: &Metric, labels: &[(&'static str, String)]) {
    match metric.kind {
        Kind::Counter => metrics::counter!(metric.name, labels).increment(0),
        Kind::Gauge => metrics::gauge!(metric.name, labels).increment(0.0),
        Kind::Histogram(_) => drop(metrics::histogram!(metric.name, labels)),
    }
}

/// Writes `belayer_build_info`. It is a [`Metric`](crate::Metric) of the table.
pub fn build_info(version: &'static str) {
    metrics::gauge!(crate::BUILD_INFO, "version" => version).set(1.0);
}
