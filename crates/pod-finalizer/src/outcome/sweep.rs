//! Deletes expired records without an owner, which are not garbage-collected.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use belayer_core::clock;
use belayer_core::executor::{Class, Executor};
use belayer_core::http::{ErrorClass, METADATA_ONLY, Request, RequestError};
use belayer_core::informer::Store;
use belayer_core::object::{ObjectKey, ResourceVersion, Uid};
use belayer_core::slim::{ObjectMeta, OwnerMeta};
use belayer_core::ticks::Ticks;

use super::{EXPIRES_LABEL, resource};
use crate::SETTLE;

/// Longest interval between two sweeps.
const SLOWEST: Duration = Duration::from_secs(60);

/// Most live reads of one sweep: after an upgrade all records of the earlier version need one.
const READS: usize = 100;

/// Deletes expired records. The kind is that of the [example](crate::outcome).
pub struct Sweeper {
    records: Store<OwnerMeta>,
    executor: Arc<Executor>,
    every: Duration,
    ttl: Duration,
    started: (Timestamp, Instant),
    /// What live reads showed of records without a label and a controller.
    read: HashMap<Uid, Read>,
}

/// A live read of a record at this version.
struct Read {
    version: ResourceVersion,
    /// When it expires; `None` if it has an owner.
    expires: Option<Timestamp>,
}

/// A record that may have no owner, at this version.
type Candidate = (ObjectKey, Uid, ResourceVersion);

impl Sweeper {
    /// A sweeper of `records`, of which those without an owner are kept for `ttl`.
    pub fn new(records: Store<OwnerMeta>, executor: Arc<Executor>, ttl: Duration) -> Self {
        Self {
            records,
            executor,
            every: (ttl / 2).clamp(Duration::from_millis(500), SLOWEST),
            ttl,
            started: (clock::now(), Instant::now()),
            read: HashMap::new(),
        }
    }

    /// Runs until `cancel` is cancelled.
    pub async fn run(mut self, cancel: CancellationToken) {
        let mut ticks = Ticks::every(self.every, cancel.clone());
        while ticks.next().await.is_some() {
            let (then, since) = self.started;
            let Some(now) = not_ahead(clock::now(), then, since.elapsed(), self.ttl) else {
                continue;
            };
            let sweep = self.sweep(now);
            if cancel.run_until_cancelled(sweep).await.is_none() {
                return;
            }
        }
    }

    async fn sweep(&mut self, now: Timestamp) {
        let mut expired = Vec::new();
        let mut candidates = Vec::new();
        self.records.for_each(|record| {
            let meta = &record.object.meta;
            match expiry(meta) {
                _ if meta.is_deleting() => {}
                Expiry::At(at) if at <= now.as_second() => {
                    expired.push((meta.key.clone(), meta.uid.clone()));
                }
                Expiry::At(_) | Expiry::Never => {}
                Expiry::IfOrphan => {
                    candidates.push((meta.key.clone(), meta.uid.clone(), meta.resource_version));
                }
            }
        });
        expired.extend(self.orphans(candidates, now).await);
        self.delete(&expired).await;
    }

    /// Those of `candidates` that have no owner, and were written longer than the time to live ago.
    async fn orphans(
        &mut self,
        candidates: Vec<Candidate>,
        now: Timestamp,
    ) -> Vec<(ObjectKey, Uid)> {
        let mut known = std::mem::take(&mut self.read);
        let mut reads = READS;
        let mut expired = Vec::new();
        for (key, uid, version) in candidates {
            let read = match known.remove(&uid).filter(|read| read.version == version) {
                Some(read) => read,
                None if reads == 0 => continue,
                None => {
                    reads -= 1;
                    match self.expires(&key).await {
                        Ok(expires) => Read { version, expires },
                        Err(error) => {
                            tracing::debug!(record = %key, %error, "could not read a PodOutcome");
                            let is_about_it = matches!(
                                error.class(),
                                ErrorClass::NotFound | ErrorClass::Forbidden | ErrorClass::Decode
                            );
                            if !is_about_it {
                                reads = 0;
                            }
                            continue;
                        }
                    }
                }
            };
            if read.expires.is_some_and(|expires| expires <= now) {
                expired.push((key, uid.clone()));
            }
            self.read.insert(uid, read);
        }
        expired
    }

    /// When a record expires, by a live read; `None` if it has an owner.
    async fn expires(&self, key: &ObjectKey) -> Result<Option<Timestamp>, RequestError> {
        let request = Request::get(resource().object_path(key)).accept(METADATA_ONLY);
        let answer = self.executor.read(&request, Class::Evidence).await?;
        let Meta {
            creation_timestamp: written,
            owner_references: owners,
        } = answer.json::<Existing>()?.metadata;
        if owners.is_some_and(|owners| !owners.is_empty()) {
            return Ok(None);
        }
        let ttl = SignedDuration::try_from(self.ttl).unwrap_or(SignedDuration::MAX);
        Ok(written.and_then(|written| written.checked_add(ttl).ok()))
    }

    async fn delete(&self, expired: &[(ObjectKey, Uid)]) {
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

/// When a record expires, by the cache.
#[derive(Debug, PartialEq, Eq)]
enum Expiry {
    /// At this second since 1970, by its label.
    At(i64),
    /// It has an owner, or its label was changed.
    Never,
    /// After its time to live, if it has no owner: that was removed by `--cascade=orphan`, or is not a controller, as
    /// earlier versions wrote it.
    IfOrphan,
}

fn expiry(record: &ObjectMeta) -> Expiry {
    match (record.labels.get(EXPIRES_LABEL), &record.controller) {
        (Some(label), _) => label.parse().map_or(Expiry::Never, Expiry::At),
        (None, Some(_)) => Expiry::Never,
        (None, None) => Expiry::IfOrphan,
    }
}

/// A record as it is in the cluster.
#[derive(Deserialize)]
struct Existing {
    metadata: Meta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    creation_timestamp: Option<Timestamp>,
    owner_references: Option<Vec<IgnoredAny>>,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use belayer_core::object::OwnerReference;

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
    #[case::recorded_without_an_owner(Some("100"), false, Expiry::At(100))]
    #[case::no_number(Some("soon"), false, Expiry::Never)]
    #[case::with_an_owner(None, true, Expiry::Never)]
    #[case::orphaned_or_of_an_earlier_version(None, false, Expiry::IfOrphan)]
    fn only_a_record_without_an_owner_expires(
        #[case] label: Option<&str>,
        #[case] owned: bool,
        #[case] expected: Expiry,
    ) {
        let owner = OwnerReference {
            api_version: "argoproj.io/v1alpha1".into(),
            kind: "Workflow".into(),
            name: "build".into(),
            uid: Uid::new("wf-1"),
        };
        let record = ObjectMeta {
            controller: owned.then(|| Arc::new(owner)),
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
        assert_eq!(expiry(&record), expected);
    }
}
