//! Writes objects directly into etcd: a hundred thousand pods take seconds instead of the minutes
//! through the API.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belayer_subject::Pods;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::api::PostParams;
use serde_json::json;

use belayer_e2e::control_plane::ControlPlane;
use belayer_e2e::kinds;

/// Objects per transaction: etcd accepts 128, and 1.5 MB.
const AT_ONCE: usize = 100;

/// Transactions in parallel.
const PARALLEL: usize = 4;

/// Creates the namespaces of synthetic pods.
pub(crate) async fn create_namespaces(plane: &ControlPlane) -> Result<()> {
    for name in Pods::namespaces() {
        let document = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
        }))?;
        kinds::namespaces(plane.client())
            .create(&PostParams::default(), &document)
            .await?;
    }
    Ok(())
}

/// Writes the pods with these numbers.
pub(crate) async fn fill(
    plane: &ControlPlane,
    pods: Pods,
    numbers: std::ops::Range<usize>,
) -> Result<()> {
    write(plane, numbers, |number| {
        let (namespace, name) = (Pods::namespace(number), Pods::name(number));
        let key = format!("/registry/pods/{namespace}/{name}");
        (key, pods.stored(number))
    })
    .await
}

/// Writes the objects with these numbers: the key and the value of each.
pub(crate) async fn write(
    plane: &ControlPlane,
    numbers: std::ops::Range<usize>,
    object: impl Fn(usize) -> (String, Vec<u8>),
) -> Result<()> {
    let url = std::fs::read_to_string(plane.dir().join("etcd.url")).context("etcd's address")?;
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let starts = numbers.clone().step_by(AT_ONCE);
    futures::stream::iter(starts)
        .map(|start| {
            let objects = (start..numbers.end.min(start + AT_ONCE)).map(&object);
            put(&client, &url, objects.collect())
        })
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await
}

async fn put(
    client: &Client<HttpConnector, Full<Bytes>>,
    url: &str,
    objects: Vec<(String, Vec<u8>)>,
) -> Result<()> {
    let one = |(key, value): (String, Vec<u8>)| json!({ "request_put": { "key": STANDARD.encode(key), "value": STANDARD.encode(value) } });
    let puts: Vec<_> = objects.into_iter().map(one).collect();
    let body = json!({ "success": puts }).to_string();
    let request = http::Request::post(format!("{url}/v3/kv/txn"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Full::from(body))?;
    let response = client.request(request).await.context("etcd")?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    ensure!(
        status.is_success(),
        "etcd: {status}: {}",
        String::from_utf8_lossy(&body)
    );
    Ok(())
}
