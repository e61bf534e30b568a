//! Telling: on a terminal with colours and live counters, elsewhere in plain lines.
//!
//! `NO_COLOR` is obeyed by the stream that everything is written through.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use owo_colors::OwoColorize as _;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::chronicle::Chronicle;
use super::controller::{Ledger, Release, by_evidence};
use super::world::World;

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
        self.line(&format!("   {text}"));
    }

    /// An example, or something of less weight.
    pub(super) fn aside(&self, text: &str) {
        self.line(&format!("   {}", text.dimmed()));
    }

    /// What Belayer did in the chapter.
    pub(super) fn result(&self, text: &str) {
        self.line(&format!("   {}", text.green()));
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

/// A closed pipe is no reason to fail: `belayer demo | head`.
fn print(text: &str) {
    let mut out = anstream::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

fn counters(chronicle: &Chronicle, ledger: &Ledger) -> String {
    let counts = chronicle.counts();
    let mut text = format!(
        "held {} · waiting {} · released {}",
        counts.held,
        counts.waiting,
        ledger.len()
    );
    let mut separator = " (";
    for (evidence, count) in ledger.by_evidence() {
        let _ = write!(text, "{separator}{evidence} {count}");
        separator = ", ";
    }
    if separator == ", " {
        text.push(')');
    }
    let _ = write!(text, " · vanished {}", counts.vanished);
    text
}

/// `23 released: Consumed 20, OwnerGone 3; p50 2 ms, max 14 ms after the evidence was known`.
pub(super) fn released(releases: &[Release]) -> String {
    let by: Vec<String> = by_evidence(releases)
        .into_iter()
        .map(|(evidence, count)| format!("{evidence} {count}"))
        .collect();
    let by = if by.is_empty() {
        "none".to_owned()
    } else {
        by.join(", ")
    };
    let took = spread(releases.iter().map(|release| release.took));
    format!(
        "{} released: {by}; {took} after the evidence was known",
        releases.len()
    )
}

/// `p50 2 ms, max 14 ms`.
pub(super) fn spread(durations: impl IntoIterator<Item = Duration>) -> String {
    let mut all: Vec<Duration> = durations.into_iter().collect();
    all.sort_unstable();
    match (all.get(all.len() / 2), all.last()) {
        (Some(half), Some(most)) => format!("p50 {}, max {}", span(*half), span(*most)),
        _ => "no time".to_owned(),
    }
}

/// A duration as people say it.
pub(super) fn span(duration: Duration) -> String {
    match duration.as_millis() {
        0 => "under 1 ms".to_owned(),
        millis @ 1..1_000 => format!("{millis} ms"),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, "under 1 ms")]
    #[case(999, "999 ms")]
    #[case(1_250, "1.2 s")]
    fn durations_are_said_in_fitting_units(#[case] millis: u64, #[case] said: &str) {
        assert_eq!(span(Duration::from_millis(millis)), said);
    }

    #[test]
    fn releases_are_told_by_evidence_and_spread() {
        let release = |evidence, millis| Release {
            evidence,
            took: Duration::from_millis(millis),
        };
        let all = [
            release("Consumed", 5),
            release("OwnerGone", 1),
            release("Consumed", 40),
        ];
        let told =
            "3 released: Consumed 2, OwnerGone 1; p50 5 ms, max 40 ms after the evidence was known";
        assert_eq!(released(&all), told);
        assert_eq!(
            released(&[]),
            "0 released: none; no time after the evidence was known"
        );
    }

    #[test]
    fn what_is_kept_carries_no_colours() {
        let (telling, lines) = Telling::kept();
        telling.chapter("Once");
        telling.result("done");
        assert_eq!(*lines.lock(), ["", "1. Once", "   done"]);
    }
}
