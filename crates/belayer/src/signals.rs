//! Handling of SIGTERM, SIGINT and SIGHUP.

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that SIGTERM or SIGINT cancels. From now on SIGHUP does not end the process.
///
/// # Errors
/// If no signal handler can be installed.
pub(crate) fn stop() -> anyhow::Result<CancellationToken> {
    let mut term = signal(SignalKind::terminate()).context("signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals")?;
    // The handler stays for the life of the process.
    drop(signal(SignalKind::hangup()).context("signals")?);
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

/// Logs each SIGHUP, for a process that does not reload its configuration.
///
/// # Errors
/// If no signal handler can be installed.
pub(crate) fn report_ignored_hangups(why: &'static str) -> anyhow::Result<()> {
    let mut hangup = signal(SignalKind::hangup()).context("signals")?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            tracing::warn!("ignoring SIGHUP: {why}");
        }
    });
    Ok(())
}

/// What waits for the next SIGTERM or SIGINT, which from now on do not end the process. It returns the exit code with which a
/// shell reports a process that the signal ended.
///
/// # Errors
/// If no signal handler can be installed.
pub(crate) fn next_end() -> anyhow::Result<impl Future<Output = u8>> {
    let mut term = signal(SignalKind::terminate()).context("signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("signals")?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => 143,
            _ = interrupt.recv() => 130,
        }
    })
}
