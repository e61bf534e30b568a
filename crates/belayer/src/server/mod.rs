//! The endpoints: `/livez`, `/readyz` and `/metrics` on one address, `/debug/holds` on another,
//! since it names pods.

mod bind;
mod routes;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use belayer_core::ticks::Ticks;
use belayer_metrics::Exporter;
use tokio_util::sync::CancellationToken;

pub use bind::{BindAddress, BindError, Endpoint, ParseBindAddressError};
pub use routes::{debug_routes, public_routes};

/// How the process is. Asked on every probe, so answered from memory.
pub trait Health: Send + Sync + 'static {
    /// What is not ready yet, by name, such as `informer pods`. Ready is nothing.
    fn not_ready(&self) -> Vec<String>;

    /// What has been stuck for so long that only a restart helps, by name. Alive is nothing.
    fn wedged(&self) -> Vec<String>;
}

/// What is held, for `/debug/holds`.
pub trait Holds: Send + Sync + 'static {
    /// All holds, as JSON. May take a while: it runs on a thread of its own.
    fn holds(&self) -> serde_json::Value;
}

impl<F: Fn() -> serde_json::Value + Send + Sync + 'static> Holds for F {
    fn holds(&self) -> serde_json::Value {
        self()
    }
}

/// How long open connections may take to finish once the endpoint is told to stop.
const STOP_WITHIN: Duration = Duration::from_secs(2);

/// How often observations of histograms are folded into their buckets.
const UPKEEP: Duration = Duration::from_secs(5);

/// Serves `routes` until it is told to stop, and a moment longer where a request is under way.
pub async fn serve(endpoint: Endpoint, routes: Router, stop: CancellationToken) {
    let stopped = stop.clone().cancelled_owned();
    let serving = axum::serve(endpoint.into_listener(), routes).with_graceful_shutdown(stopped);
    let too_late = async {
        stop.cancelled().await;
        tokio::time::sleep(STOP_WITHIN).await;
    };
    tokio::select! {
        served = serving.into_future() => {
            if let Err(error) = served {
                tracing::error!(%error, "an endpoint has stopped serving");
            }
        }
        () = too_late => tracing::debug!("an endpoint was closed with connections open"),
    }
}

/// Keeps the exporter's memory small until it is told to stop.
pub async fn upkeep(exporter: Arc<Exporter>, stop: CancellationToken) {
    let mut ticks = Ticks::every(UPKEEP, stop);
    while ticks.next().await.is_some() {
        exporter.upkeep();
    }
}

#[cfg(test)]
mod tests;
