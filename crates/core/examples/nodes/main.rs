//! An informer of a kind that the library does not contain, decoded from Kubernetes' protobuf with
//! its own messages: `cargo run --package belayer-core --example nodes`.
//!
//! Without arguments it reads from a canned server. With `-- --cluster` it watches the nodes of the
//! cluster of the current kubeconfig until it is interrupted.
//!
//! `node.rs` is the code for the kind; the rest uses it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "an example")]

mod canned;
mod node;

use std::error::Error;
use std::sync::Arc;

use belayer_core::client;
use belayer_core::informer::{Decoders, Event, Informer, JsonDecoder, ProtobufDecoder, Store};
use belayer_core::object::{Resource, ResourceVersion};
use belayer_core::slim::{DecodeContext, Slim as _};
use kube::Client;
use tokio_util::sync::CancellationToken;

use node::{Node, State};

/// The index of nodes by state.
const BY_STATE: &str = "by-state";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let stop = CancellationToken::new();
    if std::env::args().any(|argument| argument == "--cluster") {
        let client = client::connect(kube::Config::infer().await?)?;
        let store = watch(client, &stop, |line| println!("{line}"));
        store.synced().await?;
        println!("{}", summary(&store));
        tokio::signal::ctrl_c().await?;
        return Ok(());
    }
    let store = watch(canned::client(), &stop, |line| println!("{line}"));
    store.synced().await?;
    store.wait_for(ResourceVersion::new(canned::LAST)).await?;
    println!("{}", summary(&store));
    stop.cancel();
    Ok(())
}

/// Runs an informer of nodes until `stop`, and reports each event as a line.
fn watch(
    client: Client,
    stop: &CancellationToken,
    report: impl Fn(String) + Send + Sync + 'static,
) -> Store<Node> {
    let context = DecodeContext::default();
    // Protobuf is preferred; a response in JSON is decoded too.
    let decoders =
        Decoders::new(ProtobufDecoder::<Node>::new(context.clone())).or(JsonDecoder::new(context));
    let nodes = Resource::new("", "v1", "Node", "nodes");
    let handler = move |event: &Event<Node>| {
        if let Some(line) = line(event) {
            report(line);
        }
    };
    let (informer, store) = Informer::builder(client, nodes, decoders)
        .index(BY_STATE, |node, add| add(node.state().as_str()))
        .handler(Arc::new(handler))
        .build();
    tokio::spawn(informer.run(stop.clone()));
    store
}

fn line(event: &Event<Node>) -> Option<String> {
    let line = match event {
        Event::Added { object, .. } => {
            format!("{} is {}", object.key(), object.state().as_str())
        }
        Event::Updated { old, new } if old.state() != new.state() => format!(
            "{} was {} and is {}",
            new.key(),
            old.state().as_str(),
            new.state().as_str()
        ),
        Event::Deleted { last, .. } => format!("{} was deleted", last.key()),
        Event::Skipped { key: Some(key) } => {
            format!("an event of {key} could not be decoded; its last state stays")
        }
        Event::Synced => "the list is complete; watching for changes".to_owned(),
        _ => return None,
    };
    Some(line)
}

fn summary(store: &Store<Node>) -> String {
    let states = [State::Ready, State::Cordoned, State::NotReady];
    let counts = states.map(|state| {
        let count = store.count_by_index(BY_STATE, state.as_str());
        format!("{} {}", count.unwrap_or_default(), state.as_str())
    });
    format!("{} nodes: {}", store.len(), counts.join(", "))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use belayer_core::slim::json::SlimJson as _;
    use belayer_core::slim::protobuf::SlimProtobuf as _;
    use prost::Message as _;

    use super::canned::{Cordoned, Ready};
    use super::*;

    #[tokio::test]
    async fn the_canned_events_are_reported() {
        let reported = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&reported);
        let stop = CancellationToken::new();
        let store = watch(canned::client(), &stop, move |line| {
            lines.lock().unwrap().push(line);
        });
        let last = ResourceVersion::new(canned::LAST);
        store.wait_for(last).await.unwrap();
        assert_eq!(
            *reported.lock().unwrap(),
            [
                "anna is ready",
                "berta is ready",
                "carla is cordoned",
                "the list is complete; watching for changes",
                "berta was ready and is not ready",
                "an event of carla could not be decoded; its last state stays",
                "dora is ready",
                "berta was not ready and is ready",
                "anna was deleted",
            ]
        );
        assert_eq!(summary(&store), "3 nodes: 2 ready, 1 cordoned, 0 not ready");
    }

    #[test]
    fn both_formats_give_the_same_node() {
        let context = DecodeContext::default();
        let message = canned::node("anna", 3, Ready::Yes, Cordoned::Yes);
        let from_protobuf = Node::from_protobuf(&message.encode_to_vec(), &context).unwrap();
        let json = r#"{"metadata":{"name":"anna","uid":"u-anna","resourceVersion":"3"},
            "spec":{"unschedulable":true,"taints":null},
            "status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"x"}]}}"#;
        let json = serde_json::from_str(json).unwrap();
        let from_json = Node::from_json(&json, &context).unwrap();
        assert_eq!(from_protobuf, from_json);
        assert_eq!(from_json.state(), State::Cordoned);
    }

    #[test]
    fn a_node_without_conditions_is_not_ready() {
        let json = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"3"},"status":{"conditions":null}}"#;
        let json = serde_json::from_str(json).unwrap();
        let node = Node::from_json(&json, &DecodeContext::default()).unwrap();
        assert_eq!(node.state(), State::NotReady);
    }
}
