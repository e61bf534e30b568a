//! `belayer run`.

use crate::exit::Failure;
use crate::options::RunOptions;

/// Runs the controllers until it is told to stop.
///
/// # Errors
/// If they cannot be started.
#[allow(clippy::unused_async)]
pub async fn run(options: RunOptions) -> Result<(), Failure> {
    drop(options);
    Err(Failure::from(anyhow::anyhow!("the controllers are not wired yet")))
}
