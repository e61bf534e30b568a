//! `belayer run` with a collector: a small OTLP receiver over gRPC, and what it receives.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belayer_sandbox::Gvr;
use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use serde_json::json;

use crate::world::World;

const SOON: Duration = Duration::from_secs(120);

/// All received spans.
#[derive(Default)]
struct Received {
    requests: u64,
    service: Option<String>,
    spans: Vec<Span>,
}

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Received>>);

impl Collector {
    async fn listen(&self) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let collector = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let collector = collector.clone();
                let service = service_fn(move |request| {
                    let collector = collector.clone();
                    async move { collector.answer(request).await }
                });
                tokio::spawn(
                    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        address
    }

    /// One unary call: a flag, a length and a message each way, and the status in the trailers.
    async fn answer(
        &self,
        request: http::Request<Incoming>,
    ) -> Result<
        http::Response<impl http_body::Body<Data = Bytes, Error = Infallible> + use<>>,
        Infallible,
    > {
        assert_eq!(
            request.uri().path(),
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        );
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let message = ExportTraceServiceRequest::decode(&body[5..]).unwrap();
        self.take(message);
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let frames = [
            Ok(Frame::data(Bytes::from_static(&[0; 5]))),
            Ok(Frame::trailers(trailers)),
        ];
        let answer = http::Response::builder().header("content-type", "application/grpc");
        Ok(answer
            .body(StreamBody::new(futures::stream::iter(frames)))
            .unwrap())
    }

    fn take(&self, message: ExportTraceServiceRequest) {
        let mut received = self.0.lock();
        received.requests += 1;
        for resource in message.resource_spans {
            for attribute in resource.resource.into_iter().flat_map(|it| it.attributes) {
                if attribute.key == "service.name" {
                    received.service = attribute.value.map(|value| text(value.value));
                }
            }
            for scope in resource.scope_spans {
                received.spans.extend(scope.spans);
            }
        }
    }

    fn spans(&self) -> Vec<Span> {
        self.0.lock().spans.clone()
    }
}

fn text(value: Option<Value>) -> String {
    match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        other => format!("{other:?}"),
    }
}

fn attributes(span: &Span) -> BTreeMap<String, String> {
    let each = span.attributes.iter();
    each.map(|attribute| {
        let value = attribute.value.clone();
        (
            attribute.key.clone(),
            text(value.and_then(|value| value.value)),
        )
    })
    .collect()
}

/// A held pod whose owner does not exist: it is released by evidence.
fn orphan(world: &World, name: &str) {
    world.create(
        &Gvr::PODS,
        Some("default"),
        json!({
            "metadata": {
                "name": name,
                "labels": { "workflows.argoproj.io/workflow": "build" },
                "finalizers": ["belayer.dev/pod-status"],
                "annotations": { "belayer.dev/release": "true" },
            },
            "spec": { "containers": [{ "name": "m", "image": "m" }] },
        }),
    );
}

struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(world: &World, variables: &[(&str, String)]) -> Running {
    let mut command = world.command(&[
        "run",
        "--leader-elect=false",
        "--metrics-bind-address=0",
        "--debug-bind-address=0",
        "--log-level=off",
    ]);
    command
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Running(command.spawn().unwrap())
}

fn is_released(world: &World, name: &str) -> bool {
    let cluster = world.sandbox.cluster();
    let pod = cluster.get(&Gvr::PODS, Some("default"), name).unwrap();
    pod["metadata"]["finalizers"]
        .as_array()
        .is_none_or(Vec::is_empty)
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn ends(mut running: Running) -> Option<i32> {
    let pid = rustix::process::Pid::from_raw(i32::try_from(running.0.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = tokio::task::spawn_blocking(move || running.0.wait().unwrap());
    status.await.unwrap().code()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconcile_is_a_span_and_its_requests_are_its_children() {
    let world = World::new().await;
    let collector = Collector::default();
    let address = collector.listen().await;
    orphan(&world, "a");
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")),
        ("OTEL_TRACES_SAMPLER", "always_on".to_owned()),
    ];
    let belayer = run(&world, &variables);
    until("the pod is released", || is_released(&world, "a")).await;
    // The remaining spans are sent at the end.
    assert_eq!(ends(belayer).await, Some(0));
    let spans = collector.spans();
    assert_eq!(collector.0.lock().service.as_deref(), Some("belayer"));
    let released = spans
        .iter()
        .find(|span| {
            let attributes = attributes(span);
            attributes.get("belayer.result").map(String::as_str) == Some("released")
        })
        .unwrap_or_else(|| panic!("no release among {} spans", spans.len()));
    assert_eq!(released.name, "reconcile");
    assert!(released.parent_span_id.is_empty());
    let said = attributes(released);
    for (key, value) in [
        ("belayer.controller", "pod-finalizer"),
        ("belayer.row", "admin-asked (2)"),
        ("belayer.evidence", "AdminAsked"),
        ("k8s.resource", "pods"),
        ("k8s.namespace.name", "default"),
        ("k8s.object.name", "a"),
        ("belayer.attempts", "1"),
    ] {
        assert_eq!(
            said.get(key).map(String::as_str),
            Some(value),
            "{key}: {said:?}"
        );
    }
    let children: Vec<&Span> = spans
        .iter()
        .filter(|span| span.parent_span_id == released.span_id)
        .collect();
    let patch = children
        .iter()
        .find(|span| {
            attributes(span)
                .get("http.request.method")
                .map(String::as_str)
                == Some("PATCH")
        })
        .unwrap_or_else(|| panic!("no PATCH among {} children", children.len()));
    assert_eq!(patch.trace_id, released.trace_id);
    let said = attributes(patch);
    assert_eq!(said["url.path"], "/api/v1/namespaces/default/pods/a");
    assert_eq!(said["http.response.status_code"], "200");
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_that_are_not_sampled_are_not_sent() {
    let world = World::new().await;
    let collector = Collector::default();
    let address = collector.listen().await;
    orphan(&world, "a");
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")),
        ("OTEL_TRACES_SAMPLER", "always_off".to_owned()),
    ];
    let belayer = run(&world, &variables);
    until("the pod is released", || is_released(&world, "a")).await;
    assert_eq!(ends(belayer).await, Some(0));
    assert_eq!(collector.0.lock().requests, 0);
}

/// Spans without a collector cost no work, and do not delay the exit.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_collector_does_not_stop_belayer() {
    let world = World::new().await;
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    orphan(&world, "a");
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{nobody}")),
        ("OTEL_TRACES_SAMPLER", "always_on".to_owned()),
    ];
    let belayer = run(&world, &variables);
    until("the pod is released", || is_released(&world, "a")).await;
    assert_eq!(ends(belayer).await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_collector_address_is_reported_at_the_start() {
    let world = World::new().await;
    let mut command = world.command(&["run"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4317");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains(
            "OTEL_EXPORTER_OTLP_ENDPOINT: invalid collector address \"https://collector:4317\""
        ),
        "{error}"
    );
    world.wrote_nothing();
}
