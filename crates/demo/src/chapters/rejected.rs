//! pod-recreation: a node refuses pods that a scheduler sent it. They come back, once.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::life::{Hold, Now, Pod};
use crate::objects::{self, LAB, SMALL};
use crate::report::span;
use crate::telling::Telling;
use crate::world::World;

/// Placed on a node that has room for two of them.
const TRAINING: [&str; 4] = ["train-0", "train-1", "train-2", "train-3"];
/// Where those that were rejected fit.
const ROOMY: &str = "node-1";

pub(super) async fn tell(world: &World, telling: &Telling) -> Result<()> {
    telling.chapter("A node rejects pods that were sent to it");
    for name in TRAINING {
        world.create_pod(LAB, objects::training(name))?;
    }
    let held = |pod: &Pod| is_training(pod) && pod.life.hold == Hold::On;
    world
        .until("they are held", |world| {
            world.chronicle.count(held) == TRAINING.len()
        })
        .await?;
    let first = world.chronicle.pods(is_training);
    for pod in &first {
        world.bind(pod, SMALL)?;
    }
    let rejected = |pod: &Pod| is_training(pod) && pod.rejected.is_some();
    world
        .until("all have started or are rejected", |world| {
            let decided =
                |pod: &Pod| is_training(pod) && (pod.started.is_some() || pod.rejected.is_some());
            world.chronicle.count(decided) >= TRAINING.len()
        })
        .await?;
    let turned_away = world.chronicle.pods(rejected);
    let (words, when) = turned_away
        .iter()
        .filter_map(|pod| pod.rejected.clone())
        .min_by_key(|(_, when)| *when)
        .context("the node had room for all")?;
    telling.say(&format!(
        "Two schedulers fill {SMALL}. It takes {} of {} bare training pods, and to the others says:",
        TRAINING.len() - turned_away.len(),
        TRAINING.len(),
    ));
    telling.aside(&format!("\"{words}\""));
    come_back(world, telling, turned_away.len(), when).await
}

/// The rejected ones come back under their names, and start elsewhere.
async fn come_back(
    world: &World,
    telling: &Telling,
    expected: usize,
    rejected: Instant,
) -> Result<()> {
    let back = |pod: &Pod| {
        is_training(pod)
            && pod.life.now == Now::There
            && pod.rejected.is_none()
            && pod.started.is_none()
    };
    world
        .until("they are back", |world| {
            world.chronicle.count(back) == expected
        })
        .await?;
    let after = span(rejected.elapsed());
    for pod in world.chronicle.pods(back) {
        world.bind(&pod, ROOMY)?;
    }
    let runs = |pod: &Pod| is_training(pod) && pod.started.is_some() && pod.life.hold == Hold::Off;
    world
        .until("all of them have started, and none is held", |world| {
            world.chronicle.count(runs) == TRAINING.len()
        })
        .await?;
    telling.result(&format!(
        "{expected} come back under their names after {after}, and start on {ROOMY}"
    ));
    let starts = world
        .chronicle
        .count(|pod| is_training(pod) && pod.started.is_some());
    telling.say(&format!(
        "{} pods were wanted, {starts} have started: each exactly once.",
        TRAINING.len()
    ));
    Ok(())
}

fn is_training(pod: &Pod) -> bool {
    pod.life.namespace == LAB && TRAINING.contains(&pod.life.name.as_str())
}
