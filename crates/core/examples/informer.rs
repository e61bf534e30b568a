//! An informer of a kind that the library does not contain: Deployments, with two fields and an index.
//!
//! `cargo run --package belayer-core --example informer` uses the sandbox, which answers in JSON. With
//! `-- --cluster` it is the cluster of your kubeconfig; a real API server answers in protobuf.

use std::error::Error;

use belayer_core::slim::protobuf::meta;
use belayer_core::{
    DecodeContext, DecodeError, Decoders, Event, Fields, Informer, JsonMeta, ObjectMeta, PatchKind,
    Request, Resource, Slim, SlimJson, SlimProtobuf, client, executor,
};
use belayer_sandbox::Sandbox;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

/// The fields that this program reads; no others are decoded or stored.
#[derive(Debug, PartialEq, Eq)]
struct Deployment {
    meta: ObjectMeta,
    wanted: i64,
    ready: i64,
}

impl Slim for Deployment {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    // A change of any other field is not an event.
    fn differs(&self, older: &Self) -> bool {
        (self.wanted, self.ready) != (older.wanted, older.ready) || self.meta.differs(&older.meta)
    }
}

/// The field numbers are those of Kubernetes' `apps/v1/generated.proto` and never change.
impl SlimProtobuf for Deployment {
    const METADATA_ONLY: bool = false;

    fn from_protobuf(message: &[u8], context: &DecodeContext) -> Result<Self, DecodeError> {
        let (mut metadata, mut wanted, mut ready) = (&[][..], 0, 0);
        for field in Fields::of(message) {
            let field = field?;
            match field.number {
                1 => metadata = field.bytes("metadata")?,
                2 => wanted = integer(field.bytes("spec")?, 1)?, // replicas
                3 => ready = integer(field.bytes("status")?, 7)?, // readyReplicas
                _ => {}
            }
        }
        let meta = meta(metadata, context)?;
        Ok(Self {
            meta,
            wanted,
            ready,
        })
    }
}

fn integer(message: &[u8], number: u32) -> Result<i64, DecodeError> {
    let mut value = 0;
    for field in Fields::of(message) {
        let field = field?;
        if field.number == number {
            value = field.integer("replicas")?;
        }
    }
    Ok(value)
}

/// For servers and proxies without protobuf. All is optional: a bookmark is such an object too.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Json<'a> {
    #[serde(borrow)]
    metadata: JsonMeta<'a>,
    spec: Option<Replicas>,
    status: Option<Replicas>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Replicas {
    replicas: Option<i64>,
    ready_replicas: Option<i64>,
}

impl SlimJson for Deployment {
    type Json<'a> = Json<'a>;
    const METADATA_ONLY: bool = false;

    fn json_meta<'j, 'a>(json: &'j Self::Json<'a>) -> &'j JsonMeta<'a> {
        &json.metadata
    }

    fn from_json(json: &Self::Json<'_>, context: &DecodeContext) -> Result<Self, DecodeError> {
        let (spec, status) = (json.spec.as_ref(), json.status.as_ref());
        Ok(Self {
            meta: json.metadata.to_meta(context)?,
            wanted: spec.and_then(|spec| spec.replicas).unwrap_or(0),
            ready: status.and_then(|status| status.ready_replicas).unwrap_or(0),
        })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let sandbox = Sandbox::default();
    sandbox.load_yaml(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2}}",
    )?;
    let on_cluster = std::env::args().any(|argument| argument == "--cluster");
    let client = if on_cluster {
        client::connect(kube::Config::infer().await?, "example/1.0")?
    } else {
        client::in_process(sandbox.service("example"), "example/1.0")
    };

    let deployments = Resource::new("apps", "v1", "Deployment", "deployments");
    let decoders = Decoders::<Deployment>::protobuf_or_json(DecodeContext::default());
    let (informer, store) = Informer::builder(client.clone(), deployments, decoders)
        .index("state", |one, add| {
            add(if one.ready < one.wanted {
                "waits"
            } else {
                "ready"
            });
        })
        .handler(std::sync::Arc::new(
            |event: &Event<Deployment>| match event {
                Event::Added { object, .. } | Event::Updated { new: object, .. } => {
                    let Deployment {
                        meta,
                        wanted,
                        ready,
                    } = &*object.object;
                    println!("{}: {ready} of {wanted} replicas are ready", meta.key);
                }
                Event::Deleted { last, .. } => println!("{} was deleted", last.object.key()),
                _ => {}
            },
        ))
        .build();
    let stop = CancellationToken::new();
    let task = tokio::spawn(informer.run(stop.clone()));
    store.synced().await?;
    println!(
        "{} of {} wait for replicas",
        store.count_by_index("state", "waits").unwrap_or(0),
        store.len()
    );

    if on_cluster {
        tokio::signal::ctrl_c().await?;
    } else {
        let path = "/apis/apps/v1/namespaces/default/deployments/web/status";
        let patch = Request::patch(path, PatchKind::Merge, r#"{"status":{"readyReplicas":2}}"#);
        let answer = patch.send(&client).await?;
        // The store contains a write once it has seen its version.
        store
            .wait_for(executor::version_of(&answer).ok_or("no version")?)
            .await?;
        assert_eq!(store.count_by_index("state", "ready"), Some(1));
    }
    stop.cancel();
    Ok(task.await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both formats give the same object.
    #[test]
    fn crates_informer_of_any_kind_in_protobuf() -> Result<(), Box<dyn Error>> {
        let context = DecodeContext::default();
        let json = r#"{"metadata":{"name":"web","namespace":"a","uid":"u","resourceVersion":"4"},
            "spec":{"replicas":2,"paused":true},"status":{"readyReplicas":1,"replicas":2}}"#;
        // metadata (name, namespace, uid, resourceVersion), spec.replicas, status.replicas and readyReplicas
        let message = b"\x0a\x0e\x0a\x03web\x1a\x01a\x2a\x01u\x32\x014\x12\x02\x08\x02\x1a\x04\x10\x02\x38\x01";
        let from_json = Deployment::from_json(&serde_json::from_str(json)?, &context)?;
        assert_eq!(Deployment::from_protobuf(message, &context)?, from_json);
        assert_eq!((from_json.wanted, from_json.ready), (2, 1));
        Ok(())
    }
}
