//! The kind: the fields of a node that are read, and how they are decoded from both formats.

use std::borrow::Cow;

use belayer_core::slim::json::{JsonMeta, SlimJson};
use belayer_core::slim::protobuf::{SlimProtobuf, meta};
use belayer_core::slim::{DecodeContext, DecodeError, ObjectMeta, Slim};
use prost::Message;
use serde::Deserialize;

/// A node with the fields that this program needs. A real one has 10 KB and more, most of it the
/// list of its images; this one has some hundred bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Node {
    meta: ObjectMeta,
    state: State,
}

/// Whether pods can be scheduled to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Ready.
    Ready,
    /// Ready, but closed for new pods.
    Cordoned,
    /// Not ready, or without a Ready condition.
    NotReady,
}

impl Node {
    pub(crate) fn state(&self) -> State {
        self.state
    }
}

impl State {
    /// The name that is printed and used as index value.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Cordoned => "cordoned",
            Self::NotReady => "not ready",
        }
    }

    fn of<'a>(cordoned: bool, conditions: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut conditions = conditions.into_iter();
        match conditions.any(|(kind, status)| kind == "Ready" && status == "True") {
            true if cordoned => Self::Cordoned,
            true => Self::Ready,
            false => Self::NotReady,
        }
    }
}

impl Slim for Node {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    /// A change of other fields is not an event: a node's heartbeat changes only times, which are
    /// not decoded.
    fn differs(&self, older: &Self) -> bool {
        self.state != older.state || self.meta.differs(&older.meta)
    }
}

/// The fields of the message `Node` that are read. The numbers are from Kubernetes'
/// `core/v1/generated.proto` and never change; fields that are not declared are skipped.
#[derive(Message)]
pub(crate) struct NodeMessage {
    /// Encoded; the library decodes it.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) metadata: Vec<u8>,
    #[prost(message, optional, tag = "2")]
    pub(crate) spec: Option<SpecMessage>,
    #[prost(message, optional, tag = "3")]
    pub(crate) status: Option<StatusMessage>,
}

#[derive(Message)]
pub(crate) struct SpecMessage {
    #[prost(bool, tag = "4")]
    pub(crate) unschedulable: bool,
}

#[derive(Message)]
pub(crate) struct StatusMessage {
    #[prost(message, repeated, tag = "4")]
    pub(crate) conditions: Vec<ConditionMessage>,
}

#[derive(Message)]
pub(crate) struct ConditionMessage {
    #[prost(string, tag = "1")]
    pub(crate) kind: String,
    #[prost(string, tag = "2")]
    pub(crate) status: String,
}

impl SlimProtobuf for Node {
    const METADATA_ONLY: bool = false;

    fn from_protobuf(message: &[u8], context: &DecodeContext) -> Result<Self, DecodeError> {
        let message =
            NodeMessage::decode(message).map_err(|error| DecodeError::Format(error.to_string()))?;
        let conditions = message.status.unwrap_or_default().conditions;
        let conditions = conditions.iter().map(|one| (&*one.kind, &*one.status));
        Ok(Self {
            meta: meta(&message.metadata, context)?,
            state: State::of(message.spec.unwrap_or_default().unschedulable, conditions),
        })
    }
}

/// The same fields in JSON, for servers and proxies that support only JSON. Everything is optional:
/// a bookmark is an object too, and the API writes `null` for empty values.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeJson<'a> {
    #[serde(borrow)]
    metadata: JsonMeta<'a>,
    spec: Option<SpecJson>,
    #[serde(borrow)]
    status: Option<StatusJson<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SpecJson {
    unschedulable: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusJson<'a> {
    #[serde(borrow)]
    conditions: Option<Vec<ConditionJson<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConditionJson<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
}

impl SlimJson for Node {
    type Json<'a> = NodeJson<'a>;

    const METADATA_ONLY: bool = false;

    fn json_meta<'j, 'a>(json: &'j Self::Json<'a>) -> &'j JsonMeta<'a> {
        &json.metadata
    }

    fn from_json(json: &Self::Json<'_>, context: &DecodeContext) -> Result<Self, DecodeError> {
        let conditions = json
            .status
            .as_ref()
            .and_then(|have| have.conditions.as_ref());
        let conditions = conditions.into_iter().flatten();
        let cordoned = json.spec.as_ref().and_then(|spec| spec.unschedulable);
        Ok(Self {
            meta: json.metadata.to_meta(context)?,
            state: State::of(
                cordoned.unwrap_or_default(),
                conditions.map(|one| (&*one.kind, &*one.status)),
            ),
        })
    }
}
