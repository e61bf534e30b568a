//! `cargo xtask e2e`.

use std::process::{Command, ExitCode, Stdio};

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::cargo::{AS_TESTS, built, cargo, compile, pass_through, root};
use crate::image;

/// Run the end-to-end scenarios on one of four providers
///
/// Prints one line per scenario and at the end `N passed, N failed, N skipped`. With `conformance` as
/// the first name, runs the cases that compare a server's responses with those of kube-apiserver.
#[derive(Debug, Args)]
pub(crate) struct E2e {
    /// Where to run them; by default the first of kind, node, local and sandbox that can run here (conformance:
    /// the sandbox)
    #[arg(long, value_enum)]
    provider: Option<Provider>,

    /// Print the scenarios, their descriptions and requirements
    #[arg(long)]
    list: bool,

    /// Run them on another release of Kubernetes, from 1.32 to 1.37; with the provider local only
    #[arg(long, value_name = "MINOR")]
    kubernetes: Option<String>,

    /// Without names: the scenarios that show in minutes whether Belayer works with a release of Kubernetes
    #[arg(long)]
    smoke: bool,

    /// Run the binary that is shipped: a release build without symbols. Also checks the size of its image
    #[arg(long)]
    release: bool,

    /// Keep a failed scenario's cluster until Ctrl-C, and print its KUBECONFIG
    #[arg(long)]
    keep: bool,

    /// How long a settled cluster is watched for writes
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    quiet_seconds: u64,

    /// How many pods the size scenarios create; by default 2000 on the sandbox, else 1000
    #[arg(long, value_name = "N", value_parser = crate::count)]
    pods: Option<usize>,

    /// Only scenarios whose name contains one of these; `conformance [NAME..]` runs those cases instead
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Provider {
    /// The embedded API server; takes seconds
    Sandbox,
    /// A real kube-apiserver on this machine, without containers; needs Go or KUBEBUILDER_ASSETS
    Local,
    /// The same with two real nodes, which run containers; needs root. Without names, only the scenarios that need them
    Node,
    /// A kind cluster; needs Docker and kind. Without names, only the scenarios that need real nodes
    Kind,
}

impl Provider {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Local => "local",
            Self::Node => "node",
            Self::Kind => "kind",
        }
    }

    /// How a sentence calls it.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Sandbox => "the sandbox",
            Self::Local => "the local control plane",
            Self::Node => "real nodes",
            Self::Kind => "kind",
        }
    }
}

impl E2e {
    pub(crate) fn execute(self) -> Result<ExitCode> {
        compile(build())?;
        if let Some((_, names)) = self.names.split_first().filter(|(n, _)| *n == CONFORMANCE) {
            let mut command = conformance(self.provider.unwrap_or(Provider::Sandbox));
            if self.list {
                command.arg("--list");
            }
            command.args(names);
            return pass_through(command);
        }
        if self.list {
            let mut list = program();
            list.args(["run", "--list"]);
            return pass_through(list);
        }
        let mut command = program();
        command.arg("run");
        if let Some(provider) = self.provider {
            command.args(["--provider", provider.name()]);
        }
        command.arg(format!("--quiet-seconds={}", self.quiet_seconds));
        if let Some(pods) = self.pods {
            command.arg(format!("--pods={pods}"));
        }
        if self.keep {
            command.arg("--keep");
        }
        if let Some(kubernetes) = self.kubernetes {
            command.args(["--kubernetes", &kubernetes]);
        }
        if self.smoke {
            command.arg("--smoke");
        }
        if self.release {
            command.arg("--belayer").arg(image::checked_binary()?);
        }
        command.args(self.names);
        pass_through(command)
    }
}

/// The name that selects the cases instead of the scenarios.
const CONFORMANCE: &str = "conformance";

/// Runs the conformance cases, built by [`build`].
pub(crate) fn conformance(provider: Provider) -> Command {
    let mut command = program();
    command.args([CONFORMANCE, "--provider", provider.name()]);
    command
}

/// Builds Belayer, which the scenarios run as a separate process, and the scenarios.
pub(crate) fn build() -> Command {
    let mut command = cargo();
    command.args(["build", "--bins"]).args(AS_TESTS);
    command
}

/// Runs the scenarios that were built by [`build`].
pub(crate) fn scenarios(provider: Provider) -> Command {
    let mut command = program();
    command.args(["run", "--provider", provider.name()]);
    command
}

/// The scenarios on real nodes with the binary that is shipped, which is built first.
pub(crate) fn with_the_shipped_binary() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["e2e", "--provider", "node", "--release"])
        .current_dir(root());
    Ok(command)
}

/// Checks that a killed run leaves nothing of its control plane and its real nodes.
pub(crate) fn leftovers() -> Command {
    let mut command = program();
    command.args(["control-plane", "leftovers"]);
    command
}

/// Whether Go is installed. With `CI` set it must be.
pub(crate) fn can_build_helm() -> bool {
    let mut version = Command::new("go");
    version.arg("version").stdout(Stdio::null());
    crate::is_ci() || version.status().is_ok_and(|status| status.success())
}

/// The package and its program.
const PROGRAM: &str = "belayer-e2e";

pub(crate) fn program() -> Command {
    built("debug", PROGRAM)
}
