//! An informer of a kind that the library does not contain: Deployments, with two fields and an index.
//! `cargo run --package belayer-core --example informer`.
//!
//! The sandbox answers in JSON. With the client of `client::connect` it is a cluster, which answers in protobuf.

use std::error::Error;
use std::sync::Arc;

use belayer_core::{
    DecodeContext, Decoders, Event, Informer, PatchKind, Request, Resource, client, executor,
};
use belayer_sandbox::Sandbox;
use tokio_util::sync::CancellationToken;

belayer_core::slim_kind! {
    /// The fields that this program reads; no others are stored. The numbers are those of Kubernetes'
    /// `apps/v1/generated.proto`.
    struct Deployment {
        wanted: i64 = spec(2).replicas(1);
        ready: i64 = status(3).readyReplicas(7);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let sandbox = Sandbox::default();
    let web = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2}}";
    sandbox.load_yaml(web)?;
    let client = client::in_process(sandbox.service("example"), "example/1.0");

    let deployments = Resource::new("apps", "v1", "Deployment", "deployments");
    let decoders = Decoders::<Deployment>::protobuf_or_json(DecodeContext::default());
    let (informer, store) = Informer::builder(client.clone(), deployments, decoders)
        .index("missing", |one, add| {
            add(&(one.wanted - one.ready).to_string());
        })
        .handler(Arc::new(|event: &Event<Deployment>| {
            if let Some(new) = event.news().map(|new| &new.object) {
                println!("{}: {} of {} replicas", new.meta.key, new.ready, new.wanted);
            }
        }))
        .build();
    let stop = CancellationToken::new();
    let task = tokio::spawn(informer.run(stop.clone()));
    store.synced().await?;
    assert_eq!(store.count_by_index("missing", "2"), Some(1));

    let path = "/apis/apps/v1/namespaces/default/deployments/web/status";
    let patch = Request::patch(path, PatchKind::Merge, r#"{"status":{"readyReplicas":2}}"#);
    let answer = patch.send(&client).await?;
    // The store contains a write once it has seen its version.
    let version = executor::version_of(&answer).ok_or("no version")?;
    store.wait_for(version).await?;
    assert_eq!(store.count_by_index("missing", "0"), Some(1));
    stop.cancel();
    Ok(task.await?)
}
