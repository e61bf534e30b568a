//! `cargo xtask demo`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::cargo::{pass_through, run_package};

/// Show Belayer on an embedded API server: half a minute, once it is compiled
///
/// Options after `demo` are passed to the program: `cargo xtask demo --help` prints them.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Demo {
    /// Options, for example `--speed 4 --seed 7 --keep-running`
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTION"
    )]
    options: Vec<String>,
}

impl Demo {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        let mut command = run_package("belayer-demo");
        command.args(self.options);
        pass_through(command)
    }
}
