//! SIGTERM and SIGINT.

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that either of them cancels.
///
/// # Errors
/// If they cannot be listened to.
pub(crate) fn stop() -> anyhow::Result<CancellationToken> {
    let mut term = signal(SignalKind::terminate()).context("signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals")?;
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => tracing::info!("SIGTERM"),
            _ = interrupt.recv() => tracing::info!("SIGINT"),
        }
        told.cancel();
    });
    Ok(stop)
}
