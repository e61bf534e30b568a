//! Deletes expired records without an owner, which are not garbage-collected.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use belayer_core::clock;
use belayer_core::executor::Executor;
use belayer_core::http::ErrorClass;
use belayer_core::informer::Store;
use belayer_core::object::{ObjectKey, Uid};
use belayer_core::slim::{ObjectMeta, OwnerMeta};
use belayer_core::ticks::Ticks;

use super::{EXPIRES_LABEL, resource};
use crate::SETTLE;

/// Longest interval between two sweeps.
const SLOWEST: Duration = Duration::from_secs(60);

/// Deletes expired records. The kind is that of the [example](crate::outcome).
pub struct Sweeper {
    records: Store<OwnerMeta>,
    executor: Arc<Executor>,
    every: Duration,
    ttl: Duration,
    started: (Timestamp, Instant),
}

impl Sweeper {
    /// A sweeper of `records`, of which those without an owner are kept for `ttl`.
    pub fn new(records: Store<OwnerMeta>, executor: Arc<Executor>, ttl: Duration) -> Self {
        Self {
            records,
            executor,
            every: (ttl / 2).clamp(Duration::from_millis(500), SLOWEST),
            ttl,
            started: (clock::now(), Instant::now()),
        }
    }

    /// Runs until `cancel` is cancelled.
    pub async fn run(self, cancel: CancellationToken) {
        let mut ticks = Ticks::every(self.every, cancel.clone());
        while ticks.next().await.is_some() {
            let (then, since) = self.started;
            let Some(now) = not_ahead(clock::now(), then, since.elapsed(), self.ttl) else {
                continue;
            };
            let expired = self.expired(now);
            let sweep = self.sweep(&expired);
            if cancel.run_until_cancelled(sweep).await.is_none() {
                return;
            }
        }
    }

    fn expired(&self, now: Timestamp) -> Vec<(ObjectKey, Uid)> {
        let mut expired = Vec::new();
        self.records.for_each(|record| {
            let meta = &record.object.0;
            if is_expired(meta, now) && !meta.is_deleting() {
                expired.push((meta.key.clone(), meta.uid.clone()));
            }
        });
        expired
    }

    async fn sweep(&self, expired: &[(ObjectKey, Uid)]) {
        for (key, uid) in expired {
            match self.executor.delete(&resource(), key, uid).await {
                Ok(_) => tracing::debug!(record = %key, "deleted an expired PodOutcome"),
                Err(error) if error.class() == ErrorClass::NotFound => {}
                // The next sweep retries it. What the API server refuses of one namespace delays no other.
                Err(error) => {
                    tracing::warn!(record = %key, %error, "could not delete an expired PodOutcome");
                    let is_about_it = matches!(
                        error.class(),
                        ErrorClass::Forbidden | ErrorClass::Invalid | ErrorClass::Conflict
                    );
                    if !is_about_it {
                        return;
                    }
                }
            }
        }
    }
}

/// The time by which records expire: the wall clock `now`, but not ahead of the time that has passed since the start at
/// `then`. A jump of the clock deletes no record, and a clock that is behind deletes them later (L9). `None` in the first
/// ten minutes (or `ttl`, if that is shorter): the clock of a machine that has just started may be wrong.
fn not_ahead(
    now: Timestamp,
    then: Timestamp,
    passed: Duration,
    ttl: Duration,
) -> Option<Timestamp> {
    let passed_by_then = then
        .saturating_add(SignedDuration::try_from(passed).ok()?)
        .ok()?;
    (passed >= ttl.min(SETTLE)).then(|| now.min(passed_by_then))
}

fn is_expired(record: &ObjectMeta, now: Timestamp) -> bool {
    let expires = record.labels.get(EXPIRES_LABEL);
    let expires: Option<i64> = expires.and_then(|text| text.parse().ok());
    expires.is_some_and(|expires| expires <= now.as_second())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use belayer_core::object::ResourceVersion;

    use super::*;

    #[rstest]
    #[case::a_day_ahead(86_400, 3_600, Some(3_600))]
    #[case::a_day_behind(-86_400, 3_600, Some(3_600 - 86_400))]
    #[case::no_jump(0, 3_600, Some(3_600))]
    #[case::just_started(0, 599, None)]
    #[case::just_started_a_day_ahead(86_400, 599, None)]
    fn l9_a_jump_deletes_no_outcome(
        #[case] jump: i64,
        #[case] passed: u64,
        #[case] expected: Option<i64>,
    ) {
        let then = Timestamp::from_second(1_000_000).unwrap();
        let after = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
        let now = after(jump + i64::try_from(passed).unwrap());
        let passed = Duration::from_secs(passed);
        let week = Duration::from_hours(24 * 7);
        assert_eq!(not_ahead(now, then, passed, week), expected.map(after));
    }

    #[rstest]
    #[case::expired_now(Some("100"), true)]
    #[case::not_yet(Some("101"), false)]
    #[case::with_an_owner(None, false)]
    #[case::no_number(Some("soon"), false)]
    fn only_a_record_with_a_label_expires(#[case] label: Option<&str>, #[case] expired: bool) {
        let record = ObjectMeta {
            labels: label
                .map(|value| (EXPIRES_LABEL, value))
                .into_iter()
                .collect(),
            ..ObjectMeta::new(
                ObjectKey::new("ci", "pod-u"),
                Uid::new("r"),
                ResourceVersion::new(1),
            )
        };
        let now = Timestamp::from_second(100).unwrap();
        assert_eq!(is_expired(&record, now), expired);
    }
}
