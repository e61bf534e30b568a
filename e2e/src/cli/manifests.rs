//! `belayer-e2e manifests` and `belayer-e2e chart-archive`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::chart;
use crate::control_plane::HelmBinaries;

/// Render deploy/manifests from the Helm chart
///
/// With the pinned Helm 4. The first build of Helm 3 and 4 takes about five minutes on two cores and needs Go 1.26;
/// the programs are kept in $BELAYER_CACHE (by default ~/.cache/belayer).
#[derive(Debug, Args)]
pub(super) struct Manifests {
    /// Write nothing; print the outdated files, and exit with 1 if there are any
    #[arg(long)]
    check: bool,
}

impl Manifests {
    pub(super) fn execute(self) -> Result<ExitCode> {
        let rendered = chart::manifests(&HelmBinaries::find_or_build()?)?;
        let outdated = rendered.outdated()?;
        for file in &outdated {
            anstream::println!("{}", file.display());
        }
        if self.check {
            return Ok(super::exit(outdated.is_empty()));
        }
        rendered.write()?;
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Debug, Args)]
pub(super) struct ChartArchive {
    /// The packed chart
    archive: PathBuf,

    /// The repository of the image that it names, if it is not that of the chart's folder
    #[arg(long, value_name = "REPOSITORY")]
    image_repository: Option<String>,
}

impl ChartArchive {
    pub(super) fn execute(&self) -> Result<ExitCode> {
        let helm = HelmBinaries::find_or_build()?;
        chart::check_archive(&helm, &self.archive, self.image_repository.as_deref())?;
        Ok(ExitCode::SUCCESS)
    }
}
