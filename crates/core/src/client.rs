//! The API client that all components share: without kube's retry layer, with Belayer's user agent
//! and metrics.
//!
//! kube's default client repeats a request up to fifteen times on 429, 503 and 504. That hides the
//! server's `Retry-After` from the workqueue, which does the backoff here, and occupies a worker
//! for minutes. So the retry layer is off.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use belayer_metrics::{bound_code, bound_method};
use http::{HeaderValue, Request, Response, header};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// User agent of every request. Servers use it as the default field manager.
pub const USER_AGENT: &str = concat!("belayer/", env!("CARGO_PKG_VERSION"));

/// Builds the client from a configuration.
///
/// # Errors
///
/// If the configuration cannot be used, for example because a certificate does not parse.
pub fn connect(mut config: Config) -> Result<Client, kube::Error> {
    config.default_retry = false;
    Ok(ClientBuilder::try_from(config)?
        .with_layer(&Observe)
        .build())
}

/// Wraps an HTTP service, such as an embedded API server, into the same client.
pub fn in_process<S, B>(service: S) -> Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    ClientBuilder::new(service, "default")
        .with_layer(&Observe)
        .build()
}

/// A tower layer that counts every request under client-go's names.
#[derive(Debug, Clone, Copy)]
pub struct Observe;

impl<S> Layer<S> for Observe {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Observed { inner }
    }
}

/// The service that [`Observe`] creates.
#[derive(Debug, Clone)]
pub struct Observed<S> {
    inner: S,
}

type Answering<R, E> = Pin<Box<dyn Future<Output = Result<R, E>> + Send>>;

impl<S, R, B> Service<Request<B>> for Observed<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Answering<S::Response, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request
            .headers_mut()
            .insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        let method = bound_method(request.method().as_str());
        let answer = self.inner.call(request);
        let begun = Instant::now();
        let counted = async move {
            let answer = answer.await;
            let code = match &answer {
                Ok(response) => bound_code(Some(response.status().as_u16())),
                Err(_) => bound_code(None),
            };
            metrics::counter!(belayer_metrics::REST_REQUESTS, "code" => code, "method" => method)
                .increment(1);
            metrics::histogram!(belayer_metrics::REST_REQUEST_DURATION, "verb" => method)
                .record(begun.elapsed().as_secs_f64());
            answer
        };
        Box::pin(counted)
    }
}
