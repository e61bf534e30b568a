//! The OpenAPI documents that kubectl needs: for the query parameters of a kind, and the schemas for `explain`.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Map, Value, json};

use super::respond::{self, Answer};
use crate::cluster::Cluster;
use crate::kinds::{ResourceInfo, types};

/// kubectl's old description of all kinds; an empty document is sufficient.
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

pub(super) fn serve(cluster: &Cluster, rest: &[&str]) -> Answer {
    match rest {
        ["v2"] => respond::raw(200, V2_PROTOBUF, ""),
        ["v3"] => respond::json(200, &index(cluster)),
        ["v3", "api", version] => group_version(cluster, "", version),
        ["v3", "apis", group, version] => group_version(cluster, group, version),
        _ => respond::page_not_found(),
    }
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

fn index(cluster: &Cluster) -> Value {
    let mut hashes: BTreeMap<String, DefaultHasher> = BTreeMap::new();
    for info in cluster.resources() {
        for version in &info.versions {
            let path = path_of(&info.group, &version.name);
            let hash = hashes.entry(path).or_default();
            info.kind.hash(hash);
            let schema = version.schema.as_ref().map(|schema| schema.to_string());
            schema.hash(hash);
        }
    }
    let url = |(path, hash): (String, DefaultHasher)| {
        // Clients keep a document as long as its hash stays.
        let url = format!("/openapi/v3/{path}?hash={:016X}", hash.finish());
        (path, json!({"serverRelativeURL": url}))
    };
    let paths: Map<String, Value> = hashes.into_iter().map(url).collect();
    json!({"paths": paths})
}

fn group_version(cluster: &Cluster, group: &str, version: &str) -> Answer {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for info in cluster.resources() {
        if info.group != group || info.version(version).is_none() {
            continue;
        }
        let root = path_of(group, version);
        let scope = if info.namespaced() {
            "namespaces/{namespace}/"
        } else {
            ""
        };
        let collection = format!("/{root}/{scope}{}", info.resource);
        let one = format!("{collection}/{{name}}");
        let of_one = [
            ("get", "get"),
            ("put", "put"),
            ("patch", "patch"),
            ("delete", "delete"),
        ];
        paths.insert(one, operations(&info, version, &of_one));
        let of_all = [
            ("get", "list"),
            ("post", "post"),
            ("delete", "deletecollection"),
        ];
        paths.insert(collection, operations(&info, version, &of_all));
        match info.type_name(version) {
            Some(name) => {
                types::schemas(name, &mut schemas);
                let kinds = json!([kind_of(&info, version)]);
                if let Some(schema) = schemas.get_mut(&types::full_name(name)) {
                    schema["x-kubernetes-group-version-kind"] = kinds;
                }
            }
            None => {
                types::schemas(types::METADATA, &mut schemas);
                drop(schemas.insert(schema_name(&info, version), schema(&info, version)));
            }
        }
    }
    if paths.is_empty() {
        return respond::page_not_found();
    }
    respond::json(
        200,
        &json!({
            "openapi": "3.0.0",
            "info": {"title": "belayer-sandbox", "version": "v1.36.3"},
            "paths": paths,
            "components": {"schemas": schemas},
        }),
    )
}

fn kind_of(info: &ResourceInfo, version: &str) -> Value {
    json!({"group": info.group, "version": version, "kind": info.kind})
}

fn schema_name(info: &ResourceInfo, version: &str) -> String {
    if let Some(name) = info.type_name(version) {
        return types::full_name(name);
    }
    let group: Vec<&str> = info.group.rsplit('.').collect();
    format!("{}.{version}.{}", group.join("."), info.kind)
}

/// Operations of a path: the method, and what Kubernetes calls it.
fn operations(info: &ResourceInfo, version: &str, methods: &[(&str, &str)]) -> Value {
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let operation = |action: &str| {
        let reference = format!("#/components/schemas/{}", schema_name(info, version));
        json!({
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind_of(info, version),
            "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
            "responses": {"200": {
                "description": "OK",
                "content": {"application/json": {"schema": {"$ref": reference}}},
            }},
        })
    };
    let all = methods
        .iter()
        .map(|(method, action)| ((*method).to_owned(), operation(action)));
    Value::Object(all.collect())
}

/// The schema of a CRD, with the fields of every object.
fn schema(info: &ResourceInfo, version: &str) -> Value {
    let own = info
        .version(version)
        .and_then(|version| version.schema.as_deref());
    let mut schema = own.cloned().unwrap_or_else(|| json!({"type": "object"}));
    add_typed(&mut schema);
    schema["x-kubernetes-group-version-kind"] = json!([kind_of(info, version)]);
    schema
}

fn add_typed(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    let reference = format!("#/components/schemas/{}", types::full_name(types::METADATA));
    properties["apiVersion"] = json!({"type": "string", "description": API_VERSION});
    properties["kind"] = json!({"type": "string", "description": KIND});
    properties["metadata"] = json!({"description": STANDARD, "allOf": [{"$ref": reference}]});
}

const STANDARD: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
