//! The work queue of a simulated controller: keys that are due, and keys with a timer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// A queue of keys in order of arrival, each at most once, with one timer per key.
///
/// Iteration order depends on nothing but the calls made, so that a run can be repeated.
///
/// ```
/// use belayer_sandbox::simulated::Agenda;
/// use tokio::time::Instant;
///
/// let now = Instant::now();
/// let mut agenda = Agenda::default();
/// agenda.add("web");
/// agenda.add("web");
/// assert_eq!((agenda.pop(now), agenda.pop(now)), (Some("web"), None));
/// ```
#[derive(Debug)]
pub struct Agenda<K> {
    due: VecDeque<K>,
    queued: BTreeSet<K>,
    timers: BTreeSet<(Instant, K)>,
    timer_of: BTreeMap<K, Instant>,
    failures: BTreeMap<K, u32>,
}

impl<K> Default for Agenda<K> {
    fn default() -> Self {
        Self {
            due: VecDeque::new(),
            queued: BTreeSet::new(),
            timers: BTreeSet::new(),
            timer_of: BTreeMap::new(),
            failures: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> Agenda<K> {
    /// Queues the key for processing now.
    pub fn add(&mut self, key: K) {
        if self.queued.insert(key.clone()) {
            self.due.push_back(key);
        }
    }

    /// Queues the key for processing at `when`, or earlier if an earlier timer is set.
    pub fn add_at(&mut self, key: K, when: Instant) {
        if let Some(&planned) = self.timer_of.get(&key) {
            if planned <= when {
                return;
            }
            self.timers.remove(&(planned, key.clone()));
        }
        self.timer_of.insert(key.clone(), when);
        self.timers.insert((when, key));
    }

    /// Queues the key again after a failure, with a delay that doubles each time.
    pub fn retry(&mut self, key: K, now: Instant) {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = FIRST_RETRY
            .saturating_mul(1 << (*failures).min(16))
            .min(LAST_RETRY);
        *failures = failures.saturating_add(1);
        self.add_at(key, now + delay);
    }

    /// Resets the key's backoff after a success.
    pub fn succeeded(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// The next key to process.
    pub fn pop(&mut self, now: Instant) -> Option<K> {
        while let Some((when, key)) = self.timers.first().cloned() {
            if when > now {
                break;
            }
            self.timer_of.remove(&key);
            self.timers.remove(&(when, key.clone()));
            self.add(key);
        }
        let key = self.due.pop_front()?;
        self.queued.remove(&key);
        Some(key)
    }

    /// When the next timer fires.
    pub fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(when, _)| *when)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_queued_once_and_in_order_of_arrival() {
        let mut agenda = Agenda::default();
        for key in ["b", "a", "b"] {
            agenda.add(key);
        }
        let now = Instant::now();
        assert_eq!(
            [agenda.pop(now), agenda.pop(now), agenda.pop(now)],
            [Some("b"), Some("a"), None]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_of_two_timers_wins_and_fires_once() {
        let mut agenda = Agenda::default();
        let now = Instant::now();
        agenda.add_at("a", now + Duration::from_secs(5));
        agenda.add_at("a", now + Duration::from_secs(2));
        agenda.add_at("a", now + Duration::from_secs(9));
        assert_eq!(agenda.pop(now + Duration::from_secs(1)), None);
        assert_eq!(agenda.pop(now + Duration::from_secs(2)), Some("a"));
        assert_eq!(agenda.pop(now + Duration::from_secs(60)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_come_back_ever_later_until_one_succeeds() {
        let mut agenda = Agenda::default();
        let now = Instant::now();
        let mut delays = vec![];
        for _ in 0..3 {
            agenda.retry("a", now);
            delays.push(agenda.next_timer().map(|when| when - now));
            agenda.pop(now + LAST_RETRY);
        }
        agenda.succeeded(&"a");
        agenda.retry("a", now);
        delays.push(agenda.next_timer().map(|when| when - now));
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(delays, [millis(50), millis(100), millis(200), millis(50)]);
    }
}
