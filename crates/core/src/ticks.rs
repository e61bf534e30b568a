//! A periodic timer that ends with a cancellation token.
//!
//! ```
//! use std::time::Duration;
//! use belayer_core::ticks::Ticks;
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let stop = CancellationToken::new();
//! let mut ticks = Ticks::every(Duration::from_secs(60), stop.clone());
//! while ticks.next().await.is_some() {
//!     println!("once a minute, the first time at once");
//!     stop.cancel();
//! }
//! # }
//! ```

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Ticks at a regular interval, the first time at once, until a token is cancelled. If work takes
/// longer than the interval, the next tick is delayed and missed ticks are skipped. The [module's
/// example](self) waits for the first one.
#[derive(Debug)]
pub struct Ticks {
    interval: Interval,
    stop: CancellationToken,
}

impl Ticks {
    /// Ticks at the interval `every` until `stop` is cancelled.
    ///
    /// # Panics
    /// If `every` is zero, or outside of a tokio runtime, as `tokio::time::interval` does.
    pub fn every(every: Duration, stop: CancellationToken) -> Self {
        let mut interval = interval(every);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { interval, stop }
    }

    /// Waits for the next tick; `None` once the token is cancelled.
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
    async fn ticks_start_at_once_are_regular_and_end_with_the_token() {
        let (stop, began) = (CancellationToken::new(), tokio::time::Instant::now());
        let mut ticks = Ticks::every(Duration::from_secs(2), stop.clone());
        assert_eq!(ticks.next().await, Some(()));
        assert_eq!(began.elapsed(), Duration::ZERO);
        // Work took too long: the next tick comes at once, the following ones regularly.
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(ticks.next().await, Some(()));
        assert_eq!(ticks.next().await, Some(()));
        assert_eq!(began.elapsed(), Duration::from_secs(7));
        stop.cancel();
        assert_eq!(ticks.next().await, None);
    }
}
