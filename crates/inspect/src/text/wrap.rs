//! Wraps text at spaces.

/// `text` in lines of at most `width` columns; all but the first start with `indent`. A longer word is not
/// broken, so that names and commands can be copied.
pub fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let width = width.max(20);
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            out.push_str(indent);
            column = 0;
        }
        if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_short_and_words_whole() {
        let text = wrapped(
            "one two a-word-that-is-much-longer-than-the-line three",
            20,
            "  ",
        );
        assert_eq!(
            text,
            "one two\n  a-word-that-is-much-longer-than-the-line\n  three"
        );
    }
}
