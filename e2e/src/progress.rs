//! Progress of long tasks: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// A task with a known number of steps.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
}

impl Progress {
    /// Begins a task of `total` steps.
    pub(crate) fn steps(title: &str, total: usize) -> Self {
        let started = Instant::now();
        if !std::io::stderr().is_terminal() {
            Self::say(title);
            return Self { bar: None, started };
        }
        let bar = ProgressBar::new(u64::try_from(total).unwrap_or_default());
        let style =
            ProgressStyle::with_template("{spinner} {prefix} {pos}/{len} {elapsed} {wide_msg}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar.println(title);
        bar.enable_steady_tick(Duration::from_millis(120));
        Self {
            bar: Some(bar),
            started,
        }
    }

    /// Begins a task whose state is shown as a text of several lines.
    pub(crate) fn table(title: &str) -> Self {
        let this = Self::steps(title, 0);
        if let (Some(bar), Ok(style)) = (
            &this.bar,
            ProgressStyle::with_template("{spinner} {elapsed}{msg}"),
        ) {
            bar.set_style(style);
        }
        this
    }

    /// Whether the state of the task is shown on a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.bar.is_some()
    }

    /// Prints one line above the state of the task.
    pub(crate) fn print(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => Self::say(text),
        }
    }

    /// Removes the state of the task from the terminal.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Begins the next step.
    pub(crate) fn step(&self, name: &str) {
        match &self.bar {
            Some(bar) => {
                bar.inc(1);
                bar.set_prefix(name.to_owned());
            }
            None => Self::say(&format!(
                "  {name} ({} s)",
                self.started.elapsed().as_secs()
            )),
        }
    }

    /// A detail of the current step, shown on terminals only.
    pub(crate) fn detail(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.to_owned());
        }
    }

    /// Ends the task.
    pub(crate) fn finish(&self, text: &str) {
        self.clear();
        Self::say(&format!("{text} ({} s)", self.started.elapsed().as_secs()));
    }

    /// Prints one plain line.
    pub(crate) fn say(text: &str) {
        anstream::eprintln!("{text}");
    }
}
