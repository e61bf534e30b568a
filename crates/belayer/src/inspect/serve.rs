//! The status as a page that updates itself, for `belayer status --serve` and the debug address of `belayer run`.
//! Read-only.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use belayer_inspect::reader::Reader;
use belayer_inspect::status::{Page, Query, page};
use futures::stream::{self, Stream};
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::exit::Failure;
use crate::server::{BindAddress, Endpoint, serve};

/// Interval of the reads while someone looks.
const EVERY: Duration = Duration::from_secs(2);

/// How many held objects the page lists.
pub(super) const OBJECTS: usize = 10_000;

/// The page, without any external resource.
const HTML: &str = include_str!("serve/page.html");

/// What the page shows, or why the cluster could not be read, as JSON.
type Latest = Arc<str>;

/// Serves the page until Ctrl-C.
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
    anstream::eprintln!("The status page is at http://{bound}/ (Ctrl-C ends it)");
    let stop = CancellationToken::new();
    let (routes, reads) = status_page(bound, reader, move || query.clone());
    let served = tokio::spawn(serve(endpoint, routes, stop.clone()));
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
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
    let routes = routes(latest.clone(), bound);
    (routes, read_for_viewers(reader, query, latest))
}

/// The page and its data. `bound` is the address that serves them.
fn routes(latest: watch::Sender<Latest>, bound: SocketAddr) -> Router {
    Router::new()
        .route("/", get(html))
        .route("/status.json", get(once))
        .route("/status.events", get(updates))
        .layer(from_fn_with_state(bound, only_this_host))
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

/// Rejects requests that name another host: a page of another site must not read the status by a name that it
/// resolves to this address (DNS rebinding).
async fn only_this_host(State(bound): State<SocketAddr>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    if host.is_some_and(|host| is_this_host(host, bound.ip())) {
        return next.run(request).await;
    }
    let text = "the Host header must be the address of the status page or localhost\n";
    (StatusCode::FORBIDDEN, text).into_response()
}

fn is_this_host(host: &HeaderValue, bound: IpAddr) -> bool {
    let Some(authority) = host.to_str().ok().and_then(|host| host.parse().ok()) else {
        return false;
    };
    let authority: http::uri::Authority = authority;
    let name = authority.host().trim_matches(['[', ']']);
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let address: Option<IpAddr> = name.parse().ok();
    address.is_some_and(|ip| ip.is_loopback() || ip == bound)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("localhost", true)]
    #[case("LOCALHOST:8082", true)]
    #[case("127.0.0.1:8082", true)]
    #[case("127.1.2.3", true)]
    #[case("[::1]:8082", true)]
    #[case("10.0.0.7:8082", true)]
    #[case("10.0.0.8:8082", false)]
    #[case("localhost.example.com", false)]
    #[case("127.0.0.1.example.com:8082", false)]
    #[case("rebound.example.com:8082", false)]
    #[case("", false)]
    fn only_the_address_itself_is_a_host(#[case] host: &'static str, #[case] accepted: bool) {
        let bound = IpAddr::from([10, 0, 0, 7]);
        assert_eq!(
            is_this_host(&HeaderValue::from_static(host), bound),
            accepted
        );
    }

    #[test]
    fn the_page_loads_nothing() {
        for part in ["http:", "https:", "//cdn", "src=", "@import", "url("] {
            assert!(!HTML.contains(part), "{part}");
        }
    }
}
