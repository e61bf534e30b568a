//! Operations on a queue.

use std::sync::Arc;
use std::time::Duration;

use belayer_core::workqueue::{Backoff, Metering, Options, Priority, WorkQueue};

use super::Walk;

/// Number of keys in the queue.
const KEYS: usize = 1000;

/// A delay longer than any measurement.
const LATER: Duration = Duration::from_secs(24 * 3600);

fn queue() -> WorkQueue<Arc<str>> {
    let options = Options {
        metering: Metering::Off,
        ..Options::default()
    };
    WorkQueue::with_options("path", options)
}

fn keys() -> Vec<Arc<str>> {
    (0..KEYS)
        .map(|number| format!("team-{}/pod-{number}", number % 10).into())
        .collect()
}

fn priority_of(number: usize) -> Priority {
    Priority::ALL[number % Priority::ALL.len()]
}

fn take(queue: &WorkQueue<Arc<str>>) {
    if let Some(item) = queue.try_next() {
        item.succeeded();
    }
}

/// A key is added, and another is taken and done.
pub(super) fn through() -> Walk {
    let (queue, keys) = (queue(), keys());
    let mut number = 0;
    Walk::step(move || {
        queue.add(Arc::clone(&keys[number % KEYS]), priority_of(number));
        // Half of the keys stay queued: a queue of one key would be unrealistically cache-friendly.
        if number >= KEYS / 2 {
            take(&queue);
        }
        number += 1;
    })
}

/// A queued key is added again, with the same priority.
pub(super) fn merge() -> Walk {
    let (queue, keys) = (queue(), keys());
    queue.add_all(keys.iter().cloned(), Priority::Normal);
    let mut number = 0;
    Walk::step(move || {
        queue.add(Arc::clone(&keys[number % KEYS]), Priority::Normal);
        number += 1;
    })
}

/// A key is delayed among others, then added without delay, taken and done.
pub(super) fn delay() -> Walk {
    let (queue, keys) = (queue(), keys());
    for (number, key) in keys.iter().enumerate().skip(1) {
        let due = LATER + Duration::from_millis(number as u64 * 7919 % 1000);
        queue.add_after(Arc::clone(key), Priority::Normal, due);
    }
    let mut number = 0;
    Walk::step(move || {
        number += 1;
        let due = LATER + Duration::from_millis(number * 7919 % 1000);
        queue.add_after(Arc::clone(&keys[0]), Priority::Normal, due);
        queue.add(Arc::clone(&keys[0]), Priority::Normal);
        take(&queue);
    })
}

/// A key is taken, fails, and its failures are reset; then it is added without delay.
pub(super) fn retry() -> Walk {
    let (queue, keys) = (queue(), keys());
    queue.add_all(keys.iter().cloned(), Priority::Normal);
    Walk::step(move || {
        let Some(item) = queue.try_next() else { return };
        let key = Arc::clone(item.key());
        item.retry(Backoff::ERROR);
        queue.forget(&key);
        queue.add(key, Priority::Normal);
    })
}
