//! `cargo xtask bench`.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::cargo::{cargo, pass_through};

/// Measure Belayer against its peers, side by side in one run
///
/// Builds releases first. Tables, figures and pictures go to target/bench.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Print the benchmarks and what each measures
    #[arg(long)]
    list: bool,

    /// How often each contender is measured, after one round that is not counted
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: usize,

    /// How many objects; each benchmark has a number of its own
    #[arg(long, value_name = "N")]
    size: Option<usize>,

    /// Which benchmarks; all of them if none is named
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

impl Bench {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        let mut build = cargo();
        build.args([
            "build",
            "--release",
            "--package",
            "belayer",
            "--package",
            "belayer-e2e",
        ]);
        let built = build.status().context("start cargo")?;
        ensure!(built.success(), "belayer or its benchmarks do not compile");
        let mut command = cargo();
        command.args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "belayer-e2e",
            "--package",
            "belayer",
        ]);
        command.args(["--bin", "belayer-e2e", "--", "bench"]);
        command.arg(format!("--rounds={}", self.rounds));
        if let Some(size) = self.size {
            command.arg(format!("--size={size}"));
        }
        if self.list {
            command.arg("--list");
        }
        command.args(self.names);
        pass_through(command)
    }
}
