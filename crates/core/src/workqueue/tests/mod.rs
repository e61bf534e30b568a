//! The rules of the module's documentation, then a model, then load.

mod inbox;
mod interleavings;
mod metering;
mod model;
mod order;
mod rules;
mod shutdown;
mod stress;
mod waiting;
mod work;

use std::time::Duration;

use super::{Ageing, Item, Key, Metering, Options, WorkQueue};

const MS: fn(u64) -> Duration = Duration::from_millis;
const S: fn(u64) -> Duration = Duration::from_secs;

fn queue() -> WorkQueue<&'static str> {
    silent(Ageing::default())
}

fn silent<K: Key>(ageing: Ageing) -> WorkQueue<K> {
    WorkQueue::with_options(
        "test",
        Options {
            ageing,
            metering: Metering::Off,
        },
    )
}

/// Takes a key that must be ready.
fn take<'q>(queue: &'q WorkQueue<&'static str>) -> Item<'q, &'static str> {
    queue.try_next().expect("a key is ready")
}

/// Takes and finishes everything that is ready.
fn all(queue: &WorkQueue<&'static str>) -> Vec<&'static str> {
    std::iter::from_fn(|| {
        let item = queue.try_next()?;
        let key = *item.key();
        item.succeeded();
        Some(key)
    })
    .collect()
}

fn nothing_ready(queue: &WorkQueue<&'static str>) -> bool {
    queue.try_next().is_none()
}
