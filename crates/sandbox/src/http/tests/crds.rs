//! Custom resources.

use serde_json::{Value, json};

use super::*;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/x.dev/v1/namespaces/default/things";

fn definition() -> Value {
    let version = |name: &str, stored: bool, status: Value| {
        json!({
            "name": name, "served": true, "storage": stored, "subresources": status,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "additionalPrinterColumns": [{"name": "Level", "type": "integer", "jsonPath": ".spec.level"}],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.x.dev"},
        "spec": {
            "group": "x.dev", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
            "versions": [version("v1", true, json!({"status": {}})), version("v1beta1", false, json!({}))],
        },
    })
}

fn thing(name: &str) -> Value {
    json!({
        "apiVersion": "x.dev/v1", "kind": "Thing", "metadata": {"name": name},
        "spec": {"level": 3}, "status": {"ready": true},
    })
}

async fn installed() -> Api {
    let api = Api::new();
    assert_eq!(api.get(THINGS).await.1, json!("404 page not found\n"));
    api.make(CRDS, definition()).await;
    api
}

#[tokio::test]
async fn a_definition_is_established_and_discovered() {
    let api = installed().await;
    let (_, crd) = api.get(&format!("{CRDS}/things.x.dev")).await;
    let kinds: Vec<&Value> = crd["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["type"])
        .collect();
    assert_eq!(kinds, ["NamesAccepted", "Established"]);
    let (_, resources) = api.get("/apis/x.dev/v1").await;
    assert_eq!(resources["resources"][0]["shortNames"], json!(["th"]));
    assert_eq!(resources["resources"][1]["name"], "things/status");
    let (_, group) = api.get("/apis/x.dev").await;
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let mut wrong = definition();
    wrong["metadata"]["name"] = json!("other.x.dev");
    assert_eq!(api.post(CRDS, wrong).await.0, 422);
}

#[tokio::test]
async fn an_instance_has_generation_and_a_status_of_its_own() {
    let api = installed().await;
    let made = api.make(THINGS, thing("t")).await;
    assert!(made.get("status").is_none());
    assert_eq!(made["metadata"]["generation"], 1);
    let path = format!("{THINGS}/t");
    let (_, changed) = api
        .merge(
            &path,
            json!({"spec": {"level": 4}, "status": {"ready": true}}),
        )
        .await;
    assert_eq!(changed["metadata"]["generation"], 2);
    assert!(changed.get("status").is_none());
    let body = json!({"spec": {"level": 9}, "status": {"ready": true}, "metadata": {"labels": {"a": "b"}}});
    let (_, status) = api.merge(&format!("{path}/status"), body).await;
    assert_eq!(status["status"]["ready"], true);
    assert_eq!(status["spec"]["level"], 4);
    assert!(status["metadata"].get("labels").is_none());
    assert_eq!(status["metadata"]["generation"], 2);
}

#[tokio::test]
async fn an_instance_is_read_at_every_served_version() {
    let api = installed().await;
    api.make(THINGS, thing("t")).await;
    let (_, beta) = api
        .get("/apis/x.dev/v1beta1/namespaces/default/things/t")
        .await;
    assert_eq!(beta["apiVersion"], "x.dev/v1beta1");
    let body = json!({"spec": {"level": 7}});
    let (status, answer) = api
        .merge("/apis/x.dev/v1beta1/namespaces/default/things/t", body)
        .await;
    assert_eq!(
        (status, answer["apiVersion"].as_str()),
        (200, Some("x.dev/v1beta1"))
    );
    assert_eq!(
        api.get(&format!("{THINGS}/t")).await.1["apiVersion"],
        "x.dev/v1"
    );
    assert_eq!(
        api.get("/apis/x.dev/v2/namespaces/default/things/t")
            .await
            .1,
        json!("404 page not found\n")
    );
}

#[tokio::test]
async fn instances_require_type_and_version_and_refuse_strategic_patches() {
    let api = installed().await;
    api.make(THINGS, thing("t")).await;
    let path = format!("{THINGS}/t");
    assert_eq!(
        api.post(THINGS, json!({"metadata": {"name": "u"}})).await.0,
        400
    );
    assert_eq!(api.put(&path, thing("t")).await.0, 422);
    let (status, answer) = api.patch(&path, STRATEGIC, json!({})).await;
    assert_eq!((status, reason(&answer)), (415, "UnsupportedMediaType"));
    let (status, answer) = api.get(&format!("{THINGS}/none")).await;
    assert_eq!(
        (status, message(&answer)),
        (404, "things.x.dev \"none\" not found")
    );
    assert_eq!(
        answer["details"],
        json!({"name": "none", "group": "x.dev", "kind": "things"})
    );
}

#[tokio::test]
async fn a_version_that_is_no_longer_served_gets_a_plain_404() {
    let api = installed().await;
    api.make(THINGS, thing("t")).await;
    let off = json!([{"op": "replace", "path": "/spec/versions/0/served", "value": false}]);
    let (status, answer) = api
        .patch(&format!("{CRDS}/things.x.dev"), JSON_PATCH, off)
        .await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        api.get(&format!("{THINGS}/t")).await,
        (404, json!("404 page not found\n"))
    );
    assert_eq!(
        api.get("/apis/x.dev/v1beta1/namespaces/default/things/t")
            .await
            .0,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_definition_deletes_its_instances_and_waits_for_finalizers() {
    let api = installed().await;
    api.make(THINGS, thing("free")).await;
    let mut held = thing("held");
    held["metadata"]["finalizers"] = json!(["belayer.dev/x"]);
    api.make(THINGS, held).await;
    let mut events = api.watch(&format!("{THINGS}?watch=1")).await;
    assert_eq!(events.take(2).await, ["ADDED free", "ADDED held"]);
    let (_, crd) = api.delete(&format!("{CRDS}/things.x.dev"), json!({})).await;
    assert_eq!(
        crd["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    assert_eq!(api.get(&format!("{THINGS}/free")).await.0, 404);
    let (_, waiting) = api.get(&format!("{THINGS}/held")).await;
    assert!(waiting["metadata"]["deletionTimestamp"].is_string());
    let (status, answer) = api.post(THINGS, thing("late")).await;
    assert_eq!((status, reason(&answer)), (403, "Forbidden"));
    let (status, _) = api
        .merge(
            &format!("{THINGS}/held"),
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
    assert_eq!(status, 200);
    assert_eq!(api.get(&format!("{CRDS}/things.x.dev")).await.0, 404);
    assert_eq!(api.get(THINGS).await.1, json!("404 page not found\n"));
    assert_eq!(
        events.rest().await,
        ["DELETED free", "MODIFIED held", "DELETED held"]
    );
}

#[tokio::test]
async fn printer_columns_make_the_table() {
    let api = installed().await;
    api.make(THINGS, thing("t")).await;
    let (_, table) = api
        .get_as(THINGS, "application/json;as=Table;g=meta.k8s.io;v=v1")
        .await;
    assert_eq!(table["columnDefinitions"][1]["name"], "Level");
    assert_eq!(table["rows"][0]["cells"], json!(["t", 3]));
}

#[tokio::test]
async fn printer_columns_are_paths() {
    let columns = [
        (
            ".status.conditions[?(@.type==\"Ready\")].status",
            "string",
            json!("True"),
        ),
        (
            ".status.conditions[?(@.type=='None')].status",
            "string",
            Value::Null,
        ),
        (".spec.list[*].n", "string", json!("1")),
        (".spec.list[-1].n", "string", json!("3")),
        (".spec.list[0:2].n", "string", json!("1")),
        (".spec.list[?(@.n>1)].n", "string", json!("2")),
        (".spec.list[9].n", "string", Value::Null),
        (".metadata.annotations.x\\.dev/y", "string", json!("z")),
        (".metadata.annotations['x\\.dev/y']", "string", json!("z")),
        ("..deep", "string", json!("down")),
        (".spec.number", "integer", json!(5)),
        (".spec.number", "string", json!("5")),
        (".spec.text", "integer", Value::Null),
        (".spec.flag", "boolean", json!(true)),
        (".spec.flag", "string", json!("true")),
        (".spec.float", "number", json!(1.5)),
        (
            ".spec.list",
            "string",
            json!("[{\"n\":1},{\"n\":2},{\"n\":3}]"),
        ),
        (".spec.list[0]", "string", json!("{\"n\":1}")),
        (".spec.empty", "string", json!("[]")),
        (".spec.empty[*].n", "string", Value::Null),
    ];
    let api = Api::new();
    let mut definition = definition();
    let of = |(path, kind, _): &(&str, &str, Value)| json!({"name": path, "type": kind, "jsonPath": path});
    definition["spec"]["versions"][0]["additionalPrinterColumns"] =
        columns.iter().map(of).collect();
    api.make(CRDS, definition).await;
    let mut object = thing("t");
    object["metadata"]["annotations"] = json!({"x.dev/y": "z"});
    object["spec"] = json!({
        "list": [{"n": 1}, {"n": 2}, {"n": 3}], "empty": [], "number": 5, "text": "five",
        "flag": true, "float": 1.5, "deep": "down",
    });
    api.make(THINGS, object).await;
    let conditions =
        json!([{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]);
    let status = json!({"status": {"conditions": conditions}});
    api.merge(&format!("{THINGS}/t/status"), status).await;
    let (_, table) = api
        .get_as(THINGS, "application/json;as=Table;g=meta.k8s.io;v=v1")
        .await;
    for (index, (path, kind, expected)) in columns.iter().enumerate() {
        let cell = &table["rows"][0]["cells"][index + 1];
        assert_eq!(cell, expected, "{path} as {kind}");
    }
}
