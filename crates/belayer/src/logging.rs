//! Logs: one line per event, on standard error.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::str::FromStr;

use belayer_core::words::printable;
use clap::{Args, ValueEnum};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterExt, LevelFilter, Targets, filter_fn};
use tracing_subscriber::layer::{Filter, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::traces::Traces;

/// Logging flags of every command.
#[derive(Debug, Clone, Default, Args)]
pub struct LogArguments {
    /// Format of log lines [default: text]
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        env = "BELAYER_LOG_FORMAT",
        global = true,
        help_heading = "Logging"
    )]
    pub log_format: Option<LogFormat>,

    /// Log level: off, error, warn, info, debug or trace, also per target (example:
    /// info,belayer_core::informer=debug)
    #[arg(
        long,
        value_name = "LEVELS",
        env = "BELAYER_LOG_LEVEL",
        global = true,
        help_heading = "Logging"
    )]
    pub log_level: Option<Levels>,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// Human-readable text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Log level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LevelName {
    /// Nothing.
    Off,
    /// Errors that require action.
    Error,
    /// Conditions that may require action.
    Warn,
    /// Actions of the process.
    Info,
    /// Reasons of the actions.
    Debug,
    /// Every step.
    Trace,
}

impl LevelName {
    fn filter(self) -> LevelFilter {
        match self {
            Self::Off => LevelFilter::OFF,
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }
}

/// `--log-level`: a level for everything, and others for single targets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Levels {
    all: Option<LevelName>,
    targets: Vec<(String, LevelName)>,
}

/// An item of `--log-level` that has neither form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid log level {0:?}: use LEVEL or TARGET=LEVEL, where LEVEL is off, error, warn, info, debug or trace"
)]
pub struct ParseLevelsError(String);

impl FromStr for Levels {
    type Err = ParseLevelsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut levels = Self::default();
        for item in text.split(',').map(str::trim) {
            let bad = || ParseLevelsError(item.to_owned());
            match item.split_once('=') {
                Some((target, level)) if is_target(target) => {
                    let level = LevelName::from_str(level, true).map_err(|_| bad())?;
                    levels.targets.push((target.to_owned(), level));
                }
                Some(_) => return Err(bad()),
                None => levels.all = Some(LevelName::from_str(item, true).map_err(|_| bad())?),
            }
        }
        Ok(levels)
    }
}

/// A path of Rust modules, such as `belayer_core::informer`.
fn is_target(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-:.".contains(&b))
}

impl Levels {
    fn filter(&self, default: LevelName) -> Targets {
        let all = self.all.unwrap_or(default);
        // kube_client logs every failed request without naming it. Belayer logs failures itself.
        let client = match all {
            LevelName::Debug | LevelName::Trace => all,
            _ => LevelName::Off,
        };
        Targets::new()
            .with_default(all.filter())
            .with_target("kube_client", client.filter())
            .with_targets(
                self.targets
                    .iter()
                    .map(|(target, level)| (target.as_str(), level.filter())),
            )
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |level: &LevelName| format!("{level:?}").to_lowercase();
        let all = self.all.iter().map(name);
        let targets = self
            .targets
            .iter()
            .map(|(t, level)| format!("{t}={}", name(level)));
        f.write_str(&all.chain(targets).collect::<Vec<_>>().join(","))
    }
}

/// Starts logging. `default` is the level unless the user sets one.
///
/// Does nothing in a process that logs already.
pub fn init(arguments: &LogArguments, default: LevelName) {
    init_with(arguments, default, &Traces::off());
}

/// Starts logging, and sends spans to a collector if traces are on.
pub fn init_with(arguments: &LogArguments, default: LevelName, traces: &Traces) {
    let colour = if wants_colour() {
        Colour::On
    } else {
        Colour::Off
    };
    let lines = lines(
        arguments.log_format.unwrap_or_default(),
        colour,
        std::io::stderr,
    );
    let levels = arguments.log_level.clone().unwrap_or_default();
    let lines = lines.with_filter(without_spans(levels.filter(default)));
    // An absent layer would enable every span of every library.
    let _ = match traces.layer() {
        Some(traces) => tracing_subscriber::registry()
            .with(lines)
            .with(traces)
            .try_init(),
        None => tracing_subscriber::registry().with(lines).try_init(),
    };
}

/// Whether lines of text are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colour {
    On,
    Off,
}

/// The layer that writes each event as one line.
fn lines<S, W>(
    format: LogFormat,
    colour: Colour,
    to: impl Fn() -> W + Send + Sync + 'static,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    W: io::Write + 'static,
{
    let colour = match format {
        LogFormat::Text => colour,
        LogFormat::Json => Colour::Off,
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(colour == Colour::On)
        .with_writer(move || OneLine { to: to(), colour });
    match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .boxed(),
    }
}

/// Writes each event as one [`printable`] line: messages and fields contain what tenants wrote.
struct OneLine<W> {
    to: W,
    colour: Colour,
}

impl<W: io::Write> io::Write for OneLine<W> {
    /// `event` is a whole event: the layer writes each at once.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let mut line = match self.colour {
            Colour::On => printable_in_colour(line),
            Colour::Off => printable(line).into_owned(),
        };
        line.push('\n');
        self.to.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Begins an escape sequence of a terminal.
const ESCAPE: &str = "\u{1b}";

/// The ends of the sequences that the layer writes: bold, dimmed, italic, the colours of levels, and their end.
const COLOURS: [&str; 9] = [
    "[0m", "[1m", "[2m", "[3m", "[31m", "[32m", "[33m", "[34m", "[35m",
];

/// [`printable`], except for [`COLOURS`].
fn printable_in_colour(line: &str) -> String {
    let mut parts = line.split(ESCAPE);
    let mut shown = printable(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        if COLOURS.iter().any(|colour| part.starts_with(colour)) {
            shown.push_str(ESCAPE);
        } else {
            shown.push(char::REPLACEMENT_CHARACTER);
        }
        shown.push_str(&printable(part));
    }
    shown
}

/// Log lines contain their fields; spans are for the collector only, so lines omit them.
fn without_spans<S>(filter: Targets) -> impl Filter<S> {
    // Without the hint the maximum level is unbounded, and every `trace!` of every library would be
    // evaluated.
    let events = filter_fn(|metadata| metadata.is_event()).with_max_level_hint(LevelFilter::TRACE);
    FilterExt::<S>::and(filter, events)
}

fn wants_colour() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && std::io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use belayer_core::logged::Buffer;
    use rstest::rstest;
    use tracing::Level;

    use super::*;

    #[rstest]
    #[case("debug")]
    #[case("WARN")]
    #[case("info,belayer_core::informer=debug")]
    #[case("belayer_core=off, error")]
    fn levels_are_read(#[case] text: &str) {
        let levels: Levels = text.parse().unwrap();
        assert_eq!(levels.to_string().parse(), Ok(levels));
    }

    #[rstest]
    #[case("")]
    #[case("inf")]
    #[case("verbose")]
    #[case("info,")]
    #[case("belayer_core")]
    #[case("belayer_core=")]
    #[case("belayer_core=loud")]
    #[case("=info")]
    #[case("a b=info")]
    fn invalid_levels_are_rejected(#[case] text: &str) {
        let error = text.parse::<Levels>().unwrap_err().to_string();
        assert!(error.contains("TARGET=LEVEL"), "{error}");
    }

    #[test]
    fn a_target_has_its_own_level() {
        let levels: Levels = "warn,belayer_core::informer=debug".parse().unwrap();
        let filter = levels.filter(LevelName::Info);
        assert!(filter.would_enable("belayer_core::informer::list", &Level::DEBUG));
        assert!(!filter.would_enable("belayer_holds::runner", &Level::INFO));
        assert!(filter.would_enable("hyper", &Level::WARN));
        assert!(!filter.would_enable("kube_client::client::builder", &Level::ERROR));
        let levels: Levels = "kube_client=error".parse().unwrap();
        let asked = levels.filter(LevelName::Info);
        assert!(asked.would_enable("kube_client::client::builder", &Level::ERROR));
    }

    #[test]
    fn a_line_does_not_repeat_the_spans_around_it() {
        let buffer = Buffer::default();
        let written = buffer.clone();
        let lines = tracing_subscriber::fmt::layer().with_writer(move || buffer.clone());
        let filter = Levels::default().filter(LevelName::Info);
        let subscriber =
            tracing_subscriber::registry().with(lines.with_filter(without_spans(filter)));
        tracing::subscriber::with_default(subscriber, || {
            let _span = tracing::info_span!("reconcile", object = "ci/w").entered();
            tracing::info!(object = "ci/w", "released");
        });
        let text = written.text();
        assert!(
            text.contains("released") && !text.contains("reconcile"),
            "{text}"
        );
    }

    #[rstest]
    #[case::text(LogFormat::Text, Colour::Off)]
    #[case::coloured_text(LogFormat::Text, Colour::On)]
    #[case::json(LogFormat::Json, Colour::Off)]
    fn what_a_tenant_wrote_stays_in_its_line(#[case] format: LogFormat, #[case] colour: Colour) {
        const FORGED: &str = "x\r\n2026-11-30T00:00:00Z  INFO\u{1b}[8m\u{9b}8m\u{7f}\u{202e}";
        let buffer = Buffer::default();
        let written = buffer.clone();
        let lines = lines(format, colour, move || buffer.clone());
        let subscriber = tracing_subscriber::registry().with(lines);
        tracing::subscriber::with_default(subscriber, || {
            let error = io::Error::other(FORGED);
            let error: &dyn std::error::Error = &error;
            tracing::warn!(field = %FORGED, debug = ?FORGED, text = FORGED, error, "{FORGED}");
        });
        let text = written.text();
        let line = text.strip_suffix('\n').unwrap();
        let shown = match colour {
            Colour::On => line.replace(ESCAPE, ""),
            Colour::Off => line.to_owned(),
        };
        assert_eq!(shown, printable(&shown), "{text:?}");
        assert!(!line.contains("\u{1b}[8m"), "{text:?}");
        assert!(line.contains("2026-11-30T00:00:00Z"), "{text:?}");
        if format == LogFormat::Json {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
    }

    #[test]
    fn spans_without_a_collector_are_disabled() {
        let filter = Levels::default().filter(LevelName::Warn);
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::sink);
        let subscriber =
            tracing_subscriber::registry().with(lines.with_filter(without_spans(filter)));
        assert_eq!(
            tracing::Subscriber::max_level_hint(&subscriber),
            Some(LevelFilter::WARN)
        );
        tracing::subscriber::with_default(subscriber, || {
            assert!(tracing::error_span!("reconcile").is_disabled());
        });
    }

    #[test]
    fn the_users_level_takes_precedence_over_the_commands() {
        let enabled = |levels: Levels, default: LevelName| {
            levels.filter(default).would_enable("belayer", &Level::INFO)
        };
        assert!(enabled(Levels::default(), LevelName::Info));
        assert!(!enabled(Levels::default(), LevelName::Off));
        assert!(enabled("info".parse().unwrap(), LevelName::Off));
    }
}
