//! The chapters of the demo. Each is a file of its own and independent of the others.

mod consumer;
mod crash;
mod create;
mod deleted;
mod forced;
mod pvc;
mod rejected;
mod update;

use anyhow::{Context, Result};

use super::other_operator::Mode;
use super::output::Output;
use super::world::World;

/// The number of chapters.
pub(super) const CHAPTERS: usize = 9;

/// Runs all chapters.
pub(super) async fn run(world: &mut World, output: &Output) -> Result<()> {
    let first = create::run(world, output).await.context("chapter 1")?;
    consumer::run(world, output, &first)
        .await
        .context("chapter 2")?;
    pvc::deleted(world, output).await.context("chapter 3")?;
    rejected::run(world, output).await.context("chapter 4")?;
    pvc::released(world, output).await.context("chapter 5")?;
    deleted::run(world, output).await.context("chapter 6")?;
    crash::run(world, output).await.context("chapter 7")?;
    update::run(world, output).await.context("chapter 8")?;
    forced::run(world, output).await.context("chapter 9")?;
    world.other_operator.set_mode(Mode::Releasing);
    Ok(())
}
