//! Belayer adds a hold to every new object that it protects.

use anyhow::{Context, Result};
use belayer_sandbox::Gvr;
use belayer_workload::PodGc;

use crate::objects::{self, DATABASE, LAB, PVC, SERVING, SHOP};
use crate::output::Output;
use crate::report::spread;
use crate::tracked::Hold;
use crate::world::{WorkflowSet, WorkflowShape, World};

/// Returns the workflows, whose pods are still running.
pub(super) async fn run(world: &World, output: &Output) -> Result<WorkflowSet> {
    output.chapter("Belayer adds a finalizer (a hold) to new pods, workflows and PVCs");
    let shape = |pods, pod_gc| WorkflowShape {
        pods,
        run_time: (1.5, 3.0),
        pod_gc,
    };
    let set = world.create(&[
        ("ci", "build", shape(20, PodGc::Never)),
        ("ci", "check", shape(20, PodGc::OnWorkflowCompletion)),
        ("lab", "tune", shape(16, PodGc::OnPodCompletion)),
    ])?;
    world
        .user
        .create(&Gvr::PERSISTENTVOLUMECLAIMS, SHOP, objects::pvc(PVC))
        .context("creating a PVC")?;
    for pod in DATABASE {
        world.create_pod(SHOP, objects::database(pod, PVC))?;
    }
    world.create_pod(LAB, objects::serving())?;
    output.say(&format!(
        "{} Argo Workflows create {} pods; {} mount the PVC {SHOP}/{PVC}, and {SERVING} runs on the spot pool.",
        set.len(),
        set.pods,
        DATABASE.join(" and ")
    ));
    world.all_held(&set).await?;
    world
        .until(
            "workflows and the PVC have holds, and the database runs",
            |world| {
                let state = &world.state;
                state.count_workflows(|workflow| workflow.object.hold == Hold::On) == set.len()
                    && state.count_pvcs(|pvc| pvc.hold == Hold::On) == 1
                    && state.count(|pod| pod.object.namespace == SHOP && pod.started.is_some())
                        == DATABASE.len()
            },
        )
        .await?;
    let pods = world.state.pods(|pod| set.has(pod));
    let after = spread(pods.iter().filter_map(|pod| pod.object.held_after));
    output.result(&format!(
        "All of them have a hold; the pods got it {after} after their creation"
    ));
    Ok(set)
}
