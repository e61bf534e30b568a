//! The binary: arguments, configuration, endpoints, and the start of the controllers.
#![doc = include_str!("../README.md")]

pub mod arguments;
pub mod cli;
mod complete;
pub mod config;
pub mod controllers;
pub mod drain;
pub mod effective;
pub mod election;
pub mod exit;
pub mod feature_gates;
pub mod health;
pub mod inspect;
pub mod kubeconfig;
pub mod logging;
pub mod manual;
#[cfg(all(feature = "node-agent", target_os = "linux"))]
pub mod node_agent;
pub mod operator;
pub mod options;
pub mod reload;
pub mod run;
pub mod server;
pub mod traces;

mod message;
mod progress;
mod reach;
mod screen;
mod signals;

use std::process::ExitCode;

use belayer_controller::Crd;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory as _, FromArgMatches as _};

use cli::{Cli, Command};
use exit::{Failure, Outcome};
use kubeconfig::Sources;
use logging::{LevelName, LogArguments};
use options::RunOptions;
use options::arguments::RunArguments;
use screen::print_data;

/// Runs the command that the process's arguments name.
pub fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(message) => return exit::print_usage(&message),
    };
    Outcome::of(start(cli)).report()
}

fn parse() -> Result<Cli, clap::Error> {
    let called = std::env::args_os().next();
    let called = called.as_deref().map(std::path::Path::new);
    let mut command = manual::command(Cli::command(), called);
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let mut matches = matches.map_err(|error| with_variable(error, &command))?;
    Cli::from_arg_matches_mut(&mut matches)
}

/// Adds the environment variable to an error about a value that it sets: clap names only the flag.
fn with_variable(mut error: clap::Error, command: &clap::Command) -> clap::Error {
    let Some(ContextValue::String(named)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    // As in `--config <FILE>` and `--dry-run[=<BOOL>]`.
    let flag = named.split([' ', '[']).next().unwrap_or_default();
    let commands = command.get_subcommands().chain([command]);
    let mut flags = commands.flat_map(clap::Command::get_arguments);
    let variable = flags
        .find(|known| known.get_long() == flag.strip_prefix("--"))
        .and_then(clap::Arg::get_env);
    let Some(variable) = variable else {
        return error;
    };
    let is_given = std::env::args_os().any(|argument| {
        let argument = argument.to_string_lossy();
        argument.split('=').next() == Some(flag)
    });
    if !is_given && std::env::var_os(variable).is_some() {
        let named = format!("{named} (from {})", variable.display());
        error.insert(ContextKind::InvalidArg, ContextValue::String(named));
    }
    error
}

fn start(cli: Cli) -> Result<(), Failure> {
    let logging = &cli.logging;
    match cli.command {
        Command::Version => print_data(format!("{}\n", cli::version()).as_bytes()),
        Command::Completions(arguments) => manual::completions(&arguments, Cli::command()),
        Command::Man(arguments) => manual::man(&arguments, Cli::command()),
        Command::Crds => print_data(crds()?.as_bytes()),
        Command::Complete(arguments) => block_on(complete::run(&arguments, Cli::command())),
        Command::Run(arguments) => block_on(run_controllers(*arguments, logging)),
        #[cfg(all(feature = "node-agent", target_os = "linux"))]
        Command::NodeAgent(arguments) => block_on(async {
            logging::init(logging, LevelName::Info);
            let sources = Sources::from_env();
            let options = node_agent::NodeAgentOptions::resolve(*arguments, &sources).await?;
            node_agent::run(options).await
        }),
        Command::Config(arguments) => {
            quietly(logging, async { effective::print(&arguments, logging) })
        }
        Command::Stuck(arguments) => quietly(logging, inspect::run_stuck(*arguments)),
        Command::Status(arguments) => quietly(logging, inspect::run_status(*arguments)),
        Command::Check(arguments) => quietly(logging, inspect::run_check(*arguments)),
        Command::Explain(arguments) => quietly(logging, inspect::run_explain(*arguments)),
        Command::Drain(arguments) => quietly(logging, drain::run(*arguments)),
    }
}

async fn run_controllers(arguments: RunArguments, logging: &LogArguments) -> Result<(), Failure> {
    let source = arguments.source()?;
    let how = source.logging(logging);
    let how = how.map_err(Failure::configuration)?;
    let traces = traces::Traces::start().map_err(Failure::configuration)?;
    logging::init_with(&how, LevelName::Info, &traces);
    let options = RunOptions::resolve(arguments, source, &Sources::from_env()).await?;
    let done = run::run(options).await;
    traces.end().await;
    done
}

/// Runs a command that logs nothing unless the user sets a level.
fn quietly(
    logging: &LogArguments,
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    logging::init(logging, LevelName::Off);
    block_on(command)
}

fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("belayer")
        .worker_threads(threads())
        .build()
        .map_err(anyhow::Error::from)?;
    let result = runtime.block_on(command);
    // Tasks that still run after a clean stop, such as a DNS lookup, must not delay the exit.
    runtime.shutdown_background();
    result
}

/// Number of worker threads: one per processor, at most 4, or `TOKIO_WORKER_THREADS`. Belayer waits for the
/// API server most of the time, and one thread per processor of a large node would only cost memory. The
/// second thread lets a release proceed while the first one decodes a long watch batch: see
/// `cargo xtask bench latency`.
fn threads() -> usize {
    let from_env = std::env::var("TOKIO_WORKER_THREADS").ok();
    let from_env = from_env
        .and_then(|from_env| from_env.parse().ok())
        .filter(|n| *n > 0);
    from_env.unwrap_or_else(|| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        processors.min(4)
    })
}

/// The output of `belayer crds`: one YAML document per kind of this build.
fn crds() -> anyhow::Result<String> {
    let mut documents = vec![belayer_holds::gate::CRD.to_owned()];
    for crd in controllers::CONTROLLERS.iter().flat_map(|one| one.crds) {
        documents.push(match crd {
            Crd::Text(text) => (*text).to_owned(),
            Crd::Made(crd) => serde_saphyr::to_string(&crd())?,
        });
    }
    Ok(documents.join("---\n"))
}

#[cfg(test)]
#[cfg(feature = "pod-finalizer")]
mod tests {
    use serde_json::Value;

    /// A failure means that the manifest must be regenerated with `belayer crds`.
    #[test]
    fn the_podoutcome_manifest_is_the_output_of_crds() {
        let manifest = include_str!("../../../deploy/manifests/podoutcome-crd.yaml");
        let deployed: Value = serde_saphyr::from_str(manifest).unwrap();
        let printed = super::crds().unwrap();
        let outcomes = printed.split("---\n").nth(1).unwrap();
        let printed: Value = serde_saphyr::from_str(outcomes).unwrap();
        assert_eq!(deployed, printed);
        assert_eq!(printed, belayer_pod_finalizer::outcome::crd());
    }

    #[cfg(feature = "pod-recreation")]
    #[test]
    fn crds_prints_one_document_per_kind() {
        let printed = super::crds().unwrap();
        let kinds: Vec<String> = printed
            .split("---\n")
            .map(|document| serde_saphyr::from_str::<Value>(document).unwrap())
            .map(|crd| crd["spec"]["names"]["kind"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(kinds, ["Gate", "PodOutcome", "PodRecreation", "NodeWipe"]);
    }
}
