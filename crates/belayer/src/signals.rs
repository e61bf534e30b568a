//! Handling of SIGTERM and SIGINT.

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that either signal cancels.
///
/// # Errors
/// If no signal handler can be installed.
pub(crate) fn stop() -> anyhow::Result<CancellationToken> {
    let mut term = signal(SignalKind::terminate()).context("signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals")?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => tracing::info!("received SIGTERM"),
            _ = interrupt.recv() => tracing::info!("received SIGINT"),
        }
        token.cancel();
    });
    Ok(stop)
}
