//! A configuration file that changes while the process runs.
//!
//! What it says about the controllers and the limits takes effect at once: a second set of
//! controllers fills its caches beside the first, which then finishes what it has in flight and
//! hands over, so that nothing stands still meanwhile. The lease, the endpoints and the process
//! itself stay. What takes effect only with the next start is named in a warning. A file that
//! cannot be used changes nothing.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::config::keys::{self, Reload};
use crate::config::{ConfigError, Set, Source};

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A file that is being written is looked at again after this time: what it says counts once it
/// says the same twice.
const SETTLES_WITHIN: Duration = Duration::from_millis(500);

/// What a new file changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Keys that take effect at once.
    pub live: Vec<String>,
    /// Keys that take effect with the next start.
    pub restart: Vec<String>,
}

impl Changes {
    /// What is different between two documents.
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

    /// Whether nothing is different.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.restart.is_empty()
    }
}

/// Collects the keys whose values differ; lists are compared as a whole. What is left out is its
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

/// Whether a map at this place is the value of one key, not a group of keys.
fn is_one_key(path: &str) -> bool {
    keys::all().any(|key| key.path == path)
}

/// A value, or the default where it is left out.
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

/// Looks after the file.
#[derive(Debug)]
pub(crate) struct Watcher {
    path: Option<PathBuf>,
    sets: Vec<Set>,
    /// What the file said when it was last read, good or bad.
    seen: Option<String>,
    hangup: Signal,
    ticks: tokio::time::Interval,
}

impl Watcher {
    /// Looks after the file of `source` from now on.
    ///
    /// # Errors
    /// If signals cannot be received.
    pub(crate) fn new(source: &Source, sets: &[Set]) -> std::io::Result<Self> {
        let mut ticks = interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            path: source.path().map(ToOwned::to_owned),
            sets: sets.to_vec(),
            seen: source.path().map(|_| source.text().to_owned()),
            hangup: signal(SignalKind::hangup())?,
            ticks,
        })
    }

    /// Waits until the file says something else, or SIGHUP asks for another look; what it says.
    pub(crate) async fn changed(&mut self) -> Result<Source, ConfigError> {
        loop {
            let asked = tokio::select! {
                _ = self.hangup.recv() => true,
                _ = self.ticks.tick() => false,
            };
            let Some(path) = self.path.clone() else {
                if asked {
                    tracing::warn!("SIGHUP ignored: Belayer runs without a configuration file");
                }
                continue;
            };
            let Some(text) = self.settled(&path).await else {
                // On its way from one version to the next, or gone: the last one stays in force.
                if asked {
                    return Source::of(Some(&path), &self.sets);
                }
                continue;
            };
            if !asked && self.seen.as_deref() == Some(text.as_str()) {
                continue;
            }
            self.seen = Some(text);
            return Source::of(Some(&path), &self.sets);
        }
    }

    /// What the file says, once it says the same twice.
    async fn settled(&self, path: &std::path::Path) -> Option<String> {
        let mut last = tokio::fs::read_to_string(path).await.ok()?;
        if self.seen.as_ref() == Some(&last) {
            return Some(last);
        }
        for _ in 0..10 {
            tokio::time::sleep(SETTLES_WITHIN).await;
            let now = tokio::fs::read_to_string(path).await.ok()?;
            if now == last {
                return Some(now);
            }
            last = now;
        }
        None
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
