use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const FIRST: Duration = Duration::from_millis(800);
const LAST: Duration = Duration::from_secs(30);
/// A kind that is not served may appear at any time, and then people wait.
const LAST_UNSERVED: Duration = Duration::from_secs(5);

/// How long to wait before asking again: anything up to a bound that doubles (full jitter), so
/// that clients that failed together do not come back together.
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
        // Jitter comes on top of what the server asked, for it told everybody the same.
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
    fn delays_grow_to_their_bound_and_start_over() {
        let mut backoff = Backoff::new(1);
        let delays: Vec<_> = (0..1000).map(|_| backoff.next(None)).collect();
        assert!(delays[0] <= FIRST);
        assert!(delays.iter().all(|delay| *delay <= LAST));
        assert!(delays.iter().any(|delay| *delay > LAST / 2));
        backoff.reset();
        assert!(backoff.next(None) <= FIRST);
    }

    #[test]
    fn what_the_server_asks_is_the_least() {
        let mut backoff = Backoff::new(1);
        for _ in 0..100 {
            let delay = backoff.next(Some(Duration::from_secs(60)));
            assert!(delay >= Duration::from_secs(60) && delay <= Duration::from_secs(61));
        }
    }
}
