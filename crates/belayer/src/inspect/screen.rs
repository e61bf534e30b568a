//! Standard output: as wide as it is, coloured where that is wanted.

use std::io::Write as _;

use owo_colors::OwoColorize as _;
use serde::Serialize;

use belayer_inspect::report::Verdict;
use belayer_inspect::text::{Detail, Paint, Style};

use super::{Output, render};
use crate::exit::Failure;

/// Longer lines are hard to read, however wide the terminal.
const WIDEST: usize = 110;

/// Where text goes. Colours are left out by the stream, when `NO_COLOR` or a pipe says so.
#[derive(Debug, Clone, Copy)]
pub(super) struct Screen {
    style: Style,
}

impl Screen {
    pub(super) fn of_stdout(output: Option<Output>) -> Self {
        let detail = match output {
            Some(Output::Wide) => Detail::Wide,
            _ => Detail::Usual,
        };
        let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        let columns = std::env::var("COLUMNS")
            .ok()
            .and_then(|text| text.parse().ok());
        let width = width.or(columns).unwrap_or(100).clamp(40, WIDEST);
        Self {
            style: Style { width, detail },
        }
    }

    pub(super) fn style(&self) -> Style {
        self.style
    }

    /// Prints text. A closed pipe is no reason to fail: `belayer stuck | head`.
    pub(super) fn text(&self, text: &str) {
        let _ = write!(anstream::stdout(), "{text}");
    }

    /// Prints data.
    pub(super) fn data<T: Serialize>(
        &self,
        output: Option<Output>,
        data: &T,
    ) -> Result<(), Failure> {
        let text = render(output, data)?;
        let _ = std::io::stdout().write_all(text.as_bytes());
        Ok(())
    }
}

impl Paint for Screen {
    fn verdict(&self, verdict: Verdict, text: &str) -> String {
        match verdict {
            Verdict::Waiting | Verdict::HeldByBelayer => text.cyan().to_string(),
            Verdict::Unknown | Verdict::ControllerAlive => text.yellow().to_string(),
            _ => text.red().bold().to_string(),
        }
    }

    fn bold(&self, text: &str) -> String {
        text.bold().to_string()
    }

    fn dim(&self, text: &str) -> String {
        text.dimmed().to_string()
    }
}
