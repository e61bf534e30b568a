//! Names and messages in text and in commands. A tenant may choose most of them freely: RBAC objects may have any name
//! without `/` and `%`.

use std::borrow::Cow;

/// `text` in one line, with a replacement for each character that acts on the terminal: control characters, and those that
/// change the direction of text. The texts of a [report](crate::text::report) are printed so.
///
/// ```
/// use belayer_inspect::text::printable;
///
/// assert_eq!(printable("web-0"), "web-0");
/// assert_eq!(printable("web\u{1b}[8m"), "web\u{fffd}[8m");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(acts_on_the_terminal) {
        return text.into();
    }
    let shown = text.chars().map(|c| match c {
        c if !acts_on_the_terminal(c) => c,
        c if c.is_whitespace() => ' ',
        _ => '\u{fffd}',
    });
    shown.collect::<String>().into()
}

fn acts_on_the_terminal(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` as one word of a shell command, and of a line that `xargs` reads.
pub(crate) fn word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:/@=,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into();
    }
    format!("'{}'", printable(text).replace('\'', r"'\''")).into()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("system:node-1.a_b", "system:node-1.a_b")]
    #[case::empty("", "''")]
    #[case::of_two_words("a b", "'a b'")]
    #[case::a_command("x$(id>pwned)", "'x$(id>pwned)'")]
    #[case::a_quote("a'b", r"'a'\''b'")]
    #[case::an_escape_sequence("a\u{1b}[2J", "'a\u{fffd}[2J'")]
    #[case::two_lines("a\nb", "'a b'")]
    fn a_word_of_a_command_is_one_word(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(word(text), expected);
    }
}
