//! `cargo xtask bench`.

use std::process::{Command, ExitCode, Stdio};

use anyhow::Result;
use clap::Args;

use crate::cargo::{built, cargo, compile, pass_through, release};
use crate::e2e;

/// Measure Belayer against other implementations, in one run
///
/// Builds in release mode first. Tables, figures and pictures are written to target/bench.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Print the benchmarks and what each measures
    #[arg(long)]
    list: bool,

    /// How often each subject is measured, after one uncounted round
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: usize,

    /// How many objects; each benchmark has its own default
    #[arg(long, value_name = "N")]
    size: Option<usize>,

    /// Also write the tables into docs/src/contribute/performance.md
    #[arg(long)]
    docs: bool,

    /// For `instructions`: write the bounds instead of checking them
    #[arg(long)]
    bless: bool,

    /// Benchmarks to run; all if none is named
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

impl Bench {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        let mut command = if self.names == ["instructions"] {
            compile(e2e::build())?;
            compile(build_counted(SUBJECT))?;
            instructions()
        } else {
            compile(build())?;
            let mut command = built("release", PROGRAM);
            command.args(self.names);
            command
        };
        command.arg(format!("--rounds={}", self.rounds));
        if let Some(size) = self.size {
            command.arg(format!("--size={size}"));
        }
        if self.list {
            command.arg("--list");
        }
        if self.docs {
            command.arg("--docs=docs/src/contribute/performance.md");
        }
        if self.bless {
            command.arg("--bless");
        }
        pass_through(command)
    }
}

/// The package and its program.
const PROGRAM: &str = "belayer-bench";

/// Builds Belayer, the benchmarks and their subjects in release mode.
fn build() -> Command {
    release(&["belayer", PROGRAM, SUBJECT])
}

/// The profile in which instructions are counted.
pub(crate) const COUNTED: &str = "counted";

/// The subject of the instruction counts.
pub(crate) const SUBJECT: &str = "belayer-subject";

/// Builds this package in the profile in which instructions are counted.
pub(crate) fn build_counted(package: &str) -> Command {
    let mut build = cargo();
    build.args(["build", "--profile", COUNTED, "--package", package]);
    build
}

/// Checks the instruction counts of the hot paths of the [`SUBJECT`] of [`build_counted`] against their bounds.
pub(crate) fn instructions() -> Command {
    let subject = built(COUNTED, SUBJECT);
    let mut command = built("debug", PROGRAM);
    command.args(["instructions", "--subject"]);
    command.arg(subject.get_program());
    command
}

/// Whether instructions can be counted on this machine.
pub(crate) fn has_valgrind() -> bool {
    let version = Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}
