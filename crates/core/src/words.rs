//! Words in messages: numbers with nouns, and text that others wrote.
//!
//! ```
//! use belayer_core::words::one_or_many;
//!
//! assert_eq!(one_or_many(2, "pod", "pods"), "2 pods");
//! ```

use std::borrow::Cow;
use std::fmt::Display;

/// Formats a number with its noun: `1 pod`, `2 pods`. The [module's example](self) has a plural.
pub fn one_or_many<N: Display + PartialEq + From<u8>>(number: N, one: &str, many: &str) -> String {
    let noun = if number == N::from(1) { one } else { many };
    format!("{number} {noun}")
}

/// `text` in one line, with a replacement for each character that acts on a terminal: control characters, and those that
/// change the direction of text. A tenant may choose most names and messages freely, so Events, log lines and reports
/// contain them only in this form.
///
/// ```
/// use belayer_core::words::printable;
///
/// assert_eq!(printable("web-0"), "web-0");
/// assert_eq!(printable("web\u{1b}[8m\nweb-1"), "web\u{fffd}[8m web-1");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(acts_on_a_terminal) {
        return text.into();
    }
    let shown = text.chars().map(|c| match c {
        c if !acts_on_a_terminal(c) => c,
        c if c.is_whitespace() => ' ',
        _ => '\u{fffd}',
    });
    shown.collect::<String>().into()
}

fn acts_on_a_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_character_that_acts_on_a_terminal_is_replaced() {
        let acting = "a\n\r\t\u{85}\u{2028}\u{2029}\u{1b}\u{7}\u{7f}\u{9b}\u{202e}\u{2066}\u{61c}\u{200e}\u{200f}b";
        let shown = format!("a{}{}b", " ".repeat(6), "\u{fffd}".repeat(9));
        assert_eq!(printable(acting), shown);
        assert_eq!(printable("größer: 10 µs, 名前"), "größer: 10 µs, 名前");
    }

    #[test]
    fn only_one_is_singular() {
        let pods = |number: u64| one_or_many(number, "pod", "pods");
        assert_eq!([pods(0), pods(1), pods(2)], ["0 pods", "1 pod", "2 pods"]);
    }
}
