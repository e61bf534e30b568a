//! An API server that has nothing but pods, and those only once asked for: so that a million of them
//! take no memory beside the store that is measured.

use std::convert::Infallible;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;

use belayer_core::client;
use belayer_core::slim::protobuf::PROTOBUF;

use super::Pods;

type Chunks = BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

/// A client of a server with `count` pods. It lists them in pages; its watch is silent.
pub(super) fn client_of(pods: Pods, count: usize) -> Client {
    client_that_watches(pods, count, 0, &["Running"])
}

/// The same, but its watch brings `events` about its pods in turn, whose phases alternate.
pub(super) fn client_that_watches(
    pods: Pods,
    count: usize,
    events: usize,
    phases: &'static [&'static str],
) -> Client {
    client::in_process(tower::service_fn(move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let body = if query.contains("watch=true") {
            watch(pods, count, events, phases)
        } else {
            page(pods, count, query)
        };
        std::future::ready(answer(body))
    }))
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

/// Stays open when all is said.
fn watch(pods: Pods, count: usize, events: usize, phases: &'static [&'static str]) -> Chunks {
    let frame = move |event: usize| {
        let phase = phases[event / count % phases.len()];
        let version = (count + 2 + event) as u64;
        let event = pods
            .in_phase(phase)
            .event("MODIFIED", event % count, version);
        let length = (event.len() as u32).to_be_bytes();
        Ok(Frame::data([&length[..], &event].concat().into()))
    };
    stream::iter(0..events)
        .map(frame)
        .chain(stream::pending())
        .boxed()
}
