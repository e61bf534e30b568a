//! The results of the scenarios: one line each while they run, and the counts at the end.

use std::cmp::Reverse;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use owo_colors::OwoColorize as _;

use super::clean_up::Leaving;
use super::cluster::Cluster;
use crate::providers::Capability;

/// How many of the slowest scenarios are listed at the end.
const SLOWEST: usize = 10;

/// The number of scenarios by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Scenarios without an error.
    pub passed: usize,
    /// Scenarios with an error.
    pub failed: usize,
    /// Scenarios that require what the provider lacks.
    pub skipped: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// The result of one scenario.
pub(super) enum Reported {
    Done(Report),
    /// With the capability that the provider lacks.
    Skipped(&'static str, Capability),
}

pub(super) struct Report {
    pub(super) name: &'static str,
    pub(super) took: Duration,
    pub(super) notes: Vec<String>,
    pub(super) result: Result<()>,
    /// The cluster of a failed scenario, if it is kept.
    pub(super) cluster: Option<Cluster>,
    /// The scenario's namespaces. It is reported when they are removed.
    pub(super) leaving: Option<Leaving>,
}

impl Reported {
    /// The result once the scenario's namespaces are removed; a failure if one of them remains.
    pub(super) async fn complete(self) -> Self {
        let Self::Done(mut report) = self else {
            return self;
        };
        if let Some(leaving) = report.leaving.take() {
            let removed = leaving.removed().await.context("clean up");
            report.result = report.result.and(removed);
        }
        Self::Done(report)
    }
}

impl Report {
    pub(super) fn failed(name: &'static str, error: anyhow::Error) -> Self {
        Self {
            name,
            took: Duration::ZERO,
            notes: Vec::new(),
            result: Err(error),
            cluster: None,
            leaving: None,
        }
    }
}

/// The results so far.
pub(super) struct Outcome<'a> {
    files: &'a Path,
    summary: Summary,
    /// The kept clusters of failed scenarios.
    kept: Vec<(&'static str, Cluster)>,
    took: Vec<(Duration, &'static str)>,
}

impl<'a> Outcome<'a> {
    pub(super) fn new(files: &'a Path) -> Self {
        Self {
            files,
            summary: Summary::default(),
            kept: Vec::new(),
            took: Vec::new(),
        }
    }

    pub(super) fn take(&mut self, reported: Reported) {
        let report = match reported {
            Reported::Done(report) => report,
            Reported::Skipped(name, lacking) => {
                self.summary.skipped += 1;
                anstream::println!("{} {name} needs {lacking}", "skip".yellow());
                return;
            }
        };
        let Report {
            name,
            took,
            notes,
            result,
            cluster,
            leaving: _,
        } = report;
        self.took.push((took, name));
        let notes = if notes.is_empty() {
            String::new()
        } else {
            format!(": {}", notes.join("; "))
        };
        let seconds = format!("{:.1} s", took.as_secs_f64());
        match result {
            Ok(()) => {
                self.summary.passed += 1;
                anstream::println!("{} {name} {}{notes}", "ok  ".green(), seconds.dimmed());
            }
            Err(error) => {
                self.summary.failed += 1;
                anstream::println!("{} {name} {}{notes}", "FAIL".red().bold(), seconds.dimmed());
                let error = format!("{error:#}");
                for line in error.lines() {
                    anstream::println!("     {line}");
                }
                anstream::println!("     logs: {}", self.files.join(name).display());
            }
        }
        if let Some(cluster) = cluster {
            self.kept.push((name, cluster));
        }
    }

    /// Waits for Ctrl-C if clusters are kept, and removes files that are not needed.
    pub(super) async fn close(mut self) -> Result<Summary> {
        for (name, cluster) in &self.kept {
            let kubeconfig = cluster.backend().admin_kubeconfig().display();
            anstream::println!(
                "{name}: export KUBECONFIG={kubeconfig}; namespace {}",
                cluster.namespace()
            );
        }
        if !self.kept.is_empty() {
            anstream::println!("kept until Ctrl-C");
            tokio::signal::ctrl_c().await?;
        }
        if self.took.len() > SLOWEST {
            self.took.sort_by_key(|(took, _)| Reverse(*took));
            let slowest = self.took.iter().take(SLOWEST);
            let slowest = slowest.map(|(took, name)| format!("{name} {:.0} s", took.as_secs_f64()));
            let slowest: Vec<_> = slowest.collect();
            anstream::println!("slowest: {}", slowest.join(", "));
        }
        if self.summary.failed == 0 {
            fs::remove_dir_all(self.files)?;
        }
        Ok(self.summary)
    }
}
