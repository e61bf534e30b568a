//! Time and randomness, both injected, so that a run can be repeated byte for byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::Instant;

/// Where the cluster's wall clock starts. Part of a [`Clock`](crate::Clock).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Epoch {
    /// The machine's wall clock at start, as users of kubectl expect.
    #[default]
    WallClock,
    /// A fixed instant, so that two runs write the same timestamps.
    Fixed(Timestamp),
}

/// The cluster's wall clock: an epoch plus tokio's time, so that paused time drives it.
///
/// ```
/// use belayer_sandbox::Sandbox;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let sandbox = Sandbox::builder().seed(7).build();
/// let begun = sandbox.cluster().clock().now();
/// tokio::time::advance(std::time::Duration::from_secs(60)).await;
/// assert_eq!(sandbox.cluster().clock().now().duration_since(begun).as_secs(), 60);
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Clock {
    inner: Arc<ClockInner>,
}

#[derive(Debug)]
struct ClockInner {
    epoch: Timestamp,
    start: Instant,
    skew_nanos: AtomicI64,
}

impl Clock {
    /// A clock that shows `epoch` now.
    pub fn new(epoch: Epoch) -> Self {
        let epoch = match epoch {
            Epoch::WallClock => Timestamp::now(),
            Epoch::Fixed(at) => at,
        };
        let inner = ClockInner {
            epoch,
            start: Instant::now(),
            skew_nanos: AtomicI64::new(0),
        };
        Clock {
            inner: Arc::new(inner),
        }
    }

    /// The cluster's time.
    pub fn now(&self) -> Timestamp {
        let elapsed = Instant::now().saturating_duration_since(self.inner.start);
        let elapsed = SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::MAX);
        let skew = SignedDuration::from_nanos(self.inner.skew_nanos.load(Ordering::Relaxed));
        let since = elapsed.checked_add(skew).unwrap_or(SignedDuration::ZERO);
        self.inner
            .epoch
            .checked_add(since)
            .unwrap_or(self.inner.epoch)
    }

    /// Time since the sandbox was started, without skew.
    pub fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(self.inner.start)
    }

    /// Shifts the wall clock from now on; may go back in time.
    pub fn set_skew(&self, skew: SignedDuration) {
        let nanos = i64::try_from(skew.as_nanos()).unwrap_or(0);
        self.inner.skew_nanos.store(nanos, Ordering::Relaxed);
    }

    /// `now` as `metav1.Time` prints it: whole seconds, UTC.
    pub fn now_rfc3339(&self) -> String {
        rfc3339(self.now())
    }
}

/// A timestamp as `metav1.Time` prints it: whole seconds, UTC.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    let whole = Timestamp::from_second(at.as_second()).unwrap_or(at);
    whole.to_string()
}

/// A seeded random number generator; clones share its state.
/// [`SandboxBuilder::seed`](crate::SandboxBuilder::seed) seeds it, as in the [crate's
/// example](crate).
#[derive(Debug, Clone)]
pub struct SharedRng {
    inner: Arc<Mutex<StdRng>>,
}

/// The alphabet of `names.SimpleNameGenerator`: without vowels and easily confused characters.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl SharedRng {
    /// A generator that depends on the seed alone.
    pub fn new(seed: u64) -> Self {
        SharedRng {
            inner: Arc::new(Mutex::new(StdRng::seed_from_u64(seed))),
        }
    }

    /// Any number.
    pub fn next_u64(&self) -> u64 {
        self.inner.lock().next_u64()
    }

    /// A number in `0..1`.
    pub fn unit(&self) -> f64 {
        // 53 bits are what a double can hold exactly.
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number in `0..end`; zero when `end` is zero.
    pub fn below(&self, end: u64) -> u64 {
        if end == 0 {
            return 0;
        }
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// A separate generator for one component, so that its draws do not change those of others.
    pub fn fork(&self) -> SharedRng {
        SharedRng::new(self.next_u64())
    }

    /// A version 4 UUID.
    pub fn uuid(&self) -> String {
        let mut rng = self.inner.lock();
        let bits = (u128::from(rng.next_u64()) << 64) | u128::from(rng.next_u64());
        let bits = (bits & !(0xf << 76)) | (0x4 << 76);
        let bits = (bits & !(0x3 << 62)) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        format!(
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        )
    }

    /// The five letters that `generateName` appends.
    pub fn name_suffix(&self) -> String {
        let pick = |_| SUFFIX_ALPHABET[self.below(SUFFIX_ALPHABET.len() as u64) as usize] as char;
        (0..5).map(pick).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_version_4_and_depends_on_the_seed_alone() {
        let id = SharedRng::new(7).uuid();
        assert_eq!(id, SharedRng::new(7).uuid());
        assert_eq!(id.len(), 36);
        assert_eq!(&id[14..15], "4");
        assert!("89ab".contains(&id[19..20]));
    }

    #[tokio::test(start_paused = true)]
    async fn paused_time_drives_the_clock() {
        let clock = Clock::new(Epoch::Fixed(Timestamp::UNIX_EPOCH));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(clock.now_rfc3339(), "1970-01-01T00:01:01Z");
        clock.set_skew(SignedDuration::from_secs(-60));
        assert_eq!(clock.now_rfc3339(), "1970-01-01T00:00:01Z");
    }
}
