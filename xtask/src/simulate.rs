//! `cargo xtask simulate`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::cargo::{built, compile, pass_through, release};

/// The program, and its package.
const PROGRAM: &str = "belayer-simulator";

/// Run Belayer on random clusters with random faults on simulated time, and check every invariant
///
/// Options after `simulate` are passed to the program: `cargo xtask simulate --help` prints them.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Simulate {
    /// Options, for example `--seeds 100000`, or `--seed 7` to repeat a run
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTION"
    )]
    options: Vec<String>,
}

impl Simulate {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        compile(release(&[PROGRAM]))?;
        let mut command = built("release", PROGRAM);
        command.args(self.options);
        // The allocator keeps freed memory: the next run needs it again, and each page that the system returns is cleared.
        command.env("MIMALLOC_PURGE_DELAY", "-1");
        pass_through(command)
    }
}
