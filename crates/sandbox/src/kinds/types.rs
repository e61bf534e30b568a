//! The types of the built-in kinds: their fields, and how lists are merged.
//!
//! `types.json` is the digest of the OpenAPI documents of Kubernetes 1.36: per type its fields, each with
//! a node such as `text`, `[]core.v1.Container by name` or `map text`. `!` marks a field that is printed
//! even when it is empty, `struct` an object that is there even when the body omits it. `apply:` is the rule
//! of server-side apply where the strategic merge does not imply it; `atomic` lists the types that apply
//! replaces as a whole. `examples/digests` generates it from a server.

mod decode;
mod openapi;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use serde::Deserialize;

use super::messages;

pub(crate) use decode::{decode, unknown_fields, zero};
pub(crate) use openapi::{full_name, schemas};

/// The type of the metadata of objects.
pub(crate) const METADATA: &str = "meta.v1.ObjectMeta";

/// The type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Any,
    Text,
    Bytes,
    Time,
    Integer,
    Number,
    Boolean,
    Quantity,
    IntOrText,
    List(Box<Node>),
    Map(Box<Node>),
    Type(String),
}

/// How a strategic merge patch merges a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Merge {
    /// The patch's list replaces it.
    Replace,
    /// Items are matched by this field.
    By(String),
    /// A set of primitive values that the patch extends.
    Set,
}

/// How server-side apply merges a list, a map or an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Apply {
    /// It is replaced as a whole, and has one owner.
    Atomic,
    /// Each field has its own owner.
    Granular,
    /// A list of primitive values, each with its own owner.
    Set,
    /// A list of objects that these fields identify.
    Keys(Vec<ListKey>),
}

/// A field that identifies an item of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListKey {
    pub(crate) name: String,
    /// Empty if there is none.
    pub(crate) default: String,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) node: Node,
    merge: Merge,
    /// `None` where the type of the value decides.
    pub(crate) apply: Option<Apply>,
    /// Printed even when it is empty.
    pub(crate) always: bool,
    /// Not printed when it is zero: it is not a pointer.
    omits: bool,
    /// An object that is there even when the body omits it.
    pub(crate) embedded: bool,
}

type Fields = BTreeMap<String, Field>;

#[derive(Debug)]
pub(crate) struct Type {
    pub(crate) fields: Fields,
    /// Server-side apply replaces it as a whole.
    pub(crate) atomic: bool,
}

#[derive(Deserialize)]
struct Document {
    kinds: BTreeMap<String, String>,
    atomic: BTreeSet<String>,
    types: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Debug, Default)]
struct Types {
    kinds: BTreeMap<String, Node>,
    types: BTreeMap<String, Type>,
}

fn types() -> &'static Types {
    static TYPES: OnceLock<Types> = OnceLock::new();
    TYPES.get_or_init(|| {
        // A test checks that it parses: without types every body is kept as it is.
        let document: Document = match serde_json::from_str(include_str!("types.json")) {
            Ok(document) => document,
            Err(_) => return Types::default(),
        };
        let fields = |fields: BTreeMap<String, String>| -> Fields {
            fields.into_iter().map(|(n, f)| (n, field(&f))).collect()
        };
        Types {
            kinds: document
                .kinds
                .into_iter()
                .map(|(k, name)| (k, Node::Type(name)))
                .collect(),
            types: document
                .types
                .into_iter()
                .map(|(name, texts)| {
                    let atomic = document.atomic.contains(&name);
                    let mut fields = fields(texts);
                    for omitted in messages::omitted(&name) {
                        if let Some(field) = fields.get_mut(omitted) {
                            field.omits = true;
                        }
                    }
                    (name, Type { fields, atomic })
                })
                .collect(),
        }
    })
}

fn field(text: &str) -> Field {
    let mut field = Field {
        node: Node::Any,
        merge: Merge::Replace,
        apply: None,
        always: false,
        omits: false,
        embedded: false,
    };
    let mut text = text;
    if let Some(rest) = text.strip_suffix(" !") {
        field.always = true;
        text = rest;
    }
    if let Some(rest) = text.strip_suffix(" struct") {
        field.embedded = true;
        text = rest;
    }
    if let Some((rest, rule)) = text.split_once(" apply:") {
        field.apply = Some(apply_rule(rule));
        text = rest;
    }
    text = text.strip_suffix(" retain").unwrap_or(text);
    if let Some(rest) = text.strip_suffix(" set") {
        field.merge = Merge::Set;
        text = rest;
    }
    if let Some((rest, key)) = text.split_once(" by ") {
        field.merge = Merge::By(key.to_owned());
        text = rest;
    }
    field.node = node(text);
    if field.apply.is_none() {
        field.apply = match &field.merge {
            Merge::Replace => None,
            Merge::By(key) => Some(apply_rule(key)),
            Merge::Set => Some(Apply::Set),
        };
    }
    field
}

fn apply_rule(text: &str) -> Apply {
    let key = |text: &str| {
        let (name, default) = text.split_once('=').unwrap_or((text, ""));
        ListKey {
            name: name.to_owned(),
            default: default.to_owned(),
        }
    };
    match text {
        "atomic" => Apply::Atomic,
        "granular" => Apply::Granular,
        "set" => Apply::Set,
        keys => Apply::Keys(keys.split(',').map(key).collect()),
    }
}

fn node(text: &str) -> Node {
    if let Some(item) = text.strip_prefix("[]") {
        return Node::List(Box::new(node(item)));
    }
    if let Some(item) = text.strip_prefix("map ") {
        return Node::Map(Box::new(node(item)));
    }
    match text {
        "any" => Node::Any,
        "text" => Node::Text,
        "bytes" => Node::Bytes,
        "time" => Node::Time,
        "int" => Node::Integer,
        "number" => Node::Number,
        "bool" => Node::Boolean,
        "quantity" => Node::Quantity,
        "int-or-text" => Node::IntOrText,
        name => Node::Type(name.to_owned()),
    }
}

/// The name of a built-in kind's type.
pub(crate) fn of_kind(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    match node_of_kind(group, version, kind) {
        Some(Node::Type(name)) => Some(name),
        _ => None,
    }
}

/// The same as the type of a value.
pub(crate) fn node_of_kind(group: &str, version: &str, kind: &str) -> Option<&'static Node> {
    types().kinds.get(&format!("{group}/{version}/{kind}"))
}

/// A built-in type.
pub(crate) fn of_name(name: &str) -> Option<&'static Type> {
    types().types.get(name)
}

/// How a list field of a type is merged, and the type of its items or of the nested object.
pub(crate) fn of_field(owner: Option<&str>, name: &str) -> (Merge, Option<&'static str>) {
    let field = owner.and_then(|owner| of_name(owner)?.fields.get(name));
    let Some(field) = field else {
        return (Merge::Replace, None);
    };
    let inner = match &field.node {
        Node::List(item) | Node::Map(item) => item,
        node => node,
    };
    let inner = match inner {
        Node::Type(name) => Some(name.as_str()),
        _ => None,
    };
    (field.merge.clone(), inner)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn every_referenced_type_exists() {
        let types = types();
        assert!(types.types.len() > 300);
        for of in types.types.values() {
            for field in of.fields.values() {
                let mut node = &field.node;
                while let Node::List(inner) | Node::Map(inner) = node {
                    node = inner;
                }
                if let Node::Type(name) = node {
                    assert!(types.types.contains_key(name), "{name}");
                }
            }
        }
    }

    #[test]
    fn every_built_in_kind_has_a_type() {
        for info in crate::kinds::builtin() {
            let version = &info.storage_version;
            assert!(
                of_kind(&info.group, version, &info.kind).is_some(),
                "{}",
                info.kind
            );
        }
    }

    #[rstest]
    #[case(json!({"data": {"k": 5}}))]
    #[case(json!({"data": []}))]
    #[case(json!({"binaryData": {"k": "%%"}}))]
    #[case(json!({"immutable": "yes"}))]
    fn wrong_types_are_refused(#[case] mut body: Value) {
        assert!(decode("core.v1.ConfigMap", &mut body).is_err(), "{body}");
    }

    #[test]
    fn unknown_fields_are_dropped_and_reported() {
        let mut body = json!({"x": 1, "spec": {"y": 2, "containers": [{"name": "c", "z": 3}]}});
        let unknown = decode("core.v1.Pod", &mut body).unwrap();
        assert_eq!(unknown, ["spec.containers[0].z", "spec.y", "x"]);
        assert_eq!(body, json!({"spec": {"containers": [{"name": "c"}]}}));
    }

    #[test]
    fn zeros_are_dropped_unless_the_field_is_a_pointer() {
        let mut body = json!({"spec": {"hostNetwork": false, "shareProcessNamespace": false, "nodeName": "", "priority": 0,
            "containers": [{"name": "", "tty": false, "ports": [{"containerPort": 0, "hostPort": 0}]}],
            "volumes": [{"name": "v", "emptyDir": {"medium": ""}}]}});
        decode("core.v1.Pod", &mut body).unwrap();
        let kept = json!({"spec": {"shareProcessNamespace": false, "priority": 0,
            "containers": [{"name": "", "ports": [{"containerPort": 0}]}],
            "volumes": [{"name": "v", "emptyDir": {}}]}});
        assert_eq!(body, kept);
    }

    #[test]
    fn quantities_are_canonical() {
        let mut body = json!({"spec": {"resources": {"requests": {"storage": "1024Mi"}, "limits": {"storage": 1}}}});
        decode("core.v1.PersistentVolumeClaim", &mut body).unwrap();
        let resources = json!({"requests": {"storage": "1Gi"}, "limits": {"storage": "1"}});
        assert_eq!(body["spec"]["resources"], resources);
        body["spec"]["resources"]["requests"]["storage"] = json!(true);
        let why = decode("core.v1.PersistentVolumeClaim", &mut body).unwrap_err();
        assert!(why.starts_with("quantities must match"), "{why}");
    }

    #[test]
    fn nulls_and_empty_optional_fields_are_dropped() {
        let mut body = json!({"data": {"k": null}, "binaryData": {}, "immutable": null});
        assert!(decode("core.v1.ConfigMap", &mut body).unwrap().is_empty());
        assert_eq!(body, json!({"data": {"k": ""}}));
    }
}
