//! The wall clock. A simulation replaces it.
//!
//! ```
//! use belayer_core::clock;
//!
//! assert!(clock::now() <= clock::now());
//! ```

use jiff::Timestamp;

/// The current time. The [module](self) shows it.
pub fn now() -> Timestamp {
    #[cfg(any(test, feature = "test-util"))]
    if let Some(now) = crate::simulated::now() {
        return now;
    }
    Timestamp::now()
}
