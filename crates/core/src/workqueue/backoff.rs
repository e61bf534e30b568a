//! How long a failed key waits before its next attempt.

use std::time::Duration;

/// An exponential curve with full jitter.
///
/// The n-th consecutive failure draws a delay evenly between [`floor`](Self::floor) and a ceiling
/// that starts at [`first`](Self::first), doubles with every failure and ends at
/// [`cap`](Self::cap). Full jitter spreads keys that failed together; without it they would all be
/// retried together.
///
/// The queue stores the ceiling per key, not the exponent: if the curve changes between two
/// failures, the ceiling continues from its value, within the bounds of the new curve. A key that
/// had a few conflicts and is then denied starts the slow curve at its beginning, not at its end.
///
/// A failure before the floor of the one before it has passed does not double the ceiling: the key was added again, and
/// its retry was not due.
///
/// ```
/// use std::time::Duration;
/// use belayer_core::workqueue::Backoff;
///
/// // A 429 with `Retry-After: 7`:
/// let backoff = Backoff::ERROR.at_least(Duration::from_secs(7));
/// assert_eq!(backoff.floor(), Duration::from_secs(7));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    floor: Duration,
}

impl Backoff {
    /// For failures of any kind: 5 ms, doubling up to 5 min.
    pub const ERROR: Self = Self::new(Duration::from_millis(5), Duration::from_secs(300));

    /// For releases that had a conflict (409): 5 ms, doubling up to 1 s. A deletion waits for them.
    pub const CONFLICT: Self = Self::new(Duration::from_millis(5), Duration::from_secs(1));

    /// For writes that were refused (403, a webhook or a policy): at least 30 s, up to 10 min. A
    /// user has to fix the cause first.
    pub const DENIED: Self = Self::new(Duration::from_secs(30), Duration::from_secs(600))
        .at_least(Duration::from_secs(30));

    /// A curve whose ceiling starts at `first` and doubles up to `cap`, with no floor.
    #[must_use]
    pub const fn new(first: Duration, cap: Duration) -> Self {
        Self {
            first,
            cap,
            floor: Duration::ZERO,
        }
    }

    /// A lower cap.
    #[must_use]
    pub const fn at_most(self, cap: Duration) -> Self {
        if cap.as_nanos() < self.cap.as_nanos() {
            Self { cap, ..self }
        } else {
            self
        }
    }

    /// A minimum delay, which may exceed the cap: what the server asks for with `Retry-After`. A
    /// lower floor set before is replaced.
    #[must_use]
    pub const fn at_least(self, floor: Duration) -> Self {
        if floor.as_nanos() > self.floor.as_nanos() {
            Self { floor, ..self }
        } else {
            self
        }
    }

    /// The ceiling after the first failure.
    #[must_use]
    pub const fn first(&self) -> Duration {
        self.first
    }

    /// The highest ceiling.
    #[must_use]
    pub const fn cap(&self) -> Duration {
        self.cap
    }

    /// The shortest delay.
    #[must_use]
    pub const fn floor(&self) -> Duration {
        self.floor
    }

    /// The ceiling after `previous`, the ceiling of the failure before (`None`: this is the first
    /// of a row).
    #[must_use]
    pub fn ceiling_after(&self, previous: Option<Duration>) -> Duration {
        self.bounded(previous.map_or(self.first, |previous| previous.saturating_mul(2)))
    }

    /// This ceiling within the bounds of the curve.
    pub(super) fn bounded(&self, ceiling: Duration) -> Duration {
        ceiling.max(self.first).min(self.cap)
    }

    /// The delay below `ceiling` for a `draw` from 0 to 1.
    #[must_use]
    pub fn delay(&self, ceiling: Duration, draw: f64) -> Duration {
        let range = ceiling.saturating_sub(self.floor);
        let part = Duration::try_from_secs_f64(range.as_secs_f64() * draw.clamp(0.0, 1.0));
        self.floor.saturating_add(part.unwrap_or(range))
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::ERROR
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const S: fn(u64) -> Duration = Duration::from_secs;

    fn ceilings(backoff: Backoff, count: usize) -> Vec<Duration> {
        let mut last = None;
        (0..count)
            .map(|_| {
                let ceiling = backoff.ceiling_after(last);
                last = Some(ceiling);
                ceiling
            })
            .collect()
    }

    #[test]
    fn errors_start_at_5_ms_double_and_end_at_5_min() {
        let ceilings = ceilings(Backoff::ERROR, 20);
        assert_eq!(ceilings[..4], [MS(5), MS(10), MS(20), MS(40)]);
        assert_eq!(ceilings[15], MS(5 << 15));
        assert_eq!(ceilings[16..], [S(300); 4]);
    }

    #[test]
    fn conflicts_never_wait_longer_than_a_second() {
        assert_eq!(ceilings(Backoff::CONFLICT, 1000)[8..], [S(1); 992]);
    }

    #[test]
    fn denials_wait_30_s_to_10_min() {
        let ceilings = ceilings(Backoff::DENIED, 8);
        assert_eq!(ceilings[..3], [S(30), S(60), S(120)]);
        assert_eq!(ceilings[7], S(600));
        assert_eq!(Backoff::DENIED.delay(S(30), 0.0), S(30));
        assert_eq!(Backoff::DENIED.delay(S(60), 0.0), S(30));
        assert_eq!(Backoff::DENIED.delay(S(600), 1.0), S(600));
    }

    #[rstest]
    #[case::full_jitter_starts_at_nothing(Backoff::ERROR, MS(80), 0.0, MS(0))]
    #[case::full_jitter_is_even(Backoff::ERROR, MS(80), 0.5, MS(40))]
    #[case::full_jitter_ends_at_the_ceiling(Backoff::ERROR, MS(80), 1.0, MS(80))]
    #[case::a_floor_above_the_ceiling_is_kept_exactly(Backoff::ERROR.at_least(S(7)), MS(80), 1.0, S(7))]
    #[case::a_floor_above_the_cap_is_kept_exactly(Backoff::CONFLICT.at_least(S(90)), S(1), 0.3, S(90))]
    #[case::a_floor_below_the_ceiling_shortens_the_range(Backoff::ERROR.at_least(S(1)), S(3), 0.5, S(2))]
    #[case::a_lower_floor_is_ignored(Backoff::DENIED.at_least(S(1)), S(30), 0.0, S(30))]
    #[case::a_draw_out_of_range_is_clamped(Backoff::ERROR, MS(80), 7.0, MS(80))]
    fn delays(
        #[case] backoff: Backoff,
        #[case] ceiling: Duration,
        #[case] draw: f64,
        #[case] expected: Duration,
    ) {
        assert_eq!(backoff.delay(ceiling, draw), expected);
    }

    #[rstest]
    #[case::lower(S(1), S(1))]
    #[case::higher(S(900), S(300))]
    fn a_cap_is_only_lowered(#[case] cap: Duration, #[case] expected: Duration) {
        assert_eq!(Backoff::ERROR.at_most(cap).cap(), expected);
    }

    #[rstest]
    #[case::conflicts_then_a_denial_starts_the_slow_curve(Backoff::DENIED, MS(160), S(30))]
    #[case::a_denial_then_a_conflict_is_capped(Backoff::CONFLICT, S(600), S(1))]
    #[case::an_error_after_conflicts_continues(Backoff::ERROR, S(1), S(2))]
    fn a_change_of_curve(
        #[case] backoff: Backoff,
        #[case] previous: Duration,
        #[case] expected: Duration,
    ) {
        assert_eq!(backoff.ceiling_after(Some(previous)), expected);
    }

    #[test]
    fn the_longest_durations_do_not_overflow() {
        let backoff = Backoff::new(Duration::MAX, Duration::MAX);
        let ceiling = backoff.ceiling_after(Some(Duration::MAX));
        assert_eq!(backoff.delay(ceiling, 1.0), Duration::MAX);
        assert_eq!(
            backoff.at_least(Duration::MAX).delay(ceiling, 1.0),
            Duration::MAX
        );
    }
}
