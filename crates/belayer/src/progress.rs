//! Progress of a long command: a bar on a terminal, otherwise a line at intervals.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Least time between two lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// A bar on standard error, which counts also where it is not shown.
pub(crate) struct Meter {
    pub(crate) bar: ProgressBar,
    last_line: Mutex<Instant>,
}

impl Meter {
    /// The first line is due after one interval, so that a quick command prints none.
    pub(crate) fn on_stderr(template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self {
            bar,
            last_line: Mutex::new(Instant::now()),
        }
    }

    /// One more is done: prints a line if one is due and there is no bar.
    pub(crate) fn advance(&self, line: impl FnOnce(u64, u64) -> String) {
        self.bar.inc(1);
        let Ok(mut last_line) = self.last_line.lock() else {
            return;
        };
        if self.bar.is_hidden() && last_line.elapsed() >= LINE_EVERY {
            *last_line = Instant::now();
            let length = self.bar.length().unwrap_or_default();
            anstream::eprintln!("{}", line(self.bar.position(), length));
        }
    }
}
