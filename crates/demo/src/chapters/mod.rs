//! The story, chapter by chapter. Each is a file of its own, and none knows another.

mod appear;
mod claim;
mod consumer;
mod crash;
mod deleted;
mod hurry;
mod rejected;
mod update;

use anyhow::{Context, Result};

use super::neighbour::Mood;
use super::telling::Telling;
use super::world::World;

/// How many chapters there are.
pub(super) const CHAPTERS: usize = 9;

/// Tells all of it.
///
/// # Errors
/// If something does not come about that the story needs.
pub(super) async fn tell(world: &mut World, telling: &Telling) -> Result<()> {
    let first = appear::tell(world, telling).await.context("chapter 1")?;
    consumer::tell(world, telling, &first)
        .await
        .context("chapter 2")?;
    claim::deleted(world, telling).await.context("chapter 3")?;
    rejected::tell(world, telling).await.context("chapter 4")?;
    claim::released(world, telling).await.context("chapter 5")?;
    deleted::tell(world, telling).await.context("chapter 6")?;
    crash::tell(world, telling).await.context("chapter 7")?;
    update::tell(world, telling).await.context("chapter 8")?;
    hurry::tell(world, telling).await.context("chapter 9")?;
    world.neighbour.be(Mood::LettingGo);
    Ok(())
}
