//! A simulated clock and seeded random numbers, so that each run of a simulation with the same seed is identical.
//!
//! ```
//! use belayer_core::{clock, rng, simulated::simulate};
//! use jiff::Timestamp;
//!
//! let simulated = simulate(7, || Timestamp::UNIX_EPOCH);
//! assert_eq!(clock::now(), Timestamp::UNIX_EPOCH);
//! let first = rng::bits();
//! drop(simulated);
//! let _again = simulate(7, || Timestamp::UNIX_EPOCH);
//! assert_eq!(rng::bits(), first);
//! ```

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

/// While this value lives, its thread uses the simulated randomness and wall clock. Returned by
/// [`simulate`]; see the [example](self).
#[derive(Debug)]
#[must_use = "dropping it ends the simulation"]
pub struct Simulated {
    not_send: PhantomData<*const ()>,
}

/// Replaces randomness (by a seeded generator) and the wall clock for this thread: all tasks of a
/// simulation run on one thread. A later call replaces an earlier one. The [module's
/// example](self) repeats a random number.
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

pub(crate) fn is_active() -> bool {
    SOURCE.with_borrow(Option::is_some)
}

pub(crate) fn now() -> Option<Timestamp> {
    SOURCE.with_borrow(|slot| slot.as_ref().map(|source| (source.clock)()))
}

pub(crate) fn bits() -> Option<u64> {
    SOURCE.with_borrow_mut(|slot| slot.as_mut().map(|source| source.rng.random()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;
    use crate::rng::unit;

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
