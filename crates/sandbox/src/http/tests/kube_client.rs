//! The server as kube-rs sees it.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    Api as KubeApi, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube::{Client, Error};
use serde_json::json;

use super::Api;

fn client(api: &Api) -> Client {
    Client::new(api.sandbox.service("kube-rs"), "default")
}

#[tokio::test(start_paused = true)]
async fn typed_objects_survive_a_round_trip() {
    let api = Api::new();
    let maps: KubeApi<ConfigMap> = KubeApi::default_namespaced(client(&api));
    let sent: ConfigMap = serde_json::from_value(super::held("a", &["x.y/z"])).unwrap();
    let made = maps.create(&PostParams::default(), &sent).await.unwrap();
    assert!(made.metadata.uid.is_some());
    let found = maps
        .list(&ListParams::default().labels("!none").limit(1))
        .await
        .unwrap();
    assert_eq!(found.items.len(), 1);
    assert_eq!(
        found.metadata.resource_version,
        made.metadata.resource_version
    );
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    maps.patch("a", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .unwrap();
    let going = maps.delete("a", &DeleteParams::foreground()).await.unwrap();
    assert!(going.left().unwrap().metadata.deletion_timestamp.is_some());
    let done = json!({"metadata": {"finalizers": null}});
    maps.patch_metadata("a", &PatchParams::default(), &Patch::Merge(&done))
        .await
        .unwrap();
    let Err(Error::Api(status)) = maps.get("a").await else {
        panic!("the object still exists")
    };
    assert!(status.is_not_found());
    assert!(api.sandbox.recorder().writes_by("kube-rs").len() == 4);
}

#[tokio::test(start_paused = true)]
async fn watches_stream() {
    let api = Api::new();
    let pods: KubeApi<Pod> = KubeApi::default_namespaced(client(&api));
    let from = api.sandbox.cluster().version().to_string();
    let stream = pods
        .watch(&WatchParams::default().timeout(10), &from)
        .await
        .unwrap();
    let made: Pod = serde_json::from_value(super::pod("p", None, &[])).unwrap();
    pods.create(&PostParams::default(), &made).await.unwrap();
    pods.delete("p", &DeleteParams::default()).await.unwrap();
    let kinds: Vec<&str> = stream
        .map_ok(|event| match event {
            WatchEvent::Added(_) => "added",
            WatchEvent::Modified(_) => "modified",
            WatchEvent::Deleted(_) => "deleted",
            WatchEvent::Bookmark(_) => "bookmark",
            WatchEvent::Error(_) => "error",
        })
        .try_collect()
        .await
        .unwrap();
    assert_eq!(kinds, ["added", "modified", "deleted", "bookmark"]);
    let metadata = pods
        .watch_metadata(&WatchParams::default().timeout(1), "0")
        .await
        .unwrap();
    assert_eq!(metadata.count().await, 1);
}

#[tokio::test(start_paused = true)]
async fn discovery_finds_the_kinds() {
    let api = Api::new();
    let discovery = kube::Discovery::new(client(&api)).run().await.unwrap();
    let apps = discovery.groups().find(|g| g.name() == "apps").unwrap();
    assert!(apps.recommended_kind("Deployment").is_some());
    let version = client(&api).apiserver_version().await.unwrap();
    assert!(version.git_version.ends_with("+belayer-sandbox"));
}
