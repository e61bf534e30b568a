//! `cargo xtask load`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::cargo::{compile, pass_through};
use crate::e2e::{build, program};

/// Create pods of which a share is rejected, kill the leader meanwhile, and check that each pod runs exactly once
///
/// Options after `load` are passed to the program: `cargo xtask load --help` prints them.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Load {
    /// Options, for example `--provider local --pods 10000 --rejector --kill-leader 60s`
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTION"
    )]
    options: Vec<String>,
}

impl Load {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        compile(build())?;
        let mut command = program();
        command.arg("load").args(self.options);
        pass_through(command)
    }
}
