#![doc = include_str!("../README.md")]

mod arguments;
mod chapters;
mod cluster_state;
mod controller;
mod objects;
mod other_operator;
mod output;
mod report;
pub mod setup;
mod summary;
#[cfg(test)]
mod tests;
mod tracked;
mod world;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

pub use arguments::Demo;

use output::Output;
use summary::Summary;
use world::World;

/// Prefix of Belayer's finalizers and annotations.
const BELAYERS: &str = "belayer.dev/";
/// The actor name of the second scheduler.
const BATCH: &str = "batch-scheduler";
/// The actor name of the other operator.
const OTHER_OPERATOR: &str = "example-operator";

/// How many times faster the demo runs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pace(f64);

impl Pace {
    /// Converts seconds of the demo to real time.
    fn of(self, seconds: f64) -> Duration {
        Duration::try_from_secs_f64(self.seconds(seconds)).unwrap_or_default()
    }

    fn seconds(self, seconds: f64) -> f64 {
        seconds / self.0
    }

    /// The speed as a whole number, at least 1.
    fn times(self) -> u32 {
        // Speeds are at most 1,000, and `as` saturates.
        self.0.max(1.0) as u32
    }

    /// Converts a rate per second of the demo to real time.
    fn rate(self, per_second: f64) -> f64 {
        per_second * self.0
    }
}

/// Runs the demo and prints it to standard output.
///
/// SIGINT and SIGTERM end it at once. Before the summary that is a failure, because nothing has been
/// checked yet. After the summary, when only `--keep-running` keeps the API server up, the exit code
/// is the summary's.
///
/// The exit code is 1 if an invariant is violated, an object is still held at the end, or the demo was
/// interrupted before the checks.
pub async fn run(arguments: &Demo) -> anyhow::Result<ExitCode> {
    let output = Output::on_stdout();
    let interrupted = interrupted()?;
    tokio::pin!(interrupted);
    let shown = tokio::select! {
        biased;
        () = &mut interrupted => None,
        shown = show(arguments, &output) => Some(shown?),
    };
    let Some((mut world, summary)) = shown else {
        output.finish();
        output.line("Interrupted before the invariants were checked.");
        return Ok(ExitCode::FAILURE);
    };
    if arguments.keep_running {
        output.line("");
        output.line(
            "The cluster keeps running until Ctrl-C. In another terminal: kubectl get pods,pvc,wf,podrec -A",
        );
        interrupted.await;
    }
    world.end().await?;
    Ok(if summary.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs all chapters and the summary.
async fn show(arguments: &Demo, output: &Output) -> anyhow::Result<(World, Summary)> {
    let begun = Instant::now();
    let mut world = World::build(arguments).await?;
    output.line(&format!(
        "export KUBECONFIG={}",
        world.kubeconfig().display()
    ));
    output.line(&format!(
        "# API server in this process: {}. No other cluster is used.",
        world.url()
    ));
    output.begin(&world, chapters::CHAPTERS);
    // A failed chapter is reported with the checks.
    let trouble = chapters::run(&mut world, output).await.err();
    let summary = summary::summarise(&world, output, trouble, begun).await;
    output.finish();
    summary.print(output);
    Ok((world, summary))
}

/// Waits for SIGINT or SIGTERM.
fn interrupted() -> std::io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
