//! The command line.

use std::path::PathBuf;

use belayer_sandbox::companions::{Companion, Companions, KubeletConfig, NodeSpec};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// An embedded Kubernetes API server, for tests and demos. Nothing is kept when it
/// ends; nothing is protected: whoever reaches the port may do everything.
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
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,

    /// Where to write the kubeconfig; a file that is not ours is left alone
    #[arg(long, value_name = "FILE", default_value = "sandbox.kubeconfig")]
    pub(crate) kubeconfig: PathBuf,

    /// Objects to start with: a YAML or JSON file, or a folder of them; repeatable
    #[arg(long, value_name = "PATH")]
    pub(crate) load: Vec<PathBuf>,

    /// What goes wrong: a YAML file, see faults.example.yaml of the crate
    #[arg(long, value_name = "FILE")]
    pub(crate) faults: Option<PathBuf>,

    /// Fixes uids, generated names and chance; random unless given
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,

    /// Companions that run beside the server, separated by commas; all of them unless given
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_values_t = Name::ALL,
        hide_default_value = true
    )]
    pub(crate) companions: Vec<Name>,

    /// Companions that do not run, by the same names
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        hide_possible_values = true
    )]
    pub(crate) without: Vec<Name>,

    /// The API server alone, without companions
    #[arg(long, conflicts_with_all = ["companions", "without", "nodes"])]
    pub(crate) alone: bool,

    /// Simulated nodes, node-1 to node-N
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) nodes: usize,
}

/// A companion's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// Deletes what has lost its owners
    GarbageCollector,
    /// Empties namespaces that are being deleted
    Namespaces,
    /// Runs pods on simulated nodes
    Kubelet,
    /// Binds pods to nodes
    Scheduler,
    /// Gives up pods whose node is gone
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

    fn companion(self) -> Companion {
        match self {
            Self::GarbageCollector => Companion::GarbageCollector,
            Self::Namespaces => Companion::Namespaces,
            Self::Kubelet => Companion::Kubelet,
            Self::Scheduler => Companion::Scheduler,
            Self::PodGc => Companion::PodGc,
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
    /// The companions that were asked for, in the order of `--help`.
    pub(crate) fn chosen(&self) -> Vec<Name> {
        let wanted = |name: &Name| {
            !self.alone && self.companions.contains(name) && !self.without.contains(name)
        };
        Name::ALL.into_iter().filter(wanted).collect()
    }

    /// The same, to be started.
    pub(crate) fn to_start(&self) -> Companions {
        let mut companions = Companions::none().kubelet(KubeletConfig {
            nodes: NodeSpec::many(self.nodes),
            seed: self.seed.unwrap_or_default(),
            ..KubeletConfig::default()
        });
        let chosen = self.chosen();
        for name in Name::ALL {
            companions = if chosen.contains(&name) {
                companions.with(name.companion())
            } else {
                companions.without(name.companion())
            };
        }
        companions
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
        let mut texts = vec![command.render_long_help().to_string()];
        for sub in command.get_subcommands_mut() {
            texts.push(sub.clone().render_help().to_string());
            texts.push(
                sub.clone()
                    .max_term_width(80)
                    .render_long_help()
                    .to_string(),
            );
        }
        for line in texts.iter().flat_map(|text| text.lines()) {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    #[rstest]
    #[case::all_by_default(&[], 5)]
    #[case::none(&["--alone"], 0)]
    #[case::some(&["--companions", "kubelet,scheduler"], 2)]
    #[case::all_but_one(&["--without", "pod-gc"], 4)]
    fn companions_are_switched(#[case] arguments: &[&str], #[case] expected: usize) {
        let line = ["belayer-sandbox", "serve"].iter().chain(arguments);
        let Command::Serve(serve) = Arguments::parse_from(line).command;
        assert_eq!(serve.chosen().len(), expected);
        for name in Name::ALL {
            let on = serve.to_start().has(name.companion());
            assert_eq!(on, serve.chosen().contains(&name));
        }
    }
}
