//! How the process ends: 0 done, 1 an error, 2 wrong usage or configuration.

use std::fmt;
use std::process::ExitCode;

use belayer_controller::config::yaml::one_line;
use owo_colors::OwoColorize;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// Something went wrong on the way: exit code 1.
    Error(anyhow::Error),
    /// What was asked for makes no sense, and nothing has been touched: exit code 2.
    Configuration(anyhow::Error),
    /// An error that the command has told about in its own way: exit code 1, nothing printed.
    Told,
    /// The command did what it was asked, and what it found has an exit code of its own, which
    /// stands in its help; nothing more is printed.
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
            Self::Error(_) | Self::Told => 1,
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
            // With its causes. One error is one line, whatever a library writes.
            Self::Error(error) | Self::Configuration(error) => {
                f.write_str(&one_line(&format!("{error:#}")))
            }
            Self::Told | Self::Found(_) => f.write_str("see above"),
        }
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Outcome(Result<(), Failure>);

impl Outcome {
    pub(crate) fn of(result: Result<(), Failure>) -> Self {
        Self(result)
    }

    /// Tells the user about a failure and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let Err(failure) = self.0 else {
            return ExitCode::SUCCESS;
        };
        if !matches!(failure, Failure::Told | Failure::Found(_)) {
            anstream::eprintln!("{} {failure}", "error:".red().bold());
        }
        ExitCode::from(failure.code())
    }
}

/// Prints clap's message: help and version are a success, the rest is wrong usage.
pub(crate) fn print_usage(message: &clap::Error) -> ExitCode {
    // A closed pipe is no reason to fail: `belayer --help | head`.
    let _ = message.print();
    if message.use_stderr() {
        ExitCode::from(2)
    } else {
        ExitCode::SUCCESS
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
    fn codes_tell_errors_from_configuration() {
        assert_eq!(Failure::from(anyhow::anyhow!("x")).code(), 1);
        assert_eq!(Failure::Told.code(), 1);
        assert_eq!(Failure::configuration(anyhow::anyhow!("x")).code(), 2);
    }
}
