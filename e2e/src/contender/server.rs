//! An API server that has nothing but pods, and those only once asked for: so that a million of them
//! take no memory beside the store that is measured.

use std::convert::Infallible;

use http_body_util::Full;
use kube::Client;
use kube::client::Body;

use belayer_core::client;
use belayer_core::slim::protobuf::PROTOBUF;

use super::Pods;

/// A client of a server with `count` pods. It lists them in pages; a watch is never answered.
pub(super) fn client_of(pods: Pods, count: usize) -> Client {
    client::in_process(tower::service_fn(move |request: http::Request<Body>| {
        answer(pods, count, request)
    }))
}

async fn answer(
    pods: Pods,
    count: usize,
    request: http::Request<Body>,
) -> Result<http::Response<Full<bytes::Bytes>>, Infallible> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let parameter = |name: &str| -> Option<usize> {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.into_iter().find(|(have, _)| *have == name)?.1;
        value.parse().ok()
    };
    if query.contains("watch=true") {
        return std::future::pending().await;
    }
    let first = parameter("continue").unwrap_or(0);
    let end = count.min(first + parameter("limit").unwrap_or(count));
    let more = (end < count).then_some(end);
    let page = pods.page(first..end, count as u64 + 1, more);
    let mut response = http::Response::new(Full::new(page.into()));
    let protobuf = http::HeaderValue::from_static(PROTOBUF);
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, protobuf);
    Ok(response)
}
