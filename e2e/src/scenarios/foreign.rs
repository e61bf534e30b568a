//! Belayer never changes other controllers' finalizers, labels and annotations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use kube::ResourceExt as _;
use kube::api::PostParams;

use crate::harness::{Cluster, HOLD, Scenario, finalizers, pod};
use crate::wait::{SOON, eventually};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(
            "foreign-finalizers-keep-order",
            "finalizers of others are unchanged and in order",
            keep_order,
        ),
        Scenario::shared(
            "foreign-writer-at-the-same-time",
            "no edit of another client is lost, whatever the timing",
            concurrent_writer,
        ),
    ]
}

const FOREIGN: &str = "z.example.com/stays";
const EDITS: &str = "e2e/edits";
const COMES_AND_GOES: &str = "b.example.com/comes-and-goes";

async fn keep_order(cluster: Cluster) -> Result<()> {
    let foreign = [
        "z.example.com/first",
        "a.example.com/second",
        "m.example.com/Third_3",
    ];
    let workflow = cluster.workflow("w").await?;
    let mut builder = pod("a")
        .of(&workflow)
        .annotation("e2e/keep", " spaces and \"quotes\" ");
    builder = builder.finalizer(foreign[0]).held();
    builder = builder.finalizer(foreign[1]).finalizer(foreign[2]);
    let before = cluster.create(&builder).await?;
    cluster.finish("a", "Succeeded").await?;
    cluster.consume("a").await?;
    cluster.is_not_held("a").await?;
    let after = cluster.pods().get("a").await?;
    ensure!(finalizers(&after) == foreign, "{:?}", finalizers(&after));
    ensure!(
        after.annotations() == before.annotations(),
        "annotations changed: {:?}",
        after.annotations()
    );
    Ok(())
}

/// Another client edits finalizers and annotations as fast as it can, with the resourceVersion as its
/// precondition, while the hold is added and removed. At the end the object must have exactly what that
/// client wrote last.
async fn concurrent_writer(cluster: Cluster) -> Result<()> {
    for round in 0..5 {
        let workflow = cluster.workflow(&format!("w{round}")).await?;
        let name = format!("p{round}");
        cluster
            .create(&pod(&name).of(&workflow).finalizer(FOREIGN))
            .await?;
        let done = Arc::new(AtomicBool::new(false));
        let writer = tokio::spawn(write_until(
            cluster.clone(),
            name.clone(),
            Arc::clone(&done),
        ));
        cluster.is_held(&name).await?;
        edited(&cluster, &name).await?;
        cluster.consume(&name).await?;
        cluster.is_not_held(&name).await?;
        done.store(true, Ordering::Relaxed);
        let (written, edits) = writer.await.context("the other writer")??;
        let seen = cluster.pods().get(&name).await?;
        ensure!(
            finalizers(&seen) == written,
            "{:?} instead of {written:?}",
            finalizers(&seen)
        );
        let count = seen.annotations().get(EDITS).cloned().unwrap_or_default();
        ensure!(count == edits.to_string(), "edit {edits} was lost: {count}");
        if round == 0 {
            cluster.note(format!("{edits} edits meanwhile"));
        }
    }
    Ok(())
}

/// Waits for the first edit: on a busy machine Belayer may be done before the other client has begun.
async fn edited(cluster: &Cluster, name: &str) -> Result<()> {
    eventually("the other client has edited the pod", SOON, async || {
        let seen = cluster.pods().get(name).await?;
        ensure!(seen.annotations().contains_key(EDITS), "no edit");
        Ok(())
    })
    .await
}

/// Read, edit, replace, as most controllers do. Returns the finalizers of others of the last write and
/// the number of edits.
async fn write_until(
    cluster: Cluster,
    name: String,
    done: Arc<AtomicBool>,
) -> Result<(Vec<String>, u64)> {
    let mut written = vec![FOREIGN.to_owned()];
    let mut edits = 0;
    while !done.load(Ordering::Relaxed) {
        let mut object = cluster.pods().get(&name).await?;
        let own = object.finalizers_mut();
        let foreign: Vec<String> = own.iter().filter(|name| *name != HOLD).cloned().collect();
        ensure!(
            foreign == written,
            "{foreign:?} instead of {written:?} after edit {edits}"
        );
        // Belayer's finalizer stays in place; one of the others is removed or added in turn.
        match own.iter().position(|name| name == COMES_AND_GOES) {
            Some(index) => drop(own.remove(index)),
            None => own.insert(0, COMES_AND_GOES.into()),
        }
        let next: Vec<String> = own.iter().filter(|name| *name != HOLD).cloned().collect();
        object
            .annotations_mut()
            .insert(EDITS.into(), (edits + 1).to_string());
        match cluster
            .pods()
            .replace(&name, &PostParams::default(), &object)
            .await
        {
            Ok(_) => {
                written = next;
                edits += 1;
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).context("the other writer's replace"),
        }
    }
    Ok((written, edits))
}
