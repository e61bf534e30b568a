//! The OpenAPI documents that kubectl needs: for the query parameters of a kind, and the schemas for `explain`.

use serde_json::{Map, Value, json};

use super::respond::{self, Answer};
use crate::address::Gvr;
use crate::cluster::{Cluster, ListOptions};
use crate::kinds::{ResourceInfo, types};
use crate::meta;

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
    let mut paths = Map::new();
    let stamp = cluster.version();
    for info in cluster.resources() {
        for version in &info.versions {
            let path = path_of(&info.group, &version.name);
            // Custom kinds change: the hash keeps clients from using a cached old document.
            let url = format!("/openapi/v3/{path}?hash={stamp}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
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
        let path = format!("/{root}/{scope}{}/{{name}}", info.resource);
        paths.insert(path, operations(&info, version));
        match info.type_name(version) {
            Some(name) => {
                types::schemas(name, &mut schemas);
                let kinds = json!([kind_of(&info, version)]);
                if let Some(schema) = schemas.get_mut(name) {
                    schema["x-kubernetes-group-version-kind"] = kinds;
                }
            }
            None => {
                drop(schemas.insert(schema_name(&info, version), schema(cluster, &info, version)));
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
        return name.to_owned();
    }
    let group = if info.group.is_empty() {
        "core"
    } else {
        &info.group
    };
    format!("{group}.{version}.{}", info.kind)
}

fn operations(info: &ResourceInfo, version: &str) -> Value {
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
    json!({
        "get": operation("get"), "put": operation("put"), "patch": operation("patch"),
        "delete": operation("delete"),
    })
}

/// A CRD's own schema.
fn schema(cluster: &Cluster, info: &ResourceInfo, version: &str) -> Value {
    let mut schema = json!({"type": "object"});
    if info.custom {
        let name = format!("metadata.name={}.{}", info.resource, info.group);
        let found = cluster.list(
            &Gvr::CUSTOMRESOURCEDEFINITIONS,
            None,
            &ListOptions::fields(name),
        );
        let crd = found.ok().and_then(|page| page.items.into_iter().next());
        let versions = crd
            .as_ref()
            .and_then(|c| meta::at(c, &["spec", "versions"])?.as_array());
        let served = versions
            .into_iter()
            .flatten()
            .find(|v| meta::text(v, &["name"]) == version);
        if let Some(found) = served.and_then(|v| meta::at(v, &["schema", "openAPIV3Schema"])) {
            schema = found.clone();
        }
    }
    if let Some(schema) = schema.as_object_mut() {
        let kinds = json!([kind_of(info, version)]);
        schema.insert("x-kubernetes-group-version-kind".into(), kinds);
    }
    schema
}
