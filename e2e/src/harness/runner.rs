//! Runs a list of scenarios on a provider and tells what came of it.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use futures::{FutureExt as _, StreamExt as _};
use owo_colors::OwoColorize as _;

use super::belayer::{Belayer, BelayerOptions};
use super::cluster::{Cluster, Setting};
use super::scenario::{Scenario, Sharing};
use crate::providers::{Backend, Capability, Clusters, Provider, ensure_workflow_crd};

/// Shared scenarios mostly wait: many fit beside each other.
const SHARED_AT_ONCE: usize = 8;
/// Each of these has a server and a Belayer of its own.
const ALONE_AT_ONCE: usize = 3;

/// How to run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Only scenarios whose name contains one of these; all of them if there is none.
    pub names: Vec<String>,
    /// What to do with clusters and files of failed scenarios.
    pub keep: Keep,
    /// What scenarios have in common.
    pub setting: Setting,
}

/// What to do with clusters and files of failed scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Remove everything but the logs.
    Nothing,
    /// Leave the cluster and the namespace of the failed scenario until Ctrl-C.
    Failed,
}

/// How many scenarios came to what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Did what they say.
    pub passed: usize,
    /// Did not.
    pub failed: usize,
    /// Need what the provider lacks.
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

/// Prints every scenario's name, what it shows and what it needs.
pub fn list(scenarios: &[Scenario]) {
    for scenario in scenarios {
        let needs: Vec<_> = scenario.needs.iter().map(Capability::to_string).collect();
        let needs = if needs.is_empty() {
            String::new()
        } else {
            format!(" (needs {})", needs.join(", "))
        };
        anstream::println!(
            "{:<40} {}{}",
            scenario.name.bold(),
            scenario.shows,
            needs.dimmed()
        );
    }
}

/// Runs all scenarios that the options select.
///
/// # Errors
/// When no scenario has such a name, or when the provider cannot start a cluster.
pub async fn run(
    provider: &dyn Provider,
    scenarios: Vec<Scenario>,
    options: &RunOptions,
) -> Result<Summary> {
    let chosen = choose(scenarios, &options.names)?;
    let (alone, shared): (Vec<_>, Vec<_>) = chosen
        .into_iter()
        .partition(|scenario| scenario.sharing == Sharing::Alone);
    let files = tempfile::Builder::new()
        .prefix("belayer-e2e-")
        .tempdir()?
        .keep();
    let mut run = Run {
        provider,
        options,
        files,
        summary: Summary::default(),
        kept: Vec::new(),
    };

    let cluster = if shared.is_empty() {
        None
    } else {
        Some(run.shared(&shared).await?)
    };
    match provider.clusters() {
        Clusters::Plenty => run.alone_beside_each_other(&alone).await,
        Clusters::One => run.alone_one_by_one(cluster, &alone).await?,
    }
    run.close().await
}

fn choose(scenarios: Vec<Scenario>, names: &[String]) -> Result<Vec<Scenario>> {
    let mut known = BTreeSet::new();
    for scenario in &scenarios {
        ensure!(
            known.insert(scenario.name),
            "two scenarios are called {}",
            scenario.name
        );
    }
    if names.is_empty() {
        return Ok(scenarios);
    }
    for name in names {
        let matches = known.iter().any(|known| known.contains(name.as_str()));
        ensure!(matches, "no scenario is called {name} (see --list)");
    }
    let wanted = |scenario: &Scenario| {
        names
            .iter()
            .any(|name| scenario.name.contains(name.as_str()))
    };
    Ok(scenarios.into_iter().filter(wanted).collect())
}

struct Run<'a> {
    provider: &'a dyn Provider,
    options: &'a RunOptions,
    files: PathBuf,
    summary: Summary,
    /// The clusters of failed scenarios, with what to look at.
    kept: Vec<(&'static str, Cluster)>,
}

/// What came of one scenario.
struct Report {
    name: &'static str,
    took: Duration,
    notes: Vec<String>,
    result: Result<()>,
    /// The cluster as the scenario left it, if it failed and is to be kept.
    cluster: Option<Cluster>,
}

impl Run<'_> {
    /// The scenarios that share a cluster and a Belayer. Returns the cluster for later use.
    async fn shared(&mut self, scenarios: &[Scenario]) -> Result<Arc<dyn Backend>> {
        let backend = self.provider.start().await?;
        let dir = self.files.join("shared");
        fs::create_dir_all(&dir)?;
        let (binary, kubeconfig) = (&self.options.setting.belayer, backend.belayer_kubeconfig());
        let mut belayer =
            Belayer::spawn(binary, kubeconfig, &dir, &BelayerOptions::holding_claims())?;
        belayer.ready().await?;
        let belayer = Arc::new(belayer);

        let runnable = self.skip_unable(&*backend, scenarios);
        let (options, files) = (self.options, self.files.clone());
        let mut reports = futures::stream::iter(runnable)
            .map(|scenario| {
                let (backend, belayer) = (Arc::clone(&backend), Arc::clone(&belayer));
                one(scenario, backend, Some(belayer), options, &files)
            })
            .buffer_unordered(SHARED_AT_ONCE);
        while let Some(report) = reports.next().await {
            self.tell(report);
        }
        drop(reports);

        let started = Instant::now();
        let result = match Arc::into_inner(belayer) {
            Some(belayer) => belayer.stop().await,
            // A kept cluster still looks at it: it ends with that.
            None => Ok(()),
        };
        let took = started.elapsed();
        let name = "shared-belayer-stops-cleanly";
        self.tell(Report {
            name,
            took,
            notes: Vec::new(),
            result,
            cluster: None,
        });
        Ok(backend)
    }

    async fn alone_beside_each_other(&mut self, scenarios: &[Scenario]) {
        let (provider, options, files) = (self.provider, self.options, self.files.clone());
        let mut reports = futures::stream::iter(scenarios)
            .map(|scenario| {
                let files = &files;
                async move {
                    match provider.start().await {
                        Ok(backend) if lacking(&*backend, scenario).is_some() => {
                            Err((scenario, lacking(&*backend, scenario)))
                        }
                        Ok(backend) => Ok(one(scenario, backend, None, options, files).await),
                        Err(error) => Ok(Report {
                            name: scenario.name,
                            took: Duration::ZERO,
                            notes: Vec::new(),
                            result: Err(error),
                            cluster: None,
                        }),
                    }
                }
            })
            .buffer_unordered(ALONE_AT_ONCE);
        while let Some(report) = reports.next().await {
            match report {
                Ok(report) => self.tell(report),
                Err((scenario, lacking)) => self.skip(scenario, lacking),
            }
        }
    }

    async fn alone_one_by_one(
        &mut self,
        cluster: Option<Arc<dyn Backend>>,
        scenarios: &[Scenario],
    ) -> Result<()> {
        if scenarios.is_empty() {
            return Ok(());
        }
        let backend = match cluster {
            Some(backend) => backend,
            None => self.provider.start().await?,
        };
        let files = self.files.clone();
        for scenario in self.skip_unable(&*backend, scenarios) {
            ensure_workflow_crd(backend.client()).await?;
            let report = one(scenario, Arc::clone(&backend), None, self.options, &files).await;
            self.tell(report);
            if !self.kept.is_empty() {
                anstream::println!(
                    "the scenarios after it were not run, to leave the cluster as it is"
                );
                break;
            }
        }
        Ok(())
    }

    /// The scenarios that this cluster can run; the others are skipped by name.
    fn skip_unable<'s>(
        &mut self,
        backend: &dyn Backend,
        scenarios: &'s [Scenario],
    ) -> Vec<&'s Scenario> {
        let mut runnable = Vec::new();
        for scenario in scenarios {
            match lacking(backend, scenario) {
                None => runnable.push(scenario),
                lacking => self.skip(scenario, lacking),
            }
        }
        runnable
    }

    fn skip(&mut self, scenario: &Scenario, lacking: Option<Capability>) {
        self.summary.skipped += 1;
        let why = lacking
            .map(|lacking| format!("needs {lacking}"))
            .unwrap_or_default();
        anstream::println!("{} {} {why}", "skip".yellow(), scenario.name);
    }

    fn tell(&mut self, report: Report) {
        let Report {
            name,
            took,
            notes,
            result,
            cluster,
        } = report;
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

    /// Waits for a person where clusters are kept, and removes what nobody needs.
    async fn close(self) -> Result<Summary> {
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
        if self.summary.failed == 0 {
            fs::remove_dir_all(&self.files)?;
        }
        Ok(self.summary)
    }
}

fn lacking(backend: &dyn Backend, scenario: &Scenario) -> Option<Capability> {
    let can = backend.capabilities();
    scenario
        .needs
        .iter()
        .copied()
        .find(|need| !can.contains(need))
}

/// Runs one scenario in a namespace of its own, with its deadline.
async fn one(
    scenario: &Scenario,
    backend: Arc<dyn Backend>,
    shared: Option<Arc<Belayer>>,
    options: &RunOptions,
    files: &Path,
) -> Report {
    let started = Instant::now();
    let name = scenario.name;
    let dir = files.join(name);
    let namespace = format!("e2e-{name}");
    let cluster =
        match Cluster::new(backend, options.setting.clone(), shared, &namespace, dir).await {
            Ok(cluster) => cluster,
            Err(error) => {
                let took = started.elapsed();
                return Report {
                    name,
                    took,
                    notes: Vec::new(),
                    result: Err(error),
                    cluster: None,
                };
            }
        };
    let steps = AssertUnwindSafe(scenario.run(cluster.clone())).catch_unwind();
    let result = match tokio::time::timeout(scenario.deadline, steps).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(anyhow!("panicked: {}", panic_text(&*panic))),
        Err(_) => Err(anyhow!("not done within {:?}", scenario.deadline)),
    };
    let took = started.elapsed();
    let notes = cluster.notes();
    if result.is_err() && options.keep == Keep::Failed {
        return Report {
            name,
            took,
            notes,
            result,
            cluster: Some(cluster),
        };
    }
    let result = match (result, cluster.clean_up().await) {
        (Ok(()), Err(error)) => Err(error.context("cleaning up after it")),
        (result, _) => result,
    };
    Report {
        name,
        took,
        notes,
        result,
        cluster: None,
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenarios() -> Vec<Scenario> {
        let nothing = |_| async { Ok(()) };
        vec![
            Scenario::shared("row-05-owner-gone", "", nothing),
            Scenario::alone("kill-9", "", nothing),
        ]
    }

    fn names(chosen: &[Scenario]) -> Vec<&str> {
        chosen.iter().map(Scenario::name).collect()
    }

    #[test]
    fn without_names_all_are_chosen() {
        assert_eq!(
            names(&choose(scenarios(), &[]).unwrap()),
            ["row-05-owner-gone", "kill-9"]
        );
    }

    #[test]
    fn a_part_of_a_name_chooses() {
        let chosen = choose(scenarios(), &["row-".into()]).unwrap();
        assert_eq!(names(&chosen), ["row-05-owner-gone"]);
    }

    #[test]
    fn an_unknown_name_is_refused() {
        let refused = choose(scenarios(), &["rope".into()])
            .err()
            .unwrap()
            .to_string();
        assert!(refused.contains("no scenario is called rope"), "{refused}");
    }

    #[test]
    fn two_of_one_name_are_refused() {
        let twice = scenarios().into_iter().chain(scenarios()).collect();
        assert!(choose(twice, &[]).is_err());
    }
}
