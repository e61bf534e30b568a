//! Standard output: text as wide as the terminal, coloured if supported; or data.

use std::io::{self, Write};
use std::time::Duration;

use owo_colors::OwoColorize as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use belayer_inspect::report::Verdict;
use belayer_inspect::text::{Detail, Paint, Style, wrapped};

use crate::arguments::Output;
use crate::exit::{Failure, written};
use crate::message::WIDEST;

/// How often a watch checks that its output still has a reader.
const READER_CHECK: Duration = Duration::from_secs(1);

/// Width and format of the output. The stream removes colours for `NO_COLOR` or a pipe.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    output: Option<Output>,
    width: usize,
}

impl Screen {
    pub(crate) fn of_stdout(output: Option<Output>) -> Self {
        let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        let columns = std::env::var("COLUMNS")
            .ok()
            .and_then(|text| text.parse().ok());
        let width = width.or(columns).unwrap_or(WIDEST).clamp(40, WIDEST);
        Self { output, width }
    }

    pub(crate) fn style(&self) -> Style {
        Style {
            width: self.width,
            detail: match self.output {
                Some(Output::Wide) => Detail::Wide,
                _ => Detail::Usual,
            },
        }
    }

    /// Whether only the names of objects are requested.
    pub(crate) fn shows_names(&self) -> bool {
        self.output == Some(Output::Name)
    }

    /// Prints a result in the requested data format, or as text.
    pub(crate) fn show<T: Serialize>(
        &self,
        found: &T,
        text: impl FnOnce(&Self) -> String,
    ) -> Result<(), Failure> {
        let data = match self.output {
            Some(Output::Json) => {
                let json = serde_json::to_string_pretty(found).map_err(anyhow::Error::from)?;
                format!("{json}\n")
            }
            Some(Output::Yaml) => serde_saphyr::to_string(found).map_err(anyhow::Error::from)?,
            Some(Output::Wide | Output::Name) | None => {
                return self.text(&text(self));
            }
        };
        print_data(data.as_bytes())
    }

    /// Prints what separates two results of a watch: data of either format remains a stream of documents.
    pub(crate) fn separate(&self) -> Result<(), Failure> {
        match self.output {
            Some(Output::Json) => Ok(()),
            Some(Output::Yaml) => print_data(b"---\n"),
            Some(Output::Wide | Output::Name) | None => self.text("\n"),
        }
    }

    /// Prints a sentence after the results of a watch: on standard error if the results are data.
    pub(crate) fn conclude(&self, sentence: &str) -> Result<(), Failure> {
        if let Some(Output::Json | Output::Yaml) = self.output {
            anstream::eprintln!("{sentence}");
            return Ok(());
        }
        self.text(&format!("\n{sentence}\n"))
    }

    /// A text wrapped to the width.
    pub(crate) fn fitted(&self, text: &str) -> String {
        wrapped(text, self.width - 2, "  ")
    }

    /// Prints text.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        write_to(anstream::stdout(), text.as_bytes())
    }
}

/// Prints data as it is.
///
/// # Errors
///
/// If standard output cannot be written to.
pub(crate) fn print_data(data: &[u8]) -> Result<(), Failure> {
    write_to(io::stdout(), data)
}

/// Completes once the reader of standard output has closed the pipe: a watch would notice only when it prints again.
pub(crate) async fn reader_gone() {
    loop {
        let stdout = io::stdout();
        let mut out = [PollFd::new(&stdout, PollFlags::empty())];
        let at_once = Timespec::default();
        if poll(&mut out, Some(&at_once)).is_ok()
            && out[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
        {
            return;
        }
        tokio::time::sleep(READER_CHECK).await;
    }
}

fn write_to(mut out: impl Write, data: &[u8]) -> Result<(), Failure> {
    written(out.write_all(data).and_then(|()| out.flush()))
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
