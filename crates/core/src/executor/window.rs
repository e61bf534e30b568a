//! How many requests of a lane may be in flight: additive increase, multiplicative decrease.

use std::time::Duration;

use tokio::time::Instant;

/// A latency below this is never a rise: on a busy server single requests take this long.
const SLOW: f64 = 1.0;

/// A latency of this many times the usual one is a rise.
const RISE: f64 = 4.0;

/// The weight of one response in the recent latency and in the usual one.
const RECENT: f64 = 1.0 / 8.0;
const USUAL: f64 = 1.0 / 256.0;

/// What a response shows about the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// It did the work.
    Served,
    /// It has too much to do: 429, 503, or no response in time.
    Overloaded,
    /// Neither.
    Unknown,
}

/// The limit of a lane. Each success raises it by `1 / limit`, so by one for each round of requests.
/// An overloaded server and a rise of the latency halve it, once for each round: the requests that
/// were in flight at the decrease are answered alike.
#[derive(Debug)]
pub(super) struct Window {
    limit: f64,
    cap: f64,
    decreased: Option<Instant>,
    /// Moving averages of the latency, in seconds; `None` before the first success.
    latency: Option<Latency>,
}

#[derive(Debug, Clone, Copy)]
struct Latency {
    recent: f64,
    usual: f64,
}

impl Window {
    /// Starts at `cap`, which is the highest limit.
    pub(super) fn new(cap: usize) -> Self {
        let cap = cap.max(1) as f64;
        Self {
            limit: cap,
            cap,
            decreased: None,
            latency: None,
        }
    }

    /// How many requests may be in flight, at least one.
    pub(super) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Whether nothing would be lost with this window.
    pub(super) fn is_new(&self) -> bool {
        self.limit >= self.cap
    }

    /// Records the response to a request that began at `begun`.
    pub(super) fn record(&mut self, begun: Instant, load: Load) {
        let is_overloaded = match load {
            Load::Served => self.rises(begun.elapsed()),
            Load::Overloaded => true,
            Load::Unknown => return,
        };
        if !is_overloaded {
            self.limit = (self.limit + self.limit.recip()).min(self.cap);
        } else if self.decreased.is_none_or(|decreased| begun > decreased) {
            self.limit = (self.limit / 2.0).max(1.0);
            self.decreased = Some(Instant::now());
        }
    }

    /// Whether the latency rises with this response. A server that stays slow is the usual case
    /// after some time.
    fn rises(&mut self, latency: Duration) -> bool {
        let latency = latency.as_secs_f64();
        let Some(known) = &mut self.latency else {
            self.latency = Some(Latency {
                recent: latency,
                usual: latency,
            });
            return false;
        };
        known.recent += (latency - known.recent) * RECENT;
        known.usual += (latency - known.usual) * USUAL;
        known.recent > SLOW && known.recent > RISE * known.usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pass(seconds: f64) {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }

    /// Requests that begin together, later than those before, and are answered alike after
    /// `seconds`.
    async fn round(window: &mut Window, count: usize, seconds: f64, load: Load) {
        pass(0.001).await;
        let begun = Instant::now();
        pass(seconds).await;
        for _ in 0..count {
            window.record(begun, load);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn l2_the_limit_halves_once_for_each_round_and_stays_at_least_one() {
        let mut window = Window::new(32);
        let mut limits = Vec::new();
        for _ in 0..7 {
            let limit = window.limit();
            round(&mut window, limit, 0.1, Load::Overloaded).await;
            limits.push(window.limit());
        }
        assert_eq!(limits, [16, 8, 4, 2, 1, 1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn l2_the_limit_grows_by_one_for_each_round_up_to_the_cap() {
        let mut window = Window::new(8);
        for _ in 0..5 {
            round(&mut window, 1, 0.1, Load::Overloaded).await;
        }
        assert_eq!(window.limit(), 1);
        for expected in [2, 2, 3, 4, 5, 6, 7, 8, 8] {
            let limit = window.limit();
            round(&mut window, limit, 0.1, Load::Served).await;
            assert!(
                window.limit().abs_diff(expected) <= 1,
                "{} and not {expected}",
                window.limit()
            );
        }
        round(&mut window, 100, 0.1, Load::Served).await;
        assert!(window.is_new() && window.limit() == 8);
    }

    #[tokio::test(start_paused = true)]
    async fn l2_a_rise_of_the_latency_halves_the_limit() {
        let mut window = Window::new(32);
        round(&mut window, 100, 0.02, Load::Served).await;
        assert_eq!(window.limit(), 32);
        round(&mut window, 32, 2.0, Load::Served).await;
        assert_eq!(window.limit(), 16);
        round(&mut window, 16, 2.0, Load::Served).await;
        assert_eq!(window.limit(), 8);
        // In the long run it is the usual latency.
        for _ in 0..100 {
            round(&mut window, 16, 2.0, Load::Served).await;
        }
        assert_eq!(window.limit(), 32);
    }

    #[tokio::test(start_paused = true)]
    async fn l2_a_slow_server_and_a_single_slow_request_are_no_rise() {
        let mut window = Window::new(32);
        round(&mut window, 1_000, 2.0, Load::Served).await;
        let mut noisy = Window::new(32);
        for _ in 0..20 {
            round(&mut noisy, 40, 0.02, Load::Served).await;
            round(&mut noisy, 1, 4.0, Load::Served).await;
            round(&mut noisy, 1, 30.0, Load::Unknown).await;
        }
        assert_eq!((window.limit(), noisy.limit()), (32, 32));
    }
}
