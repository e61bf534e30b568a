//! Commands whose options are those of another program, `--help` too.

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::Args;

use crate::cargo::{built, compile, pass_through, release, run_package};
use crate::e2e::{build, program};

/// Options that are passed to the program.
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
    /// Runs this command of `belayer-e2e`, with the programs that scenarios need.
    pub(crate) fn with_scenarios(self, command: &str) -> Result<ExitCode> {
        compile(build())?;
        let mut program = program();
        program.arg(command);
        self.to(program)
    }

    /// Runs this command of `belayer-e2e`, which needs no other program.
    pub(crate) fn with_e2e(self, command: &str) -> Result<ExitCode> {
        let mut program = run_package("belayer-e2e");
        program.arg(command);
        self.to(program)
    }

    /// Runs an unoptimized program.
    pub(crate) fn with(self, package: &str) -> Result<ExitCode> {
        self.to(run_package(package))
    }

    /// Runs an optimized program.
    pub(crate) fn with_optimized(self, program: &str) -> Result<ExitCode> {
        compile(release(&[program]))?;
        let mut command = built("release", program);
        // mimalloc, the allocator of the simulator, keeps freed memory: the next run needs it again, and each page that the
        // system returns is cleared.
        command.env("MIMALLOC_PURGE_DELAY", "-1");
        self.to(command)
    }

    fn to(self, mut program: Command) -> Result<ExitCode> {
        program.args(self.options);
        pass_through(program)
    }
}
