//! Output: on a terminal with colours and live counters, elsewhere as plain lines.
//!
//! The output stream respects `NO_COLOR`.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use belayer_inspect::text::wrapped;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use owo_colors::OwoColorize as _;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::cluster_state::ClusterState;
use super::controller::ReleaseLog;
use super::world::World;

/// Maximum width of a line, unless a single word is longer.
const WIDTH: usize = 80;

/// Indentation of the text of a chapter.
const INDENT: usize = 3;

/// Update interval of the live counters.
const TICK: Duration = Duration::from_millis(120);

/// Prints the demo.
pub(super) struct Output {
    screen: Screen,
    ticker: Mutex<Option<JoinHandle<()>>>,
    chapter: Mutex<usize>,
}

enum Screen {
    /// Lines above a bar with live counters.
    Terminal(ProgressBar),
    /// Lines alone.
    Plain,
    /// For tests.
    #[cfg_attr(not(test), expect(dead_code, reason = "used by tests only"))]
    Kept(Arc<Mutex<Vec<String>>>),
}

impl Output {
    /// Writes to standard output, with colours and counters on a terminal.
    pub(super) fn on_stdout() -> Self {
        if !std::io::stdout().is_terminal() {
            return Self::on(Screen::Plain);
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
        bar.set_style(
            ProgressStyle::with_template("{bar:16} {pos}/{len}  {wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        Self::on(Screen::Terminal(bar))
    }

    /// Writes to a list of lines.
    #[cfg(test)]
    pub(super) fn captured() -> (Self, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        (Self::on(Screen::Kept(Arc::clone(&lines))), lines)
    }

    fn on(screen: Screen) -> Self {
        Self {
            screen,
            ticker: Mutex::default(),
            chapter: Mutex::default(),
        }
    }

    /// Shows live counters and the number of finished chapters.
    pub(super) fn begin(&self, world: &World, chapters: usize) {
        let Screen::Terminal(bar) = &self.screen else {
            return;
        };
        bar.set_length(chapters as u64);
        let bar = bar.clone();
        let (state, release_log) = (
            world.state.clone(),
            Arc::clone(world.controller.release_log()),
        );
        let ticker = tokio::spawn(async move {
            loop {
                bar.set_message(counters(&state, &release_log));
                bar.tick();
                tokio::time::sleep(TICK).await;
            }
        });
        *self.ticker.lock() = Some(ticker);
    }

    /// Removes the live counters.
    pub(super) fn finish(&self) {
        if let Some(ticker) = self.ticker.lock().take() {
            ticker.abort();
        }
        if let Screen::Terminal(bar) = &self.screen {
            bar.finish_and_clear();
        }
    }

    /// Begins a chapter.
    pub(super) fn chapter(&self, title: &str) {
        let number = {
            let mut chapter = self.chapter.lock();
            *chapter += 1;
            *chapter
        };
        if let Screen::Terminal(bar) = &self.screen {
            bar.set_position(number.saturating_sub(1) as u64);
        }
        self.line("");
        self.line(&format!(
            "{} {}",
            format!("{number}.").bold().cyan(),
            title.bold()
        ));
    }

    /// Prints what happens in the chapter.
    pub(super) fn say(&self, text: &str) {
        self.line(&fit(text, INDENT, 0));
    }

    /// Prints a command command of a user.
    pub(super) fn command(&self, command: &str) {
        self.line(&format!("   {} {}", "$".dimmed(), command.cyan()));
    }

    /// Prints a detail.
    pub(super) fn detail(&self, text: &str) {
        self.styled(text, |line| line.dimmed().to_string());
    }

    /// Prints the result of the chapter.
    pub(super) fn result(&self, text: &str) {
        self.styled(text, |line| line.green().to_string());
    }

    /// Line by line, so that the colour does not extend to the indentation.
    fn styled(&self, text: &str, style: impl Fn(&str) -> String) {
        for line in fit(text, INDENT, 0).lines() {
            let words = line.trim_start();
            let indent = &line[..line.len() - words.len()];
            self.line(&format!("{indent}{}", style(words)));
        }
    }

    /// Prints a line without wrapping.
    pub(super) fn line(&self, text: &str) {
        match &self.screen {
            Screen::Terminal(bar) => bar.suspend(|| print(text)),
            Screen::Plain => print(text),
            Screen::Kept(lines) => {
                lines
                    .lock()
                    .push(anstream::adapter::strip_str(text).to_string());
            }
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Ignores a closed pipe, as in `cargo xtask demo | head`.
fn print(text: &str) {
    let mut out = anstream::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

fn counters(state: &ClusterState, release_log: &ReleaseLog) -> String {
    let counts = state.counts();
    format!(
        "held {} · waiting {} · released {} · removed {}",
        counts.held,
        counts.waiting,
        release_log.len(),
        counts.removed
    )
}

/// Wraps `text` to [`WIDTH`] columns, with `indent` blanks before each line and `hang` more from
/// the second line on.
pub(super) fn fit(text: &str, indent: usize, hang: usize) -> String {
    let behind = " ".repeat(indent + hang);
    let text = wrapped(text, WIDTH.saturating_sub(indent + hang), &behind);
    format!("{}{text}", " ".repeat(indent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_lines_have_no_colours() {
        let (output, lines) = Output::captured();
        output.chapter("Title");
        output.result("done");
        assert_eq!(*lines.lock(), ["", "1. Title", "   done"]);
    }

    #[test]
    fn lines_fit_a_terminal_of_eighty_columns() {
        let text = fit(&"word ".repeat(60), 3, 2);
        assert!(
            text.lines().count() > 3 && text.starts_with("   word"),
            "{text}"
        );
        assert!(
            text.lines()
                .skip(1)
                .all(|line| line.starts_with("     word")),
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
    }
}
