//! A logical clock: the order of events within this process.
//!
//! ```
//! use belayer_core::LogicalTime;
//!
//! let seen = LogicalTime::now();
//! let read_begun = LogicalTime::now();
//! assert!(read_begun > seen, "the read is evidence about what was seen");
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

static LAST: AtomicU64 = AtomicU64::new(0);

/// A point in this process's history, comparable with every other [`LogicalTime`] of the process.
///
/// Evidence must come from a live read that *began* after the object was seen. Wall clocks jump and two
/// reads of them can be equal, so both ends of that comparison come from one counter: the store
/// records when it first saw an object, a live read records when its request was sent.
///
/// The [module's example](self) orders two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogicalTime(u64);

impl LogicalTime {
    /// Before every other time: no live read can have begun earlier.
    pub const BEGINNING: Self = Self(0);

    /// The present: later than every value taken before, earlier than every value taken after.
    pub fn now() -> Self {
        Self(LAST.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_time_is_greater() {
        let first = LogicalTime::now();
        assert!(LogicalTime::now() > first);
        assert!(first > LogicalTime::BEGINNING);
    }
}
