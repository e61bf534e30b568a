//! Randomness and the wall clock, the two inputs that come from outside the process.
//!
//! Delays are jittered, names of Events end in a random number, Events carry a time. A simulation
//! replaces both so that each run of a seed is identical; production uses the system's.

#[cfg(any(test, feature = "test-util"))]
pub use simulated::{Simulated, simulate};

use jiff::Timestamp;

/// The wall clock.
pub fn now() -> Timestamp {
    #[cfg(any(test, feature = "test-util"))]
    if let Some(now) = simulated::now() {
        return now;
    }
    Timestamp::now()
}

/// A random number in `0..1`.
pub fn unit() -> f64 {
    // A double holds 53 bits exactly.
    (bits() >> 11) as f64 / (1_u64 << 53) as f64
}

/// 64 random bits.
pub fn bits() -> u64 {
    #[cfg(any(test, feature = "test-util"))]
    if let Some(bits) = simulated::bits() {
        return bits;
    }
    rand::random()
}

#[cfg(any(test, feature = "test-util"))]
mod simulated {
    use std::cell::RefCell;
    use std::marker::PhantomData;

    use jiff::Timestamp;
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    struct Source {
        rng: StdRng,
        clock: Box<dyn Fn() -> Timestamp>,
    }

    thread_local! {
        static SOURCE: RefCell<Option<Source>> = const { RefCell::new(None) };
    }

    /// While this value lives, its thread uses the simulated randomness and wall clock.
    #[derive(Debug)]
    #[must_use = "dropping it ends the simulation"]
    pub struct Simulated {
        not_send: PhantomData<*const ()>,
    }

    /// Replaces randomness (by a seeded generator) and the wall clock for this thread: all tasks of
    /// a simulation run on one thread. A later call replaces an earlier one.
    pub fn simulate(seed: u64, clock: impl Fn() -> Timestamp + 'static) -> Simulated {
        let source = Source {
            rng: StdRng::seed_from_u64(seed),
            clock: Box::new(clock),
        };
        SOURCE.with_borrow_mut(|slot| *slot = Some(source));
        Simulated {
            not_send: PhantomData,
        }
    }

    impl Drop for Simulated {
        fn drop(&mut self) {
            SOURCE.with_borrow_mut(|slot| *slot = None);
        }
    }

    pub(super) fn now() -> Option<Timestamp> {
        SOURCE.with_borrow(|slot| slot.as_ref().map(|source| (source.clock)()))
    }

    pub(super) fn bits() -> Option<u64> {
        SOURCE.with_borrow_mut(|slot| slot.as_mut().map(|source| source.rng.random()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_repeats_itself_and_ends() {
        let draw = |seed| {
            let _simulated = simulate(seed, || Timestamp::UNIX_EPOCH);
            assert_eq!(now(), Timestamp::UNIX_EPOCH);
            [unit(), unit(), unit()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(3).iter().all(|unit| (0.0..1.0).contains(unit)));
        assert!(now() > Timestamp::UNIX_EPOCH);
    }
}
