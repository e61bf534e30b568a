//! Lists, pages, selectors, forms.

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const META_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const META: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json";

async fn with_five() -> Api {
    let api = Api::new();
    for name in ["a", "b", "c", "d", "e"] {
        api.make(CONFIGMAPS, labelled(name, json!({"n": name})))
            .await;
    }
    api
}

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| o["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn all_pages_are_of_one_version() {
    let api = with_five().await;
    let (_, first) = api.get(&format!("{CONFIGMAPS}?limit=2")).await;
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    api.delete(&format!("{CONFIGMAPS}/c"), json!({})).await;
    api.make(CONFIGMAPS, configmap("bb")).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = api
        .get(&format!("{CONFIGMAPS}?limit=2&continue={token}"))
        .await;
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let token = second["metadata"]["continue"].as_str().unwrap();
    let (_, third) = api
        .get(&format!("{CONFIGMAPS}?limit=2&continue={token}"))
        .await;
    assert_eq!(names(&third), ["e"]);
    assert!(third["metadata"].get("continue").is_none());
}

/// A list of any version comes from the watch cache, which ignores the limit.
#[tokio::test]
async fn a_list_of_any_version_has_no_pages() {
    let api = with_five().await;
    for query in ["", "&resourceVersionMatch=NotOlderThan"] {
        let path = format!("{CONFIGMAPS}?limit=2&resourceVersion=0{query}");
        let (_, list) = api.get(&path).await;
        assert_eq!(names(&list), ["a", "b", "c", "d", "e"]);
        assert!(list["metadata"].get("continue").is_none());
        assert!(list["metadata"].get("remainingItemCount").is_none());
    }
    let version = api.sandbox.cluster().version();
    for query in ["", "&resourceVersionMatch=NotOlderThan"] {
        let path = format!("{CONFIGMAPS}?limit=2&resourceVersion={version}{query}");
        assert_eq!(names(&api.get(&path).await.1), ["a", "b"]);
    }
}

#[tokio::test]
async fn an_expired_token_comes_with_one_to_continue() {
    let api = with_five().await;
    let (_, first) = api.get(&format!("{CONFIGMAPS}?limit=2")).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    api.make(CONFIGMAPS, configmap("f")).await;
    api.sandbox
        .cluster()
        .compact(api.sandbox.cluster().version());
    let (status, answer) = api
        .get(&format!("{CONFIGMAPS}?limit=2&continue={token}"))
        .await;
    assert_eq!((status, reason(&answer)), (410, "Expired"));
    let token = answer["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = api.get(&format!("{CONFIGMAPS}?continue={token}")).await;
    assert_eq!(names(&rest), ["c", "d", "e", "f"]);
}

#[tokio::test]
async fn a_list_can_be_read_as_of_a_version() {
    let api = with_five().await;
    let then = api.sandbox.cluster().version();
    api.delete(&format!("{CONFIGMAPS}/a"), json!({})).await;
    api.merge(&format!("{CONFIGMAPS}/b"), json!({"data": {"x": "y"}}))
        .await;
    let exact = format!("{CONFIGMAPS}?resourceVersion={then}&resourceVersionMatch=Exact");
    let (_, list) = api.get(&exact).await;
    assert_eq!(names(&list), ["a", "b", "c", "d", "e"]);
    assert!(list["items"][1].get("data").is_none());
    let newer = format!("{CONFIGMAPS}?resourceVersion={then}&resourceVersionMatch=NotOlderThan");
    assert_eq!(names(&api.get(&newer).await.1), ["b", "c", "d", "e"]);
    api.sandbox.cluster().compact(then + 1);
    assert_eq!(api.get(&exact).await.0, 410);
    let future = format!("{CONFIGMAPS}?resourceVersion=999999");
    let (status, answer) = api.get(&future).await;
    assert_eq!((status, reason(&answer)), (504, "Timeout"));
    assert_eq!(
        answer["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
}

#[rstest]
#[case("labelSelector=n%20in%20(a,b)", &["a", "b"])]
#[case("labelSelector=n!%3Da,n", &["b", "c", "d", "e"])]
#[case("fieldSelector=metadata.name%3Dc", &["c"])]
#[case("fieldSelector=metadata.name!%3Dc,metadata.namespace%3Ddefault", &["a", "b", "d", "e"])]
#[tokio::test]
async fn selectors_filter_a_list(#[case] query: &str, #[case] wanted: &[&str]) {
    let api = with_five().await;
    assert_eq!(
        names(&api.get(&format!("{CONFIGMAPS}?{query}")).await.1),
        wanted
    );
}

#[tokio::test]
async fn pods_are_found_by_node_and_phase() {
    let api = Api::new();
    api.make(PODS, pod("a", Some("n1"), &[])).await;
    api.make(PODS, pod("b", None, &[])).await;
    let find = |q: &str| format!("/api/v1/pods?fieldSelector={q}");
    assert_eq!(names(&api.get(&find("spec.nodeName%3Dn1")).await.1), ["a"]);
    assert_eq!(names(&api.get(&find("spec.nodeName%3D")).await.1), ["b"]);
    assert_eq!(
        names(&api.get(&find("status.phase%3DPending")).await.1),
        ["a", "b"]
    );
}

#[rstest]
#[case("resourceVersion=x", 400)]
#[case("resourceVersionMatch=Exact", 422)]
#[case("resourceVersionMatch=Other&resourceVersion=1", 422)]
#[case("resourceVersionMatch=Exact&resourceVersion=0", 422)]
#[case("limit=x", 400)]
#[case("continue=nonsense", 400)]
#[case("continue=ffff", 400)]
#[case("labelSelector=a%3Db%3Dc", 400)]
#[case("fieldSelector=spec.x%3D1", 400)]
#[case("fieldSelector=x", 400)]
#[tokio::test]
async fn invalid_options_are_refused(#[case] query: &str, #[case] code: u16) {
    let api = Api::new();
    let (status, answer) = api.get(&format!("{CONFIGMAPS}?{query}")).await;
    assert_eq!(
        (status, answer["kind"].as_str()),
        (code, Some("Status")),
        "{answer}"
    );
}

#[tokio::test]
async fn lists_can_be_read_as_metadata_and_as_tables() {
    let api = Api::new();
    api.make(PODS, pod("p", None, &[])).await;
    let (_, list) = api.get_as(PODS, META_LIST).await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["metadata"]["name"], "p");
    assert!(list["items"][0].get("spec").is_none());
    let (_, one) = api.get_as(&format!("{PODS}/p"), META).await;
    assert_eq!(
        (one["kind"].as_str(), one.get("spec")),
        (Some("PartialObjectMetadata"), None)
    );
    assert_eq!(api.get_as(PODS, META).await.0, 406);
    assert_eq!(api.get_as(PODS, "text/html").await.0, 406);
    let (_, table) = api.get_as(PODS, TABLE).await;
    assert_eq!(table["kind"], "Table");
    let cells: Vec<&Value> = table["rows"][0]["cells"]
        .as_array()
        .unwrap()
        .iter()
        .take(4)
        .collect();
    assert_eq!(
        cells,
        [&json!("p"), &json!("0/1"), &json!("Pending"), &json!("0")]
    );
}

#[tokio::test]
async fn built_in_items_do_not_repeat_their_type() {
    let api = with_five().await;
    let (_, list) = api.get(CONFIGMAPS).await;
    assert_eq!(list["kind"], "ConfigMapList");
    assert!(list["items"][0].get("kind").is_none());
}
