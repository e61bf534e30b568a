//! `belayer-e2e run`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use crate::control_plane::{
    Binaries, BuildError, Kubernetes, NodeBinaries, RealNodes, remove_leftovers,
};
use crate::harness::{self, Keep, RunOptions, Setting, Summary, Which};
use crate::providers::{Kind, Local, Provider, Sandbox};
use crate::scenarios;

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum ProviderName {
    /// The embedded API server; takes seconds
    Sandbox,
    /// A real kube-apiserver 1.36 on this machine, without containers
    Local,
    /// The same with two real nodes; needs root
    Node,
    /// A kind cluster; needs Docker and kind
    Kind,
}

/// How many nodes the provider `node` starts.
const NODES: usize = 2;

impl ProviderName {
    /// The provider; `None` if this machine lacks a prerequisite and that is not a failure.
    pub(super) fn provider(self, belayer: &Path) -> Result<Option<Box<dyn Provider>>> {
        self.with_hollow_nodes(belayer, 1)
    }

    /// The provider with another release of Kubernetes.
    fn with_release(self, kubernetes: Kubernetes) -> Result<Box<dyn Provider>> {
        ensure!(
            matches!(self, Self::Local),
            "--kubernetes requires --provider local: the others have only one release"
        );
        Ok(Box::new(Local::new(Binaries::of(kubernetes)?)))
    }

    /// The same with so many nodes without containers, if the provider has such nodes.
    pub(super) fn with_hollow_nodes(
        self,
        belayer: &Path,
        count: usize,
    ) -> Result<Option<Box<dyn Provider>>> {
        let (name, local) = match self {
            Self::Sandbox => return Ok(Some(Box::new(Sandbox::default()))),
            Self::Kind => return Ok(Some(Box::new(Kind::new(belayer)?))),
            Self::Local => {
                let local = Binaries::find_or_build().map(Local::new);
                ("local", local.map(|local| local.hollow_nodes(count)))
            }
            Self::Node => ("node", with_nodes(belayer)),
        };
        match local {
            Ok(local) => Ok(Some(Box::new(local))),
            Err(BuildError::Unavailable(why)) => {
                // A continuous integration that tests nothing must fail.
                ensure!(!crate::is_ci(), "{why}");
                anstream::println!("skip provider-{name} {why}");
                let summary = Summary {
                    skipped: 1,
                    ..Summary::default()
                };
                anstream::println!("{summary}");
                Ok(None)
            }
            Err(BuildError::Failed(error)) => Err(error),
        }
    }
}

/// What decides about the default provider.
#[derive(Debug)]
struct Machine {
    /// Whether kind can run here, or why not.
    kind: Result<(), String>,
    /// The same for real nodes.
    nodes: Result<(), String>,
    /// Whether there is a control plane, or Go to build it.
    has_control_plane: bool,
}

impl Machine {
    fn this(belayer: &Path) -> Self {
        Self {
            kind: Kind::new(belayer)
                .map(drop)
                .map_err(|error| format!("{error:#}")),
            nodes: NodeBinaries::prerequisites().map_err(|error| error.to_string()),
            has_control_plane: Binaries::are_available(),
        }
    }

    /// The provider that shows most: the first that can run. Also says why.
    fn default_provider(&self) -> (ProviderName, String) {
        let Err(why) = &self.kind else {
            let why = "Docker runs and kind is installed".to_owned();
            return (ProviderName::Kind, why);
        };
        let without_go = "Go is not installed";
        match (&self.nodes, self.has_control_plane) {
            (Ok(()), true) => (ProviderName::Node, why.clone()),
            (Ok(()), false) => (ProviderName::Sandbox, format!("{why}; {without_go}")),
            (Err(error), true) => (ProviderName::Local, format!("{why}; {error}")),
            (Err(error), false) => (
                ProviderName::Sandbox,
                format!("{why}; {error}; {without_go}"),
            ),
        }
    }
}

fn with_nodes(belayer: &Path) -> Result<Local, BuildError> {
    remove_leftovers().map_err(BuildError::Failed)?;
    let nodes = RealNodes {
        binaries: NodeBinaries::find_or_build()?,
        count: NODES,
        belayer: belayer.to_owned(),
    };
    Ok(Local::with_nodes(Binaries::find_or_build()?, nodes))
}

/// The named `belayer` binary, or the one in the folder of this program.
pub(super) fn binary(named: Option<&Path>) -> Result<PathBuf> {
    named.map_or_else(own_belayer, absolute)
}

/// The `belayer` binary in the folder of this program.
pub(super) fn own_belayer() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("belayer");
    ensure!(
        path.is_file(),
        "{} not found: run `cargo build -p belayer`",
        path.display()
    );
    Ok(path)
}

/// Run scenarios on a provider
#[derive(Debug, Args)]
pub(super) struct Run {
    /// Where to run them; by default the first of kind, node, local and sandbox that can run here
    #[arg(long, value_enum)]
    provider: Option<ProviderName>,

    /// Print the scenarios and their descriptions
    #[arg(long)]
    list: bool,

    /// Run them on another release of Kubernetes, such as 1.35; with the provider local only
    #[arg(long, value_parser = Kubernetes::of, value_name = "MINOR")]
    kubernetes: Option<Kubernetes>,

    /// Keep a failed scenario's cluster until Ctrl-C
    #[arg(long)]
    keep: bool,

    /// The `belayer` binary; by default the one in the folder of this program
    #[arg(long, env = "BELAYER_BIN", value_name = "PATH")]
    belayer: Option<PathBuf>,

    /// How long a settled cluster is watched for writes
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    quiet_seconds: u64,

    /// How many pods the size scenarios create; by default 2000 on the sandbox, else 1000
    #[arg(long, value_name = "N", value_parser = super::count)]
    pods: Option<usize>,

    /// Without names: those that take too long for every change, instead of all others
    #[arg(long)]
    nightly: bool,

    /// Without names: those that show in minutes whether Belayer works with a release of Kubernetes
    #[arg(long, conflicts_with = "nightly")]
    smoke: bool,

    /// Only scenarios whose name contains one of these
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

impl Run {
    pub(super) async fn execute(self) -> Result<ExitCode> {
        if self.list {
            harness::list(&scenarios::all());
            return Ok(ExitCode::SUCCESS);
        }
        let belayer = binary(self.belayer.as_deref())?;
        let (name, why) = match self.provider {
            Some(name) => (name, None),
            None => {
                let (name, why) = Machine::this(&belayer).default_provider();
                (name, Some(why))
            }
        };
        let provider = match self.kubernetes {
            Some(kubernetes) => Some(name.with_release(kubernetes)?),
            None => name.provider(&belayer)?,
        };
        let Some(provider) = provider else {
            return Ok(ExitCode::SUCCESS);
        };
        let setting = Setting {
            belayer,
            quiet: Duration::from_secs(self.quiet_seconds),
            large: self.pods.unwrap_or(provider.large()),
        };
        let keep = if self.keep {
            Keep::Failed
        } else {
            Keep::Nothing
        };
        let options = RunOptions {
            names: self.names,
            which: match (self.nightly, self.smoke) {
                (true, _) => Which::Nightly,
                (_, true) => Which::Smoke,
                _ => Which::Usual,
            },
            keep,
            setting,
        };
        let all = scenarios::all();
        if let Some(why) = why {
            let count = harness::count(&all, &options, provider.made_for());
            anstream::println!("{}", chosen(provider.name(), &why, count));
        }
        let summary = harness::run(&*provider, all, &options).await?;
        anstream::println!("{summary}");
        // As above: one that skipped everything has tested nothing.
        ensure!(summary.passed > 0 || !crate::is_ci(), "no scenario passed");
        Ok(super::exit(summary.failed == 0))
    }
}

/// The line about the default provider. `count` is how many scenarios it runs, and of how many.
fn chosen(provider: &str, why: &str, (some, all): (usize, usize)) -> String {
    let others = if some < all {
        format!(": {some} of {all} scenarios; others: --provider local")
    } else {
        String::new()
    };
    format!("provider {provider}, because {why}{others}")
}

/// Scenarios start it from other folders.
fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize()
        .with_context(|| format!("find {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn no(why: &str) -> Result<(), String> {
        Err(why.to_owned())
    }

    #[rstest]
    #[case::kind(Ok(()), Ok(()), true, "kind", "Docker runs and kind is installed")]
    #[case::nodes(no("no Docker"), Ok(()), true, "node", "no Docker")]
    #[case::not_root(no("no Docker"), no("no root"), true, "local", "no Docker; no root")]
    #[case::no_go(no("no Docker"), Ok(()), false, "sandbox", "no Docker; Go is not installed")]
    #[case::nothing(
        no("no Docker"),
        no("no root"),
        false,
        "sandbox",
        "no Docker; no root; Go is not installed"
    )]
    fn the_default_is_what_shows_most(
        #[case] kind: Result<(), String>,
        #[case] nodes: Result<(), String>,
        #[case] has_control_plane: bool,
        #[case] expected: &str,
        #[case] because: &str,
    ) {
        let machine = Machine {
            kind,
            nodes,
            has_control_plane,
        };
        let (name, why) = machine.default_provider();
        let value = name.to_possible_value().unwrap();
        assert_eq!((value.get_name(), &*why), (expected, because));
    }

    #[test]
    fn a_provider_that_runs_a_part_says_so() {
        assert_eq!(
            chosen("node", "no Docker", (17, 260)),
            "provider node, because no Docker: 17 of 260 scenarios; others: --provider local"
        );
        assert_eq!(
            chosen("local", "no root", (260, 260)),
            "provider local, because no root"
        );
    }
}
