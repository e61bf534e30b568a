//! The status as a page that updates itself, for `belayer status --serve` and the debug address of `belayer run`.
//! Read-only.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use belayer_inspect::reader::Reader;
use belayer_inspect::status::{Page, Query, page};
use futures::stream::{self, Stream};
use http::{StatusCode, header};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::exit::Failure;
use crate::server::{BindAddress, Endpoint, only_this_host, serve};
use crate::signals;

/// Interval of the reads while someone looks.
const EVERY: Duration = Duration::from_secs(2);

/// How many held objects the page lists.
pub(super) const OBJECTS: usize = 10_000;

/// The page, without any external resource.
const HTML: &str = include_str!("serve/page.html");

/// What the page shows, or why the cluster could not be read, as JSON.
type Latest = Arc<str>;

/// Serves the page until SIGTERM or Ctrl-C.
///
/// # Errors
///
/// If the address cannot be bound.
pub(super) async fn run(
    reader: Reader,
    query: Query,
    address: &BindAddress,
) -> Result<(), Failure> {
    let endpoint = Endpoint::bind(address, "--serve").await;
    let Some(endpoint) = endpoint.map_err(Failure::configuration)? else {
        return Err(Failure::configuration(anyhow::anyhow!(
            "--serve needs an address (example: 127.0.0.1:8082)"
        )));
    };
    let bound = endpoint.address();
    let ended = signals::next_end()?;
    anstream::eprintln!("The status page is at http://{bound}/ (Ctrl-C ends it)");
    let stop = CancellationToken::new();
    let (routes, reads) = status_page(bound, reader, move || query.clone());
    let served = tokio::spawn(serve(endpoint, routes, stop.clone()));
    tokio::select! {
        _ = ended => {}
        () = reads => {}
    }
    stop.cancel();
    let _ = served.await;
    Ok(())
}

/// The routes of the page at the address `bound`, and the reads for its viewers.
pub(crate) fn status_page(
    bound: SocketAddr,
    reader: Reader,
    query: impl Fn() -> Query,
) -> (Router, impl Future<Output = ()>) {
    let (latest, _) = watch::channel(Latest::from("{}"));
    let routes = only_this_host(routes(latest.clone()), bound);
    (routes, read_for_viewers(reader, query, latest))
}

/// The page and its data.
fn routes(latest: watch::Sender<Latest>) -> Router {
    Router::new()
        .route("/", get(html))
        .route("/status.json", get(once))
        .route("/status.events", get(updates))
        .with_state(latest)
}

/// Reads the cluster every [`EVERY`] while anyone waits for data.
async fn read_for_viewers(
    reader: Reader,
    query: impl Fn() -> Query,
    latest: watch::Sender<Latest>,
) {
    loop {
        if latest.receiver_count() > 0 {
            let read = page(&reader, &query(), Timestamp::now).await;
            latest.send_replace(as_json(&read));
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn as_json<E: std::fmt::Display>(read: &Result<Page, E>) -> Latest {
    let text = match read {
        Ok(page) => serde_json::to_string(page),
        Err(error) => serde_json::to_string(&serde_json::json!({ "error": error.to_string() })),
    };
    text.unwrap_or_else(|_| "{}".to_owned()).into()
}

async fn html() -> Response {
    const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                          connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, HTML).into_response()
}

/// The next state that is read.
async fn once(State(latest): State<watch::Sender<Latest>>) -> Response {
    let mut latest = latest.subscribe();
    if latest.changed().await.is_err() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let body = latest.borrow().to_string();
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Time after which a stream ends at the end of an event. The browser opens the next one by itself; the server would
/// cut a connection that lasts longer.
const STREAM: Duration = Duration::from_secs(20);

/// Every state that is read, as server-sent events.
async fn updates(
    State(latest): State<watch::Sender<Latest>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let begin = (latest.subscribe(), Instant::now() + STREAM);
    Sse::new(stream::unfold(begin, async |(mut latest, end)| {
        timeout_at(end, latest.changed()).await.ok()?.ok()?;
        let data = latest.borrow_and_update().to_string();
        let event = Event::default().data(data).retry(Duration::from_secs(1));
        Some((Ok(event), (latest, end)))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing() {
        for part in ["http:", "https:", "//cdn", "src=", "@import", "url("] {
            assert!(!HTML.contains(part), "{part}");
        }
    }
}
