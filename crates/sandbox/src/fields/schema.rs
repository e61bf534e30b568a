//! The part of a schema that decides on ownership: what is atomic, and what identifies the items of a list.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use crate::address::Gvr;
use crate::kinds::ResourceInfo;
use crate::kinds::types::{self, Apply, Field, ListKey, Node};

const METADATA: &str = "meta.v1.ObjectMeta";

/// The schema of a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape<'a> {
    /// Unknown: maps are granular, lists are atomic.
    Free,
    /// A primitive value, or one that is replaced as a whole.
    Leaf,
    /// A value of a built-in type, with the rule of its field.
    BuiltIn(&'a Node, Option<&'a Apply>),
    /// A value of a custom resource.
    Custom(Custom<'a>),
}

/// A part of the schema of a CRD.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Custom<'a> {
    schema: &'a Value,
    /// Unknown fields are kept here and below.
    preserves: bool,
    /// It has the fields of an object: apiVersion, kind, metadata.
    whole: bool,
}

/// How a value is walked through.
pub(super) enum Form<'a> {
    Leaf,
    /// Each field has its own owner.
    Map,
    /// Each item has its own owner.
    List(List<'a>),
}

/// A list whose items have owners.
pub(super) struct List<'a> {
    pub(super) keys: Keys<'a>,
    pub(super) item: Shape<'a>,
}

/// What identifies the items of a list.
pub(super) enum Keys<'a> {
    /// Their values.
    Set,
    /// Fields of a built-in type.
    BuiltIn(&'a [ListKey], &'a Node),
    /// Fields that a CRD names, with the schema of an item.
    Custom(&'a [Value], &'a Value),
}

impl<'a> Keys<'a> {
    /// Calls a function for each key and its default.
    pub(super) fn each(&self, mut call: impl FnMut(&'a str, Option<Value>)) {
        match self {
            Keys::Set => {}
            Keys::BuiltIn(keys, item) => {
                for key in *keys {
                    call(&key.name, default_of(item, key));
                }
            }
            Keys::Custom(keys, item) => {
                for key in keys.iter().filter_map(Value::as_str) {
                    let properties = item.get("properties");
                    let schema = properties.and_then(|properties| properties.get(key));
                    call(
                        key,
                        schema.and_then(|schema| schema.get("default")).cloned(),
                    );
                }
            }
        }
    }
}

fn default_of(item: &Node, key: &ListKey) -> Option<Value> {
    if !key.default.is_empty() {
        return Some(json!(key.default));
    }
    let Node::Type(name) = item else {
        return None;
    };
    let field = types::of_name(name)?.fields.get(&key.name)?;
    field.always.then(|| types::zero(&field.node))
}

fn metadata() -> Shape<'static> {
    static NODE: OnceLock<Node> = OnceLock::new();
    Shape::BuiltIn(NODE.get_or_init(|| Node::Type(METADATA.to_owned())), None)
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

fn text<'a>(schema: &'a Value, name: &str) -> &'a str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

impl<'a> Shape<'a> {
    /// The schema of the objects of a kind.
    pub(crate) fn of_kind(info: &'a ResourceInfo, gvr: &Gvr) -> Self {
        if let Some(node) = info.type_node(&gvr.version) {
            return Shape::BuiltIn(node, None);
        }
        let version = info.version(&gvr.version);
        match version.and_then(|version| version.schema.as_deref()) {
            Some(schema) => Shape::Custom(Custom {
                schema,
                preserves: false,
                whole: true,
            }),
            None => Shape::Free,
        }
    }

    /// How a value with this schema is walked through.
    pub(super) fn form(self, value: &Value) -> Form<'a> {
        match self {
            Shape::Leaf => Form::Leaf,
            Shape::Free => free(value),
            Shape::BuiltIn(node, rule) => built_in(node, rule, value),
            Shape::Custom(custom) => custom.form(value),
        }
    }

    /// The schema of a field, and whether the schema names the field. `None` when it is not declared.
    pub(super) fn field(self, name: &str) -> Option<(Shape<'a>, bool)> {
        match self {
            Shape::Free => Some((Shape::Free, false)),
            Shape::Leaf => Some((Shape::Leaf, false)),
            Shape::BuiltIn(Node::Type(of), _) => {
                let field = types::of_name(of)?.fields.get(name)?;
                Some((of_field(field), true))
            }
            Shape::BuiltIn(Node::Map(item), _) => Some((Shape::BuiltIn(item, None), false)),
            Shape::BuiltIn(..) => Some((Shape::Free, false)),
            Shape::Custom(custom) => custom.field(name),
        }
    }

    /// The schema below an element of a path, and whether the element is a named field.
    pub(super) fn at(self, element: &str) -> (Shape<'a>, bool) {
        if let Some(name) = element.strip_prefix("f:") {
            return self.field(name).unwrap_or((Shape::Free, false));
        }
        let item = match self {
            Shape::BuiltIn(Node::List(item), _) => Shape::BuiltIn(item, None),
            Shape::Custom(custom) => custom.item(),
            _ => Shape::Free,
        };
        (item, false)
    }

    /// The fields that a built-in type always has, with the values of absent ones.
    pub(super) fn implied(self) -> impl Iterator<Item = (&'a str, Value)> {
        let of = match self {
            Shape::BuiltIn(Node::Type(name), _) => types::of_name(name),
            _ => None,
        };
        let fields = of.into_iter().flat_map(|of| &of.fields);
        fields.filter_map(|(name, field)| Some((name.as_str(), zero(field)?)))
    }

    /// The value of a field that a built-in type always has.
    pub(super) fn implied_at(self, name: &str) -> Option<Value> {
        let Shape::BuiltIn(Node::Type(of), _) = self else {
            return None;
        };
        zero(types::of_name(of)?.fields.get(name)?)
    }
}

fn of_field(field: &Field) -> Shape<'_> {
    Shape::BuiltIn(&field.node, field.apply.as_ref())
}

fn zero(field: &Field) -> Option<Value> {
    match &field.node {
        _ if field.embedded => Some(Value::Object(Map::new())),
        Node::Type(_) if field.always => Some(Value::Null),
        node if field.always => Some(types::zero(node)),
        _ => None,
    }
}

fn free<'a>(value: &Value) -> Form<'a> {
    if value.is_object() {
        Form::Map
    } else {
        Form::Leaf
    }
}

fn built_in<'a>(node: &'a Node, rule: Option<&'a Apply>, value: &Value) -> Form<'a> {
    match (node, rule) {
        (_, Some(Apply::Atomic)) => Form::Leaf,
        (Node::Any, _) => free(value),
        (Node::Map(_), _) | (Node::Type(_), Some(Apply::Granular)) => Form::Map,
        (Node::Type(name), _) => match types::of_name(name) {
            Some(of) if of.atomic => Form::Leaf,
            _ => Form::Map,
        },
        (Node::List(item), Some(Apply::Set)) => Form::List(List {
            keys: Keys::Set,
            item: Shape::BuiltIn(item, None),
        }),
        (Node::List(item), Some(Apply::Keys(keys))) => Form::List(List {
            keys: Keys::BuiltIn(keys, item),
            item: Shape::BuiltIn(item, None),
        }),
        _ => Form::Leaf,
    }
}

impl<'a> Custom<'a> {
    fn below(self, schema: &'a Value) -> Shape<'a> {
        Shape::Custom(Custom {
            schema,
            preserves: self.preserves || flag(self.schema, "x-kubernetes-preserve-unknown-fields"),
            whole: flag(schema, "x-kubernetes-embedded-resource"),
        })
    }

    /// The primitive type of values, as error messages name it.
    pub(super) fn primitive(self) -> Option<&'static str> {
        Some(match text(self.schema, "type") {
            "string" => "string",
            "integer" | "number" => "numeric (int or float)",
            "boolean" => "boolean",
            "object" => "map",
            "array" => "list",
            _ => return None,
        })
    }

    fn item(self) -> Shape<'a> {
        self.schema
            .get("items")
            .map_or(Shape::Free, |items| self.below(items))
    }

    fn form(self, value: &Value) -> Form<'a> {
        let is_list = match text(self.schema, "type") {
            "object" => false,
            "array" => true,
            "" => match value {
                Value::Object(_) => false,
                Value::Array(_) => true,
                _ => return Form::Leaf,
            },
            _ => return Form::Leaf,
        };
        if !is_list {
            return match text(self.schema, "x-kubernetes-map-type") {
                "atomic" => Form::Leaf,
                _ => Form::Map,
            };
        }
        let keys = self
            .schema
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array);
        let keys = match (text(self.schema, "x-kubernetes-list-type"), keys) {
            ("set", _) => Keys::Set,
            ("map", Some(keys)) => {
                Keys::Custom(keys, self.schema.get("items").unwrap_or(&Value::Null))
            }
            _ => return Form::Leaf,
        };
        Form::List(List {
            keys,
            item: self.item(),
        })
    }

    fn field(self, name: &str) -> Option<(Shape<'a>, bool)> {
        if self.whole {
            match name {
                "metadata" => return Some((metadata(), true)),
                "apiVersion" | "kind" => return Some((Shape::Leaf, true)),
                _ => {}
            }
        }
        let properties = self.schema.get("properties").and_then(Value::as_object);
        if let Some(schema) = properties.and_then(|properties| properties.get(name)) {
            return Some((self.below(schema), true));
        }
        let free = Some((Shape::Free, false));
        match self.schema.get("additionalProperties") {
            Some(Value::Bool(true)) => free,
            Some(schema) if schema.is_object() => Some((self.below(schema), false)),
            Some(_) => None,
            None if properties.is_none_or(Map::is_empty) => free,
            None if self.preserves || flag(self.schema, "x-kubernetes-preserve-unknown-fields") => {
                free
            }
            None => None,
        }
    }
}
