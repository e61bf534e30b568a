//! `cargo xtask chaos`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::cargo::{compile, pass_through};
use crate::e2e::{build, program};

/// Kill and interrupt Belayer and a real control plane while users work, and check that nothing gets stuck or lost
///
/// Options after `chaos` are passed to the program: `cargo xtask chaos --help` prints them.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Chaos {
    /// Options, for example `--faults 50 --seed 7`
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTION"
    )]
    options: Vec<String>,
}

impl Chaos {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        compile(build())?;
        let mut command = program();
        command.arg("chaos").args(self.options);
        pass_through(command)
    }
}
