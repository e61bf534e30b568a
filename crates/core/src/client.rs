//! The API client that all components share: without kube's retry layer, with a user agent and
//! client-go's metrics.
//!
//! kube's default client repeats a request up to fifteen times on 429, 503 and 504. That hides the
//! server's `Retry-After` from the workqueue, which does the backoff here, and occupies a worker
//! for minutes. So the retry layer is off.
//!
//! A client has at most [`CONNECTIONS`] requests in flight: over HTTP/1.1 each takes a connection,
//! and a slow server would otherwise get thousands (rule L10). Watches and other
//! [streams](crate::http::Request::open) do not count, since they stay open: any number of informers
//! may share the client. Of requests that kube sends by itself, these are those with `watch` or `follow` in the query. The Lease uses a client without the limit, [`connect_apart`], so that a renewal never waits.
//!
//! ```no_run
//! use belayer_core::{Request, client};
//!
//! # async fn version() -> Result<(), Box<dyn std::error::Error>> {
//! let client = client::connect(kube::Config::infer().await?, "my-controller/1.0")?;
//! let answer = Request::get("/version").send(&client).await?;
//! println!("{}", String::from_utf8_lossy(&answer.body));
//! # Ok(())
//! # }
//! ```

mod token_file;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use belayer_metrics::{bound_code, bound_method};
use http::{HeaderValue, Request, Response, header};
use http_body_util::BodyExt as _;
use http_body_util::combinators::MapFrame;
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use token_file::TokenFile;

/// The highest number of requests of a client in flight, including their responses; streams do not count.
pub const CONNECTIONS: usize = 64;

/// How many of them only releases may use.
const FOR_RELEASES: usize = 16;

/// Builds the client from a configuration, with at most [`CONNECTIONS`] requests in flight.
/// `user_agent`, such as `my-controller/1.2.0`, is sent with every request; servers use the part
/// before the slash as the default field manager.
///
/// ```no_run
/// # async fn client() -> Result<kube::Client, Box<dyn std::error::Error>> {
/// use belayer_core::client;
///
/// let agent = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));
/// let client = client::connect(kube::Config::infer().await?, agent)?;
/// # Ok(client)
/// # }
/// ```
///
/// # Errors
///
/// If the configuration cannot be used, for example because a certificate does not parse.
pub fn connect(mut config: Config, user_agent: &str) -> Result<Client, kube::Error> {
    config.default_retry = false;
    let token = TokenFile::take(&mut config.auth_info)?;
    Ok(ClientBuilder::try_from(config)?
        .with_layer(&Observe::new(user_agent, token))
        .with_layer(&Connections::default())
        .build())
}

/// The same without a limit of the requests in flight, with other connections: for requests that must not wait, such as
/// those for the Lease.
///
/// # Errors
///
/// As [`connect`].
pub fn connect_apart(mut config: Config, user_agent: &str) -> Result<Client, kube::Error> {
    config.default_retry = false;
    let token = TokenFile::take(&mut config.auth_info)?;
    Ok(ClientBuilder::try_from(config)?
        .with_layer(&Observe::new(user_agent, token))
        .build())
}

/// Wraps an HTTP service, such as an embedded API server, into the same client. The [module's
/// example](self) connects to a cluster instead.
pub fn in_process<S, B>(service: S, user_agent: &str) -> Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    ClientBuilder::new(service, "default")
        .with_layer(&Observe::new(user_agent, TokenFile::default()))
        .build()
}

/// How a request gets a connection; an extension of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// A release: it also uses the connections that are kept for releases.
    Release,
    /// A watch, or another response that may stay open: it does not count.
    Stream,
    /// Any other request.
    Other,
}

impl Urgency {
    /// That of a request which this crate did not build. As in the API server, a flag is set unless it is `false` or `0`.
    fn of_query(query: Option<&str>) -> Self {
        let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let is_stream = pairs.any(|(name, value)| {
            matches!(&*name, "watch" | "follow") && !matches!(&*value, "false" | "0")
        });
        if is_stream { Self::Stream } else { Self::Other }
    }
}

/// A tower layer that limits the requests in flight.
#[derive(Debug, Clone)]
struct Connections {
    all: Arc<Semaphore>,
    others: Arc<Semaphore>,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(CONNECTIONS)),
            others: Arc::new(Semaphore::new(CONNECTIONS - FOR_RELEASES)),
        }
    }
}

impl<S> Layer<S> for Connections {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Limited {
            inner,
            connections: self.clone(),
        }
    }
}

/// The service that [`Connections`] creates.
#[derive(Debug)]
struct Limited<S> {
    inner: S,
    connections: Connections,
}

/// A body that keeps a permit until it is dropped.
type Permitted<B> = MapFrame<
    B,
    Box<dyn FnMut(http_body::Frame<bytes::Bytes>) -> http_body::Frame<bytes::Bytes> + Send>,
>;

impl<S, R> Service<Request<Body>> for Limited<S>
where
    S: Service<Request<Body>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: http_body::Body<Data = bytes::Bytes> + Send + 'static,
{
    type Response = Response<Permitted<R>>;
    type Error = S::Error;
    type Future = Answering<Permitted<R>, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let urgency = request.extensions().get::<Urgency>().copied();
        let urgency = urgency.unwrap_or_else(|| Urgency::of_query(request.uri().query()));
        let Connections { all, others } = self.connections.clone();
        // Nothing is sent before this is polled.
        let answer = self.inner.call(request);
        Box::pin(async move {
            // The semaphores are never closed, so an error cannot happen; without a permit the
            // request would still be sent.
            let permit = match urgency {
                Urgency::Stream => (None, None),
                Urgency::Release => (None, all.acquire_owned().await.ok()),
                Urgency::Other => {
                    let other = others.acquire_owned().await.ok();
                    (other, all.acquire_owned().await.ok())
                }
            };
            let response = answer.await?;
            Ok(response.map(|body| {
                body.map_frame(Box::new(move |frame| {
                    let _until_dropped = &permit;
                    frame
                }) as Box<_>)
            }))
        })
    }
}

/// A tower layer that sets the user agent and the token of a file, and counts every request under client-go's names.
#[derive(Debug, Clone)]
struct Observe {
    /// `None` if the text cannot be a header.
    user_agent: Option<HeaderValue>,
    token: TokenFile,
}

impl Observe {
    fn new(user_agent: &str, token: TokenFile) -> Self {
        Self {
            token,
            user_agent: HeaderValue::from_str(user_agent).ok(),
        }
    }
}

impl<S> Layer<S> for Observe {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Observed {
            inner,
            observe: self.clone(),
        }
    }
}

/// The service that [`Observe`] creates.
#[derive(Debug, Clone)]
struct Observed<S> {
    inner: S,
    observe: Observe,
}

/// A request that was sent. It is counted when it is dropped, so also if its caller stops waiting for the response: after a
/// time-out, or when the leadership has ended. client-go counts both as `<error>`.
struct SentRequest {
    begun: Instant,
    method: &'static str,
    code: &'static str,
}

impl Drop for SentRequest {
    fn drop(&mut self) {
        let Self { code, method, .. } = *self;
        metrics::counter!(belayer_metrics::REST_REQUESTS, "code" => code, "method" => method)
            .increment(1);
        metrics::histogram!(belayer_metrics::REST_REQUEST_DURATION, "verb" => method)
            .record(self.begun.elapsed().as_secs_f64());
    }
}

type Answering<B, E> = Pin<Box<dyn Future<Output = Result<Response<B>, E>> + Send>>;

impl<S, R, B> Service<Request<B>> for Observed<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Answering<R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let headers = request.headers_mut();
        if let Some(agent) = &self.observe.user_agent {
            headers.insert(header::USER_AGENT, agent.clone());
        }
        if let Some(token) = self.observe.token.header() {
            headers.insert(header::AUTHORIZATION, token);
        }
        let method = bound_method(request.method().as_str());
        let answer = self.inner.call(request);
        let counted = async move {
            // Without the time in which the caller waits to send it.
            let mut sent = SentRequest {
                begun: Instant::now(),
                method,
                code: bound_code(None),
            };
            let answer = answer.await;
            if let Ok(response) = &answer {
                sent.code = bound_code(Some(response.status().as_u16()));
            }
            answer
        };
        Box::pin(counted)
    }
}

#[cfg(test)]
mod tests;
