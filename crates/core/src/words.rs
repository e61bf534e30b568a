//! Numbers with nouns in messages.
//!
//! ```
//! use belayer_core::words::one_or_many;
//!
//! assert_eq!(one_or_many(2, "pod", "pods"), "2 pods");
//! ```

use std::fmt::Display;

/// Formats a number with its noun: `1 pod`, `2 pods`. The [module's example](self) has a plural.
pub fn one_or_many<N: Display + PartialEq + From<u8>>(number: N, one: &str, many: &str) -> String {
    let noun = if number == N::from(1) { one } else { many };
    format!("{number} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        let pods = |number: u64| one_or_many(number, "pod", "pods");
        assert_eq!([pods(0), pods(1), pods(2)], ["0 pods", "1 pod", "2 pods"]);
    }
}
