//! Work that is done now and then until it is told to stop.

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Ticks at a regular interval, the first one at once, until a token is cancelled. Work that takes
/// longer than the interval puts the next tick off; none is made up for.
#[derive(Debug)]
pub struct Ticks {
    interval: Interval,
    stop: CancellationToken,
}

impl Ticks {
    /// Ticks `every` so long until `stop` is cancelled.
    ///
    /// # Panics
    /// If `every` is zero, or outside of a tokio runtime, as `tokio::time::interval` does.
    pub fn every(every: Duration, stop: CancellationToken) -> Self {
        let mut interval = interval(every);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { interval, stop }
    }

    /// Waits for the next one; `None` once the token is cancelled.
    pub async fn next(&mut self) -> Option<()> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            _ = self.interval.tick() => Some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn they_come_at_once_then_regularly_and_end_with_the_token() {
        let (stop, began) = (CancellationToken::new(), tokio::time::Instant::now());
        let mut ticks = Ticks::every(Duration::from_secs(2), stop.clone());
        assert_eq!(ticks.next().await, Some(()));
        assert_eq!(began.elapsed(), Duration::ZERO);
        // Work that took too long: the next comes at once, and from then on regularly.
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(ticks.next().await, Some(()));
        assert_eq!(ticks.next().await, Some(()));
        assert_eq!(began.elapsed(), Duration::from_secs(7));
        stop.cancel();
        assert_eq!(ticks.next().await, None);
    }
}
