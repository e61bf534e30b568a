//! The pause between attempts.

use std::time::Duration;

use belayer_core::rng;

/// Longest pause between attempts, unless the server requests more.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Pause after this many conflicts.
pub(crate) fn pause(attempt: u32) -> Duration {
    let ceiling = Duration::from_millis(20 << attempt.min(7)).min(MAX_PAUSE);
    ceiling.mul_f64(0.5 + rng::unit() / 2.0)
}
