#![doc = include_str!("../README.md")]

mod arguments;
mod chronicle;
mod controller;
mod life;
mod neighbour;
mod objects;
mod report;
mod story;
mod summary;
mod telling;
#[cfg(test)]
mod tests;
mod world;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

pub use arguments::Demo;

use summary::Summary;
use telling::Telling;
use world::World;

/// What the names of Belayer's finalizers and annotations begin with.
const OURS: &str = "belayer.dev/";
/// Who the second scheduler writes as.
const BATCH: &str = "batch-scheduler";
/// Who the other operator writes as.
const NEIGHBOUR: &str = "example-operator";

/// How much faster than usual time passes in the story.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pace(f64);

impl Pace {
    /// So many seconds of the story, in real time.
    fn of(self, seconds: f64) -> Duration {
        Duration::try_from_secs_f64(self.seconds(seconds)).unwrap_or_default()
    }

    fn seconds(self, seconds: f64) -> f64 {
        seconds / self.0
    }

    /// How many times faster, in whole numbers and not slower.
    fn times(self) -> u32 {
        // Speeds end at 1,000, and `as` saturates.
        self.0.max(1.0) as u32
    }

    /// So many a second of the story, in real time.
    fn rate(self, per_second: f64) -> f64 {
        per_second * self.0
    }
}

/// Runs the demo and tells it on standard output.
///
/// SIGINT and SIGTERM end it at once. While the story runs that is a failure: nothing has been
/// checked yet. Once the summary is printed and only `--keep-running` keeps the API server up,
/// the exit code is the summary's.
///
/// The exit code is 1 if an invariant broke or something is left held at the end, or if the demo was
/// interrupted before that could be known.
///
/// # Errors
/// If it could not be set up.
pub async fn run(arguments: &Demo) -> anyhow::Result<ExitCode> {
    let telling = Telling::on_stdout();
    let interrupted = interrupted()?;
    tokio::pin!(interrupted);
    let shown = tokio::select! {
        biased;
        () = &mut interrupted => None,
        shown = show(arguments, &telling) => Some(shown?),
    };
    let Some((mut world, summary)) = shown else {
        telling.finish();
        telling.line("Interrupted: nothing has been checked.");
        return Ok(ExitCode::FAILURE);
    };
    if arguments.keep_running {
        telling.line("");
        telling.line(
            "Everything goes on, until Ctrl-C. In another terminal: kubectl get pods,pvc,wf,podrec -A",
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

/// The story from the start to the summary.
async fn show(arguments: &Demo, telling: &Telling) -> anyhow::Result<(World, Summary)> {
    let begun = Instant::now();
    let mut world = World::build(arguments).await?;
    telling.line(&format!(
        "export KUBECONFIG={}",
        world.kubeconfig().display()
    ));
    telling.line(&format!(
        "# API server in this process: {}. Nothing else is touched.",
        world.url()
    ));
    telling.begin(&world, story::CHAPTERS);
    // What stands in the story's way is judged with the rest.
    let trouble = story::tell(&mut world, telling).await.err();
    let summary = summary::draw(&world, telling, trouble, begun).await;
    telling.finish();
    summary.tell(telling);
    Ok((world, summary))
}

/// Comes back when somebody wants the demo to end.
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
