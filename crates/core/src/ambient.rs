//! What comes from outside the process: chance and the wall clock, in one place.
//!
//! Delays are jittered, names of Events end in a random number, notices carry a time. A simulation that is to
//! repeat itself byte for byte hands in both; production has the system's.

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

/// A number in `0..1`.
pub fn unit() -> f64 {
    // 53 bits are what a double can hold exactly.
    (bits() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Any number.
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
        chance: StdRng,
        clock: Box<dyn Fn() -> Timestamp>,
    }

    thread_local! {
        static SOURCE: RefCell<Option<Source>> = const { RefCell::new(None) };
    }

    /// While it lives, this thread's chance and wall clock are those that were handed in.
    #[derive(Debug)]
    #[must_use = "dropping it ends the simulation"]
    pub struct Simulated {
        not_send: PhantomData<*const ()>,
    }

    /// Hands in chance, drawn from a seed, and a wall clock, for this thread: all tasks of a simulation run on
    /// one. The last one handed in counts.
    pub fn simulate(seed: u64, clock: impl Fn() -> Timestamp + 'static) -> Simulated {
        let source = Source {
            chance: StdRng::seed_from_u64(seed),
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
        SOURCE.with_borrow_mut(|slot| slot.as_mut().map(|source| source.chance.random()))
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
