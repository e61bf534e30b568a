//! The OpenAPI documents of kubectl and of generators.

use serde_json::{Value, json};

use super::Api;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn crd(schema: &Value) -> Value {
    json!({
        "metadata": {"name": "things.example.dev"},
        "spec": {
            "group": "example.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

async fn url(api: &Api, path: &str) -> String {
    let (_, index) = api.get("/openapi/v3").await;
    let url = index["paths"][path]["serverRelativeURL"].as_str();
    url.unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_document_keeps_its_hash_until_a_crd_changes_it() {
    let api = Api::new();
    let spec = json!({"type": "object", "properties": {"spec": {"type": "object"}}});
    api.make(CRDS, crd(&spec)).await;
    let (core, own) = (
        url(&api, "api/v1").await,
        url(&api, "apis/example.dev/v1").await,
    );
    api.make(
        "/api/v1/namespaces/default/configmaps",
        json!({"metadata": {"name": "a"}}),
    )
    .await;
    assert_eq!(url(&api, "api/v1").await, core);
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/more";
    let patch = json!([{"op": "add", "path": path, "value": {"type": "string"}}]);
    let (status, _) = api
        .patch(
            &format!("{CRDS}/things.example.dev"),
            super::JSON_PATCH,
            patch,
        )
        .await;
    assert_eq!(status, 200);
    assert_eq!(url(&api, "api/v1").await, core);
    assert_ne!(url(&api, "apis/example.dev/v1").await, own);
}

#[tokio::test]
async fn the_schema_of_a_crd_has_the_fields_of_every_object() {
    let api = Api::new();
    api.make(CRDS, crd(&json!({"type": "object"}))).await;
    let (_, document) = api.get("/openapi/v3/apis/example.dev/v1").await;
    let schemas = &document["components"]["schemas"];
    let metadata = &schemas["dev.example.v1.Thing"]["properties"]["metadata"]["allOf"][0]["$ref"];
    let expected = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(metadata, &json!(format!("#/components/schemas/{expected}")));
    assert!(schemas[expected]["properties"]["labels"].is_object());
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.contains_key("/apis/example.dev/v1/namespaces/{namespace}/things"));
}

#[tokio::test]
async fn built_in_types_say_what_they_require_and_how_they_merge() {
    let api = Api::new();
    let (_, document) = api.get("/openapi/v3/api/v1").await;
    let schemas = &document["components"]["schemas"];
    assert_eq!(
        schemas["io.k8s.api.core.v1.PodSpec"]["required"],
        json!(["containers"])
    );
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(containers["x-kubernetes-patch-merge-key"], json!("name"));
    for (name, schema) in schemas.as_object().unwrap() {
        assert!(schema.is_object(), "{name} has no schema");
    }
}
