//! workflow-finalizer: workflows are deleted in every way there is, and a namespace with them.

use anyhow::{Context, Result};
use belayer_sandbox::Propagation;
use belayer_workload::PodGc;

use crate::life::Now;
use crate::report::{report, span};
use crate::telling::Telling;
use crate::world::{Shape, World};

/// The namespace that goes.
const TRIAL: &str = "trial";

pub(super) async fn tell(world: &World, telling: &Telling) -> Result<()> {
    telling.chapter("Workflows are deleted while they run, and a namespace with all in it");
    let mark = world.controller.ledger().len();
    let long = Shape {
        pods: 16,
        life: (60.0, 60.0),
        pod_gc: PodGc::Never,
    };
    let short = Shape {
        life: (1.0, 2.0),
        ..long
    };
    let cast = world.create(&[
        ("ci", "nightly", long),
        ("ci", "hourly", long),
        ("lab", "adhoc", short),
        (TRIAL, "sweep", long),
        (TRIAL, "backfill", short),
    ])?;
    world.all_held(&cast).await?;
    for (namespace, name, how) in [
        ("ci", "nightly", Propagation::Background),
        ("ci", "hourly", Propagation::Foreground),
        ("lab", "adhoc", Propagation::Orphan),
    ] {
        telling.shell(&format!(
            "kubectl delete wf {name} -n {namespace} --cascade={}",
            how.as_str().to_lowercase()
        ));
        world
            .user
            .delete_workflow(namespace, name, how)
            .context("deleting a workflow")?;
    }
    telling.shell(&format!("kubectl delete namespace {TRIAL}"));
    world
        .user
        .delete_namespace(TRIAL)
        .context("deleting the namespace")?;
    let took = world
        .until("the namespace is gone", |world| {
            world.chronicle.namespace(TRIAL) == Now::Gone
        })
        .await?;
    world.settled(&cast).await?;
    report(world, telling, &cast, mark);
    let orphans = world
        .chronicle
        .count(|pod| cast.has(pod) && pod.life.now == Now::There);
    telling.say(&format!(
        "The namespace was gone after {}. {orphans} orphans stay, as was asked.",
        span(took)
    ));
    Ok(())
}
