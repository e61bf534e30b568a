//! The command line.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use belayer_sandbox::simulated::{
    KubeletConfig, NodeSpec, SimulatedController, SimulatedControllers,
};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// An embedded Kubernetes API server for tests and demos. Its state is lost when it
/// exits, and it has no authentication: every client of the port has all permissions.
#[derive(Debug, Parser)]
#[command(name = "belayer-sandbox", version, max_term_width = 80)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a cluster on 127.0.0.1 until Ctrl-C
    #[command(after_help = AFTER)]
    Serve(Serve),
}

const AFTER: &str = "\
Examples:
  belayer-sandbox serve --port 8001 --kubeconfig /tmp/sandbox.kubeconfig
  belayer-sandbox serve --load fixtures/ --faults faults.yaml --seed 7
  belayer-sandbox serve --without kubelet,scheduler

Exit codes:
  0  stopped by Ctrl-C or SIGTERM
  1  it cannot serve: the port is taken, a file cannot be written
  2  wrong usage, fixtures or faults";

/// Options of `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Port on 127.0.0.1; 0 picks a free one
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = port)]
    pub(crate) port: u16,

    /// Where to write the kubeconfig. An existing file of another program is not overwritten
    #[arg(long, value_name = "FILE", default_value = "sandbox.kubeconfig")]
    pub(crate) kubeconfig: PathBuf,

    /// Objects to start with: a YAML or JSON file, or a folder of them; repeatable
    #[arg(long, value_name = "PATH")]
    pub(crate) load: Vec<PathBuf>,

    /// YAML file of faults to inject; see faults.example.yaml in the crate
    #[arg(long, value_name = "FILE")]
    pub(crate) faults: Option<PathBuf>,

    /// Seed of UIDs, generated names and random choices (default: random)
    #[arg(long, value_name = "NUMBER", value_parser = seed)]
    pub(crate) seed: Option<u64>,

    /// Simulated controllers to run, separated by commas (default: all of them)
    #[arg(
        long,
        alias = "companions",
        value_name = "LIST",
        value_delimiter = ',',
        default_values_t = Name::ALL,
        hide_default_value = true
    )]
    pub(crate) controllers: Vec<Name>,

    /// Simulated controllers not to run, by the same names
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    pub(crate) without: Vec<Name>,

    /// Run the API server without simulated controllers
    #[arg(long, conflicts_with_all = ["controllers", "without", "nodes"])]
    pub(crate) alone: bool,

    /// Simulated nodes, node-1 to node-N
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = nodes)]
    pub(crate) nodes: usize,
}

fn seed(text: &str) -> Result<u64, String> {
    whole(text, u64::MAX)
}

fn port(text: &str) -> Result<u16, String> {
    whole(text, u16::MAX)
}

fn nodes(text: &str) -> Result<usize, String> {
    whole(text, 10_000)
}

/// A whole number. The error names the expected form.
fn whole<N: FromStr + PartialOrd + Display>(text: &str, most: N) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| *number <= most);
    number.ok_or_else(|| format!("expected a whole number from 0 to {most}"))
}

/// The name of a simulated controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// Deletes objects whose owners are gone
    GarbageCollector,
    /// Empties namespaces that are being deleted
    Namespaces,
    /// Runs pods on simulated nodes
    Kubelet,
    /// Binds pods to nodes
    Scheduler,
    /// Fails and deletes pods whose node is gone
    PodGc,
}

impl Name {
    const ALL: [Self; 5] = [
        Self::GarbageCollector,
        Self::Namespaces,
        Self::Kubelet,
        Self::Scheduler,
        Self::PodGc,
    ];

    fn controller(self) -> SimulatedController {
        match self {
            Self::GarbageCollector => SimulatedController::GarbageCollector,
            Self::Namespaces => SimulatedController::Namespaces,
            Self::Kubelet => SimulatedController::Kubelet,
            Self::Scheduler => SimulatedController::Scheduler,
            Self::PodGc => SimulatedController::PodGc,
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

impl Serve {
    /// The selected controllers, in the order of `--help`.
    pub(crate) fn chosen(&self) -> Vec<Name> {
        let wanted = |name: &Name| {
            !self.alone && self.controllers.contains(name) && !self.without.contains(name)
        };
        Name::ALL.into_iter().filter(wanted).collect()
    }

    /// The same, to be started.
    pub(crate) fn to_start(&self) -> SimulatedControllers {
        let mut controllers = SimulatedControllers::none().kubelet(KubeletConfig {
            nodes: NodeSpec::many(self.nodes),
            seed: self.seed.unwrap_or_default(),
            ..KubeletConfig::default()
        });
        let chosen = self.chosen();
        for name in Name::ALL {
            controllers = if chosen.contains(&name) {
                controllers.with(name.controller())
            } else {
                controllers.without(name.controller())
            };
        }
        controllers
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use rstest::rstest;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_fits_80_columns() {
        let mut command = Arguments::command();
        command.clone().debug_assert();
        command.build();
        let mut texts = vec![command.render_long_help().to_string()];
        for sub in command.get_subcommands_mut() {
            texts.push(sub.render_help().to_string());
            texts.push(sub.render_long_help().to_string());
        }
        for line in texts.iter().flat_map(|text| text.lines()) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[rstest]
    #[case("--seed=x")]
    #[case("--port=70000")]
    #[case("--nodes=-1")]
    fn an_invalid_number_names_the_expected_form(#[case] argument: &str) {
        let line = ["belayer-sandbox", "serve", argument];
        let error = Arguments::try_parse_from(line).unwrap_err().to_string();
        assert!(
            error.contains("expected a whole number from 0 to"),
            "{error}"
        );
    }

    #[rstest]
    #[case::all_by_default(&[], 5)]
    #[case::none(&["--alone"], 0)]
    #[case::some(&["--controllers", "kubelet,scheduler"], 2)]
    #[case::by_the_old_name(&["--companions", "kubelet,scheduler"], 2)]
    #[case::all_but_one(&["--without", "pod-gc"], 4)]
    fn controllers_are_selected(#[case] arguments: &[&str], #[case] expected: usize) {
        let line = ["belayer-sandbox", "serve"].iter().chain(arguments);
        let Command::Serve(serve) = Arguments::parse_from(line).command;
        assert_eq!(serve.chosen().len(), expected);
        for name in Name::ALL {
            let on = serve.to_start().has(name.controller());
            assert_eq!(on, serve.chosen().contains(&name));
        }
    }
}
