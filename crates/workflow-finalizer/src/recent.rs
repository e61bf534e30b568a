//! How many workflows were deleted lately.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// "Lately" means between one and two periods.
const PERIOD: Duration = Duration::from_secs(10);

/// Counts events of the last seconds.
#[derive(Debug)]
pub(crate) struct Recent(Mutex<Periods>);

#[derive(Debug)]
struct Periods {
    began: Instant,
    current: usize,
    previous: usize,
}

impl Recent {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Periods {
            began: Instant::now(),
            current: 0,
            previous: 0,
        }))
    }

    pub(crate) fn note(&self) {
        self.0.lock().at(Instant::now()).current += 1;
    }

    pub(crate) fn count(&self) -> usize {
        let mut periods = self.0.lock();
        let periods = periods.at(Instant::now());
        periods.current + periods.previous
    }
}

impl Periods {
    fn at(&mut self, now: Instant) -> &mut Self {
        let passed = now.duration_since(self.began);
        if passed >= PERIOD {
            let is_next = passed < PERIOD * 2;
            self.previous = if is_next { self.current } else { 0 };
            self.current = 0;
            self.began = now;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn events_count_for_one_to_two_periods() {
        let recent = Recent::new();
        recent.note();
        recent.note();
        tokio::time::advance(PERIOD).await;
        recent.note();
        assert_eq!(recent.count(), 3);
        tokio::time::advance(PERIOD).await;
        assert_eq!(recent.count(), 1);
        tokio::time::advance(PERIOD * 2).await;
        assert_eq!(recent.count(), 0);
    }
}
