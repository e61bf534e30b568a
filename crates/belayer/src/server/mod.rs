//! The endpoints: `/livez`, `/readyz` and `/metrics` on one address, `/debug/holds` on another, because it
//! names pods, and the probes alone on a third one.

mod authorization;
mod bind;
mod connections;
mod host;
mod routes;
mod secure;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use belayer_core::ticks::Ticks;
use belayer_metrics::Exporter;
use http::{StatusCode, header};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use self::connections::Connections;
pub use authorization::Authorization;
pub use bind::{BindAddress, BindError, Endpoint, ParseBindAddressError};
pub(crate) use host::only_this_host;
pub use routes::{debug_routes, probe_routes, public_routes};
pub use secure::{Protected, Protection, Public};
pub use tls::{CertificateError, CertificateFiles, Tls};

/// Health of the process. Called on every probe, so implementations must not block.
pub trait Health: Send + Sync + 'static {
    /// Names of the parts that are not ready, such as `informer pods`; empty if ready.
    fn not_ready(&self) -> Vec<String>;

    /// Names of the parts that need a restart; empty if alive.
    fn wedged(&self) -> Vec<String>;
}

/// Everything that is held, for `/debug/holds`.
pub trait Holds: Send + Sync + 'static {
    /// All holds as JSON. Called on a blocking thread.
    fn holds(&self) -> serde_json::Value;
}

impl<F: Fn() -> serde_json::Value + Send + Sync + 'static> Holds for F {
    fn holds(&self) -> serde_json::Value {
        self()
    }
}

/// Longest time for open connections after a stop.
const STOP_WITHIN: Duration = Duration::from_secs(2);

/// Interval at which observations of histograms are folded into buckets.
const UPKEEP: Duration = Duration::from_secs(5);

/// Pause after a connection could not be accepted because files or memory are exhausted.
const NOT_ACCEPTED: Duration = Duration::from_secs(1);

/// The same after a connection was closed in its place.
const CLOSED: Duration = Duration::from_millis(50);

/// Exhaustion is reported again after this time.
const REPORT_AGAIN: Duration = Duration::from_secs(600);

/// Reports that connections cannot be accepted, so that the log shows why probes fail.
#[derive(Debug, Default)]
struct Exhaustion {
    reported: Option<Instant>,
}

impl Exhaustion {
    fn report(&mut self, address: SocketAddr, error: &std::io::Error) {
        if self.reported.is_some_and(|at| at.elapsed() < REPORT_AGAIN) {
            return;
        }
        self.reported = Some(Instant::now());
        let (separator, advice) = if bind::has_too_many_files(error) {
            ("; ", bind::RAISE_LIMIT)
        } else {
            ("", "")
        };
        tracing::warn!("cannot accept connections at {address}: {error}{separator}{advice}");
    }
}

/// Serves `routes` until `stop`, and completes requests in flight.
pub async fn serve(endpoint: Endpoint, routes: Router, stop: CancellationToken) {
    let address = endpoint.address();
    let (listener, tls) = endpoint.into_parts();
    let mut connections = Connections::default();
    let mut exhaustion = Exhaustion::default();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let tls = tls.as_ref().map(|tls| Arc::clone(&tls.borrow()));
                connections.serve(stream, peer.ip(), routes.clone(), tls);
            }
            Err(error) => {
                tracing::debug!(%error, "could not accept a connection");
                if is_exhausted(&error) {
                    exhaustion.report(address, &error);
                    let pause = if connections.close_oldest(|_| true) {
                        CLOSED
                    } else {
                        NOT_ACCEPTED
                    };
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
    drop(listener);
    if timeout(STOP_WITHIN, connections.complete()).await.is_err() {
        tracing::debug!("closed an endpoint with open connections");
    }
}

/// Whether the next connection would fail as well: too many open files, or no memory. Any other error, such as a client
/// that is gone already, concerns one connection only.
fn is_exhausted(error: &std::io::Error) -> bool {
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    bind::has_too_many_files(error) || matches!(error.raw_os_error(), Some(ENOMEM | ENFILE))
}

fn text(status: StatusCode, body: String) -> Response {
    (
        status,
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
        body,
    )
        .into_response()
}

/// Bounds the exporter's memory until `stop`.
pub async fn upkeep(exporter: Arc<Exporter>, stop: CancellationToken) {
    let mut ticks = Ticks::every(UPKEEP, stop);
    while ticks.next().await.is_some() {
        exporter.upkeep();
    }
}

#[cfg(test)]
mod tests;
