//! `belayer demo`.

use crate::exit::Failure;
use crate::options::DemoOptions;

/// Runs the demo.
///
/// # Errors
/// If an invariant broke, or something is left held at the end.
#[allow(clippy::unused_async)]
pub async fn demo(options: DemoOptions) -> Result<(), Failure> {
    drop(options);
    Err(Failure::from(anyhow::anyhow!("the demo is not wired yet")))
}
