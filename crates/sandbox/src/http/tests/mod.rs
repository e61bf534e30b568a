//! The server as clients see it.

mod access;
mod crds;
mod deletes;
mod evictions;
mod faults;
mod fuzz;
mod kube_client;
mod kubectl;
mod lists;
mod load;
mod openapi;
mod protobuf;
mod versions;
mod volumes;
mod watches;
mod writes;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::body::SandboxBody;
use crate::{Sandbox, SandboxService};

const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A plain HTTP client of its own sandbox.
struct Api {
    sandbox: Sandbox,
    service: SandboxService,
}

impl Api {
    fn new() -> Self {
        let sandbox = Sandbox::builder().seed(1).build();
        let service = sandbox.service("tester");
        Api { sandbox, service }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> (u16, Bytes) {
        let response = self.service.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status.as_u16(), body)
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: impl Into<Bytes>,
    ) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", media);
        let (status, body) = self
            .send(request.body(Full::new(body.into())).unwrap())
            .await;
        let value = serde_json::from_slice(&body);
        (
            status,
            value.unwrap_or_else(|_| json!(String::from_utf8_lossy(&body))),
        )
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.call("GET", path, "", "").await
    }

    async fn get_as(&self, path: &str, accept: &str) -> (u16, Value) {
        let request = Request::builder().uri(path).header("accept", accept);
        let (status, body) = self.send(request.body(Full::default()).unwrap()).await;
        (status, serde_json::from_slice(&body).unwrap())
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.call("POST", path, "application/json", body.to_string())
            .await
    }

    async fn put(&self, path: &str, body: Value) -> (u16, Value) {
        self.call("PUT", path, "application/json", body.to_string())
            .await
    }

    async fn patch(&self, path: &str, media: &str, body: Value) -> (u16, Value) {
        self.call("PATCH", path, media, body.to_string()).await
    }

    async fn merge(&self, path: &str, body: Value) -> (u16, Value) {
        self.patch(path, MERGE, body).await
    }

    async fn delete(&self, path: &str, body: Value) -> (u16, Value) {
        self.call("DELETE", path, "application/json", body.to_string())
            .await
    }

    /// Creates an object and returns it as stored.
    async fn make(&self, path: &str, body: Value) -> Value {
        let (status, object) = self.post(path, body).await;
        assert_eq!(status, 201, "{object}");
        object
    }

    async fn watch(&self, path: &str) -> Events {
        let request = Request::builder()
            .uri(path)
            .body(Full::<Bytes>::default())
            .unwrap();
        let response = self.service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Events {
            body: response.into_body(),
            buffer: Vec::new(),
        }
    }
}

/// A running watch.
struct Events {
    body: SandboxBody,
    buffer: Vec<u8>,
}

impl Events {
    /// The next event, or why there is none.
    async fn next(&mut self) -> Result<Option<(String, Value)>, String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).map_err(|e| e.to_string())?;
                let kind = event["type"].as_str().unwrap().to_owned();
                return Ok(Some((kind, event["object"].clone())));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => self.buffer.extend_from_slice(&frame.into_data().unwrap()),
                Some(Err(error)) => return Err(error.to_string()),
            }
        }
    }

    /// The next `n` events as `TYPE name`.
    async fn take(&mut self, n: usize) -> Vec<String> {
        let mut taken = Vec::new();
        for _ in 0..n {
            let (kind, object) = self.next().await.unwrap().unwrap();
            taken.push(format!(
                "{kind} {}",
                object["metadata"]["name"].as_str().unwrap_or("-")
            ));
        }
        taken
    }

    /// Everything until the stream ends, as `TYPE name`.
    async fn rest(&mut self) -> Vec<String> {
        let mut taken = Vec::new();
        while let Some((kind, object)) = self.next().await.unwrap() {
            taken.push(format!(
                "{kind} {}",
                object["metadata"]["name"].as_str().unwrap_or("-")
            ));
        }
        taken
    }
}

fn configmap(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

fn labelled(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
}

fn held(name: &str, finalizers: &[&str]) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "finalizers": finalizers}})
}

fn pod(name: &str, node: Option<&str>, finalizers: &[&str]) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "finalizers": finalizers},
        "spec": {"containers": [{"name": "main", "image": "x:1"}]},
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

fn reason(body: &Value) -> &str {
    body["reason"].as_str().unwrap_or_default()
}

fn message(body: &Value) -> &str {
    body["message"].as_str().unwrap_or_default()
}
