//! An API server that has only pods and creates them per request, so that a million of them take no
//! memory in addition to the measured store.

use std::convert::Infallible;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;

use belayer_core::client;
use belayer_core::slim::protobuf::PROTOBUF;

use super::Pods;

type Chunks = BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

/// A client of a server with `count` pods. It lists them in pages; its watch has no events.
pub(super) fn client_of(pods: Pods, count: usize) -> Client {
    client_that_watches(pods, count, stream::pending)
}

/// The same, but its watch sends these frames, which must never end.
pub(super) fn client_that_watches<F, S>(pods: Pods, count: usize, frames: F) -> Client
where
    F: Fn() -> S + Clone + Send + 'static,
    S: Stream<Item = Bytes> + Send + 'static,
{
    client::in_process(
        tower::service_fn(move |request: http::Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let body = if query.contains("watch=true") {
                frames().map(|frame| Ok(Frame::data(frame))).boxed()
            } else {
                page(pods, count, query)
            };
            std::future::ready(answer(body))
        }),
        belayer_holds::names::USER_AGENT,
    )
}

fn answer(body: Chunks) -> Result<http::Response<StreamBody<Chunks>>, Infallible> {
    let mut response = http::Response::new(StreamBody::new(body));
    let protobuf = http::HeaderValue::from_static(PROTOBUF);
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, protobuf);
    Ok(response)
}

fn page(pods: Pods, count: usize, query: &str) -> Chunks {
    let parameter = |name: &str| -> Option<usize> {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(have, _)| *have == name)?.1.parse().ok()
    };
    let first = parameter("continue").unwrap_or(0);
    let end = count.min(first + parameter("limit").unwrap_or(count));
    let more = (end < count).then_some(end);
    let page = pods.page(first..end, count as u64 + 1, more);
    stream::iter([Ok(Frame::data(page.into()))]).boxed()
}
