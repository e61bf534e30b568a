//! pvc-protection: a PVC is deleted while a database uses it, and is released after its last user.
//! The chapter in between gives Belayer the time after which it reports why the PVC waits.

use anyhow::{Context, Result, ensure};
use belayer_sandbox::{Actor, DeleteOptions, Gvr};
use belayer_workload::USER;

use crate::objects::{DATABASE, PVC, SHOP};
use crate::output::Output;
use crate::report::span;
use crate::tracked::{Existence, Hold};
use crate::world::World;

pub(super) async fn deleted(world: &World, output: &Output) -> Result<()> {
    output.chapter("A PVC is deleted while a database uses it");
    output.detail("pvcProtection.finalizer is set here; by default Belayer only reports.");
    output.command(&format!("kubectl delete pvc {PVC} -n {SHOP}"));
    world
        .sandbox
        .cluster()
        .delete(
            &Actor::new(USER),
            &Gvr::PERSISTENTVOLUMECLAIMS,
            Some(SHOP),
            PVC,
            &DeleteOptions::default(),
        )
        .context("deleting the PVC")?;
    is(world, Existence::Terminating).await?;
    output.say("The PVC is Terminating and stays, so kubectl waits. Meanwhile:");
    Ok(())
}

pub(super) async fn released(world: &World, output: &Output) -> Result<()> {
    output.chapter("Belayer reports why the PVC waits, and releases it after its last user");
    let why = || world.event(SHOP, "DeletionWaits");
    let gone = |world: &World| {
        let pvc = world.state.pvc(PVC);
        pvc.is_some_and(|pvc| pvc.now == Existence::Gone)
    };
    world
        .until("an Event reports why", |world| {
            why().is_some() || gone(world)
        })
        .await?;
    ensure!(
        !gone(world),
        "the PVC was removed while the database used it"
    );
    output.command(&format!("kubectl describe pvc {PVC} -n {SHOP}"));
    output.detail(&format!("DeletionWaits: {}", why().unwrap_or_default()));
    let [first, last] = DATABASE;
    end(world, first).await?;
    world.pause(0.7).await;
    let pvc = world.state.pvc(PVC).context("PVC not found")?;
    ensure!(
        pvc.now == Existence::Terminating && pvc.hold == Hold::On,
        "the PVC was removed before its last user"
    );
    output.say(&format!(
        "{first} is removed. {last} still uses the PVC, so it stays."
    ));
    let released = end(world, last).await?;
    is(world, Existence::Gone).await?;
    let pvc = world.state.pvc(PVC).context("PVC not found")?;
    let after = pvc
        .gone
        .map(|at| at.saturating_duration_since(released))
        .unwrap_or_default();
    output.result(&format!(
        "{last} is removed, and the PVC {} later",
        span(after)
    ));
    Ok(())
}

async fn is(world: &World, now: Existence) -> Result<()> {
    let pvc = move |world: &World| world.state.pvc(PVC);
    world
        .until(&format!("the PVC is {now:?}"), |world| {
            pvc(world).is_some_and(|pvc| pvc.now == now)
        })
        .await
        .map(drop)
}

/// The user deletes a pod of the database; returns when it was removed.
async fn end(world: &World, name: &str) -> Result<std::time::Instant> {
    world
        .user
        .delete_pod(SHOP, name, None)
        .context("deleting a pod")?;
    let when = |world: &World| {
        let pods = world
            .state
            .pods(|pod| pod.object.namespace == SHOP && pod.object.name == name);
        pods.first().and_then(|pod| pod.object.gone)
    };
    world
        .until(&format!("{name} is removed"), |world| when(world).is_some())
        .await?;
    when(world).context("the pod still exists")
}
