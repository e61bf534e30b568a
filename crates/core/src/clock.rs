//! The wall clock. A simulation replaces it.

use jiff::Timestamp;

/// The current time.
pub fn now() -> Timestamp {
    #[cfg(any(test, feature = "test-util"))]
    if let Some(now) = crate::simulated::now() {
        return now;
    }
    Timestamp::now()
}
