//! Random numbers, for jitter and generated names. A simulation replaces them by a seeded generator.
//!
//! ```
//! use belayer_core::rng;
//!
//! assert!((0.0..1.0).contains(&rng::unit()));
//! ```

/// A random number in `0..1`. The [module's example](self) checks the range.
pub fn unit() -> f64 {
    // A double holds 53 bits exactly.
    (bits() >> 11) as f64 / (1_u64 << 53) as f64
}

/// 64 random bits. [`unit()`] makes a fraction of them, as in the [example](self).
pub fn bits() -> u64 {
    #[cfg(any(test, feature = "test-util"))]
    if let Some(bits) = crate::simulated::bits() {
        return bits;
    }
    rand::random()
}
