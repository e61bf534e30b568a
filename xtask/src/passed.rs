//! Commands whose options are those of `belayer-e2e`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::cargo::{compile, pass_through};
use crate::e2e::{build, program};

/// Options that are passed to the program, `--help` too.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Passed {
    /// Options of the program
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTION"
    )]
    options: Vec<String>,
}

impl Passed {
    /// Runs the command of this name.
    pub(crate) fn execute(self, command: &str) -> Result<ExitCode> {
        compile(build())?;
        let mut program = program();
        program.arg(command).args(self.options);
        pass_through(program)
    }
}
