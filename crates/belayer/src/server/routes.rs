use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use belayer_metrics::Exporter;
use http::{StatusCode, header};

use super::{Health, Holds};

/// `/livez`, `/readyz` and `/metrics`.
pub fn public_routes(health: Arc<dyn Health>, exporter: Arc<Exporter>) -> Router {
    let probes = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(health);
    Router::new()
        .route("/metrics", get(metrics))
        .with_state(exporter)
        .merge(probes)
}

/// `/debug/holds`.
pub fn debug_routes(holds: Arc<dyn Holds>) -> Router {
    Router::new()
        .route("/debug/holds", get(debug_holds))
        .with_state(holds)
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

fn text(status: StatusCode, body: String) -> Response {
    (
        status,
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
        body,
    )
        .into_response()
}

async fn metrics(State(exporter): State<Arc<Exporter>>) -> Response {
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], exporter.render()).into_response()
}

async fn debug_holds(State(holds): State<Arc<dyn Holds>>) -> Response {
    let gathered = tokio::task::spawn_blocking(move || {
        let mut text = serde_json::to_string_pretty(&holds.holds()).unwrap_or_default();
        text.push('\n');
        text
    });
    match gathered.await {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}
