//! Telling: on a terminal with colours and live counters, elsewhere in plain lines.
//!
//! `NO_COLOR` is obeyed by the stream that everything is written through.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use belayer_inspect::text::wrapped;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use owo_colors::OwoColorize as _;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::chronicle::Chronicle;
use super::controller::Ledger;
use super::world::World;

/// No line is longer, but for a word that is.
const WIDTH: usize = 80;

/// Columns in front of what happens in a chapter.
const INDENT: usize = 3;

/// How often the live counters change.
const TICK: Duration = Duration::from_millis(120);

/// Tells the story.
pub(super) struct Telling {
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
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests listen"))]
    Kept(Arc<Mutex<Vec<String>>>),
}

impl Telling {
    /// On standard output, as fits what it is.
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

    /// Into a list of lines.
    #[cfg(test)]
    pub(super) fn kept() -> (Self, Arc<Mutex<Vec<String>>>) {
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

    /// Shows live counters from now on, and how many of so many chapters are told.
    pub(super) fn begin(&self, world: &World, chapters: usize) {
        let Screen::Terminal(bar) = &self.screen else {
            return;
        };
        bar.set_length(chapters as u64);
        let bar = bar.clone();
        let (chronicle, ledger) = (
            world.chronicle.clone(),
            Arc::clone(world.controller.ledger()),
        );
        let ticker = tokio::spawn(async move {
            loop {
                bar.set_message(counters(&chronicle, &ledger));
                bar.tick();
                tokio::time::sleep(TICK).await;
            }
        });
        *self.ticker.lock() = Some(ticker);
    }

    /// Takes the live counters away.
    pub(super) fn finish(&self) {
        if let Some(ticker) = self.ticker.lock().take() {
            ticker.abort();
        }
        if let Screen::Terminal(bar) = &self.screen {
            bar.finish_and_clear();
        }
    }

    /// A new chapter.
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

    /// Something that happens in the chapter.
    pub(super) fn say(&self, text: &str) {
        self.line(&fit(text, INDENT, 0));
    }

    /// What somebody types.
    pub(super) fn shell(&self, command: &str) {
        self.line(&format!("   {} {}", "$".dimmed(), command.cyan()));
    }

    /// Something of less weight.
    pub(super) fn aside(&self, text: &str) {
        self.styled(text, |line| line.dimmed().to_string());
    }

    /// What Belayer did in the chapter.
    pub(super) fn result(&self, text: &str) {
        self.styled(text, |line| line.green().to_string());
    }

    /// Line by line, so that no colour runs over into an indent.
    fn styled(&self, text: &str, style: impl Fn(&str) -> String) {
        for line in fit(text, INDENT, 0).lines() {
            let words = line.trim_start();
            let indent = &line[..line.len() - words.len()];
            self.line(&format!("{indent}{}", style(words)));
        }
    }

    /// A line as it is.
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

impl Drop for Telling {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A closed pipe is no reason to fail: `cargo xtask demo | head`.
fn print(text: &str) {
    let mut out = anstream::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

fn counters(chronicle: &Chronicle, ledger: &Ledger) -> String {
    let counts = chronicle.counts();
    format!(
        "held {} · waiting {} · released {} · vanished {}",
        counts.held,
        counts.waiting,
        ledger.len(),
        counts.vanished
    )
}

/// Lines of at most [`WIDTH`] columns: `indent` blanks, `text`, and `hang` blanks more in front of
/// what follows the first line.
pub(super) fn fit(text: &str, indent: usize, hang: usize) -> String {
    let behind = " ".repeat(indent + hang);
    let text = wrapped(text, WIDTH.saturating_sub(indent + hang), &behind);
    format!("{}{text}", " ".repeat(indent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_carries_no_colours() {
        let (telling, lines) = Telling::kept();
        telling.chapter("Once");
        telling.result("done");
        assert_eq!(*lines.lock(), ["", "1. Once", "   done"]);
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
