//! Sends requests as the script has them, and reads watches line by line.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use super::render;
use super::script::Request;

/// Timeout of any response; generous, as machines are busy.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// A complete response.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) code: u16,
    media: String,
    warnings: Vec<String>,
    body: Vec<u8>,
}

impl Answer {
    /// The body as JSON; null when it is not JSON.
    pub(super) fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The lines that show it.
    pub(super) fn tell(&self, fields: &[String]) -> Vec<String> {
        render::answer(self.code, &self.media, &self.warnings, &self.body, fields)
    }
}

/// Sends a request and reads the whole response.
pub(super) async fn send(client: &Client, namespace: &str, request: &Request) -> Result<Answer> {
    let response = start(client, namespace, request).await?;
    let (parts, body) = response.into_parts();
    let text = |name: &str| -> Vec<String> {
        let values = parts.headers.get_all(name).iter();
        values
            .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
            .collect()
    };
    Ok(Answer {
        code: parts.status.as_u16(),
        media: text("content-type").join(", "),
        warnings: text("warning"),
        body: body.collect().await?.to_bytes().to_vec(),
    })
}

async fn start(
    client: &Client,
    namespace: &str,
    request: &Request,
) -> Result<http::Response<Body>> {
    let (method, media) = match request.method.as_str() {
        "MERGE" => ("PATCH", "application/merge-patch+json"),
        "JSONPATCH" => ("PATCH", "application/json-patch+json"),
        "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
        "APPLY" => ("PATCH", "application/apply-patch+yaml"),
        "YAML" => ("POST", "application/yaml"),
        method => (method, "application/json"),
    };
    let mut builder = http::Request::builder()
        .method(method)
        .uri(url(namespace, &request.path));
    let headers = request.headers.iter().filter_map(|h| h.split_once(':'));
    let own = |name: &str| headers.clone().any(|(n, _)| n.eq_ignore_ascii_case(name));
    if !request.body.is_empty() && !own("Content-Type") {
        builder = builder.header("Content-Type", media);
    }
    if !own("User-Agent") {
        builder = builder.header("User-Agent", "conformance/1");
    }
    for (name, value) in headers.clone() {
        builder = builder.header(name, value);
    }
    // The script writes line ends of a YAML body as `\n`.
    let body = if method != request.method && media.ends_with("yaml") {
        request.body.replace("\\n", "\n")
    } else {
        request.body.clone()
    };
    let sent = client.send(builder.body(Body::from(body.into_bytes()))?);
    let answer = tokio::time::timeout(DEADLINE, sent).await;
    Ok(answer.context("no response in time")??)
}

/// A path without a leading slash is relative to the case's namespace in the core group.
fn url(namespace: &str, path: &str) -> String {
    let path = match path.strip_prefix('/') {
        Some(_) => path.to_owned(),
        None => format!("/api/v1/namespaces/{namespace}/{path}"),
    };
    let mut url = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/?&=%+,:()!*'$@;#[]".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url
}

/// An open watch.
pub(super) struct Watch {
    body: Body,
    buffered: Vec<u8>,
    lines: VecDeque<Vec<u8>>,
}

impl Watch {
    /// Opens a watch, or returns the error response.
    pub(super) async fn open(
        client: &Client,
        namespace: &str,
        request: &Request,
    ) -> Result<Result<Self, Answer>> {
        let mut request = request.clone();
        let joint = if request.path.contains('?') { '&' } else { '?' };
        request.path = format!("{}{joint}watch=true", request.path);
        let response = start(client, namespace, &request).await?;
        let code = response.status().as_u16();
        let (parts, body) = response.into_parts();
        if code == 200 {
            return Ok(Ok(Self {
                body,
                buffered: Vec::new(),
                lines: VecDeque::new(),
            }));
        }
        let media = parts.headers.get("content-type");
        let media = media.and_then(|v| v.to_str().ok()).unwrap_or_default();
        Ok(Err(Answer {
            code,
            media: media.to_owned(),
            warnings: Vec::new(),
            body: body.collect().await?.to_bytes().to_vec(),
        }))
    }

    /// The next event; `None` once the server has ended the watch.
    pub(super) async fn next(&mut self) -> Result<Option<Value>> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Ok(Some(
                    serde_json::from_slice(&line).context("invalid event")?,
                ));
            }
            let frame = tokio::time::timeout(DEADLINE, self.body.frame()).await;
            let Some(frame) = frame.context("no event in time")? else {
                return Ok(None);
            };
            let Ok(data) = frame.context("read the watch")?.into_data() else {
                continue;
            };
            self.buffered.extend_from_slice(&data);
            while let Some(end) = self.buffered.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffered.drain(..=end).collect();
                self.lines.push_back(line);
            }
        }
    }
}
