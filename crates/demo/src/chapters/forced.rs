//! Somebody takes a workflow's finalizer off by hand and uses its name again, while Belayer sees
//! nothing of it.

use std::collections::HashSet;

use anyhow::{Context, Result};
use belayer_checker::BELAYER;
use belayer_sandbox::{Fault, Match, Propagation};
use belayer_workload::{PodGc, WORKFLOWS};
use serde_json::json;

use crate::life::{Now, Pod};
use crate::report::report;
use crate::telling::Telling;
use crate::world::{Cast, Shape, World};

const CI: &str = "ci";
const ETL: &str = "etl";

pub(super) async fn tell(world: &World, telling: &Telling) -> Result<()> {
    telling.chapter("Somebody in a hurry takes a finalizer off, and uses the name again");
    let mark = world.controller.ledger().len();
    let shape = Shape {
        pods: 16,
        life: (60.0, 60.0),
        pod_gc: PodGc::Never,
    };
    let cast = world.create(&[(CI, ETL, shape)])?;
    world.all_held(&cast).await?;
    let old: HashSet<String> = world
        .chronicle
        .pods(|pod| cast.has(pod))
        .into_iter()
        .map(|pod| pod.uid)
        .collect();
    let still = world
        .sandbox
        .faults()
        .inject(Fault::on(Match::watches().client(BELAYER)).pause_watches());
    by_force(world, telling, &cast).await?;
    let short = Shape {
        life: (0.8, 1.6),
        ..shape
    };
    world.create(&[(CI, ETL, short)])?;
    let untouched = |pod: &Pod| old.contains(&pod.uid) && pod.life.now == Now::There;
    world
        .until("the old pods are deleted", |world| {
            world.chronicle.count(untouched) == 0
        })
        .await?;
    let blocking = world
        .chronicle
        .count(|pod| old.contains(&pod.uid) && pod.life.is_waiting());
    telling.say(&format!(
        "A new {ETL} starts while Belayer's watches stand still; {blocking} pods of the old one block its names."
    ));
    world.pause(0.4).await;
    still.remove();
    world
        .until("the new pods are held", |world| {
            let done = |pod: &Pod| cast.has(pod) && pod.had_its_chance();
            world.chronicle.count(done) >= 2 * cast.pods
        })
        .await?;
    world.settled(&cast).await?;
    report(world, telling, &cast, mark);
    telling.say(
        "Owners are matched by UID: the old pods went, the new ones stayed until their result was taken.",
    );
    Ok(())
}

async fn by_force(world: &World, telling: &Telling, cast: &Cast) -> Result<()> {
    telling.shell(&format!("kubectl delete wf {ETL} -n {CI} --wait=false"));
    world
        .user
        .delete_workflow(CI, ETL, Propagation::Background)
        .context("deleting etl")?;
    telling.shell(&format!(
        "kubectl patch wf {ETL} -n {CI} --type=merge -p '{{\"metadata\":{{\"finalizers\":[]}}}}'"
    ));
    let none = json!({"metadata": {"finalizers": []}});
    world.patch(&WORKFLOWS, Some(CI), ETL, none)?;
    world
        .until("the old etl is gone", |world| {
            world
                .chronicle
                .count_flows(|flow| cast.has_flow(flow) && flow.life.now == Now::Gone)
                == 1
        })
        .await
        .map(drop)
}
