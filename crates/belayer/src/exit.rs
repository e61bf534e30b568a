//! Exit codes: 0 success, 1 error, 2 wrong usage or configuration.

use std::fmt;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

use anyhow::Context as _;
use owo_colors::OwoColorize;

use crate::message::{message, with_causes};

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// An error: exit code 1.
    Error(anyhow::Error),
    /// Wrong usage or configuration, before anything was changed: exit code 2.
    Configuration(anyhow::Error),
    /// An error that the command has printed already: exit code 1, prints nothing.
    Reported,
    /// The command succeeded, and its finding has an exit code that its help documents; prints
    /// nothing.
    Found(u8),
}

impl Failure {
    /// Wrong usage or configuration.
    pub fn configuration(error: impl Into<anyhow::Error>) -> Self {
        Self::Configuration(error.into())
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Error(_) | Self::Reported => 1,
            Self::Configuration(_) => 2,
            Self::Found(code) => *code,
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Error(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) | Self::Configuration(error) => {
                f.write_str(&with_causes(error.as_ref()))
            }
            Self::Reported | Self::Found(_) => f.write_str("see above"),
        }
    }
}

/// Result of a command.
#[derive(Debug)]
pub(crate) struct Outcome(Result<(), Failure>);

impl Outcome {
    pub(crate) fn of(result: Result<(), Failure>) -> Self {
        Self(result)
    }

    /// Prints a failure and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let Err(failure) = self.0 else {
            return ExitCode::SUCCESS;
        };
        if !matches!(failure, Failure::Reported | Failure::Found(_)) {
            let text = message(&format!("error: {failure}"));
            let text = text.trim_start_matches("error:");
            anstream::eprintln!("{}{text}", "error:".red().bold());
        }
        ExitCode::from(failure.code())
    }
}

/// The result of writing to standard output. A closed pipe is not an error, as in `belayer stuck | head`.
///
/// # Errors
///
/// If it cannot be written to for another reason.
pub(crate) fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result.context("cannot write to standard output")?),
    }
}

/// Prints clap's message: help and version succeed, anything else is wrong usage.
pub(crate) fn print_usage(message: &clap::Error) -> ExitCode {
    let printed = message.print();
    if message.use_stderr() {
        ExitCode::from(2)
    } else {
        Outcome::of(written(printed)).report()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_with_its_causes() {
        let error = anyhow::anyhow!("no such\n  key").context("reading a.yaml");
        assert_eq!(
            Failure::from(error).to_string(),
            "reading a.yaml: no such key"
        );
    }

    #[test]
    fn errors_and_wrong_configuration_have_different_codes() {
        assert_eq!(Failure::from(anyhow::anyhow!("x")).code(), 1);
        assert_eq!(Failure::Reported.code(), 1);
        assert_eq!(Failure::configuration(anyhow::anyhow!("x")).code(), 2);
    }
}
