//! T3: the memory that reading a workflow takes, by counting all allocated bytes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail by panic"
)]

use std::alloc::System;
use std::convert::Infallible;
use std::io::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belayer_core::executor::{Bounds, Executor, Writes};
use belayer_core::object::{ObjectKey, Uid};
use belayer_core::queries::read;
use belayer_holds::names::FIELD_MANAGER;
use belayer_pod_finalizer::profile::argo;
use belayer_pod_finalizer::status::{Asked, NodeRef, StatusQuery, StatusReader, StatusState};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use kube::Client;
use kube::client::Body;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const NODES: usize = 480_000;

/// A workflow with this many fulfilled nodes, compressed.
fn workflow() -> Bytes {
    let mut table = GzEncoder::new(Vec::new(), Compression::fast());
    for n in 0..NODES {
        let comma = if n == 0 { '{' } else { ',' };
        write!(
            table,
            r#"{comma}"w-{n}":{{"phase":"Failed","inputs":{{"x":["{n}"]}}}}"#
        )
        .unwrap();
    }
    table.write_all(b"}").unwrap();
    let packed = STANDARD.encode(table.finish().unwrap());
    let text = format!(
        r#"{{"metadata":{{"uid":"u-1","resourceVersion":"7"}},"status":{{"compressedNodes":"{packed}"}}}}"#
    );
    Bytes::from(text)
}

#[tokio::test]
async fn t3_reading_a_large_workflow_takes_little_memory() {
    let body = workflow();
    let size = body.len();
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let body = body.clone();
        async move { Ok::<_, Infallible>(http::Response::new(Full::new(body))) }
    });
    let client = Client::new(service, "default");
    let executor = Executor::new(client, FIELD_MANAGER, Bounds::default(), Writes::Sent);
    let node = NodeRef::Id("w-479999".into());
    let reader = StatusReader::new(Arc::new(executor), Asked::These(vec![node.clone()]));
    let query = StatusQuery::new(
        argo::workflow(),
        ObjectKey::new("shop", "w"),
        Uid::new("u-1"),
    );

    let region = Region::new(ALLOCATOR);
    let answer = read(&reader, &query).await.unwrap();
    let allocated = region.change().bytes_allocated;

    let StatusState::Read(nodes) = answer.answer() else {
        panic!("{answer:?}");
    };
    assert!(nodes.is_fulfilled(&node, &Uid::new("p-1"), None));
    // In all, whether at once or not. The answer itself is not copied.
    assert!(
        allocated < 1 << 20,
        "{allocated} bytes for an answer of {size} bytes"
    );
}
