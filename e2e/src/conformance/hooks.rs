//! The webhooks of the cases: a server on a loopback address, whose path says what it answers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_util::task::AbortOnDropHandle;

/// Longer than the shortest timeout of a webhook, which is a second.
const TOO_LONG: Duration = Duration::from_secs(3);

/// The server; it ends when this is dropped.
pub(super) struct Hooks {
    /// `https://127.0.0.1:PORT`.
    pub(super) url: String,
    /// Its certificate, as `caBundle` has it.
    pub(super) bundle: String,
    _server: AbortOnDropHandle<()>,
}

impl Hooks {
    /// Starts it.
    pub(super) async fn start() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der());
        let key = key.map_err(anyhow::Error::msg)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)?;
        let tls = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://{}", listener.local_addr()?);
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, tls.clone()));
            }
        });
        Ok(Self {
            url,
            bundle: STANDARD.encode(made.cert.pem()),
            _server: AbortOnDropHandle::new(server),
        })
    }
}

async fn serve(stream: TcpStream, tls: TlsAcceptor) {
    // A client that does not trust the certificate closes the connection.
    let Ok(stream) = tls.accept(stream).await else {
        return;
    };
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
    // The client may give up.
    drop(served.await);
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut answer = Response::new(Full::default());
    *answer.body_mut() = match path.as_str() {
        "/nonsense" => Full::from("nonsense"),
        "/error" => {
            *answer.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
            Full::from("broken")
        }
        path => {
            if path == "/slow" {
                tokio::time::sleep(TOO_LONG).await;
            }
            let mut response = response(path, &query, &review["request"]);
            if response.get("uid").is_none() {
                response["uid"] = review["request"]["uid"].clone();
            }
            let kind = json!("AdmissionReview");
            let version = json!("admission.k8s.io/v1");
            let review = json!({"kind": kind, "apiVersion": version, "response": response});
            Full::from(review.to_string())
        }
    };
    Ok(answer)
}

fn response(path: &str, query: &str, request: &Value) -> Value {
    let patch = |patch: Value| {
        let patch = STANDARD.encode(patch.to_string());
        json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
    };
    match path {
        "/deny" => json!({"allowed": false}),
        "/conflict" => {
            let status = json!({"code": 409, "reason": "Conflict", "message": "not now"});
            json!({"allowed": false, "status": status})
        }
        "/reason" => json!({"allowed": false, "status": {"reason": "Forbidden"}}),
        "/tell" => {
            let message = shown(query, request).to_string();
            json!({"allowed": false, "status": {"code": 403, "message": message}})
        }
        "/label" => {
            patch(json!([{"op": "add", "path": "/metadata/labels", "value": {"hooked": "yes"}}]))
        }
        "/second" => patch(json!([
            {"op": "test", "path": "/metadata/labels/hooked", "value": "yes"},
            {"op": "add", "path": "/metadata/labels/second", "value": "yes"},
        ])),
        "/invalid" => {
            patch(json!([{"op": "add", "path": "/metadata/labels", "value": {"-": "yes"}}]))
        }
        "/impossible" => patch(json!([{"op": "remove", "path": "/data/missing"}])),
        "/warn" => json!({"allowed": true, "warnings": ["take care"]}),
        "/other-uid" => json!({"allowed": true, "uid": "other"}),
        _ => json!({"allowed": true}),
    }
}

/// What the server sent, without what differs from run to run.
fn shown(query: &str, request: &Value) -> Value {
    let mut shown = json!({"query": query});
    for field in [
        "kind",
        "resource",
        "subResource",
        "requestKind",
        "requestResource",
        "requestSubResource",
        "name",
        "namespace",
        "operation",
        "dryRun",
    ] {
        if let Some(value) = request.get(field) {
            shown[field] = match value.as_str() {
                Some(name) if name.starts_with("generated-") => json!("generated"),
                _ => value.clone(),
            };
        }
    }
    for field in ["object", "oldObject"] {
        let object = &request[field];
        shown[field] = match object {
            Value::Null => Value::Null,
            object => json!({"kind": object["kind"], "data": object["data"],
                "labels": object["metadata"]["labels"], "hasUid": object["metadata"]["uid"].is_string()}),
        };
    }
    shown["options"] = request["options"]["kind"].clone();
    shown
}
