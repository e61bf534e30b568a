//! Compacts a server's versions, as it does by itself after some minutes.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};

/// Compacts all versions of a server but the newest.
pub type Compactor = Box<dyn Fn() -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// The key under which API servers share the compacted version.
const COMPACTED_KEY: &str = "compact_rev_key";

/// The compactor for the etcd of a local control plane, whose URL is next to its kubeconfig.
#[must_use]
pub fn compactor_beside(kubeconfig: &Path) -> Option<Compactor> {
    let url = fs::read_to_string(kubeconfig.with_file_name("etcd.url")).ok()?;
    Some(Box::new(move || Box::pin(compact(url.clone()))))
}

async fn compact(url: String) -> Result<()> {
    let etcd = Client::try_from(Config::new(url.parse().context("parse etcd's URL")?))?;
    let key = STANDARD.encode(COMPACTED_KEY);
    let found = call(&etcd, "range", &json!({"key": key})).await?;
    let revision = found.pointer("/header/revision").and_then(Value::as_str);
    let revision = revision.context("etcd returned no revision")?;
    let value = STANDARD.encode(revision);
    call(&etcd, "put", &json!({"key": key, "value": value})).await?;
    call(&etcd, "compaction", &json!({"revision": revision})).await?;
    Ok(())
}

/// A call of etcd's JSON gateway.
async fn call(etcd: &Client, what: &str, body: &Value) -> Result<Value> {
    let request = http::Request::post(format!("/v3/kv/{what}"))
        .header("Content-Type", "application/json")
        .body(Body::from(body.to_string().into_bytes()))?;
    let response = etcd.send(request).await?;
    let status = response.status();
    let bytes = response.into_body().collect().await?.to_bytes();
    ensure!(status.is_success(), "etcd returned {status} for {what}");
    serde_json::from_slice(&bytes).context("decode etcd's response")
}
