//! `belayer-e2e support`: the smoke test on each supported release of Kubernetes, and the table of the documentation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

use super::run::own_belayer;
use crate::control_plane::{Binaries, Kubernetes};
use crate::harness::{self, Keep, RunOptions, Setting, Summary, Which};
use crate::providers::{Local, Provider as _};
use crate::scenarios;

/// Run the smoke test on releases of Kubernetes, one after the other
#[derive(Debug, Args)]
pub(super) struct Support {
    /// Write the results into the table of this page; rows of other releases stay
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,

    /// The minor versions, such as 1.35; by default all
    #[arg(value_parser = Kubernetes::of, value_name = "MINOR")]
    minors: Vec<Kubernetes>,
}

impl Support {
    pub(super) async fn execute(self) -> Result<ExitCode> {
        let chosen = match self.minors.is_empty() {
            true => Kubernetes::ALL.to_vec(),
            false => self.minors,
        };
        let mut failed = 0;
        for kubernetes in chosen {
            anstream::println!("Kubernetes {}", kubernetes.release());
            let summary = smoke(kubernetes).await?;
            anstream::println!("{summary}");
            failed += summary.failed;
            if let Some(page) = &self.docs {
                record(page, kubernetes, summary)?;
            }
        }
        Ok(super::exit(failed == 0))
    }
}

async fn smoke(kubernetes: Kubernetes) -> Result<Summary> {
    let provider = Local::new(Binaries::of(kubernetes)?);
    let options = RunOptions {
        names: Vec::new(),
        which: Which::Smoke,
        keep: Keep::Nothing,
        setting: Setting {
            belayer: own_belayer()?,
            quiet: Duration::from_secs(60),
            large: provider.large(),
        },
    };
    harness::run(&provider, scenarios::all(), &options).await
}

fn record(page: &Path, kubernetes: Kubernetes, summary: Summary) -> Result<()> {
    let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    let row = row(kubernetes, &format!("{summary} ({today})"));
    let text = fs::read_to_string(page)?;
    Ok(fs::write(page, with_row(&text, kubernetes, &row)?)?)
}

fn row(kubernetes: Kubernetes, result: &str) -> String {
    format!("{}{} | {result} |", start(kubernetes), kubernetes.release())
}

/// The first cell of a row.
fn start(kubernetes: Kubernetes) -> String {
    format!("| {} | ", kubernetes.minor())
}

/// The page with another row for this minor version.
fn with_row(text: &str, kubernetes: Kubernetes, row: &str) -> Result<String> {
    let start = start(kubernetes);
    let mut found = 0;
    let lines = text.lines().map(|line| {
        if line.starts_with(&start) {
            found += 1;
            return format!("{row}\n");
        }
        format!("{line}\n")
    });
    let changed: String = lines.collect();
    ensure!(
        found == 1,
        "the page has {found} rows that begin with {start:?}"
    );
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/src/install/platforms.md");

    /// Row *support matrix*.
    #[test]
    fn the_page_has_a_row_for_each_release() {
        for kubernetes in Kubernetes::ALL {
            let row = row(kubernetes, "1 passed");
            let changed = with_row(PAGE, kubernetes, &row).unwrap();
            assert!(changed.contains(&format!("{row}\n")));
            assert_eq!(changed.lines().count(), PAGE.lines().count());
            let current = format!("{}{} | ", start(kubernetes), kubernetes.release());
            assert!(
                PAGE.contains(&current),
                "the page has another release: {current}"
            );
        }
    }

    #[test]
    fn a_page_without_the_row_is_refused() {
        assert!(with_row("| 1.2 | a |\n", Kubernetes::MAIN, "").is_err());
    }

    #[test]
    fn the_smoke_test_covers_each_part() {
        let names = harness::names_of(&scenarios::all(), Which::Smoke);
        for part in [
            "row-05-owner-gone",
            "drain-",
            "kubelet-",
            "rejected-pod-comes-back",
            "node-agent-wipes-first",
            "chart-",
        ] {
            assert!(
                names.iter().any(|name| name.starts_with(part)),
                "{part}: {names:?}"
            );
        }
    }
}
