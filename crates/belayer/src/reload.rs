//! Reload of the configuration file while the process runs.
//!
//! Changes of controllers and limits take effect at once: a second set of controllers fills its caches, then
//! the first set finishes its work in flight and the second one takes over, so that work continues during
//! the reload. The lease, the endpoints and the process stay. A warning names changes that take effect only
//! after a restart. An invalid file changes nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::config::keys::{self, Reload};
use crate::config::{ConfigError, Set, Source};
use crate::server::Health;

/// After this time new controllers take over without the caches that the running ones do not have either.
pub(crate) const WARM_WITHIN: Duration = Duration::from_secs(60);

/// Interval at which the caches are checked.
const WARM_POLL: Duration = Duration::from_millis(100);

/// Interval at which the file is read.
const READ_EVERY: Duration = Duration::from_secs(5);

/// Delay before a changed file is read again: it is applied once two reads are equal, because it may be in
/// the middle of a write.
const SETTLES_AFTER: Duration = Duration::from_millis(500);

/// Failed reads in a row after which the failure is reported: a file that is replaced may be missing for a moment.
const REPORTED_FAILURE: u32 = 2;

/// Differences between two files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Keys that take effect at once.
    pub live: Vec<String>,
    /// Keys that take effect after a restart.
    pub restart: Vec<String>,
}

impl Changes {
    /// Compares two documents.
    pub fn between(old: &Source, new: &Source) -> Self {
        let mut paths = Vec::new();
        differences("", old.value(), new.value(), &mut paths);
        let mut changes = Self::default();
        for path in paths {
            let entry = keys::entry(&path);
            let list = match entry.map(|key| key.reload) {
                Some(Reload::Live) => &mut changes.live,
                Some(Reload::Restart) | None => &mut changes.restart,
            };
            list.push(path);
        }
        changes
    }

    /// Whether there is no difference.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.restart.is_empty()
    }
}

/// Collects the keys whose values differ. Lists are compared as a whole; an omitted key has its
/// default.
fn differences(path: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    if let (Value::Object(_) | Value::Null, Value::Object(_) | Value::Null) = (old, new)
        && !is_one_key(path)
    {
        let none = serde_json::Map::new();
        let old = old.as_object().unwrap_or(&none);
        let new = new.as_object().unwrap_or(&none);
        let added = new.keys().filter(|key| !old.contains_key(*key));
        for key in old.keys().chain(added) {
            let path = match path {
                "" => key.clone(),
                path => format!("{path}.{key}"),
            };
            let value = |of: &serde_json::Map<String, Value>| of.get(key).cloned();
            let (old, new) = (
                value(old).unwrap_or_default(),
                value(new).unwrap_or_default(),
            );
            differences(&path, &old, &new, found);
        }
    } else if effective(path, old) != effective(path, new) {
        found.push(path.to_owned());
    }
}

/// Whether a map at this path is the value of one key, not a group of keys.
fn is_one_key(path: &str) -> bool {
    keys::all().any(|key| key.path == path)
}

/// A value, or the default if it is omitted.
fn effective(path: &str, value: &Value) -> Value {
    if !value.is_null() {
        return value.clone();
    }
    let default = keys::all().find(|key| key.path == path);
    let default = default
        .map(|key| key.default)
        .filter(|text| !text.is_empty());
    default
        .and_then(|text| serde_saphyr::from_str(text).ok())
        .unwrap_or_default()
}

/// Watches the configuration file.
#[derive(Debug)]
pub(crate) struct Watcher {
    path: Option<PathBuf>,
    sets: Vec<Set>,
    /// The last content of the file, valid or not.
    seen: Option<String>,
    /// How often in a row the file could not be read.
    failures: u32,
    hangup: Signal,
    ticks: tokio::time::Interval,
}

impl Watcher {
    /// Watches the file of `source`.
    ///
    /// # Errors
    /// If signals cannot be received.
    pub(crate) fn new(source: &Source, sets: &[Set]) -> std::io::Result<Self> {
        let mut ticks = interval_at(Instant::now() + READ_EVERY, READ_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            path: source.path().map(ToOwned::to_owned),
            sets: sets.to_vec(),
            seen: source.path().map(|_| source.text().to_owned()),
            failures: 0,
            hangup: signal(SignalKind::hangup())?,
            ticks,
        })
    }

    /// Waits until the content changes or SIGHUP arrives; returns the content.
    pub(crate) async fn changed(&mut self) -> Result<Source, ConfigError> {
        loop {
            let asked = tokio::select! {
                _ = self.hangup.recv() => true,
                _ = self.ticks.tick() => false,
            };
            let Some(path) = self.path.clone() else {
                if asked {
                    tracing::warn!("ignoring SIGHUP: there is no configuration file");
                }
                continue;
            };
            let settled = self.settled(&path).await;
            self.failures = match settled {
                Ok(_) => 0,
                Err(_) => self.failures.saturating_add(1),
            };
            let Ok(Some(text)) = settled else {
                // The file is being written or replaced: keep the current configuration.
                if !asked && self.failures != REPORTED_FAILURE {
                    continue;
                }
                // Its content counts as changed once it can be read.
                self.seen = None;
                return Source::of(Some(&path), &self.sets);
            };
            if !asked && self.seen.as_deref() == Some(text.as_str()) {
                continue;
            }
            self.seen = Some(text);
            return Source::of(Some(&path), &self.sets);
        }
    }

    /// The content, once two reads are equal; `None` if it changes all the time.
    async fn settled(&self, path: &Path) -> io::Result<Option<String>> {
        let mut last = tokio::fs::read_to_string(path).await?;
        if self.seen.as_ref() == Some(&last) {
            return Ok(Some(last));
        }
        for _ in 0..10 {
            tokio::time::sleep(SETTLES_AFTER).await;
            let now = tokio::fs::read_to_string(path).await?;
            if now == last {
                return Ok(Some(now));
            }
            last = now;
        }
        Ok(None)
    }
}

/// Waits until the new controllers have all caches, or, after a minute, all that the running ones have.
pub async fn warm(new: &impl Health, running: &impl Health) {
    let mut report_at = Instant::now() + WARM_WITHIN;
    loop {
        let missing = new.not_ready();
        if missing.is_empty() {
            return;
        }
        if Instant::now() >= report_at {
            let lost = running.not_ready();
            let waits = missing.iter().any(|one| !lost.contains(one));
            let missing = missing.join(", ");
            if !waits {
                tracing::warn!(
                    missing,
                    "the new controllers take over before their caches are synced"
                );
                return;
            }
            metrics::gauge!(belayer_metrics::CONFIG_GOOD).set(0.0);
            tracing::warn!(
                missing,
                "the new configuration is not active yet: its controllers cannot fill their caches"
            );
            report_at += WARM_WITHIN;
        }
        tokio::time::sleep(WARM_POLL).await;
    }
}

#[cfg(test)]
#[cfg(all(
    target_os = "linux",
    feature = "node-agent",
    feature = "pod-finalizer",
    feature = "workflow-finalizer",
    feature = "pvc-protection",
    feature = "pod-recreation"
))]
mod tests;
