//! Names in commands. A tenant may choose most of them freely: RBAC objects may have any name without `/` and `%`.

use std::borrow::Cow;

use belayer_core::words::printable;

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
