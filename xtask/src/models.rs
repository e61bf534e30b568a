//! `cargo xtask models`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::cargo::{built, compile, pass_through, release};

/// The program, and its package.
const PROGRAM: &str = "belayer-models";

/// Explore every state of small models around Belayer's decisions
///
/// Options after `models` are passed to the program: `cargo xtask models --help` prints them.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Models {
    /// Options, for example `--large`
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTION"
    )]
    options: Vec<String>,
}

impl Models {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        compile(release(&[PROGRAM]))?;
        let mut command = built("release", PROGRAM);
        command.args(self.options);
        pass_through(command)
    }
}
