use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use belayer_metrics::Exporter;
use http::{StatusCode, header};
use tokio::sync::Mutex;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use super::{Authorization, Health, Holds, only_this_host, text};

/// `/livez` and `/readyz`.
pub fn probe_routes(health: Arc<dyn Health>) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(health)
}

/// `/livez`, `/readyz`, and `/metrics`, which `authorization` can limit.
pub fn public_routes(
    health: Arc<dyn Health>,
    exporter: Arc<Exporter>,
    authorization: Option<Authorization>,
) -> Router {
    let rendered = Rendered::new(move || exporter.render());
    let mut routes = Router::new().route("/metrics", get(metrics));
    if let Some(authorization) = authorization {
        routes = Arc::new(authorization).protect(routes);
    }
    routes
        .with_state(Arc::new(rendered))
        .merge(probe_routes(health))
}

/// `/debug/holds` at the address `bound`, for requests that name it.
pub fn debug_routes(bound: SocketAddr, holds: Arc<dyn Holds>) -> Router {
    let routes = Router::new()
        .route("/debug/holds", get(debug_holds))
        .with_state(holds);
    only_this_host(routes, bound)
}

async fn livez(State(health): State<Arc<dyn Health>>) -> Response {
    probe(
        StatusCode::INTERNAL_SERVER_ERROR,
        "wedged",
        &health.wedged(),
    )
}

async fn readyz(State(health): State<Arc<dyn Health>>) -> Response {
    probe(
        StatusCode::SERVICE_UNAVAILABLE,
        "not ready",
        &health.not_ready(),
    )
}

/// `ok`, or one line per failing part.
fn probe(failing: StatusCode, what: &str, names: &[String]) -> Response {
    if names.is_empty() {
        return text(StatusCode::OK, "ok\n".to_owned());
    }
    text(
        failing,
        names
            .iter()
            .map(|name| format!("{what}: {name}\n"))
            .collect(),
    )
}

async fn metrics(State(rendered): State<Arc<Rendered>>) -> Response {
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    match rendered.get().await {
        Ok(body) => ([(header::CONTENT_TYPE, content_type)], body).into_response(),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

/// The shortest time from one rendering to the next.
const INTERVAL: Duration = Duration::from_millis(100);

/// A text that is rendered on a blocking thread, once for all requests that came before the rendering began (T5).
pub(super) struct Rendered {
    render: Arc<dyn Fn() -> String + Send + Sync>,
    /// When the last rendering began, and its result.
    last: Arc<Mutex<Option<(Instant, Bytes)>>>,
}

impl Rendered {
    pub(super) fn new(render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self {
            render: Arc::new(render),
            last: Arc::default(),
        }
    }

    pub(super) async fn get(&self) -> Result<Bytes, JoinError> {
        let arrived = Instant::now();
        let mut last = Arc::clone(&self.last).lock_owned().await;
        let mut next = arrived;
        if let Some((began, body)) = &*last {
            if *began >= arrived {
                return Ok(body.clone());
            }
            next = *began + INTERVAL;
        }
        let render = Arc::clone(&self.render);
        // A separate task holds the lock until the rendering has ended: a client that hangs up drops only this future, and the
        // next request must not start a second rendering beside the first.
        let rendering = async move {
            sleep_until(next).await;
            let began = Instant::now();
            let body = Bytes::from(spawn_blocking(move || render()).await?);
            *last = Some((began, body.clone()));
            Ok::<_, JoinError>(body)
        };
        tokio::spawn(rendering).await?
    }
}

async fn debug_holds(State(holds): State<Arc<dyn Holds>>) -> Response {
    let gathered = spawn_blocking(move || {
        let mut text = serde_json::to_string_pretty(&holds.holds()).unwrap_or_default();
        text.push('\n');
        text
    });
    match gathered.await {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}
