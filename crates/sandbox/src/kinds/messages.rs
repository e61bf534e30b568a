//! The fields of the messages of built-in kinds, from `numbers.json`.

use std::collections::BTreeMap;
use std::sync::OnceLock;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Text,
    Bytes,
    Json,
    Int,
    Int32,
    Bool,
    Number,
    List(Box<Node>),
    Map(Box<Node>),
    Message(String),
}

#[derive(Debug)]
pub(super) struct Field {
    /// Empty for a message that JSON inlines.
    pub(super) name: String,
    pub(super) node: Node,
    /// JSON omits its zero.
    pub(super) omits: bool,
}

pub(super) type Messages = BTreeMap<String, BTreeMap<u32, Field>>;

pub(super) fn messages() -> &'static Messages {
    static MESSAGES: OnceLock<Messages> = OnceLock::new();
    MESSAGES.get_or_init(|| {
        // A test checks that it parses: without messages every body is refused.
        let document: BTreeMap<String, BTreeMap<u32, String>> =
            serde_json::from_str(include_str!("numbers.json")).unwrap_or_default();
        let fields =
            |fields: BTreeMap<u32, String>| fields.into_iter().map(|(n, f)| (n, field(&f)));
        document
            .into_iter()
            .map(|(name, of)| (name, fields(of).collect()))
            .collect()
    })
}

/// The fields of a type whose zero JSON omits.
pub(super) fn omitted(message: &str) -> Vec<&'static str> {
    let fields = messages()
        .get(message)
        .into_iter()
        .flat_map(BTreeMap::values);
    let names = |field: &'static Field| match &field.node {
        Node::Message(inlined) if field.name.is_empty() => omitted(inlined),
        _ if field.omits => vec![field.name.as_str()],
        _ => Vec::new(),
    };
    fields.flat_map(names).collect()
}

fn field(text: &str) -> Field {
    let (rest, omits) = text
        .strip_suffix(" ?")
        .map_or((text, false), |rest| (rest, true));
    let (name, rest) = rest.split_once(' ').unwrap_or_default();
    Field {
        name: name.trim_start_matches('+').to_owned(),
        node: node(rest),
        omits,
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
        "text" => Node::Text,
        "bytes" => Node::Bytes,
        "json" => Node::Json,
        "int" => Node::Int,
        "int32" => Node::Int32,
        "bool" => Node::Bool,
        "number" => Node::Number,
        name => Node::Message(name.to_owned()),
    }
}
