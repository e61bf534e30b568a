//! The metrics of a running Belayer, read through the API server's proxy to its pod.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use belayer_core::http::{Request, RequestError};
use belayer_core::object::{ObjectKey, Resource};
use belayer_metrics::exposition::{self, Families};

use super::{Leader, Own};
use crate::controller_health::Lease;
use crate::reader::Reader;

/// Time limit: these numbers are optional.
const WITHIN: Duration = Duration::from_secs(5);

impl Own {
    /// Adds the counters of another process.
    pub(super) fn add(&mut self, other: &Self) {
        self.missed += other.missed;
        self.unselected_kept += other.unselected_kept;
        self.observed_losses += other.observed_losses;
        self.backlog_gate_closed |= other.backlog_gate_closed;
    }
}

/// The metrics of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Metrics {
    /// Its version.
    pub(super) version: Option<String>,
    /// By controller.
    pub(super) own: BTreeMap<String, Own>,
}

/// Reads the metrics of a pod.
pub(super) async fn ask(
    reader: &Reader,
    namespace: &str,
    pod: &str,
) -> Result<Metrics, RequestError> {
    let port = ObjectKey::new(namespace, format!("{pod}:8080"));
    let mut path = Resource::pods().subresource_path(&port, "proxy");
    path.push_str("/metrics");
    let request = Request::get(path)
        .accept("text/plain, */*;q=0.1")
        .timeout(WITHIN);
    let answer = reader.read(&request).await?;
    let text = String::from_utf8_lossy(&answer.body);
    match exposition::parse(&text) {
        Ok(families) => Ok(parse(&families)),
        Err(error) => Err(RequestError::Decode(error.to_string())),
    }
}

fn parse(families: &Families) -> Metrics {
    let mut metrics = Metrics::default();
    let build = families.get(belayer_metrics::BUILD_INFO);
    if let Some(sample) = build.and_then(|family| family.samples.first()) {
        metrics.version = sample.labels.get("version").cloned();
    }
    let mut put = |name: &str, set: fn(&mut Own, u64)| {
        let samples = families.get(name).map(|family| &family.samples);
        for sample in samples.into_iter().flatten() {
            if let Some(controller) = sample.labels.get("controller") {
                set(
                    metrics.own.entry(controller.clone()).or_default(),
                    whole(sample.value),
                );
            }
        }
    };
    put(belayer_metrics::MISSED_HOLDS, |own, value| {
        own.missed = value;
    });
    put(belayer_metrics::UNSELECTED_KEPT, |own, value| {
        own.unselected_kept = value;
    });
    put(belayer_metrics::OBSERVED_LOSSES, |own, value| {
        own.observed_losses = value;
    });
    put(belayer_metrics::BACKLOG_GATE, |own, value| {
        own.backlog_gate_closed = value > 0;
    });
    metrics
}

/// The text format has floats; counts are whole numbers.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float beyond the range becomes its end"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

/// The leader by this Lease; `None` if it was released.
///
/// The age of a renewal depends on this machine's clock, so that a Lease lapses only after a grace period.
pub(crate) fn leader_of(lease: &Lease, now: Timestamp) -> Option<Leader> {
    if lease.holder.is_empty() {
        return None;
    }
    let ago = lease.renewed.map(|at| now.duration_since(at).as_secs());
    Some(Leader {
        identity: lease.holder.clone(),
        renewed: lease.renewed,
        renewed_seconds_ago: ago,
        lapsed: !lease.is_renewed(now),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_of_a_process_are_read() {
        let text = "# TYPE belayer_build_info gauge\nbelayer_build_info{version=\"0.1.0\"} 1\n\
            # TYPE belayer_missed_holds_total counter\nbelayer_missed_holds_total{controller=\"pod-finalizer\"} 3\n\
            # TYPE belayer_backlog_gate gauge\nbelayer_backlog_gate{controller=\"pod-finalizer\"} 1\n";
        let metrics = parse(&exposition::parse(text).unwrap());
        assert_eq!(metrics.version.as_deref(), Some("0.1.0"));
        let own = metrics.own["pod-finalizer"];
        assert!(own.missed == 3 && own.backlog_gate_closed);
    }

    #[test]
    fn a_released_lease_has_no_leader_and_an_old_one_has_lapsed() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let mut lease = Lease {
            place: "belayer-system/belayer".into(),
            holder: String::new(),
            renewed: Some("2026-01-01T00:00:50Z".parse().unwrap()),
            seconds: 15,
        };
        assert_eq!(leader_of(&lease, now), None);
        lease.holder = "belayer-1".into();
        assert!(!leader_of(&lease, now).unwrap().lapsed);
        lease.renewed = Some("2026-01-01T00:00:00Z".parse().unwrap());
        let lapsed_at = |second| {
            let now = now + jiff::SignedDuration::from_secs(second);
            leader_of(&lease, now).unwrap().lapsed
        };
        // The clock of this machine may be ahead of the leader's.
        assert!(!lapsed_at(0));
        assert!(lapsed_at(1));
        lease.renewed = None;
        assert!(leader_of(&lease, now).unwrap().lapsed);
    }
}
