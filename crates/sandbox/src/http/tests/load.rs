//! Many objects.

use http::Request;
use http_body_util::Full;
use serde_json::json;

use super::*;
use crate::{Actor, DeleteOptions, Gvr, ListOptions, WriteOptions};

const WHO: &str = "load";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// A pod of about the size of a workflow engine's.
fn big_pod(index: usize) -> serde_json::Value {
    let mut pod = pod(
        &format!("p-{index:06}"),
        Some("n"),
        &["belayer.dev/pod-status"],
    );
    pod["metadata"]["labels"] = json!({"workflows.argoproj.io/workflow": "w", "app": "x"});
    let env: Vec<_> = (0..20)
        .map(|i| json!({"name": format!("E{i}"), "value": "some value"}))
        .collect();
    pod["spec"]["containers"][0]["env"] = json!(env);
    pod
}

/// Releases eight thousand terminating pods with one patch each. The benchmark measures the time.
#[tokio::test]
async fn eight_thousand_releases_cost_one_change_each() {
    const PODS_HELD: usize = 8_000;
    let api = Api::new();
    let actor = Actor::new(WHO);
    for index in 0..PODS_HELD {
        let options = WriteOptions::default();
        let made = api.sandbox.cluster().create(
            &actor,
            &Gvr::PODS,
            Some("default"),
            big_pod(index),
            &options,
        );
        made.unwrap();
    }
    let now = DeleteOptions {
        grace_period_seconds: Some(0),
        ..DeleteOptions::default()
    };
    let all = ListOptions::default();
    api.sandbox
        .cluster()
        .delete_collection(&actor, &Gvr::PODS, None, &now, &all)
        .unwrap();
    // As controllers do: request only the metadata.
    let body = Full::new(Bytes::from_static(br#"{"metadata":{"finalizers":[]}}"#));
    let before = api.sandbox.cluster().version();
    for index in 0..PODS_HELD {
        let path = format!("{PODS}/p-{index:06}");
        let request = Request::builder().method("PATCH").uri(path);
        let request = request
            .header("content-type", MERGE)
            .header("accept", METADATA);
        let (status, _) = api.send(request.body(body.clone()).unwrap()).await;
        assert_eq!(status, 200);
    }
    let changes = api.sandbox.cluster().version() - before;
    assert_eq!(changes, PODS_HELD as u64);
    assert!(
        api.sandbox
            .cluster()
            .counts()
            .get("pods")
            .is_none_or(|n| *n == 0)
    );
}

#[tokio::test]
async fn a_hundred_thousand_objects_are_paged_through_without_a_gap() {
    const MANY: usize = 100_000;
    let api = Api::new();
    let actor = Actor::new(WHO);
    for index in 0..MANY {
        let object = json!({"metadata": {"name": format!("c-{index:06}")}});
        let options = WriteOptions::default();
        api.sandbox
            .cluster()
            .create(&actor, &Gvr::CONFIGMAPS, Some("default"), object, &options)
            .unwrap();
    }
    let mut pages = 0;
    let mut options = ListOptions {
        limit: 500,
        ..ListOptions::default()
    };
    let mut seen = 0;
    loop {
        let page = api
            .sandbox
            .cluster()
            .list(&Gvr::CONFIGMAPS, None, &options)
            .unwrap();
        seen += page.items.len();
        pages += 1;
        if page.continue_token.is_empty() {
            break;
        }
        assert_eq!(page.remaining, Some((MANY - seen) as u64));
        options.continue_token = page.continue_token;
    }
    assert_eq!((seen, pages), (MANY, MANY / 500));
}
