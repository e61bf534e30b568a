//! Progress of a long command: a bar on a terminal, otherwise a line at intervals.

use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Least time between two lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// A bar on standard error, if that is a terminal.
pub(crate) fn bar_on_stderr(template: &str) -> Option<ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    Some(bar)
}

/// Tracks when the next line is due.
pub(crate) struct Lines(Mutex<Instant>);

impl Lines {
    /// The first line is due after one interval, so that a quick command prints none.
    pub(crate) fn from_now() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    /// Whether a line is due; the caller that gets `true` must print it.
    pub(crate) fn due(&self) -> bool {
        let Ok(mut last_line) = self.0.lock() else {
            return false;
        };
        let due = last_line.elapsed() >= LINE_EVERY;
        if due {
            *last_line = Instant::now();
        }
        due
    }
}
