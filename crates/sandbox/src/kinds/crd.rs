//! CustomResourceDefinitions: their validation, and the kind that each defines.

use std::sync::Arc;

use serde_json::{Value, json};

use super::schema::{Checks, refuse, unrecognized_formats};
use super::{Column, ResourceInfo, ResourceKey, Scope, ServedVersion, StatusFace, Traits};
use crate::error::Cause;
use crate::meta;

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
    let causes = check(crd);
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
    let stored = versions(crd).find(|v| v.get("storage") == Some(&Value::Bool(true)));
    let stored = stored
        .map(|v| meta::text(v, &["name"]).to_owned())
        .unwrap_or_default();
    crd["status"] = json!({
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": [stored],
    });
    Vec::new()
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
    let stored = versions(crd)
        .filter(|v| v.get("storage") == Some(&Value::Bool(true)))
        .count();
    if stored != 1 {
        causes.push(Cause::invalid(
            "spec.versions",
            &serde_json::to_string(&crd["spec"]["versions"]).unwrap_or_default(),
            "must have exactly one version marked as storage version",
        ));
        let path = "status.storedVersions";
        causes.push(Cause::invalid(
            path,
            "[]",
            "must have at least one stored version",
        ));
    }
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
    causes
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
    let stored = versions(crd).find(|v| v.get("storage") == Some(&Value::Bool(true)));
    let mut served: Vec<ServedVersion> = versions(crd)
        .filter(|v| v.get("served") != Some(&Value::Bool(false)))
        .map(served_version)
        .collect();
    served.sort_by_key(|v| priority(&v.name));
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
        storage_version: stored
            .map(|v| meta::text(v, &["name"]).to_owned())
            .unwrap_or_default(),
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
    ServedVersion {
        name: meta::text(version, &["name"]).to_owned(),
        status: if status {
            StatusFace::StatusOnly
        } else {
            StatusFace::None
        },
        columns: columns.into_iter().flatten().map(column).collect(),
        schema: schema.map(|schema| Arc::new(schema.clone())),
        checks: Arc::new(schema.map(Checks::of).unwrap_or_default()),
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
