//! How long this process has seen records wait, by its monotonic clock.

use std::time::Duration;

use belayer_core::object::Uid;
use hashbrown::HashMap;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::api::{ConditionType, Phase};
use crate::record::Record;

/// Since when each record has been waiting for the same, by its UID.
#[derive(Debug, Default)]
pub(super) struct Waits(HashMap<Uid, (Wait, Instant)>);

/// What a record waits for: its phase, and since when the API server has denied its pod, by the record.
type Wait = (Option<Phase>, Option<Timestamp>);

impl Waits {
    /// How long the record has waited for the same, as far as this process has seen.
    pub(super) fn watched(&mut self, record: &Record) -> Duration {
        let status = &record.status;
        let denied = status.condition(ConditionType::CreateDenied);
        let denied = denied.filter(|_| status.is_true(ConditionType::CreateDenied));
        let wait = (
            status.phase,
            denied.map(|condition| condition.last_transition_time),
        );
        let now = Instant::now();
        let seen = self.0.entry(record.meta.uid.clone()).or_insert((wait, now));
        if seen.0 != wait {
            *seen = (wait, now);
        }
        seen.1.elapsed()
    }

    pub(super) fn forget(&mut self, record: &Uid) {
        self.0.remove(record);
    }
}
