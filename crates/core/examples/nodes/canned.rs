//! A server that replays one minute of four nodes as a real one would send it: a streaming list,
//! then a watch, in protobuf frames.

use std::convert::Infallible;

use belayer_core::client;
use belayer_core::slim::protobuf::{MAGIC, PROTOBUF};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use kube::Client;
use kube::client::Body;
use prost::Message;

use crate::node::{ConditionMessage, NodeMessage, SpecMessage, StatusMessage};

/// The version of the last event.
pub(crate) const LAST: u64 = 16;

/// A client of the server.
pub(crate) fn client() -> Client {
    client::in_process(tower::service_fn(|_: http::Request<Body>| {
        let frames = frames().map(|frame| Ok::<_, Infallible>(Frame::data(frame)));
        // Stays open after the last frame.
        let body = StreamBody::new(stream::iter(frames).chain(stream::pending()));
        let mut response = http::Response::new(body);
        let protobuf = http::HeaderValue::from_static(PROTOBUF);
        response
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, protobuf);
        std::future::ready(Ok::<_, Infallible>(response))
    }))
}

/// All frames that the server sends.
fn frames() -> impl Iterator<Item = Bytes> {
    [
        frame("ADDED", &node("anna", 3, Ready::Yes, Cordoned::No)),
        frame("ADDED", &node("berta", 4, Ready::Yes, Cordoned::No)),
        frame("ADDED", &node("carla", 5, Ready::Yes, Cordoned::Yes)),
        frame("BOOKMARK", &list_ends_at(10)),
        // A heartbeat: only times changed, and those are not read.
        frame("MODIFIED", &node("anna", 11, Ready::Yes, Cordoned::No)),
        frame("MODIFIED", &node("berta", 12, Ready::No, Cordoned::No)),
        // A damaged frame, which does not affect the others.
        frame(
            "MODIFIED",
            &damaged(node("carla", 13, Ready::Yes, Cordoned::No)),
        ),
        frame("ADDED", &node("dora", 14, Ready::Yes, Cordoned::No)),
        frame("MODIFIED", &node("berta", 15, Ready::Yes, Cordoned::No)),
        frame("DELETED", &node("anna", LAST, Ready::Yes, Cordoned::No)),
    ]
    .into_iter()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Yes,
    No,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cordoned {
    Yes,
    No,
}

/// The message of a node without its envelope.
pub(crate) fn node(name: &str, version: u64, ready: Ready, cordoned: Cordoned) -> NodeMessage {
    let condition = |kind: &str, status: &str| ConditionMessage {
        kind: kind.to_owned(),
        status: status.to_owned(),
    };
    let status = match ready {
        Ready::Yes => "True",
        Ready::No => "Unknown",
    };
    NodeMessage {
        metadata: Metadata {
            name: name.to_owned(),
            uid: format!("u-{name}"),
            resource_version: version.to_string(),
            annotations: Vec::new(),
        }
        .encode_to_vec(),
        spec: Some(SpecMessage {
            unschedulable: cordoned == Cordoned::Yes,
        }),
        status: Some(StatusMessage {
            conditions: vec![
                condition("MemoryPressure", "False"),
                condition("Ready", status),
            ],
        }),
    }
}

/// The bookmark that ends the objects of a streaming list.
fn list_ends_at(version: u64) -> NodeMessage {
    let metadata = Metadata {
        resource_version: version.to_string(),
        annotations: vec![Annotation {
            name: "k8s.io/initial-events-end".to_owned(),
            value: "true".to_owned(),
        }],
        ..Metadata::default()
    };
    NodeMessage {
        metadata: metadata.encode_to_vec(),
        spec: None,
        status: None,
    }
}

fn damaged(node: NodeMessage) -> NodeMessage {
    let mut metadata = node.metadata;
    metadata.truncate(metadata.len() - 1);
    NodeMessage { metadata, ..node }
}

/// A watch event: its length, its type, and the object in its envelope.
fn frame(event: &str, node: &NodeMessage) -> Bytes {
    let envelope = Envelope {
        kind: Some(Kind {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
        }),
        message: node.encode_to_vec(),
    };
    let event = Event {
        kind: event.to_owned(),
        object: Some(Raw {
            raw: [&MAGIC[..], &envelope.encode_to_vec()].concat(),
        }),
    };
    let event = event.encode_to_vec();
    [&(event.len() as u32).to_be_bytes()[..], &event]
        .concat()
        .into()
}

#[derive(Message)]
struct Event {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(message, optional, tag = "2")]
    object: Option<Raw>,
}

#[derive(Message)]
struct Raw {
    #[prost(bytes = "vec", tag = "1")]
    raw: Vec<u8>,
}

#[derive(Message)]
struct Envelope {
    #[prost(message, optional, tag = "1")]
    kind: Option<Kind>,
    #[prost(bytes = "vec", tag = "2")]
    message: Vec<u8>,
}

#[derive(Message)]
struct Kind {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

#[derive(Message)]
struct Metadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(message, repeated, tag = "12")]
    annotations: Vec<Annotation>,
}

#[derive(Message)]
struct Annotation {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}
