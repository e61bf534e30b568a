//! Runs a list of scenarios on a provider and reports the results.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use futures::future::try_join_all;
use futures::{FutureExt as _, StreamExt as _};
use owo_colors::OwoColorize as _;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::belayer::{Belayer, BelayerOptions};
use super::cluster::{Cluster, Setting, Shared};
use super::machine::{Machine, Share};
use super::outcome::{Outcome, Report, Reported, Summary};
use super::scenario::{Load, Scenario, Sharing};
use crate::providers::{Backend, Capability, Clusters, Provider, restore};

/// Shared scenarios mostly wait, so many can run at the same time.
const SHARED_AT_ONCE: usize = 8;
/// Each of these has its own API server and Belayer.
const ALONE_AT_ONCE: usize = 4;
/// With kept clusters, another cluster is started per this number of scenarios.
const WORTH_A_CLUSTER: usize = 6;

/// Options of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Only scenarios whose name contains one of these; all of them if there is none.
    pub names: Vec<String>,
    /// Which scenarios run without names.
    pub which: Which,
    /// What to do with clusters and files of failed scenarios.
    pub keep: Keep,
    /// Settings shared by all scenarios.
    pub setting: Setting,
}

/// Which scenarios run without names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those that do not take too long for every change.
    Usual,
    /// Those that do.
    Nightly,
    /// The smoke test of a release of Kubernetes.
    Smoke,
}

/// What happens to clusters and files of failed scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Remove everything but the logs.
    Nothing,
    /// Leave the cluster and the namespace of the failed scenario until Ctrl-C.
    Failed,
}

/// Prints every scenario's name, description and requirements.
pub fn list(scenarios: &[Scenario]) {
    for scenario in scenarios {
        let needs: Vec<_> = scenario.needs.iter().map(Capability::to_string).collect();
        let needs = if needs.is_empty() {
            String::new()
        } else {
            format!(" (needs {})", needs.join(", "))
        };
        let nightly = if scenario.is_nightly {
            " (nightly)"
        } else {
            ""
        };
        anstream::println!(
            "{:<40} {}{}{}",
            scenario.name.bold(),
            scenario.shows,
            needs.dimmed(),
            nightly.dimmed()
        );
    }
}

/// Runs all scenarios that the options select.
///
/// Shared scenarios run in parallel under one Belayer on one cluster; exclusive ones run in parallel on
/// other clusters, the longest first.
/// Fails when no scenario matches a name, or when the provider cannot start a cluster.
pub async fn run(
    provider: &dyn Provider,
    scenarios: Vec<Scenario>,
    options: &RunOptions,
) -> Result<Summary> {
    let chosen = choose(scenarios, options, provider.made_for())?;
    let files = tempfile::Builder::new()
        .prefix("belayer-e2e-")
        .tempdir()?
        .keep();
    run_in(&files, provider, chosen, options).await
}

/// The same with its files in this folder, which is removed if no scenario fails.
async fn run_in(
    files: &Path,
    provider: &dyn Provider,
    scenarios: Vec<Scenario>,
    options: &RunOptions,
) -> Result<Summary> {
    let (mut alone, shared): (Vec<_>, Vec<_>) = scenarios
        .into_iter()
        .partition(|scenario| scenario.sharing == Sharing::Alone);
    // Heavy ones first: at the end of the run nothing else would use the machine beside them.
    alone.sort_by_key(|scenario| Reverse((scenario.load == Load::Heavy, scenario.deadline)));
    let (reports, mut reported) = mpsc::unbounded_channel();
    let run = Run {
        provider,
        options,
        files,
        reports,
        waiting: Mutex::new(alone.iter().collect()),
        machine: Machine::new(),
    };
    let mut outcome = Outcome::new(files);
    let lines = async move {
        let run = run;
        run.lines(&shared).await
    };
    let listen = async {
        // Namespaces take five seconds to be removed: the next scenarios run meanwhile.
        let mut complete = futures::stream::poll_fn(|context| reported.poll_recv(context))
            .map(Reported::complete)
            .buffer_unordered(usize::MAX);
        while let Some(reported) = complete.next().await {
            outcome.take(reported);
        }
    };
    let (ran, ()) = tokio::join!(lines, listen);
    ran?;
    outcome.close().await
}

/// How many scenarios a provider runs of those that the options select on every provider, and how many these are.
pub fn count(
    scenarios: &[Scenario],
    options: &RunOptions,
    made_for: Option<Capability>,
) -> (usize, usize) {
    let of = |made_for| {
        let all = scenarios.iter();
        if options.names.is_empty() {
            all.filter(|scenario| fits(scenario, options, made_for))
                .count()
        } else {
            all.filter(|scenario| is_named(scenario, &options.names))
                .count()
        }
    };
    (of(made_for), of(None))
}

/// The names of the scenarios that run without names.
pub fn names_of(scenarios: &[Scenario], which: Which) -> Vec<&'static str> {
    let chosen = scenarios.iter().filter(|scenario| is_of(scenario, which));
    chosen.map(|scenario| scenario.name).collect()
}

fn is_of(scenario: &Scenario, which: Which) -> bool {
    match which {
        Which::Usual => !scenario.is_nightly,
        Which::Nightly => scenario.is_nightly,
        Which::Smoke => scenario.is_smoke,
    }
}

/// Whether it runs without names.
fn fits(scenario: &Scenario, options: &RunOptions, made_for: Option<Capability>) -> bool {
    is_of(scenario, options.which) && made_for.is_none_or(|need| scenario.needs.contains(&need))
}

fn is_named(scenario: &Scenario, names: &[String]) -> bool {
    let mut names = names.iter();
    names.any(|name| scenario.name.contains(name.as_str()))
}

fn choose(
    scenarios: Vec<Scenario>,
    options: &RunOptions,
    made_for: Option<Capability>,
) -> Result<Vec<Scenario>> {
    let mut known = BTreeSet::new();
    for scenario in &scenarios {
        ensure!(
            known.insert(scenario.name),
            "duplicate scenario name {}",
            scenario.name
        );
    }
    let names = &options.names;
    if names.is_empty() {
        let fits = |scenario: &Scenario| fits(scenario, options, made_for);
        return Ok(scenarios.into_iter().filter(fits).collect());
    }
    for name in names {
        let matches = known.iter().any(|known| known.contains(name.as_str()));
        ensure!(matches, "no scenario matches {name} (see --list)");
    }
    let wanted = |scenario: &Scenario| is_named(scenario, names);
    Ok(scenarios.into_iter().filter(wanted).collect())
}

/// A run in progress.
struct Run<'a> {
    provider: &'a dyn Provider,
    options: &'a RunOptions,
    files: &'a Path,
    reports: mpsc::UnboundedSender<Reported>,
    /// Exclusive scenarios that have not begun.
    waiting: Mutex<VecDeque<&'a Scenario>>,
    machine: Machine,
}

impl<'a> Run<'a> {
    async fn lines(&self, shared: &[Scenario]) -> Result<()> {
        match self.provider.clusters() {
            Clusters::Plenty => {
                let first = async {
                    if !shared.is_empty() {
                        self.shared(shared).await?;
                    }
                    Ok(())
                };
                let alone = (0..ALONE_AT_ONCE).map(|_| self.on_new_clusters());
                tokio::try_join!(first, try_join_all(alone)).map(drop)
            }
            Clusters::Kept(most) => {
                let alone = self.waiting.lock().len();
                // A scenario whose cluster may be kept must be the last on it.
                let most = if self.options.keep == Keep::Failed {
                    1
                } else {
                    most
                };
                let first = async {
                    let cluster = if shared.is_empty() {
                        None
                    } else {
                        Some(self.shared(shared).await?)
                    };
                    self.on_a_kept_cluster(cluster).await
                };
                // A control plane takes ten seconds to start: not worth it for a few scenarios.
                let others = (1..most.min(alone.div_ceil(WORTH_A_CLUSTER)))
                    .map(|_| self.on_a_kept_cluster(None));
                tokio::try_join!(first, try_join_all(others)).map(drop)
            }
        }
    }

    /// The next scenario with its share of the machine: the first one that fits now, or as soon as one fits.
    async fn next(&self) -> Option<(&'a Scenario, Share<'_>)> {
        let first_that_fits = || {
            let mut waiting = self.waiting.lock();
            for at in 0..waiting.len() {
                if let Some(share) = self.machine.try_take(waiting[at].load.shares()) {
                    return Some(waiting.remove(at).map(|scenario| (scenario, share)));
                }
            }
            waiting.is_empty().then_some(None)
        };
        self.machine.wait_for(first_that_fits).await
    }

    /// Runs the shared scenarios. Returns the cluster for later use.
    async fn shared(&self, scenarios: &[Scenario]) -> Result<Arc<dyn Backend>> {
        let free = || self.machine.try_take(Load::SHARED);
        let _share = self.machine.wait_for(free).await;
        let backend = self.provider.start().await?;
        let dir = self.files.join("shared");
        fs::create_dir_all(&dir)?;
        let (binary, kubeconfig) = (&self.options.setting.belayer, backend.belayer_kubeconfig());
        let mut belayer =
            Belayer::spawn(binary, kubeconfig, &dir, &BelayerOptions::holding_pvcs())?;
        belayer.ready().await?;
        let belayer = Arc::new(belayer);

        let runnable = scenarios
            .iter()
            .filter(|scenario| !self.skips(&*backend, scenario));
        let mut reports = futures::stream::iter(runnable)
            .map(|scenario| {
                let (backend, belayer) = (Arc::clone(&backend), Arc::clone(&belayer));
                one(scenario, backend, Some(belayer), self.options, self.files)
            })
            .buffer_unordered(SHARED_AT_ONCE);
        while let Some(report) = reports.next().await {
            self.report(Reported::Done(report));
        }
        drop(reports);

        let started = Instant::now();
        let result = match Arc::into_inner(belayer) {
            Some(belayer) => belayer.stop().await,
            // A kept cluster's Belayer ends with the cluster.
            None => Ok(()),
        };
        self.report(Reported::Done(Report {
            name: "shared-belayer-stops-cleanly",
            took: started.elapsed(),
            notes: Vec::new(),
            result,
            cluster: None,
            leaving: None,
        }));
        Ok(backend)
    }

    /// Runs scenarios one after the other, each on its own cluster.
    async fn on_new_clusters(&self) -> Result<()> {
        while let Some((scenario, _share)) = self.next().await {
            match self.provider.start().await {
                Ok(backend) if self.skips(&*backend, scenario) => {}
                Ok(backend) => {
                    let report = one(scenario, backend, None, self.options, self.files).await;
                    self.report(Reported::Done(report));
                }
                Err(error) => self.report(Reported::Done(Report::failed(scenario.name, error))),
            }
        }
        Ok(())
    }

    /// Runs scenarios one after the other on one cluster.
    async fn on_a_kept_cluster(&self, cluster: Option<Arc<dyn Backend>>) -> Result<()> {
        let mut cluster = cluster;
        while let Some((scenario, _share)) = self.next().await {
            let backend = match cluster.take() {
                Some(backend) => backend,
                None => self.provider.start().await?,
            };
            if !self.skips(&*backend, scenario) {
                let report = match restore(&*backend).await {
                    Ok(()) => {
                        let here = Arc::clone(&backend);
                        one(scenario, here, None, self.options, self.files).await
                    }
                    Err(error) => Report::failed(scenario.name, error.context("before it")),
                };
                let is_kept = report.cluster.is_some();
                self.report(Reported::Done(report));
                if is_kept {
                    anstream::println!(
                        "later scenarios were not run, to keep the cluster as it is"
                    );
                    return Ok(());
                }
            }
            cluster = Some(backend);
        }
        Ok(())
    }

    /// Whether this cluster cannot run the scenario; if so, reports it.
    fn skips(&self, backend: &dyn Backend, scenario: &Scenario) -> bool {
        let lacking = lacking(backend, scenario);
        if let Some(lacking) = lacking {
            self.report(Reported::Skipped(scenario.name, lacking));
        }
        lacking.is_some()
    }

    fn report(&self, reported: Reported) {
        // The receiver exists until the run is dropped.
        let _ = self.reports.send(reported);
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

/// Runs one scenario in its own namespace, with its deadline. The namespace may still exist afterwards, without objects.
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
    let shared = shared.map_or(Shared::None, Shared::Process);
    let cluster =
        match Cluster::new(backend, options.setting.clone(), shared, &namespace, dir).await {
            Ok(cluster) => cluster,
            Err(error) => {
                let took = started.elapsed();
                return Report {
                    took,
                    ..Report::failed(name, error)
                };
            }
        };
    let steps = AssertUnwindSafe(scenario.run(cluster.clone())).catch_unwind();
    let result = match tokio::time::timeout(scenario.deadline, steps).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(anyhow!("panicked: {}", panic_text(&*panic))),
        Err(_) => Err(anyhow!("timed out after {:?}", scenario.deadline)),
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
            leaving: None,
        };
    }
    if result.is_err() && scenario.sharing == Sharing::Alone {
        // What it left could keep its objects. If this fails, it fails again before the next scenario.
        let _ = restore(cluster.backend()).await;
    }
    let (result, leaving) = match cluster.clean_up().await {
        Ok(leaving) => (result, Some(leaving)),
        Err(error) => (result.and(Err(error.context("clean up"))), None),
    };
    Report {
        name,
        took,
        notes,
        result,
        cluster: None,
        leaving,
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests;
