//! Discovery, version and health endpoints.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::respond::{self, Answer};
use super::{Call, openapi, resource};
use crate::address::{Gvr, Subresource};
use crate::cluster::Cluster;
use crate::error::ApiError;
use crate::kinds::{ResourceInfo, StatusFace};

/// The Kubernetes release whose behaviour this server follows.
const GIT_VERSION: &str = "v1.36.3+belayer-sandbox";

const VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// The order of the server of custom resources.
const CUSTOM_VERBS: &[&str] = &[
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

fn verbs(info: &ResourceInfo) -> Vec<&'static str> {
    if info.custom {
        return CUSTOM_VERBS.to_vec();
    }
    let is_namespace = info.is(&Gvr::NAMESPACES);
    let served = |verb: &&&str| !(is_namespace && **verb == "deletecollection");
    VERBS.iter().filter(served).copied().collect()
}

pub(super) fn serve(cluster: &Cluster, call: &Call, words: &[String]) -> Answer {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if !resource::is_read(&call.parts.method) {
        return match words.first() {
            Some(&("api" | "apis" | "version")) => respond::refuse(&ApiError::method_not_allowed(
                "the server does not allow this method on the requested resource",
            )),
            _ => respond::page_not_found(),
        };
    }
    let found = match words.as_slice() {
        [] => Some(
            json!({"paths": ["/api", "/api/v1", "/apis", "/healthz", "/openapi/v3", "/version"]}),
        ),
        ["version"] => Some(version()),
        ["healthz" | "livez" | "readyz", ..] => {
            return respond::raw(200, "text/plain; charset=utf-8", "ok");
        }
        ["api"] => Some(json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        })),
        ["api", version] => resources(cluster, "", version),
        ["apis"] => Some(json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": groups(cluster).iter().map(|(name, versions)| group(name, versions)).collect::<Value>(),
        })),
        ["apis", name] => groups(cluster).get(*name).map(|versions| {
            let mut group = group(name, versions);
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            group
        }),
        ["apis", group, version] => resources(cluster, group, version),
        ["openapi", rest @ ..] => return openapi::serve(cluster, rest),
        _ => None,
    };
    found.map_or_else(respond::page_not_found, |value| respond::json(200, &value))
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": "linux/amd64",
    })
}

/// Named groups with their versions, the preferred one first.
pub(super) fn groups(cluster: &Cluster) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for info in cluster
        .resources()
        .iter()
        .filter(|info| !info.group.is_empty())
    {
        let versions = groups.entry(info.group.clone()).or_default();
        for version in &info.versions {
            if !versions.contains(&version.name) {
                versions.push(version.name.clone());
            }
        }
    }
    groups.retain(|_, versions| !versions.is_empty());
    groups
}

fn group(name: &str, versions: &[String]) -> Value {
    let entry =
        |version: &String| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    json!({
        "name": name,
        "versions": versions.iter().map(entry).collect::<Value>(),
        "preferredVersion": versions.first().map(entry),
    })
}

fn resources(cluster: &Cluster, group: &str, version: &str) -> Option<Value> {
    let served: Vec<Arc<ResourceInfo>> = cluster
        .resources()
        .into_iter()
        .filter(|info| info.group == group && info.version(version).is_some())
        .collect();
    if served.is_empty() {
        return None;
    }
    let list: Vec<Value> = served
        .iter()
        .flat_map(|info| entries(info, version))
        .collect();
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": list,
    }))
}

fn entries(info: &ResourceInfo, version: &str) -> Vec<Value> {
    let mut main = json!({
        "name": info.resource,
        "singularName": info.singular,
        "namespaced": info.namespaced(),
        "kind": info.kind,
        "verbs": verbs(info),
        "storageVersionHash": "",
    });
    if !info.short_names.is_empty() {
        main["shortNames"] = json!(info.short_names);
    }
    if !info.categories.is_empty() {
        main["categories"] = json!(info.categories);
    }
    let mut all = vec![main];
    let sub = |name: &str, kind: &str, verbs: &[&str]| {
        json!({
            "name": format!("{}/{name}", info.resource),
            "singularName": "",
            "namespaced": info.namespaced(),
            "kind": kind,
            "verbs": verbs,
        })
    };
    if info.status_face(version) != StatusFace::None {
        all.push(sub("status", &info.kind, &["get", "patch", "update"]));
    }
    if info.serves(version, Subresource::Scale) {
        let mut entry = sub("scale", "Scale", &["get", "patch", "update"]);
        entry["group"] = json!("autoscaling");
        entry["version"] = json!("v1");
        all.push(entry);
    }
    if info.serves(version, Subresource::Finalize) {
        all.push(sub("finalize", &info.kind, &["update"]));
    }
    if info.group.is_empty() && info.resource == "pods" {
        all.push(sub("binding", "Binding", &["create"]));
        let mut eviction = sub("eviction", "Eviction", &["create"]);
        eviction["group"] = json!("policy");
        eviction["version"] = json!("v1");
        all.push(eviction);
        all.push(sub("log", "Pod", &["get"]));
    }
    all
}
