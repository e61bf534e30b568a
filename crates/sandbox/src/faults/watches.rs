//! Faults of watches, running ones included.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::{Action, Fault, FaultHandle, Faults, Match, Target};
use crate::address::ObjectKey;

/// How a watch is ended. An argument of [`Fault::end_watch_after`](crate::Fault::end_watch_after);
/// the fault is injected as in the [crate's example](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEnd {
    /// The stream ends as after its timeout.
    Close,
    /// The connection breaks in the middle of the stream.
    Break,
    /// An ERROR event with 410 Expired, then the end of the stream.
    Expired,
    /// A frame that is not JSON; the stream continues.
    Garbage,
}

/// The faults planned for one watch at its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WatchPlan {
    pub(crate) end: Option<(u64, WatchEnd)>,
    pub(crate) delay: Duration,
    /// Maximum additional delay, drawn for each event.
    pub(crate) jitter: Duration,
}

impl WatchPlan {
    pub(super) fn add(&mut self, other: &WatchPlan) {
        self.end = self.end.or(other.end);
        self.delay = self.delay.saturating_add(other.delay);
        self.jitter = self.jitter.saturating_add(other.jitter);
    }
}

/// A running watch.
#[derive(Debug)]
pub(crate) struct LiveWatch {
    pub(crate) target: Target,
    command: Mutex<Option<WatchEnd>>,
}

impl LiveWatch {
    pub(crate) fn take_command(&self) -> Option<WatchEnd> {
        self.command.lock().take()
    }
}

/// What a running watch may show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visibility {
    Everything,
    /// Nothing after this version.
    UpTo(u64),
    Nothing,
}

impl Faults {
    pub(crate) fn register(&self, target: Target) -> Arc<LiveWatch> {
        let watch = Arc::new(LiveWatch {
            target,
            command: Mutex::default(),
        });
        let mut watches = self.inner.watches.lock();
        watches.retain(|w| w.strong_count() > 0);
        watches.push(Arc::downgrade(&watch));
        watch
    }

    /// Ends running watches; returns how many.
    pub fn end_watches(&self, matching: &Match, end: WatchEnd) -> usize {
        let running: Vec<Arc<LiveWatch>> = self
            .inner
            .watches
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        let mut ended = 0;
        for watch in running.iter().filter(|w| matching.matches(&w.target)) {
            *watch.command.lock() = Some(end);
            ended += 1;
        }
        self.wake();
        ended
    }

    /// Moves the clients of these requests to a second server that has seen nothing after a version: their
    /// running watches break, and until the fault is removed their reads are as of that version. Writes go
    /// to the one store.
    pub fn time_travel(&self, clients: Match, version: u64) -> FaultHandle {
        let handle = self.inject(Fault::on(clients.clone()).stale(version));
        self.end_watches(&clients, WatchEnd::Break);
        handle
    }

    /// Draws the additional delay of an event.
    pub(crate) fn draw(&self, jitter: Duration) -> Duration {
        if jitter.is_zero() {
            return Duration::ZERO;
        }
        jitter.mul_f64(self.inner.rng.unit())
    }

    /// What a watch may show when the store has reached that version.
    pub(crate) fn visibility(&self, target: &Target, newest: impl Fn() -> u64) -> Visibility {
        let mut seen = Visibility::Everything;
        for rule in self.inner.rules.lock().iter() {
            match &rule.fault.action {
                Action::Pause(until)
                    if rule.fault.matching.matches(target)
                        && until.is_none_or(|until| newest() < until) =>
                {
                    return Visibility::Nothing;
                }
                Action::Stale(version) if rule.fault.matching.matches(target) => {
                    seen = Visibility::UpTo(*version);
                }
                _ => {}
            }
        }
        seen
    }

    /// True when an event of that object must not reach that watch; counts as a hit.
    pub(crate) fn hides(&self, target: &Target, key: &ObjectKey, version: u64) -> bool {
        for rule in self.inner.rules.lock().iter() {
            if let Action::Hide(objects, versions) = &rule.fault.action
                && versions.as_ref().is_none_or(|v| v.contains(&version))
                && rule.fault.matching.matches(target)
                && objects.matches_object(&key.namespace, &key.name)
                && !rule.spent()
            {
                rule.hits.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }
}
