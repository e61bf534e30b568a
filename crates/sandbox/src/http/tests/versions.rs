//! Custom resources whose definition changes: storage versions, schemas, and what a definition must keep.

use serde_json::{Value, json};

use super::*;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.x.dev";
const V1: &str = "/apis/x.dev/v1/things";
const V2: &str = "/apis/x.dev/v2/things";

fn open() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn fields(fields: Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}})
}

fn definition(group: &str, v1: Value, v2: Value) -> Value {
    let version = |name: &str, stored: bool, schema: Value| json!({"name": name, "served": true, "storage": stored, "schema": {"openAPIV3Schema": schema}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
            "versions": [version("v1", true, v1), version("v2", false, v2)],
        },
    })
}

fn thing(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("x.dev/{version}"), "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

async fn installed(v1: Value, v2: Value) -> Api {
    let api = Api::new();
    api.make(CRDS, definition("x.dev", v1, v2)).await;
    api
}

/// A cluster with the object `a`, stored at v1 before v2 became the storage version.
async fn moved() -> Api {
    let api = installed(open(), open()).await;
    api.make(V1, thing("v1", "a", json!({"x": 1}))).await;
    let flip = json!([
        {"op": "replace", "path": "/spec/versions/0/storage", "value": false},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": true},
    ]);
    let (status, answer) = api.patch(DEFINITION, JSON_PATCH, flip).await;
    assert_eq!(status, 200, "{answer}");
    api
}

async fn apply(api: &Api, path: &str, config: Value) -> (u16, Value) {
    let path = format!("{path}?fieldManager=m");
    api.patch(&path, "application/apply-patch+yaml", config)
        .await
}

#[tokio::test]
async fn an_answer_has_the_version_of_its_request_after_the_storage_version_moved() {
    let api = moved().await;
    for (path, expected) in [(V1, "x.dev/v1"), (V2, "x.dev/v2")] {
        let (_, one) = api.get(&format!("{path}/a")).await;
        assert_eq!(one["apiVersion"], expected);
        let (_, list) = api.get(path).await;
        assert_eq!(list["items"][0]["apiVersion"], expected);
        let mut events = api.watch(&format!("{path}?watch=1")).await;
        let (_, object) = events.next().await.unwrap().unwrap();
        assert_eq!(object["apiVersion"], expected);
    }
}

#[tokio::test]
async fn an_event_of_before_the_move_has_the_version_of_its_watch() {
    let api = Api::new();
    api.make(CRDS, definition("x.dev", open(), open())).await;
    let before = api.sandbox.cluster().version();
    api.make(V1, thing("v1", "a", json!({}))).await;
    let flip = json!([
        {"op": "replace", "path": "/spec/versions/0/storage", "value": false},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": true},
    ]);
    assert_eq!(api.patch(DEFINITION, JSON_PATCH, flip).await.0, 200);
    for (path, expected) in [(V1, "x.dev/v1"), (V2, "x.dev/v2")] {
        let path = format!("{path}?watch=1&resourceVersion={before}");
        let (_, object) = api.watch(&path).await.next().await.unwrap().unwrap();
        assert_eq!(object["apiVersion"], expected);
    }
}

#[tokio::test]
async fn every_write_works_after_the_storage_version_moved() {
    let api = moved().await;
    let (status, patched) = api
        .merge(
            &format!("{V2}/a"),
            json!({"metadata": {"labels": {"l": "1"}}}),
        )
        .await;
    assert_eq!(status, 200, "{patched}");
    assert_eq!(patched["apiVersion"], "x.dev/v2");
    assert_eq!(patched["metadata"]["generation"], 1);
    let (status, patched) = api
        .merge(&format!("{V1}/a"), json!({"spec": {"x": 2}}))
        .await;
    assert_eq!((status, &patched["apiVersion"]), (200, &json!("x.dev/v1")));
    let api = moved().await;
    let (status, applied) =
        apply(&api, &format!("{V2}/a"), thing("v2", "a", json!({"y": 1}))).await;
    assert_eq!(status, 200, "{applied}");
    assert_eq!(applied["apiVersion"], "x.dev/v2");
    assert_eq!(applied["spec"], json!({"x": 1, "y": 1}));
}

/// That is how a storage migration works.
#[tokio::test]
async fn a_write_that_changes_nothing_moves_an_object_to_the_storage_version() {
    let api = moved().await;
    let before = api.sandbox.cluster().version();
    let same = json!({"spec": {"x": 1}});
    let (_, migrated) = api.merge(&format!("{V2}/a"), same.clone()).await;
    assert_eq!(migrated["metadata"]["generation"], 1);
    assert_eq!(api.sandbox.cluster().version(), before + 1);
    api.merge(&format!("{V2}/a"), same).await;
    assert_eq!(api.sandbox.cluster().version(), before + 1);
}

#[tokio::test]
async fn a_version_of_stored_objects_stays_in_its_definition() {
    let api = moved().await;
    let (_, definition) = api.get(DEFINITION).await;
    assert_eq!(definition["status"]["storedVersions"], json!(["v1", "v2"]));
    let remove = json!([{"op": "remove", "path": "/spec/versions/0"}]);
    let (status, answer) = api.patch(DEFINITION, JSON_PATCH, remove.clone()).await;
    assert_eq!(status, 422, "{answer}");
    assert_eq!(
        answer["details"]["causes"][0],
        json!({
            "reason": "FieldValueInvalid",
            "message": "Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions",
            "field": "status.storedVersions[0]",
        })
    );
    let migrated = json!([{"op": "replace", "path": "/status/storedVersions", "value": ["v2"]}]);
    let status_path = format!("{DEFINITION}/status");
    assert_eq!(api.patch(&status_path, JSON_PATCH, migrated).await.0, 200);
    assert_eq!(api.patch(DEFINITION, JSON_PATCH, remove).await.0, 200);
    assert_eq!(api.get(V1).await.0, 404);
}

#[tokio::test]
async fn a_definition_in_a_protected_group_has_an_approval() {
    let api = Api::new();
    let annotation = "api-approved.kubernetes.io";
    for group in ["x.k8s.io", "x.kubernetes.io"] {
        let mut wanted = definition(group, open(), open());
        let (status, answer) = api.post(CRDS, wanted.clone()).await;
        assert_eq!(status, 422, "{answer}");
        let cause = &answer["details"]["causes"][0];
        assert_eq!(
            cause["field"],
            format!("metadata.annotations[{annotation}]")
        );
        assert_eq!(cause["reason"], "FieldValueRequired");
        wanted["metadata"]["annotations"] = json!({(annotation): "yes"});
        let (_, answer) = api.post(CRDS, wanted.clone()).await;
        assert_eq!(
            answer["details"]["causes"][0]["reason"],
            "FieldValueInvalid"
        );
        for good in ["unapproved, a test", "https://github.com/kubernetes/pull/1"] {
            wanted["metadata"]["annotations"] = json!({(annotation): good});
            let path = format!("{CRDS}?dryRun=All");
            assert_eq!(api.post(&path, wanted.clone()).await.0, 201, "{good}");
        }
    }
    let mut wanted = definition("x.k8s.io", open(), open());
    wanted["metadata"]["annotations"] = json!({(annotation): "unapproved"});
    api.make(CRDS, wanted).await;
    let path = format!("{CRDS}/things.x.k8s.io");
    let without = json!({"metadata": {"annotations": {(annotation): null}}});
    assert_eq!(api.merge(&path, without).await.0, 422);
    let label = json!({"metadata": {"labels": {"l": "1"}}});
    assert_eq!(api.merge(&path, label).await.0, 200);
}

#[tokio::test]
async fn the_names_of_versions_are_labels_and_unique() {
    let api = Api::new();
    let mut wanted = definition("x.dev", open(), open());
    wanted["spec"]["versions"][0]["name"] = json!("V1");
    let (status, answer) = api.post(CRDS, wanted.clone()).await;
    let causes: Vec<&Value> = (answer["details"]["causes"].as_array().unwrap().iter())
        .map(|cause| &cause["field"])
        .collect();
    assert_eq!(status, 422);
    assert_eq!(causes, ["spec.versions[0].name", "spec.version"]);
    wanted["spec"]["versions"][0]["name"] = json!("v2");
    let (status, answer) = api.post(CRDS, wanted).await;
    assert_eq!(status, 422, "{answer}");
    assert!(message(&answer).contains("must contain unique version names"));
}

/// A cluster with the objects `a` and `b`, stored before v1 lost the field `y` and got `w` with a default.
async fn reshaped() -> Api {
    let number = || json!({"type": "integer"});
    let v1 = fields(json!({"x": number(), "y": number()}));
    let v2 = fields(json!({"x": number(), "z": {"type": "integer", "default": 7}}));
    let api = installed(v1, v2).await;
    for name in ["a", "b"] {
        api.make(V1, thing("v1", name, json!({"x": 1, "y": 2})))
            .await;
    }
    let (_, other) = api.get(&format!("{V2}/a")).await;
    assert_eq!(
        other["spec"],
        json!({"x": 1}),
        "defaults are of the stored version"
    );
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let value = json!({"x": number(), "w": {"type": "string", "default": "d"}});
    let change = json!([{"op": "replace", "path": path, "value": value}]);
    assert_eq!(api.patch(DEFINITION, JSON_PATCH, change).await.0, 200);
    api
}

#[tokio::test]
async fn stored_objects_are_pruned_and_defaulted_when_they_are_read() {
    let api = reshaped().await;
    let expected = json!({"x": 1, "w": "d"});
    assert_eq!(api.get(&format!("{V1}/a")).await.1["spec"], expected);
    let (_, list) = api.get(V1).await;
    assert_eq!(list["items"][1]["spec"], expected);
    let mut events = api.watch(&format!("{V1}?watch=1")).await;
    let (_, object) = events.next().await.unwrap().unwrap();
    assert_eq!(object["spec"], expected);
    let (_, other) = api.get(&format!("{V2}/a")).await;
    assert_eq!(other["spec"], json!({"x": 1}), "v2 has no w");
}

#[tokio::test]
async fn a_new_schema_alone_does_not_count_as_a_change_of_an_object() {
    let api = reshaped().await;
    let label = json!({"metadata": {"labels": {"l": "1"}}});
    let (status, patched) = api.merge(&format!("{V1}/a"), label).await;
    assert_eq!(
        (status, &patched["metadata"]["generation"]),
        (200, &json!(1))
    );
    assert_eq!(patched["spec"], json!({"x": 1, "w": "d"}));
    let mut config = thing("v1", "b", json!({"x": 1}));
    config["metadata"]["labels"] = json!({"l": "1"});
    let (status, applied) = apply(&api, &format!("{V1}/b"), config).await;
    assert_eq!(status, 200, "{applied}");
    assert_eq!(applied["metadata"]["generation"], 1);
    let api = reshaped().await;
    let (_, mut read) = api.get(&format!("{V1}/a")).await;
    read["metadata"]["labels"] = json!({"l": "1"});
    let (_, replaced) = api.put(&format!("{V1}/a"), read).await;
    assert_eq!(replaced["metadata"]["generation"], 1, "{replaced}");
}

#[tokio::test]
async fn only_fields_of_the_storage_version_are_stored() {
    let api = reshaped().await;
    let made = api.make(V2, thing("v2", "c", json!({"x": 1}))).await;
    assert_eq!(made["spec"], json!({"x": 1}), "v1 has no z");
    let (_, patched) = api
        .merge(&format!("{V2}/c"), json!({"spec": {"x": 2, "z": 3}}))
        .await;
    assert_eq!(patched["spec"], json!({"x": 2}));
    let (_, read) = api.get(&format!("{V1}/c")).await;
    assert_eq!(read["spec"], json!({"x": 2, "w": "d"}));
}
