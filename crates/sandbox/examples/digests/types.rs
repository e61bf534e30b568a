//! The digest of a server's OpenAPI documents, for the types of built-in kinds.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use belayer_sandbox::Sandbox;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

/// Types with a short name in the digest.
const WORDS: &[(&str, &str)] = &[
    ("api.resource.Quantity", "quantity"),
    ("apiextensions.v1.JSON", "any"),
    ("apiextensions.v1.JSONSchemaPropsOrArray", "any"),
    ("apiextensions.v1.JSONSchemaPropsOrBool", "any"),
    ("apiextensions.v1.JSONSchemaPropsOrStringArray", "any"),
    ("meta.v1.FieldsV1", "any"),
    ("meta.v1.MicroTime", "time"),
    ("meta.v1.Time", "time"),
    ("util.intstr.IntOrString", "int-or-text"),
];
const PREFIXES: &[&str] = &[
    "io.k8s.apiextensions-apiserver.pkg.apis.",
    "io.k8s.apimachinery.pkg.apis.",
    "io.k8s.apimachinery.pkg.",
    "io.k8s.api.",
];
/// Kinds of subresources that the sandbox does not serve but decodes.
const OTHERS: &[(&str, &str, &str)] = &[
    ("", "v1", "Binding"),
    ("policy", "v1", "Eviction"),
    ("authentication.k8s.io", "v1", "SelfSubjectReview"),
    ("authentication.k8s.io", "v1", "TokenRequest"),
    ("authentication.k8s.io", "v1", "TokenReview"),
    ("authorization.k8s.io", "v1", "LocalSubjectAccessReview"),
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview"),
    ("authorization.k8s.io", "v1", "SelfSubjectRulesReview"),
    ("authorization.k8s.io", "v1", "SubjectAccessReview"),
];

/// Generates the digest of all kinds that the sandbox serves.
///
/// # Errors
/// When the server's documents lack one of them.
pub(crate) async fn digest(client: &Client) -> Result<String> {
    let mut wanted: BTreeSet<(String, String, String)> = BTreeSet::new();
    let text = |(group, version, kind): &(&str, &str, &str)| {
        (
            (*group).to_owned(),
            (*version).to_owned(),
            (*kind).to_owned(),
        )
    };
    wanted.extend(OTHERS.iter().map(text));
    for info in Sandbox::builder().build().cluster().resources() {
        let version = info.storage_version.clone();
        wanted.insert((info.group.clone(), version, info.kind.clone()));
    }
    let mut schemas = BTreeMap::new();
    let documents: BTreeSet<_> = wanted
        .iter()
        .map(|(g, v, _)| (g.clone(), v.clone()))
        .collect();
    for (group, version) in documents {
        schemas.extend(document(client, &group, &version).await?);
    }
    let mut kinds = BTreeMap::new();
    let mut digest = Digest {
        schemas: &schemas,
        types: BTreeMap::new(),
        atomic: BTreeSet::new(),
    };
    for (group, version, kind) in &wanted {
        let name = schemas.iter().find(|(name, schema)| {
            let of = schema.get("x-kubernetes-group-version-kind");
            let entry = serde_json::json!({"group": group, "kind": kind, "version": version});
            let named = of
                .and_then(Value::as_array)
                .is_some_and(|of| of.contains(&entry));
            named && !name.ends_with("List")
        });
        let (name, _) = name.with_context(|| format!("no type of {group}/{version}/{kind}"))?;
        digest.add(name);
        kinds.insert(format!("{group}/{version}/{kind}"), short(name));
    }
    // One line per type, so that diffs are readable.
    let lines: Result<Vec<String>> = digest
        .types
        .iter()
        .map(|(name, fields)| {
            let fields = serde_json::to_string(fields)?;
            Ok(format!(" {}: {fields}", Value::from(name.as_str())))
        })
        .collect();
    let kinds = serde_json::to_string_pretty(&kinds)?;
    let atomic = serde_json::to_string_pretty(&digest.atomic)?;
    Ok(format!(
        "{{\"kinds\": {kinds},\n\"atomic\": {atomic},\n\"types\": {{\n{}\n}}}}\n",
        lines?.join(",\n")
    ))
}

async fn document(client: &Client, group: &str, version: &str) -> Result<BTreeMap<String, Value>> {
    let path = match group {
        "" => format!("/openapi/v3/api/{version}"),
        group => format!("/openapi/v3/apis/{group}/{version}"),
    };
    let request = http::Request::get(&path).body(Body::from(Vec::new()))?;
    let body = client.send(request).await?.into_body().collect().await?;
    let document: Value = serde_json::from_slice(&body.to_bytes()).context(path)?;
    let schemas = document
        .pointer("/components/schemas")
        .and_then(Value::as_object);
    let schemas = schemas.context("a document without schemas")?;
    Ok(schemas
        .iter()
        .map(|(name, schema)| (name.clone(), schema.clone()))
        .collect())
}

fn short(name: &str) -> String {
    let mut stripped = PREFIXES
        .iter()
        .filter_map(|prefix| name.strip_prefix(prefix));
    stripped.next().unwrap_or(name).to_owned()
}

/// A key of a list, with its default: `protocol=TCP`.
fn with_default(item: &Value, key: &str) -> String {
    let default = item.pointer(&format!("/properties/{key}/default"));
    match default.and_then(Value::as_str).unwrap_or_default() {
        "" => key.to_owned(),
        text => format!("{key}={text}"),
    }
}

struct Digest<'a> {
    schemas: &'a BTreeMap<String, Value>,
    types: BTreeMap<String, BTreeMap<String, String>>,
    /// Types that server-side apply replaces as a whole.
    atomic: BTreeSet<String>,
}

impl Digest<'_> {
    /// Adds a type and all types that it references.
    fn add(&mut self, name: &str) {
        let key = short(name);
        let is_word = WORDS.iter().any(|(word, _)| *word == key);
        if is_word || self.types.contains_key(&key) {
            return;
        }
        self.types.insert(key.clone(), BTreeMap::new());
        let Some(schema) = self.schemas.get(name) else {
            return;
        };
        if schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic") {
            self.atomic.insert(key.clone());
        }
        let mut fields = BTreeMap::new();
        let properties = schema.get("properties").and_then(Value::as_object);
        for (field, property) in properties.into_iter().flatten() {
            let mut node = self.node(property);
            let text = |name: &str| property.get(name).and_then(Value::as_str);
            let strategy = text("x-kubernetes-patch-strategy").unwrap_or_default();
            if strategy.contains("merge") {
                match text("x-kubernetes-patch-merge-key") {
                    Some(key) => node.push_str(&format!(" by {key}")),
                    None => node.push_str(" set"),
                }
            }
            if strategy.contains("retainKeys") {
                node.push_str(" retain");
            }
            if let Some(rule) = self.apply_rule(property) {
                node.push_str(&format!(" apply:{rule}"));
            }
            // The mark of a struct that is no pointer: it is always there.
            let default = property.get("default");
            if default.is_some_and(|d| d.as_object().is_some_and(serde_json::Map::is_empty)) {
                node.push_str(" struct");
            }
            let required = schema.get("required").and_then(Value::as_array);
            if required.is_some_and(|required| required.iter().any(|r| r == field)) {
                node.push_str(" !");
            }
            fields.insert(field.clone(), node);
        }
        self.types.insert(key, fields);
    }

    /// How server-side apply merges a field, where the strategy of strategic merge patches does not say it.
    fn apply_rule(&self, property: &Value) -> Option<String> {
        let text = |name: &str| property.get(name).and_then(Value::as_str);
        if let Some(rule) = text("x-kubernetes-map-type") {
            return Some(rule.to_owned());
        }
        let merged = text("x-kubernetes-patch-strategy").is_some_and(|s| s.contains("merge"));
        let by = text("x-kubernetes-patch-merge-key");
        match text("x-kubernetes-list-type")? {
            "map" => {
                let keys = property.get("x-kubernetes-list-map-keys")?.as_array()?;
                let item = property.pointer("/items/allOf/0/$ref")?.as_str()?;
                let item = self.schemas.get(item.rsplit('/').next()?)?;
                let keys = keys.iter().filter_map(Value::as_str);
                let keys: Vec<String> = keys.map(|key| with_default(item, key)).collect();
                (!merged || keys.len() != 1 || by != Some(&keys[0])).then(|| keys.join(","))
            }
            "set" => (!merged || by.is_some()).then(|| "set".to_owned()),
            other => merged.then(|| other.to_owned()),
        }
    }

    fn node(&mut self, schema: &Value) -> String {
        let text = |name: &str| schema.get(name).and_then(Value::as_str);
        if let Some(one) = schema.pointer("/allOf/0") {
            return self.node(one);
        }
        if let Some(reference) = text("$ref") {
            let name = reference.rsplit('/').next().unwrap_or_default();
            self.add(name);
            let key = short(name);
            let word = WORDS.iter().find(|(word, _)| *word == key);
            return word.map_or(key, |(_, word)| (*word).to_owned());
        }
        let inner = |name: &str| schema.get(name).filter(|inner| inner.is_object());
        match (text("type"), text("format")) {
            (Some("array"), _) => match inner("items") {
                Some(items) => format!("[]{}", self.node(items)),
                None => "any".into(),
            },
            (Some("object"), _) => match inner("additionalProperties") {
                Some(values) => format!("map {}", self.node(values)),
                None => "any".into(),
            },
            (Some("string"), Some("byte")) => "bytes".into(),
            (Some("string"), Some("date-time")) => "time".into(),
            (Some("string"), _) => "text".into(),
            (Some("integer"), _) => "int".into(),
            (Some("number"), _) => "number".into(),
            (Some("boolean"), _) => "bool".into(),
            _ => "any".into(),
        }
    }
}
