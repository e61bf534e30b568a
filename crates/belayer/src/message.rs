//! Messages on standard error.

use std::io::IsTerminal as _;

use belayer_controller::config::yaml::one_line;
use belayer_inspect::text::wrapped;

/// Widest text, as in the help: longer lines are hard to read.
pub(crate) const WIDEST: usize = 80;

/// A message for standard error. On a terminal it is wrapped; elsewhere it is one line, which can be searched for.
pub(crate) fn message(text: &str) -> String {
    let stderr = std::io::stderr();
    if !stderr.is_terminal() {
        return text.to_owned();
    }
    let width = terminal_size::terminal_size_of(&stderr);
    let width = width.map_or(WIDEST, |(width, _)| usize::from(width.0));
    wrapped(text, width.clamp(40, WIDEST) - 2, "  ")
}

/// An error and its causes in one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // Many libraries repeat the cause in their message.
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    one_line(&text)
}
