//! CustomResourceDefinitions: their validation, and the kind that each defines.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::schema::{Checks, refuse, unrecognized_formats};
use super::{
    Column, ResourceInfo, ResourceKey, Schemas, Scope, ServedVersion, StatusFace, Traits, scale,
};
use crate::error::Cause;
use crate::meta;
use crate::names::letter_label;

/// The kind that a definition defines.
pub(crate) fn key_of(crd: &Value) -> ResourceKey {
    let group = meta::text(crd, &["spec", "group"]).to_owned();
    (
        group,
        meta::text(crd, &["spec", "names", "plural"]).to_owned(),
    )
}

/// Defaults and checks of a new definition.
pub(crate) fn prepare_create(crd: &mut Value) -> Vec<Cause> {
    let stored = storage_version(crd).map(str::to_owned);
    crd["status"] = json!({
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": Vec::from_iter(stored),
    });
    let mut causes = check(crd);
    causes.extend(check_stored(crd));
    causes.extend(check_approval(None, crd));
    if !causes.is_empty() {
        return causes;
    }
    let kind = meta::text(crd, &["spec", "names", "kind"]).to_owned();
    let names = &mut crd["spec"]["names"];
    if meta::text(names, &["singular"]).is_empty() {
        names["singular"] = json!(kind.to_lowercase());
    }
    if meta::text(names, &["listKind"]).is_empty() {
        names["listKind"] = json!(format!("{kind}List"));
    }
    if crd["spec"].get("conversion").is_none() {
        crd["spec"]["conversion"] = json!({"strategy": "None"});
    }
    Vec::new()
}

/// Notes the storage version of a changed definition among those that stored objects may have.
pub(crate) fn prepare_update(crd: &mut Value) {
    let Some(version) = storage_version(crd).map(str::to_owned) else {
        return;
    };
    let status = &mut crd["status"];
    if status.is_null() {
        *status = json!({});
    }
    match status
        .get_mut("storedVersions")
        .and_then(Value::as_array_mut)
    {
        Some(stored) if stored.iter().any(|one| *one == version) => {}
        Some(stored) => stored.push(json!(version)),
        None => status["storedVersions"] = json!([version]),
    }
}

fn storage_version(crd: &Value) -> Option<&str> {
    let is_stored = |version: &&Value| version.get("storage") == Some(&Value::Bool(true));
    Some(meta::text(versions(crd).find(is_stored)?, &["name"]))
}

fn versions(crd: &Value) -> impl Iterator<Item = &Value> {
    meta::at(crd, &["spec", "versions"])
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn check(crd: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (group, plural) = key_of(crd);
    for (field, text) in [
        ("spec.group", group.as_str()),
        ("spec.names.plural", plural.as_str()),
        (
            "spec.names.kind",
            meta::text(crd, &["spec", "names", "kind"]),
        ),
    ] {
        if text.is_empty() {
            causes.push(Cause::required(field, ""));
        }
    }
    let name = meta::name(crd);
    if name != format!("{plural}.{group}") {
        causes.push(Cause::invalid(
            "metadata.name",
            &format!("{name:?}"),
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    let scope = meta::text(crd, &["spec", "scope"]);
    if !matches!(scope, "Namespaced" | "Cluster") {
        causes.push(Cause::not_supported(
            "spec.scope",
            scope,
            &["Cluster", "Namespaced"],
        ));
    }
    let names: Vec<&str> = versions(crd).map(|v| meta::text(v, &["name"])).collect();
    let unnamed = |path: &str, name: &str| {
        let why = letter_label(name)?;
        Some(Cause::invalid(path, &format!("{name:?}"), why))
    };
    for (index, name) in names.iter().enumerate() {
        causes.extend(unnamed(&format!("spec.versions[{index}].name"), name));
    }
    let shown = || serde_json::to_string(&crd["spec"]["versions"]).unwrap_or_default();
    if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
        let why = "must contain unique version names";
        causes.push(Cause::invalid("spec.versions", &shown(), why));
    }
    let stored = versions(crd)
        .filter(|v| v.get("storage") == Some(&Value::Bool(true)))
        .count();
    if stored != 1 {
        causes.push(Cause::invalid(
            "spec.versions",
            &shown(),
            "must have exactly one version marked as storage version",
        ));
    }
    // The old field of definitions with one version, which the real server still derives.
    causes.extend(names.first().and_then(|name| unnamed("spec.version", name)));
    // The real server checks a schema that all versions share once, under its old name.
    let schemas: Vec<Option<&Value>> = versions(crd).map(schema_of).collect();
    let shared = schemas
        .iter()
        .all(|schema| schema == schemas.first().unwrap_or(&None));
    for (index, schema) in schemas.iter().enumerate() {
        let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
        match schema {
            None => causes.push(Cause::required(&path, "")),
            Some(_) if shared && index > 0 => {}
            Some(schema) if shared => {
                causes.extend(refuse(schema, "spec.validation.openAPIV3Schema"));
            }
            Some(schema) => causes.extend(refuse(schema, &path)),
        }
    }
    causes.extend(check_subresources(crd));
    causes
}

/// As with schemas, subresources that all versions share are checked once.
fn check_subresources(crd: &Value) -> Vec<Cause> {
    let mut all = versions(crd).map(|version| version.get("subresources"));
    let first = all.next().flatten();
    if all.all(|subresources| subresources == first) {
        let first = versions(crd).next();
        return first.map_or_else(Vec::new, |v| scale::refuse(v, "spec.subresources"));
    }
    let check =
        |(index, version)| scale::refuse(version, &format!("spec.versions[{index}].subresources"));
    versions(crd).enumerate().flat_map(check).collect()
}

/// The errors in the versions that stored objects may have.
fn check_stored(crd: &Value) -> Vec<Cause> {
    let path = "status.storedVersions";
    let stored = texts(meta::at(crd, &["status", "storedVersions"]));
    if stored.is_empty() {
        let why = "must have at least one stored version";
        return vec![Cause::invalid(path, "[]", why)];
    }
    let mut causes = Vec::new();
    for version in versions(crd) {
        let name = meta::text(version, &["name"]);
        let is_storage = version.get("storage") == Some(&Value::Bool(true));
        if is_storage && !stored.iter().any(|one| one == name) {
            let why = format!("must have the storage version {name}");
            causes.push(Cause::invalid(path, &json!(stored).to_string(), &why));
        }
    }
    for (index, name) in stored.iter().enumerate() {
        if versions(crd).all(|version| meta::text(version, &["name"]) != name) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            let path = format!("{path}[{index}]");
            causes.push(Cause::invalid(&path, &format!("{name:?}"), &why));
        }
    }
    causes
}

const APPROVAL: &str = "api-approved.kubernetes.io";

/// Whether the groups of Kubernetes itself have agreed to a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Approval {
    Missing,
    Bypassed,
    Approved,
    Invalid,
}

fn approval(crd: &Value) -> Approval {
    let text = meta::text(crd, &["metadata", "annotations", APPROVAL]);
    if text.is_empty() {
        return Approval::Missing;
    }
    if text.starts_with("unapproved") {
        return Approval::Bypassed;
    }
    let url = text.parse::<http::Uri>();
    match url.is_ok_and(|url| url.scheme().is_some() && url.host().is_some()) {
        true => Approval::Approved,
        false => Approval::Invalid,
    }
}

/// Definitions in a group of Kubernetes itself need an approval. One that has had none may stay without.
fn check_approval(old: Option<&Value>, new: &Value) -> Option<Cause> {
    let group = meta::text(new, &["spec", "group"]);
    let is_in = |domain: &str| {
        let host = group.strip_suffix(domain);
        host.is_some_and(|host| host.is_empty() || host.ends_with('.'))
    };
    if !(is_in("k8s.io") || is_in("kubernetes.io")) {
        return None;
    }
    let now = approval(new);
    if old.is_some_and(|old| approval(old) == now) {
        return None;
    }
    let field = format!("metadata.annotations[{APPROVAL}]");
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    let needed = format!("protected groups must have approval annotation {APPROVAL:?}");
    match now {
        Approval::Approved | Approval::Bypassed => None,
        Approval::Missing => Some(Cause::required(&field, &format!("{needed}, {see}"))),
        Approval::Invalid => {
            let value = meta::text(new, &["metadata", "annotations", APPROVAL]);
            let why = format!(
                "{needed} with either a URL or a reason starting with \"unapproved\", {see}"
            );
            Some(Cause::invalid(&field, &format!("{value:?}"), &why))
        }
    }
}

fn schema_of(version: &Value) -> Option<&Value> {
    meta::at(version, &["schema", "openAPIV3Schema"])
}

/// What the server ignores in a definition.
pub(crate) fn warnings(crd: &Value) -> Vec<String> {
    let mut formats: Vec<String> = Vec::new();
    for schema in versions(crd).filter_map(schema_of) {
        formats.extend(unrecognized_formats(schema));
    }
    let warn = |name: &String| format!("unrecognized format {name:?}");
    formats.iter().map(warn).collect()
}

/// All errors in a changed definition.
pub(crate) fn check_update(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = check(new);
    causes.extend(check_stored(new));
    causes.extend(check_approval(Some(old), new));
    for field in ["group", "scope"] {
        let path = ["spec", field];
        if meta::text(old, &path) != meta::text(new, &path) {
            let value = format!("{:?}", meta::text(new, &path));
            causes.push(Cause::invalid(
                &format!("spec.{field}"),
                &value,
                "field is immutable",
            ));
        }
    }
    causes
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The kind to serve for a definition.
pub(crate) fn describe(crd: &Value) -> ResourceInfo {
    let (group, resource) = key_of(crd);
    let names = &crd["spec"]["names"];
    let mut served: Vec<ServedVersion> = versions(crd)
        .filter(|v| v.get("served") != Some(&Value::Bool(false)))
        .map(served_version)
        .collect();
    served.sort_by_key(|v| priority(&v.name));
    let schemas = versions(crd).filter_map(|version| {
        let name = meta::text(version, &["name"]).to_owned();
        Some((name, Arc::new(schema_of(version)?.clone())))
    });
    let cluster = meta::text(crd, &["spec", "scope"]) == "Cluster";
    let accepted = &crd["status"]["acceptedNames"];
    let name = |field: &str| {
        let text = meta::text(names, &[field]);
        if text.is_empty() {
            meta::text(accepted, &[field])
        } else {
            text
        }
        .to_owned()
    };
    ResourceInfo {
        group,
        versions: served,
        storage_version: storage_version(crd).unwrap_or_default().to_owned(),
        resource,
        singular: name("singular"),
        kind: name("kind"),
        list_kind: name("listKind"),
        short_names: texts(names.get("shortNames")),
        categories: texts(names.get("categories")),
        scope: if cluster {
            Scope::Cluster
        } else {
            Scope::Namespaced
        },
        custom: true,
        traits: Traits::GENERATION,
        schemas: Schemas::new(schemas.collect()),
    }
}

/// Kubernetes' order of versions: stable before beta before alpha, then the newest first.
fn priority(version: &str) -> (u8, std::cmp::Reverse<u32>, std::cmp::Reverse<u32>, String) {
    let number = |text: &str| -> u32 {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    };
    let body = version.strip_prefix('v').unwrap_or(version);
    let (stage, minor) = match (body.split_once("beta"), body.split_once("alpha")) {
        (Some((_, minor)), _) => (1, number(minor)),
        (_, Some((_, minor))) => (2, number(minor)),
        _ if !body.is_empty() && body.bytes().all(|b| b.is_ascii_digit()) => (0, 0),
        _ => (3, 0),
    };
    use std::cmp::Reverse;
    (
        stage,
        Reverse(number(body)),
        Reverse(minor),
        version.to_owned(),
    )
}

fn served_version(version: &Value) -> ServedVersion {
    let status = meta::at(version, &["subresources", "status"]).is_some();
    let columns = version
        .get("additionalPrinterColumns")
        .and_then(Value::as_array);
    let fields = version.get("selectableFields").and_then(Value::as_array);
    let schema = schema_of(version);
    let checks = schema.map(Checks::of).unwrap_or_default();
    ServedVersion {
        name: meta::text(version, &["name"]).to_owned(),
        status: if status {
            StatusFace::StatusOnly
        } else {
            StatusFace::None
        },
        columns: columns.into_iter().flatten().map(column).collect(),
        schema: schema.map(|schema| Arc::new(schema.clone())),
        checks: Arc::new(checks.with_scale(scale::Paths::of(version))),
        selectable: fields
            .into_iter()
            .flatten()
            .map(|f| {
                meta::text(f, &["jsonPath"])
                    .trim_start_matches('.')
                    .to_owned()
            })
            .collect(),
    }
}

fn column(column: &Value) -> Column {
    let text = |field: &str| meta::text(column, &[field]).to_owned();
    let priority = column.get("priority").and_then(Value::as_i64).unwrap_or(0);
    Column {
        name: text("name"),
        kind: text("type"),
        format: text("format"),
        description: text("description"),
        priority: i32::try_from(priority).unwrap_or(0),
        path: text("jsonPath"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_kubernetes_orders_them() {
        let mut names = [
            "v1alpha1", "v2", "foo1", "v1", "v11beta2", "v10beta3", "v1alpha2",
        ];
        names.sort_by_key(|name| priority(name));
        assert_eq!(
            names,
            [
                "v2", "v1", "v11beta2", "v10beta3", "v1alpha2", "v1alpha1", "foo1"
            ]
        );
    }
}
