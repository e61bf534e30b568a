//! The command line.

use belayer_inspect::text::wrapped;
use clap::{Arg, Parser, Subcommand};

use crate::complete::CompleteArguments;
use crate::controllers::built;
use crate::drain::DrainArguments;
use crate::feature_gates::FeatureGates;
use crate::inspect::{CheckArguments, ExplainArguments, StatusArguments, StuckArguments};
use crate::logging::LogArguments;
use crate::manual::{CompletionsArguments, ManArguments};
use crate::options::arguments::RunArguments;

const EXIT_CODES: &str = "\
Exit codes:
  0  done, or stopped cleanly by SIGTERM or SIGINT
  1  an error
  2  wrong usage or configuration; nothing was changed";

const CONFIG_EXIT_CODES: &str = "\
Exit codes:
  0  the configuration is valid
  1  an error
  2  wrong usage or configuration";

const PRINTS: &str = "\
Exit codes:
  0  done
  1  an error
  2  wrong usage";

/// Delays the deletion of pods, workflows and PVCs until it is safe, and explains why anything is stuck in Terminating.
#[derive(Debug, Parser)]
#[command(
    name = "belayer",
    version,
    about,
    max_term_width = 80,
    after_help = format!("{EXIT_CODES}\n  3, 4  findings of a command: see its --help"),
    disable_help_subcommand = true,
    mut_args(without_env_value),
    mut_subcommands(|command| command.mut_args(without_env_value))
)]
pub struct Cli {
    /// Logging.
    #[command(flatten)]
    pub logging: LogArguments,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Help names the environment variable of a flag, without the value of this environment.
fn without_env_value(flag: Arg) -> Arg {
    flag.hide_env_values(true)
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the controllers
    #[command(after_help = EXIT_CODES)]
    Run(Box<RunArguments>),
    /// Validate the configuration of `run` and print every setting with its source.
    /// Takes the same arguments; does not contact a cluster
    #[command(after_help = CONFIG_EXIT_CODES)]
    Config(Box<RunArguments>),
    /// Show held objects, pending releases, denied writes and the leader
    #[command(after_help = crate::inspect::STATUS_HELP)]
    Status(Box<StatusArguments>),
    /// Check that the cluster has what Belayer needs: API kinds, RBAC permissions,
    /// policies
    #[command(after_help = crate::inspect::CHECK_HELP)]
    Check(Box<CheckArguments>),
    /// List objects stuck in Terminating in the whole cluster, and why they are stuck
    #[command(after_help = crate::inspect::STUCK_HELP)]
    Stuck(Box<StuckArguments>),
    /// Explain one object: who holds it, which rule applies, what is missing, what
    /// happens next
    #[command(after_help = crate::inspect::EXPLAIN_HELP)]
    Explain(Box<ExplainArguments>),
    /// Remove all of Belayer's finalizers from the cluster, before Belayer is
    /// uninstalled
    #[command(after_help = crate::drain::HELP, visible_alias = "release-all")]
    Drain(Box<DrainArguments>),
    /// Remove the directories that rejected pods left on a node; runs on each node
    #[cfg(all(feature = "node-agent", target_os = "linux"))]
    #[command(after_help = crate::node_agent::HELP)]
    NodeAgent(Box<crate::node_agent::NodeAgentArguments>),
    /// Print the CustomResourceDefinitions for `kubectl apply -f -`
    #[command(after_help = PRINTS)]
    Crds,
    /// Print the completion script for a shell
    #[command(after_help = crate::manual::COMPLETIONS_HELP)]
    Completions(CompletionsArguments),
    /// Print completions for a partial command line
    #[command(name = "__complete", after_help = PRINTS, hide = true)]
    Complete(CompleteArguments),
    /// Print or write manual pages
    #[command(after_help = PRINTS, hide = true)]
    Man(ManArguments),
    /// Print the version and the controllers in this build
    #[command(after_help = PRINTS)]
    Version,
}

/// The Kubernetes versions that Belayer is made for, as in the table of the README.
const KUBERNETES: &str =
    "1.30 and later; before 1.36 without the policies that add holds at creation";

/// The output of `belayer version`.
pub(crate) fn version() -> String {
    let controllers: Vec<_> = built().collect();
    let controllers = if controllers.is_empty() {
        "none".to_owned()
    } else {
        controllers.join(", ")
    };
    let text = format!(
        "belayer {}\ncommit: {}\nplatform: {}/{}\nkubernetes: {KUBERNETES}\ncontrollers: {controllers}\nfeature gates: {}",
        env!("CARGO_PKG_VERSION"),
        option_env!("BELAYER_COMMIT").unwrap_or("not recorded in this build"),
        std::env::consts::OS,
        std::env::consts::ARCH,
        FeatureGates::default()
    );
    let lines = text.lines().map(|line| wrapped(line, 78, "  "));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use rstest::rstest;

    use super::*;
    use crate::config::Source;
    use crate::controllers::CONTROLLERS;
    use crate::kubeconfig::Sources;
    use crate::logging::LogFormat;
    use crate::options::Settings;
    use crate::server::BindAddress;

    fn run(arguments: &[&str]) -> Result<RunArguments, clap::Error> {
        let cli = Cli::try_parse_from(["belayer", "run"].iter().chain(arguments))?;
        match cli.command {
            Command::Run(arguments) => Ok(*arguments),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_kubernetes_versions_are_those_of_the_readme() {
        let readme = include_str!("../../../README.md");
        assert!(readme.contains(KUBERNETES));
        let version = version();
        let words: Vec<&str> = version.split_whitespace().collect();
        assert!(words.join(" ").contains(KUBERNETES));
    }

    #[test]
    fn the_command_line_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let settings =
            Settings::resolve(&run(&[]).unwrap(), &Source::default(), &Sources::default()).unwrap();
        let limits = settings.limits;
        assert_eq!((limits.qps, limits.burst), (100, 200));
        assert_eq!(limits.concurrent_releases, 64);
        let running = settings.components.running.iter();
        assert!(running.clone().all(|one| one.controller().default_on));
        let by_default = CONTROLLERS.iter().filter(|one| one.default_on);
        assert_eq!(running.count(), by_default.count());
        assert_eq!(settings.metrics_bind_address, BindAddress::Every(8080));
        assert_eq!(settings.debug_bind_address.to_string(), "127.0.0.1:8081");
        assert!(!settings.dry_run);
        let election = settings.election.unwrap();
        assert_eq!(election.lease.to_string(), "belayer-system/belayer");
        assert_eq!(election.timing, Default::default());
    }

    #[rstest]
    #[case(&["--controllers=*,-pod-finalizer"], &["*", "-pod-finalizer"])]
    #[case(&["--controllers", "*,-pod-finalizer"], &["*", "-pod-finalizer"])]
    #[case(&["--controllers", "-pod-finalizer"], &["-pod-finalizer"])]
    #[case(&["--controllers=*", "--controllers=-pod-finalizer"], &["*", "-pod-finalizer"])]
    fn lists_of_controllers_are_split(#[case] arguments: &[&str], #[case] list: &[&str]) {
        assert_eq!(run(arguments).unwrap().controllers.unwrap(), list);
    }

    #[rstest]
    #[case::zero_qps(&["--kube-api-qps=0"])]
    #[case::no_releases(&["--concurrent-releases=0"])]
    #[case::no_workers(&["--workers=0"])]
    #[case::too_many_workers(&["--workers=100000"])]
    #[case::no_port(&["--metrics-bind-address=localhost"])]
    #[case::a_bad_port(&["--metrics-bind-address=:99999"])]
    #[case::a_bad_level(&["--log-level=loud"])]
    #[case::a_bad_format(&["--log-format=xml"])]
    #[case::an_unknown_flag(&["--dryrun"])]
    #[case::a_stray_argument(&["pods"])]
    fn invalid_arguments_are_wrong_usage(#[case] arguments: &[&str]) {
        assert_eq!(run(arguments).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn numbers_are_read() {
        let read = run(&["--workers=7", "--concurrent-releases=8", "--kube-api-qps=9"]).unwrap();
        assert_eq!(read.workers, Some(7));
    }

    #[rstest]
    #[case("--workers=x", "from 1 to 1024")]
    #[case("--workers=1025", "from 1 to 1024")]
    #[case("--kube-api-qps=many", "from 1 to 4294967295")]
    fn an_invalid_number_names_the_expected_form(#[case] argument: &str, #[case] form: &str) {
        let error = run(&[argument]).unwrap_err().to_string();
        assert!(error.contains("expected a whole number"), "{error}");
        assert!(error.contains(form), "{error}");
    }

    #[test]
    fn logging_flags_are_accepted_before_and_after_the_command() {
        for arguments in [
            ["--log-format=json", "version"],
            ["version", "--log-format=json"],
        ] {
            let cli = Cli::try_parse_from(["belayer"].iter().chain(&arguments)).unwrap();
            assert_eq!(cli.logging.log_format, Some(LogFormat::Json));
        }
    }

    /// `--namespace` is the old name of `--own-namespace`; other commands use it for their objects.
    #[rstest]
    #[case("run")]
    #[case("drain")]
    fn the_old_name_of_own_namespace_is_accepted(#[case] command: &str) {
        let cli = Cli::try_parse_from(["belayer", command, "--namespace=ops"]).unwrap();
        let own = match cli.command {
            Command::Run(arguments) => arguments.own,
            Command::Drain(arguments) => arguments.read.own,
            other => panic!("{other:?}"),
        };
        assert_eq!(own.own_namespace.as_deref(), Some("ops"));
    }

    /// The commands and flags that the help of each command shows.
    #[rstest]
    #[case::root("belayer", &["run", "stuck", "explain", "version", "--log-level", "Exit codes:", "2 wrong usage"])]
    #[case::run("run", &[
        "--kubeconfig <FILE>", "--context <NAME>", "--own-namespace <NAME>", "--controllers <LIST>",
        "--config <FILE>", "--dry-run", "--metrics-bind-address <ADDRESS>", "[default: :8080]",
        "--debug-bind-address <ADDRESS>", "[default: 127.0.0.1:8081]", "--kube-api-qps <N>",
        "[default: 100]", "--kube-api-burst <N>", "[default: 200]", "--concurrent-releases <N>",
        "--workers <N>", "[default: 64]", "--log-format <FORMAT>", "--log-level <LEVELS>",
        "[env: BELAYER_CONFIG]", "Cluster:", "Limits:", "Endpoints:", "Logging:", "Exit codes:",
    ])]
    #[case::drain("drain", &[
        "--dry-run", "--unselected", "--resume", "--timeout <TIME>", "[default: 2m]", "-o, --output <FORMAT>",
        "--concurrent-releases <N>", "3 something must stay", "4 the API server refuses", "belayer drain --dry-run",
    ])]
    #[case::stuck("stuck", &[
        "--namespace <NAME>", "-A, --all-namespaces", "-l, --selector <LABELS>", "--older-than <TIME>",
        "--context <NAME>", "--kubeconfig <FILE>", "-o, --output <FORMAT>", "json", "3 something is stuck",
    ])]
    #[case::explain("explain", &["<KIND/NAME>...", "-w, --watch", "-o, --output <FORMAT>", "3 the object is stuck"])]
    #[cfg_attr(feature = "pod-finalizer", case::crds("crds", &["CustomResourceDefinitions", "kubectl apply -f -"]))]
    #[cfg_attr(all(feature = "node-agent", target_os = "linux"), case::node_agent("node-agent", &[
        "--node-name <NAME>", "[env: NODE_NAME]", "--root <DIRECTORY>", "--path <TEMPLATE>", "{podUID}",
        "--config <FILE>", "--metrics-bind-address <ADDRESS>", "2 wrong usage",
    ]))]
    #[case::version("version", &["Print the version"])]
    fn help_reads_well_at_80_columns(#[case] command: &str, #[case] shows: &[&str]) {
        let mut cli = Cli::command().term_width(80);
        cli.build();
        let command = match command {
            "belayer" => &mut cli,
            name => cli.find_subcommand_mut(name).unwrap(),
        };
        for help in [command.render_help(), command.render_long_help()] {
            let help = help.to_string();
            for line in help.lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
            let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
            for text in shows {
                assert!(words.contains(text), "{text} is missing:\n{help}");
            }
        }
    }
}
