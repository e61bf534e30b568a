//! pod-recreation: a node rejects pods that were bound to it. Each is re-created once.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::objects::{self, LAB, SMALL};
use crate::output::Output;
use crate::report::span;
use crate::tracked::{Existence, Hold, Pod};
use crate::world::World;

/// Bound to a node that has room for two of them.
const TRAINING: [&str; 4] = ["train-0", "train-1", "train-2", "train-3"];
/// The node for the re-created pods.
const ROOMY: &str = "node-1";

pub(super) async fn run(world: &World, output: &Output) -> Result<()> {
    output.chapter("A node rejects pods that were bound to it");
    for name in TRAINING {
        world.create_pod(LAB, objects::training(name))?;
    }
    let held = |pod: &Pod| is_training(pod) && pod.object.hold == Hold::On;
    world
        .until("they have holds", |world| {
            world.state.count(held) == TRAINING.len()
        })
        .await?;
    let first = world.state.pods(is_training);
    for pod in &first {
        world.bind(pod, SMALL)?;
    }
    let rejected = |pod: &Pod| is_training(pod) && pod.rejected.is_some();
    world
        .until("all have started or are rejected", |world| {
            let decided =
                |pod: &Pod| is_training(pod) && (pod.started.is_some() || pod.rejected.is_some());
            world.state.count(decided) >= TRAINING.len()
        })
        .await?;
    let turned_away = world.state.pods(rejected);
    let (message, when) = turned_away
        .iter()
        .filter_map(|pod| pod.rejected.clone())
        .min_by_key(|(_, when)| *when)
        .context("the node accepted all pods")?;
    output.say(&format!(
        "Two schedulers fill {SMALL}. It accepts {} of {} bare training pods and rejects the others:",
        TRAINING.len() - turned_away.len(),
        TRAINING.len(),
    ));
    output.detail(&format!("\"{message}\""));
    come_back(world, output, turned_away.len(), when).await
}

/// The rejected pods are re-created under their names and start on another node.
async fn come_back(
    world: &World,
    output: &Output,
    expected: usize,
    rejected: Instant,
) -> Result<()> {
    let back = |pod: &Pod| {
        is_training(pod)
            && pod.object.now == Existence::Exists
            && pod.rejected.is_none()
            && pod.started.is_none()
    };
    world
        .until("they are re-created", |world| {
            world.state.count(back) == expected
        })
        .await?;
    let after = span(rejected.elapsed());
    for pod in world.state.pods(back) {
        world.bind(&pod, ROOMY)?;
    }
    let runs =
        |pod: &Pod| is_training(pod) && pod.started.is_some() && pod.object.hold == Hold::Off;
    world
        .until("all of them have started without a hold", |world| {
            world.state.count(runs) == TRAINING.len()
        })
        .await?;
    output.result(&format!(
        "{expected} are re-created under their names after {after} and start on {ROOMY}"
    ));
    let starts = world
        .state
        .count(|pod| is_training(pod) && pod.started.is_some());
    output.say(&format!(
        "{starts} of {} training pods have started, each exactly once.",
        TRAINING.len()
    ));
    Ok(())
}

fn is_training(pod: &Pod) -> bool {
    pod.object.namespace == LAB && TRAINING.contains(&pod.object.name.as_str())
}
