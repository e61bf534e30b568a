//! Wraps text at spaces.

use belayer_core::words::printable;

/// `text` in lines of at most `width` columns; all but the first start with `indent`. A longer
/// word is not broken, so that names and commands can be copied, and is [`printable`]. The example of
/// [`row`](crate::text::row) breaks a line.
pub fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let width = width.max(20);
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let word = &*printable(word);
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

/// The cells of a line. A cell that does not fit goes to the next line, indented by eight columns.
///
/// ```
/// use belayer_inspect::text::{row, wrapped};
///
/// let cells = ["NAME".to_owned(), "AGE".to_owned()];
/// assert_eq!(row(&cells, "  ", 80), "NAME  AGE");
/// assert_eq!(wrapped("keeps the result until it was read", 20, "  "), "keeps the result\n  until it was read");
/// ```
pub fn row(cells: &[String], between: &str, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for cell in cells.iter().filter(|cell| !cell.trim().is_empty()) {
        let cell = &*printable(cell);
        let shown = cell.trim_end().chars().count();
        if column > 0 && column + between.len() + shown > width {
            out.truncate(out.trim_end().len());
            out.push_str("\n        ");
            column = 8;
        } else if column > 0 {
            out.push_str(between);
            column += between.len();
        }
        out.push_str(cell);
        column += cell.chars().count();
    }
    out.truncate(out.trim_end().len());
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

    #[test]
    fn nothing_acts_on_the_terminal() {
        assert_eq!(wrapped("a\u{1b}[8m b", 20, ""), "a\u{fffd}[8m b");
        let cells = ["a\u{1b}]0;b\u{7}".to_owned(), "c\nd".to_owned()];
        assert_eq!(row(&cells, " ", 80), "a\u{fffd}]0;b\u{fffd} c d");
    }

    #[test]
    fn a_cell_that_does_not_fit_goes_to_the_next_line() {
        let row = |width| row(&["a ".into(), "bb  ".into(), "ccc".into()], "  ", width);
        assert_eq!(row(80), "a   bb    ccc");
        assert_eq!(row(12), "a   bb\n        ccc");
        assert_eq!(row(5), "a\n        bb\n        ccc");
    }
}
