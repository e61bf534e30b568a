use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const FIRST: Duration = Duration::from_millis(800);
const LAST: Duration = Duration::from_secs(30);
/// A kind that is not served may be installed at any time, and users wait for it then.
const LAST_UNSERVED: Duration = Duration::from_secs(5);

/// The delay before the next attempt: random up to a bound that doubles (full jitter), so that
/// clients that failed together do not retry together.
#[derive(Debug)]
pub(super) struct Backoff {
    failures: u32,
    random: StdRng,
}

impl Backoff {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            failures: 0,
            random: StdRng::seed_from_u64(seed),
        }
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The next delay, at least what the server asked for.
    pub(super) fn next(&mut self, retry_after: Option<Duration>) -> Duration {
        let delay = self.draw(LAST);
        // The jitter is added to what the server asked for, because it asks all clients for the
        // same.
        retry_after.map_or(delay, |asked| asked + delay.min(FIRST))
    }

    /// The next delay while the kind is not served.
    pub(super) fn next_unserved(&mut self) -> Duration {
        self.draw(LAST_UNSERVED)
    }

    /// A length between 90 % and 110 % of `length`.
    pub(super) fn around(&mut self, length: Duration) -> Duration {
        length.mul_f64(self.random.random_range(0.9..1.1))
    }

    fn draw(&mut self, last: Duration) -> Duration {
        let bound = FIRST.saturating_mul(1 << self.failures.min(16)).min(last);
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(self.random.random_range(0.0..1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_their_bound_and_can_be_reset() {
        let mut backoff = Backoff::new(1);
        let delays: Vec<_> = (0..1000).map(|_| backoff.next(None)).collect();
        assert!(delays[0] <= FIRST);
        assert!(delays.iter().all(|delay| *delay <= LAST));
        assert!(delays.iter().any(|delay| *delay > LAST / 2));
        backoff.reset();
        assert!(backoff.next(None) <= FIRST);
    }

    #[test]
    fn the_delay_is_at_least_what_the_server_asks_for() {
        let mut backoff = Backoff::new(1);
        for _ in 0..100 {
            let delay = backoff.next(Some(Duration::from_secs(60)));
            assert!(delay >= Duration::from_secs(60) && delay <= Duration::from_secs(61));
        }
    }
}
