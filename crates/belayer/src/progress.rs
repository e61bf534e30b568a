//! How far long work is: a bar on a terminal; elsewhere a line now and then.

use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Without a terminal, a line at most so often.
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

/// Says when the next line is due.
pub(crate) struct Lines(Mutex<Instant>);

impl Lines {
    /// The first line comes after the first pause: what is quick is told by its result.
    pub(crate) fn from_now() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    /// Whether one is due. Whoever is told so writes it.
    pub(crate) fn due(&self) -> bool {
        let Ok(mut told) = self.0.lock() else {
            return false;
        };
        let due = told.elapsed() >= LINE_EVERY;
        if due {
            *told = Instant::now();
        }
        due
    }
}
