//! A controller on `belayer-core`: it labels each ConfigMap whose annotation asks for it.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use belayer_core::{
    Backoff, Bounds, Class, DecodeContext, Decoders, Event, Executor, Informer, Keep, Lookup,
    ObjectKey, Outcome, OwnerMeta, Patched, Priority, Resource, Store, WorkQueue, Workers, Writes,
    client,
};
use belayer_sandbox::Sandbox;
use tokio_util::sync::CancellationToken;

async fn reconcile(store: Store<OwnerMeta>, executor: Arc<Executor>, key: ObjectKey) -> Outcome {
    let map = match store.lookup(&key) {
        Lookup::Found(map) => map.object,
        Lookup::Absent => return Outcome::Done,
        Lookup::Unknown => return Outcome::Retry(Backoff::ERROR),
    };
    if map.meta.annotations.get("wanted").is_none() || map.meta.labels.get("done").is_some() {
        return Outcome::Done;
    }
    let patch = br#"{"metadata":{"labels":{"done":"true"}}}"#;
    let maps = Resource::config_maps();
    match executor.patch(&maps, &key, patch, Class::Write).await {
        Ok(Patched::At { .. } | Patched::DryRun) => Outcome::Done,
        Err(_) => Outcome::Retry(Backoff::ERROR),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let sandbox = Sandbox::default();
    sandbox.load_yaml(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {wanted: ''}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}",
    )?;
    let client = client::in_process(sandbox.service("external"), "external/1.0");
    let keep = Keep::nothing().labels(["done"]).annotations(["wanted"]);
    let context = DecodeContext {
        keep,
        ..DecodeContext::default()
    };
    let queue = WorkQueue::new("configmaps");
    let added = queue.clone();
    let decoders = Decoders::<OwnerMeta>::protobuf_or_json(context);
    let (informer, store) = Informer::builder(client.clone(), Resource::config_maps(), decoders)
        .index("done", |map, add| {
            map.meta
                .labels
                .get("done")
                .into_iter()
                .for_each(|_| add("yes"));
        })
        .handler(Arc::new(move |event: &Event<OwnerMeta>| match event {
            Event::Added { object, .. } | Event::Updated { new: object, .. } => {
                added.add(object.object.meta.key.clone(), Priority::Normal);
            }
            _ => {}
        }))
        .build();
    let executor = Executor::new(client, "external", Bounds::default(), Writes::Sent);
    let executor = Arc::new(executor);
    let stop = CancellationToken::new();
    let task = tokio::spawn(informer.run(stop.clone()));
    let of_workers = store.clone();
    let workers = Workers::spawn(2, queue, move |key| {
        reconcile(of_workers.clone(), Arc::clone(&executor), key)
    });

    store.synced().await?;
    tokio::time::timeout(std::time::Duration::from_secs(5), async {
        while store.count_by_index("done", "yes") != Some(1) {
            tokio::task::yield_now().await;
        }
    })
    .await
    .context("no ConfigMap was labelled")?;
    ensure!(store.len() == 2, "{} ConfigMaps", store.len());
    workers.drain().await;
    stop.cancel();
    task.await?;
    println!("core: one of two ConfigMaps is labelled");
    Ok(())
}
