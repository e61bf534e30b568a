//! workflow-finalizer: workflows are deleted with each propagation policy, and with their namespace.

use anyhow::{Context, Result};
use belayer_sandbox::Propagation;
use belayer_workload::PodGc;

use crate::output::Output;
use crate::report::{report, span};
use crate::tracked::Existence;
use crate::world::{WorkflowShape, World};

/// The namespace that is deleted.
const TRIAL: &str = "trial";

pub(super) async fn run(world: &World, output: &Output) -> Result<()> {
    output.chapter("Running workflows are deleted, and a namespace with all its content");
    let mark = world.controller.release_log().len();
    let long = WorkflowShape {
        pods: 16,
        run_time: (60.0, 60.0),
        pod_gc: PodGc::Never,
    };
    let short = WorkflowShape {
        run_time: (1.0, 2.0),
        ..long
    };
    let set = world.create(&[
        ("ci", "nightly", long),
        ("ci", "hourly", long),
        ("lab", "adhoc", short),
        (TRIAL, "sweep", long),
        (TRIAL, "backfill", short),
    ])?;
    world.all_held(&set).await?;
    for (namespace, name, how) in [
        ("ci", "nightly", Propagation::Background),
        ("ci", "hourly", Propagation::Foreground),
        ("lab", "adhoc", Propagation::Orphan),
    ] {
        output.command(&format!(
            "kubectl delete wf {name} -n {namespace} --cascade={}",
            how.as_str().to_lowercase()
        ));
        world
            .user
            .delete_workflow(namespace, name, how)
            .context("deleting a workflow")?;
    }
    output.command(&format!("kubectl delete namespace {TRIAL}"));
    world
        .user
        .delete_namespace(TRIAL)
        .context("deleting the namespace")?;
    let took = world
        .until("the namespace is removed", |world| {
            world.state.namespace(TRIAL) == Existence::Gone
        })
        .await?;
    world.settled(&set).await?;
    report(world, output, &set, mark);
    let orphans = world
        .state
        .count(|pod| set.has(pod) && pod.object.now == Existence::Exists);
    output.say(&format!(
        "The namespace was removed after {}. {orphans} orphaned pods stay, as requested.",
        span(took)
    ));
    Ok(())
}
