//! A million distinct keys through the queue, added by 8 producers, taken and done by 8 consumers.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::task::coop::consume_budget;

use belayer_core::workqueue::{Priority, WorkQueue};

use super::measure::cpu_of;
use super::{Goal, Report, Testbed};
use belayer_e2e::control_plane::BuildError;
use belayer_e2e::peers::Peer;

const KEYS: usize = 1_000_000;
const PRODUCERS: usize = 8;
const CONSUMERS: usize = 8;

/// The cost of one run of a queue, as each program prints it.
#[derive(Debug, Serialize, Deserialize)]
struct Spent {
    queue: String,
    /// Seconds.
    wall: f64,
    /// CPU time in seconds.
    cpu: f64,
}

pub(crate) async fn run(testbed: Testbed) -> Result<Report> {
    let keys = testbed.size.unwrap_or(KEYS);
    let peer = Peer::Workqueue
        .find_or_build()
        .map_err(|error| match error {
            BuildError::Unavailable(why) => anyhow::anyhow!(why),
            BuildError::Failed(error) => error,
        })?;
    let own = std::env::current_exe()?;
    let title = format!("{keys} distinct keys, 8 producers, 8 consumers");
    let metrics = [("wall", "s"), ("CPU", "s"), ("CPU per key", "ns")];
    let mut report = Report::new("workqueue", title, &metrics);
    for round in 0..=testbed.rounds {
        let count = format!("--keys={keys}");
        for (program, arguments) in [
            (&*own, ["bench", "--queue-alone", &count]),
            (&*peer, ["-queue", "client-go", &count]),
            (&*peer, ["-queue", "controller-runtime", &count]),
        ] {
            let spent = spend(program, &arguments).await?;
            if round > 0 {
                let each = spent.cpu * 1e9 / keys as f64;
                report.round(&spent.queue, &[spent.wall, spent.cpu, each]);
            }
        }
    }
    for (against, at_most) in [("client-go", 1.0 / 3.0), ("controller-runtime", 1.0 / 12.0)] {
        report.goal(Goal {
            metric: "wall",
            of: "Belayer".to_owned(),
            against: against.to_owned(),
            at_most,
        });
    }
    Ok(report)
}

async fn spend(program: &Path, arguments: &[&str]) -> Result<Spent> {
    let output = Command::new(program)
        .args(arguments)
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("start {}", program.display()))?;
    ensure!(
        output.status.success(),
        "{} failed: {}",
        program.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).context("parse the printed result")
}

/// Runs Belayer's queue in a separate process, as the peers; prints its cost.
pub(crate) async fn alone(count: usize) -> Result<()> {
    let _exporter = belayer_metrics::Exporter::install()?;
    let queue: WorkQueue<Arc<str>> = WorkQueue::new("bench");
    let mut keys = vec![Vec::new(); PRODUCERS];
    for number in 0..count {
        let key: Arc<str> = format!("namespace-{}/pod-{number}", number % 100).into();
        keys[number % PRODUCERS].push(key);
    }
    let pid = std::process::id();
    let (started, used) = (Instant::now(), cpu_of(pid)?);
    let mut consumers = JoinSet::new();
    for _ in 0..CONSUMERS {
        let queue = queue.clone();
        consumers.spawn(async move {
            let mut taken = 0_usize;
            while let Some(item) = queue.next().await {
                item.succeeded();
                taken += 1;
            }
            taken
        });
    }
    let mut producers = JoinSet::new();
    for mine in keys {
        let queue = queue.clone();
        // A task, like a watch in production and the goroutines of the peers: it yields now and then, as it
        // would by waiting for the next event.
        producers.spawn(async move {
            for (number, key) in mine.into_iter().enumerate() {
                queue.add(key, Priority::ALL[number % Priority::ALL.len()]);
                consume_budget().await;
            }
        });
    }
    while let Some(done) = producers.join_next().await {
        done?;
    }
    queue.shutdown_with_drain().await;
    let mut taken = 0;
    while let Some(one) = consumers.join_next().await {
        taken += one?;
    }
    let spent = Spent {
        queue: "Belayer".to_owned(),
        wall: started.elapsed().as_secs_f64(),
        cpu: cpu_of(pid)?.saturating_sub(used).as_secs_f64(),
    };
    ensure!(taken == count, "took {taken} keys of {count}");
    anstream::println!("{}", serde_json::to_string(&spent)?);
    Ok(())
}
