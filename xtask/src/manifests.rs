//! `cargo xtask manifests`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::cargo::{pass_through, run_package};

/// Render deploy/manifests from the Helm chart
///
/// With the pinned Helm 4. The first build of Helm 3 and 4 takes about five minutes on two cores and needs Go 1.26;
/// the programs are kept in $BELAYER_CACHE (by default ~/.cache/belayer).
#[derive(Debug, Args)]
pub(crate) struct Manifests {
    /// Write nothing; print the outdated files, and exit with 1 if there are any
    #[arg(long)]
    check: bool,
}

impl Manifests {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        let mut command = run_package("belayer-e2e");
        command.arg("manifests");
        if self.check {
            command.arg("--check");
        }
        pass_through(command)
    }
}
