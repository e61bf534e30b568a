//! A logical clock: which of two things in this process happened first.

use std::sync::atomic::{AtomicU64, Ordering};

static LAST: AtomicU64 = AtomicU64::new(0);

/// A point in this process's history, comparable with every other [`LogicalTime`] of the process.
///
/// Evidence must come from a look *begun after* the question arose. Wall clocks jump and two
/// reads of them can be equal, so both ends of that comparison are taken from one counter: the
/// store notes the moment at which it first saw an object, a look notes the moment at which its
/// request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogicalTime(u64);

impl LogicalTime {
    /// Before everything: no look can have begun earlier.
    pub const BEGINNING: Self = Self(0);

    /// The present. Later than every moment taken before, earlier than every one taken after.
    pub fn now() -> Self {
        Self(LAST.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_moment_is_greater() {
        let first = LogicalTime::now();
        assert!(LogicalTime::now() > first);
        assert!(first > LogicalTime::BEGINNING);
    }
}
