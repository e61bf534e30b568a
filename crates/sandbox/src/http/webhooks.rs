//! Calls webhooks: a review is sent by POST, over HTTPS with the configuration's certificates, or over plain HTTP.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::respond::{self, Answer};
use crate::admission::{Conversation, Question};
use crate::clock::SharedRng;
use crate::error::ApiError;

/// How often a request runs before it fails: each webhook that it must ask first costs one run.
const RUNS: usize = 64;

/// Runs a request until it has no more questions.
pub(super) async fn converse(rng: &SharedRng, serve: impl Fn() -> Answer) -> Answer {
    let conversation = Arc::new(Mutex::new(Conversation::default()));
    for _ in 0..RUNS {
        let (answer, questions) = Conversation::run(&conversation, &serve);
        if questions.is_empty() {
            return answer;
        }
        let each = questions.into_iter().map(|question| async {
            let reply = call(&question, rng.uuid()).await;
            (question, reply)
        });
        for (question, reply) in futures::future::join_all(each).await {
            conversation.lock().answer(question, reply);
        }
    }
    let why = "the object changed each time that its webhooks had answered";
    respond::refuse(&ApiError::internal(why))
}

/// `response` of the review.
///
/// # Errors
/// Why there is none.
async fn call(question: &Question, uid: String) -> Result<Value, String> {
    let mut request: Value = serde_json::from_str(&question.request).unwrap_or_default();
    request["uid"] = json!(uid);
    let version = "admission.k8s.io/v1";
    let review = json!({"kind": "AdmissionReview", "apiVersion": version, "request": request});
    let url = format!("{}?timeout={}s", question.url, question.seconds);
    let limit = std::time::Duration::from_secs(question.seconds);
    let answered = tokio::time::timeout(limit, send(&url, &question.authorities, &review));
    let answered = answered.await;
    let late = |_| Err(unsent(&url, "context deadline exceeded"));
    let answered = answered.unwrap_or_else(late);
    let review = answered.map_err(|why| format!("failed to call webhook: {why}"))?;
    let wrong = if !review["response"].is_object() {
        "webhook response was absent".to_owned()
    } else if review["response"]["uid"] != json!(uid) {
        let got = &review["response"]["uid"];
        let got = got.as_str().unwrap_or_default();
        format!("expected response.uid={uid:?}, got {got:?}")
    } else if (&review["kind"], &review["apiVersion"])
        != (&json!("AdmissionReview"), &json!(version))
    {
        format!("expected webhook response of {version}, Kind=AdmissionReview")
    } else {
        return Ok(review["response"].clone());
    };
    Err(format!("received invalid webhook response: {wrong}"))
}

/// A review without a response of HTTP.
fn unsent(url: &str, why: &str) -> String {
    format!("Post {url:?}: {why}")
}

#[cfg(not(feature = "client"))]
#[allow(clippy::unused_async, reason = "as with a client")]
async fn send(_: &str, _: &[u8], _: &Value) -> Result<Value, String> {
    Err("the sandbox calls webhooks only with its feature `client`".to_owned())
}

#[cfg(feature = "client")]
async fn send(url: &str, authorities: &[u8], review: &Value) -> Result<Value, String> {
    use http_body_util::BodyExt as _;

    let failed = |why: String| unsent(url, &why);
    let uri: http::Uri = url.parse().map_err(|_| failed("invalid URL".to_owned()))?;
    let (origin, host) = origin(&uri).ok_or_else(|| failed("the URL names no host".to_owned()))?;
    let mut config = kube::Config::new(uri.clone());
    config.default_retry = false;
    if !authorities.is_empty() {
        config.root_cert = Some(certificates(authorities));
    }
    // The client puts the path of its configuration before that of a request.
    config.cluster_url = origin;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(kube::client::Body::from(review.to_string().into_bytes()));
    let request = request.map_err(|why| why.to_string())?;
    let cause = |error: kube::Error| failed(cause(&error, &host));
    let client = kube::Client::try_from(config).map_err(cause)?;
    let answer = client.send(request).await.map_err(cause)?;
    let status = answer.status();
    let body = http_body_util::Limited::new(answer.into_body(), super::MAX_BODY);
    let body = body.collect().await;
    let body = body.map_err(|why| failed(why.to_string()))?;
    let body = body.to_bytes();
    if !status.is_success() {
        let text = String::from_utf8_lossy(&body);
        return Err(match status.as_u16() {
            404 => "the server could not find the requested resource".to_owned(),
            _ => format!(
                "an error on the server ({:?}) has prevented the request from succeeding",
                text.trim()
            ),
        });
    }
    serde_json::from_slice(&body).map_err(|why| format!("invalid JSON: {why}"))
}

#[cfg(feature = "client")]
fn origin(uri: &http::Uri) -> Option<(http::Uri, String)> {
    let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
    let origin = format!("{scheme}://{authority}").parse().ok()?;
    Some((origin, authority.to_string()))
}

/// The innermost cause; in Go's words if no program listens.
#[cfg(feature = "client")]
fn cause(error: &(dyn std::error::Error + 'static), host: &str) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    let refused = inner
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
    match refused {
        true => format!("dial tcp {host}: connect: connection refused"),
        false => inner.to_string(),
    }
}

/// Certificates in PEM, as DER.
#[cfg(feature = "client")]
fn certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    let text = String::from_utf8_lossy(pem);
    let blocks = text.split("-----BEGIN CERTIFICATE-----").skip(1);
    let blocks = blocks.filter_map(|block| block.split("-----END").next());
    let lines = blocks.map(|block| block.split_whitespace().collect::<String>());
    lines
        .filter_map(|line| STANDARD.decode(line).ok())
        .collect()
}
