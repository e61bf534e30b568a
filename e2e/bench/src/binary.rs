//! The size of the program that users install.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use super::report::Limit;
use super::{Report, Testbed};

const BELAYER: &str = "belayer";

pub(crate) async fn run(testbed: Testbed) -> Result<Report> {
    let stripped = std::env::temp_dir().join(format!("belayer-stripped-{}", std::process::id()));
    let status = Command::new("strip")
        .arg("-o")
        .arg(&stripped)
        .arg(testbed.belayer())
        .status()
        .await
        .context("start strip (Debian: apt-get install binutils)")?;
    ensure!(status.success(), "strip failed");
    let size = |path| fs::metadata(path).map(|file| file.len() as f64 / 1e6);
    let figures = [size(testbed.belayer())?, size(&stripped)?];
    fs::remove_file(&stripped)?;
    let metrics = [("built", "MB"), ("stripped", "MB")];
    let mut report = Report::new("binary", "The size of the program", &metrics);
    report.round(BELAYER, &figures);
    report.limit(Limit {
        metric: "stripped",
        of: BELAYER.to_owned(),
        at_most: 15.0,
    });
    Ok(report)
}
