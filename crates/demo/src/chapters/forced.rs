//! A user removes a workflow's finalizer by force and re-uses its name while Belayer's watches are
//! paused.

use std::collections::HashSet;

use anyhow::{Context, Result};
use belayer_checker::BELAYER;
use belayer_sandbox::{Fault, Match, Propagation};
use belayer_workload::{PodGc, WORKFLOWS};
use serde_json::json;

use crate::output::Output;
use crate::report::report;
use crate::tracked::{Existence, Pod};
use crate::world::{WorkflowSet, WorkflowShape, World};

const CI: &str = "ci";
const ETL: &str = "etl";

pub(super) async fn run(world: &World, output: &Output) -> Result<()> {
    output.chapter("A finalizer is removed by force, and the workflow's name is used again");
    let mark = world.controller.release_log().len();
    let shape = WorkflowShape {
        pods: 16,
        run_time: (60.0, 60.0),
        pod_gc: PodGc::Never,
    };
    let set = world.create(&[(CI, ETL, shape)])?;
    world.all_held(&set).await?;
    let old: HashSet<String> = world
        .state
        .pods(|pod| set.has(pod))
        .into_iter()
        .map(|pod| pod.uid)
        .collect();
    let still = world
        .sandbox
        .faults()
        .inject(Fault::on(Match::watches().client(BELAYER)).pause_watches());
    by_force(world, output, &set).await?;
    let short = WorkflowShape {
        run_time: (0.8, 1.6),
        ..shape
    };
    world.create(&[(CI, ETL, short)])?;
    let untouched = |pod: &Pod| old.contains(&pod.uid) && pod.object.now == Existence::Exists;
    world
        .until("the old pods are deleted", |world| {
            world.state.count(untouched) == 0
        })
        .await?;
    let blocking = world
        .state
        .count(|pod| old.contains(&pod.uid) && pod.object.is_waiting());
    output.say(&format!(
        "A new {ETL} starts while Belayer's watches are paused; {blocking} pods of the old one block its pod names."
    ));
    world.pause(0.4).await;
    still.remove();
    world
        .until("the new pods have holds", |world| {
            let done = |pod: &Pod| set.has(pod) && pod.is_past_hold();
            world.state.count(done) >= 2 * set.pods
        })
        .await?;
    world.settled(&set).await?;
    report(world, output, &set, mark);
    output.say(
        "Owners are matched by UID: the old pods are released, and the new ones keep their hold until their results are consumed.",
    );
    Ok(())
}

async fn by_force(world: &World, output: &Output, set: &WorkflowSet) -> Result<()> {
    output.command(&format!("kubectl delete wf {ETL} -n {CI} --wait=false"));
    world
        .user
        .delete_workflow(CI, ETL, Propagation::Background)
        .context("deleting etl")?;
    output.command(&format!(
        "kubectl patch wf {ETL} -n {CI} --type=merge -p '{{\"metadata\":{{\"finalizers\":[]}}}}'"
    ));
    let none = json!({"metadata": {"finalizers": []}});
    world.patch(&WORKFLOWS, Some(CI), ETL, none)?;
    world
        .until("the old etl is removed", |world| {
            world.state.count_workflows(|workflow| {
                set.has_workflow(workflow) && workflow.object.now == Existence::Gone
            }) == 1
        })
        .await
        .map(drop)
}
