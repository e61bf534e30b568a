//! `cargo xtask support`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::cargo::{compile, pass_through, root};
use crate::e2e::{build, program};

/// The page with the table.
const PAGE: &str = "docs/src/install/platforms.md";

/// Run the smoke test on each supported release of Kubernetes
///
/// Holds, releases, drains, re-creates, wipes and installs on a real control plane of the release. The programs of each are
/// built once per machine, in about seven minutes on two cores.
#[derive(Debug, Args)]
pub(crate) struct Support {
    /// Write the results into the table of docs/src/install/platforms.md
    #[arg(long)]
    write: bool,

    /// The minor versions, such as 1.35; by default all
    #[arg(value_name = "MINOR")]
    minors: Vec<String>,
}

impl Support {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        compile(build())?;
        let mut command = program();
        command.arg("support");
        if self.write {
            command.arg("--docs").arg(root().join(PAGE));
        }
        command.args(self.minors);
        pass_through(command)
    }
}
