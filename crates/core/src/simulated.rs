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
use tokio::task::JoinHandle;

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

/// Runs blocking work on a thread of its own. In a simulation it is a task of the simulation's thread, as the order in which
/// threads finish is not repeatable.
///
/// ```
/// use belayer_core::simulated::spawn_blocking;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let here = spawn_blocking(std::env::current_dir).await.unwrap();
/// assert!(here.is_ok());
/// # }
/// ```
///
/// # Panics
/// Outside a tokio runtime.
pub fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    if SOURCE.with_borrow(Option::is_some) {
        tokio::spawn(async move { work() })
    } else {
        tokio::task::spawn_blocking(work)
    }
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
