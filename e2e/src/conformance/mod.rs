//! Small test cases that run unchanged on the sandbox and on a real API server.
//!
//! A case is a script: requests, each followed by the expected response. The real server is the
//! reference: `--record` writes its responses into the cases. Where the sandbox differs, the sandbox
//! is changed.

mod hooks;
mod render;
mod run;
mod script;
mod talk;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Client;
use owo_colors::OwoColorize as _;

use self::hooks::Hooks;
use self::run::Outcome;
use self::script::{Action, Case};
use crate::control_plane::Compactor;
use crate::harness::Summary;

/// A case that takes longer is printed.
const SLOW: Duration = Duration::from_secs(5);
/// Cases mostly wait for the server.
const AT_ONCE: usize = 8;

macro_rules! themes {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("cases/", $name, ".txt")))),*]
    };
}

/// The files of cases, by theme.
const THEMES: &[(&str, &str)] = themes![
    "create",
    "names",
    "delete",
    "finalizers",
    "grace",
    "propagation",
    "update",
    "merge-patch",
    "json-patch",
    "strategic",
    "status",
    "selectors",
    "paging",
    "versions",
    "watch",
    "crds",
    "schemas",
    "values",
    "rules",
    "access",
    "policies",
    "webhooks",
    "events",
    "namespaces",
    "negotiation",
    "dry-run",
    "bodies",
    "routes",
    "pods",
    "kinds",
    "managed-fields",
    "field-owners",
    "apply",
    "apply-conflicts",
    "apply-custom",
    "compaction",
    "scale",
];

/// Options of a run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Only cases whose `theme/name` contains one of these; all of them if there is none.
    pub names: Vec<String>,
    /// Whether the server is the sandbox, which does not cover everything.
    pub server: Server,
    /// What is done with responses.
    pub mode: Mode,
    /// Folder of the cases, instead of the built-in ones.
    pub folder: Option<PathBuf>,
}

/// The kind of server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Server {
    /// The embedded API server: cases that it does not cover are skipped.
    #[default]
    Sandbox,
    /// A kube-apiserver.
    Real,
}

/// What is done with responses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Compare them with the expected ones.
    #[default]
    Compare,
    /// Write them into the files as the expected ones.
    Record,
}

/// Prints every case's name.
pub fn list(options: &Options) -> Result<()> {
    for case in choose(options)? {
        match &case.not_covered {
            Some(why) => anstream::println!("{} (not on the sandbox: {why})", case.full_name()),
            None => anstream::println!("{}", case.full_name()),
        }
    }
    Ok(())
}

fn texts(folder: Option<&Path>) -> Result<Vec<(&'static str, String)>> {
    let read = |(theme, built_in): &(&'static str, &'static str)| {
        let text = match folder {
            None => (*built_in).to_owned(),
            Some(folder) => fs::read_to_string(file(folder, theme)).context(*theme)?,
        };
        Ok((*theme, text))
    };
    THEMES.iter().map(read).collect()
}

fn file(folder: &Path, theme: &str) -> PathBuf {
    folder.join(format!("{theme}.txt"))
}

fn choose(options: &Options) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (theme, text) in texts(options.folder.as_deref())? {
        cases.extend(script::parse(theme, &text)?);
    }
    if options.names.is_empty() {
        return Ok(cases);
    }
    for wanted in &options.names {
        let known = cases.iter().any(|case| case.full_name().contains(wanted));
        ensure!(known, "no case matches {wanted} (see --list)");
    }
    cases.retain(|case| {
        let name = case.full_name();
        options.names.iter().any(|wanted| name.contains(wanted))
    });
    Ok(cases)
}

/// Runs the chosen cases against one server.
/// Fails when no case matches a name, or a file of cases cannot be read or written.
pub async fn run(
    client: &Client,
    compactor: Option<Compactor>,
    options: &Options,
) -> Result<Summary> {
    let started = Instant::now();
    let (alone, beside): (Vec<_>, Vec<_>) =
        choose(options)?.into_iter().partition(|case| case.alone);
    let hooks = Hooks::start().await?;
    let mut done = Vec::new();
    let mut namespaces = Vec::new();
    let mut summary = Summary::default();
    for (cases, at_once) in [(beside, AT_ONCE), (alone, 1)] {
        let mut running = futures::stream::iter(cases.into_iter().enumerate())
            .map(|(index, case)| {
                let compactor = compactor.as_ref();
                one(client, compactor, &hooks, options, index, at_once, case)
            })
            .buffer_unordered(at_once);
        while let Some((case, namespace, result)) = running.next().await {
            namespaces.extend(result.is_some().then_some(namespace));
            tell(&mut summary, &case, &result);
            done.extend(result.and_then(Result::ok).map(|outcome| (case, outcome)));
        }
    }
    // Not after each case: the namespace controller needs a hundred requests for each, and cases wait for it.
    let deletions = futures::stream::iter(&namespaces)
        .map(|namespace| run::clean_up(client, namespace))
        .buffer_unordered(AT_ONCE);
    deletions.try_collect::<()>().await?;
    if options.mode == Mode::Record {
        let folder = options
            .folder
            .as_deref()
            .context("--record requires --cases")?;
        record(folder, &done)?;
    }
    anstream::eprintln!("{} cases in {:.1?}", done.len(), started.elapsed());
    Ok(summary)
}

/// `None` if the case is skipped.
async fn one(
    client: &Client,
    compactor: Option<&Compactor>,
    hooks: &Hooks,
    options: &Options,
    index: usize,
    at_once: usize,
    case: Case,
) -> (Arc<Case>, String, Option<Result<Outcome>>) {
    // Unique among runs against the same server, and short enough to be a prefix of other names.
    let namespace = format!("c{:x}-{at_once}{index}", std::process::id());
    let forgets = case.steps.iter().any(|step| step.action == Action::Compact);
    let unable = forgets && compactor.is_none();
    if unable || options.server == Server::Sandbox && case.not_covered.is_some() {
        return (Arc::new(case), namespace, None);
    }
    let started = Instant::now();
    let outcome = run::run(client, compactor, hooks, &case, &namespace).await;
    if started.elapsed() > SLOW {
        anstream::eprintln!("slow {} {:.1?}", case.full_name(), started.elapsed());
    }
    (Arc::new(case), namespace, Some(outcome))
}

fn tell(summary: &mut Summary, case: &Case, result: &Option<Result<Outcome>>) {
    let name = case.full_name();
    match result {
        None => {
            summary.skipped += 1;
            let unable = "the server cannot be compacted";
            let why = case.not_covered.as_deref().unwrap_or(unable);
            anstream::println!("{} {name}: {why}", "skip".yellow());
        }
        Some(Ok(outcome)) if outcome.differences.is_empty() => summary.passed += 1,
        Some(Ok(outcome)) => {
            summary.failed += 1;
            anstream::println!("{} {name}", "FAIL".red());
            for difference in &outcome.differences {
                anstream::println!("     {}, line {}", case.theme, difference.line);
                for line in &difference.expected {
                    anstream::println!("     expected {}", line.green());
                }
                for line in &difference.answered {
                    anstream::println!("     answered {}", line.red());
                }
            }
        }
        Some(Err(error)) => {
            summary.failed += 1;
            anstream::println!("{} {name}\n     {error:#}", "FAIL".red());
        }
    }
}

/// Writes the responses into the files.
fn record(folder: &Path, done: &[(Arc<Case>, Outcome)]) -> Result<()> {
    for (theme, text) in texts(Some(folder))? {
        let mut lines: Vec<Vec<String>> = text.lines().map(|l| vec![l.to_owned()]).collect();
        for (case, outcome) in done.iter().filter(|(case, _)| case.theme == theme) {
            for (step, answered) in case.steps.iter().zip(&outcome.answered) {
                for line in &mut lines[step.place.clone()] {
                    line.clear();
                }
                let last = step.place.start.saturating_sub(1);
                lines[last].extend(answered.iter().map(|line| format!("> {line}")));
            }
        }
        let mut text = lines.concat().join("\n");
        text.push('\n');
        fs::write(file(folder, theme), text).context(theme)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_valid_and_has_a_unique_name() {
        let cases = choose(&Options::default()).unwrap();
        let names: std::collections::BTreeSet<_> = cases.iter().map(Case::full_name).collect();
        assert_eq!(names.len(), cases.len());
        for case in &cases {
            assert!(!case.steps.is_empty(), "{}", case.full_name());
        }
    }
}
