//! Admission webhooks are called as a real server calls them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]
#![cfg(all(feature = "client", feature = "serve"))]

use std::convert::Infallible;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belayer_sandbox::{Sandbox, WriteFilter};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// What a webhook does: `request` of the review to its `response`, without the UID.
type Answers = Arc<dyn Fn(Value) -> BoxFuture<'static, Value> + Send + Sync>;

/// A webhook; it ends when this is dropped.
struct Webhook {
    url: String,
    _server: AbortOnDropHandle<()>,
}

async fn webhook<F>(answers: impl Fn(Value) -> F + Send + Sync + 'static) -> Webhook
where
    F: Future<Output = Value> + Send + 'static,
{
    let answers: Answers = Arc::new(move |request| Box::pin(answers(request)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/review", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answers = Arc::clone(&answers);
            let service = service_fn(move |request| answer(Arc::clone(&answers), request));
            let io = TokioIo::new(stream);
            tokio::spawn(http1::Builder::new().serve_connection(io, service));
        }
    });
    Webhook {
        url,
        _server: AbortOnDropHandle::new(server),
    }
}

async fn answer(
    answers: Answers,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut review: Value = serde_json::from_slice(&body).unwrap();
    let request = review["request"].take();
    let uid = request["uid"].clone();
    let mut response = answers(request).await;
    response["uid"] = uid;
    review["response"] = response;
    Ok(Response::new(Full::from(review.to_string())))
}

fn allow() -> Value {
    json!({"allowed": true})
}

fn patch(patch: Value) -> Value {
    let patch = STANDARD.encode(patch.to_string());
    json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
}

/// Stores a configuration with one webhook for ConfigMaps.
fn configure(sandbox: &Sandbox, kind: &str, url: &str, more: Value) {
    let mut hook = json!({"name": "hook.example.com", "clientConfig": {"url": url}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]});
    for (field, value) in more.as_object().unwrap() {
        hook[field] = value.clone();
    }
    let name = kind.to_lowercase();
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": format!("{kind}WebhookConfiguration"), "metadata": {"name": name}, "webhooks": [hook]});
    sandbox.load_yaml(&configuration.to_string()).unwrap();
}

fn map(metadata: Value) -> ConfigMap {
    serde_json::from_value(json!({"metadata": metadata})).unwrap()
}

fn maps(sandbox: &Sandbox) -> Api<ConfigMap> {
    Api::default_namespaced(sandbox.client())
}

async fn create(sandbox: &Sandbox, metadata: Value) -> kube::Result<ConfigMap> {
    let params = PostParams::default();
    maps(sandbox).create(&params, &map(metadata)).await
}

fn message(result: kube::Result<ConfigMap>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.message),
        other => panic!("{other:?}"),
    }
}

/// Row "webhooks called": first the mutating ones, then the validating ones, which see the result; the object is stored
/// once, as they saw it.
#[tokio::test]
async fn crates_webhooks_change_and_then_check_a_new_object() {
    let sandbox = Sandbox::builder().seed(1).build();
    let mutating = webhook(|request| async move {
        assert!(
            request["object"]["metadata"].get("uid").is_none(),
            "{request}"
        );
        patch(json!([{"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}}]))
    })
    .await;
    let (seen, mut sent) = tokio::sync::mpsc::unbounded_channel();
    let validating = webhook(move |request| {
        seen.send(request["object"].clone()).unwrap();
        async { allow() }
    })
    .await;
    configure(&sandbox, "Mutating", &mutating.url, json!({}));
    configure(&sandbox, "Validating", &validating.url, json!({}));
    let mark = sandbox.recorder().mark();
    let stored = create(&sandbox, json!({"generateName": "a-"}))
        .await
        .unwrap();
    assert_eq!(stored.metadata.labels.clone().unwrap()["by"], "hook");
    let seen = sent.recv().await.unwrap();
    assert_eq!(seen["metadata"]["name"], json!(stored.metadata.name));
    assert_eq!(seen["metadata"]["uid"], json!(stored.metadata.uid));
    assert_eq!(seen["metadata"]["labels"]["by"], "hook");
    let mine = WriteFilter::any().by("client").resource("configmaps");
    let writes = sandbox.recorder().since(mark);
    assert_eq!(writes.iter().filter(|write| mine.matches(write)).count(), 1);
}

/// Row "webhooks called": the server waits for a webhook without a lock, so that the webhook can read it; if the object
/// changes meanwhile, the webhook is asked about the new one.
#[tokio::test]
async fn crates_a_webhook_can_use_the_server_that_asks_it() {
    let sandbox = Sandbox::builder().seed(1).build();
    create(&sandbox, json!({"name": "a"})).await.unwrap();
    let own = sandbox.clone();
    let hook = webhook(move |request| {
        let maps = maps(&own);
        async move {
            let seen = request["oldObject"]["data"].clone();
            if seen.is_null() {
                // Not asked about again: only labels are.
                let data = Patch::Merge(json!({"data": {"k": "v"}}));
                maps.patch("a", &PatchParams::default(), &data)
                    .await
                    .unwrap();
            }
            json!({"allowed": true, "warnings": [seen.to_string()]})
        }
    })
    .await;
    let labelled = json!({"matchConditions": [{"name": "labels", "expression": "has(object.metadata.labels)"}]});
    configure(&sandbox, "Validating", &hook.url, labelled);
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let after = maps(&sandbox)
        .patch("a", &PatchParams::default(), &label)
        .await
        .unwrap();
    assert_eq!(after.data.unwrap()["k"], "v");
    assert_eq!(after.metadata.labels.unwrap()["a"], "b");
}

/// Row "webhooks called": `failurePolicy`, and a Service, which the sandbox does not serve.
#[tokio::test]
async fn crates_a_webhook_that_fails_refuses_unless_it_is_ignored() {
    let closed = "http://127.0.0.1:9/review";
    let service = json!({"clientConfig": {"service": {"namespace": "default", "name": "hook"}}});
    for (more, why) in [
        (json!({}), "connect: connection refused"),
        (service, "give the webhook a url"),
    ] {
        let sandbox = Sandbox::builder().seed(1).build();
        configure(&sandbox, "Validating", closed, more.clone());
        let (code, message) = message(create(&sandbox, json!({"name": "a"})).await);
        assert_eq!(code, 500);
        let start = "Internal error occurred: failed calling webhook \"hook.example.com\": ";
        assert!(
            message.starts_with(start) && message.contains(why),
            "{message}"
        );
        let sandbox = Sandbox::builder().seed(1).build();
        let mut more = more;
        more["failurePolicy"] = json!("Ignore");
        configure(&sandbox, "Validating", closed, more);
        create(&sandbox, json!({"name": "a"})).await.unwrap();
    }
}

/// Row "webhooks called": selectors and conditions decide what a webhook is asked about, and a refusal is the client's.
#[tokio::test]
async fn crates_a_webhook_is_asked_only_about_what_it_selects() {
    let sandbox = Sandbox::builder().seed(1).build();
    let hook = webhook(|_| async {
        json!({"allowed": false, "status": {"code": 409, "reason": "Conflict", "message": "no"}})
    })
    .await;
    let selected = json!({
        "objectSelector": {"matchLabels": {"a": "b"}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        "matchConditions": [{"name": "name", "expression": "object == null || object.metadata.name != 'other'"}],
    });
    configure(&sandbox, "Validating", &hook.url, selected);
    create(&sandbox, json!({"name": "plain"})).await.unwrap();
    create(&sandbox, json!({"name": "other", "labels": {"a": "b"}}))
        .await
        .unwrap();
    let refused = message(create(&sandbox, json!({"name": "a", "labels": {"a": "b"}})).await);
    assert_eq!(refused.0, 409);
    assert_eq!(
        refused.1,
        "admission webhook \"hook.example.com\" denied the request: no"
    );
    let elsewhere: Api<ConfigMap> = Api::namespaced(sandbox.client(), "kube-public");
    let labelled = map(json!({"name": "a", "labels": {"a": "b"}}));
    elsewhere
        .create(&PostParams::default(), &labelled)
        .await
        .unwrap();
    // A deletion is refused by the object as it was.
    let deleted = maps(&sandbox)
        .delete("other", &DeleteParams::default())
        .await;
    assert!(matches!(deleted, Err(kube::Error::Api(status)) if status.code == 409));
}

/// Row "webhooks called": a webhook with side effects is not called for a dry run.
#[tokio::test]
async fn crates_a_dry_run_needs_a_webhook_without_side_effects() {
    let sandbox = Sandbox::builder().seed(1).build();
    let hook = webhook(|_| async { allow() }).await;
    configure(
        &sandbox,
        "Mutating",
        &hook.url,
        json!({"sideEffects": "Some"}),
    );
    create(&sandbox, json!({"name": "a"})).await.unwrap();
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let refused = message(
        maps(&sandbox)
            .create(&dry, &map(json!({"name": "b"})))
            .await,
    );
    assert_eq!(refused.0, 400);
    assert_eq!(
        refused.1,
        "admission webhook \"hook.example.com\" does not support dry run"
    );
}
