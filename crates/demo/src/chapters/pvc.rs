//! pvc-protection: a claim is deleted under a database, and goes when nothing uses it any more.
//! What happens between the two chapters gives Belayer the time after which it says why.

use anyhow::{Context, Result, ensure};
use belayer_sandbox::{Actor, DeleteOptions, Gvr};
use belayer_workload::USER;

use crate::life::{Hold, Now};
use crate::objects::{CLAIM, DATABASE, SHOP};
use crate::report::span;
use crate::telling::Telling;
use crate::world::World;

pub(super) async fn deleted(world: &World, telling: &Telling) -> Result<()> {
    telling.chapter("A claim is deleted under a running database");
    telling.aside("Here pvcProtection.finalizer is set: without it Belayer only reports.");
    telling.shell(&format!("kubectl delete pvc {CLAIM} -n {SHOP}"));
    world
        .sandbox
        .cluster()
        .delete(
            &Actor::new(USER),
            &Gvr::PERSISTENTVOLUMECLAIMS,
            Some(SHOP),
            CLAIM,
            &DeleteOptions::default(),
        )
        .context("deleting the claim")?;
    is(world, Now::Terminating).await?;
    telling.say("The claim is Terminating, and stays: kubectl waits. Meanwhile:");
    Ok(())
}

pub(super) async fn released(world: &World, telling: &Telling) -> Result<()> {
    telling.chapter("The claim says why it waits, and goes with its last user");
    let why = || world.event(SHOP, "DeletionWaits");
    let gone = |world: &World| {
        let claim = world.chronicle.claim(CLAIM);
        claim.is_some_and(|claim| claim.now == Now::Gone)
    };
    world
        .until("an Event says why", |world| why().is_some() || gone(world))
        .await?;
    ensure!(!gone(world), "the claim is gone while the database uses it");
    telling.shell(&format!("kubectl describe pvc {CLAIM} -n {SHOP}"));
    telling.aside(&format!("DeletionWaits: {}", why().unwrap_or_default()));
    let [first, last] = DATABASE;
    end(world, first).await?;
    world.pause(0.7).await;
    let claim = world.chronicle.claim(CLAIM).context("there is no claim")?;
    ensure!(
        claim.now == Now::Terminating && claim.hold == Hold::On,
        "the claim went before its last user"
    );
    telling.say(&format!(
        "{first} is gone. {last} still writes: the claim stays."
    ));
    let released = end(world, last).await?;
    is(world, Now::Gone).await?;
    let claim = world.chronicle.claim(CLAIM).context("there is no claim")?;
    let after = claim
        .gone
        .map(|at| at.saturating_duration_since(released))
        .unwrap_or_default();
    telling.result(&format!(
        "{last} is gone, and the claim with it: {} later",
        span(after)
    ));
    Ok(())
}

async fn is(world: &World, now: Now) -> Result<()> {
    let claim = move |world: &World| world.chronicle.claim(CLAIM);
    world
        .until(&format!("the claim is {now:?}"), |world| {
            claim(world).is_some_and(|claim| claim.now == now)
        })
        .await
        .map(drop)
}

/// The user deletes a pod of the database; answers when it was gone.
async fn end(world: &World, name: &str) -> Result<std::time::Instant> {
    world
        .user
        .delete_pod(SHOP, name, None)
        .context("deleting a pod")?;
    let when = |world: &World| {
        let pods = world
            .chronicle
            .pods(|pod| pod.life.namespace == SHOP && pod.life.name == name);
        pods.first().and_then(|pod| pod.life.gone)
    };
    world
        .until(&format!("{name} is gone"), |world| when(world).is_some())
        .await?;
    when(world).context("it is there")
}
