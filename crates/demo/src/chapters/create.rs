//! Everything that must not vanish yet gets its rope.

use anyhow::{Context, Result};
use belayer_sandbox::Gvr;
use belayer_workload::PodGc;

use crate::life::Hold;
use crate::objects::{self, CLAIM, DATABASE, LAB, SERVING, SHOP};
use crate::report::spread;
use crate::telling::Telling;
use crate::world::{Cast, Shape, World};

/// Answers the workflows, whose pods still run.
pub(super) async fn tell(world: &World, telling: &Telling) -> Result<Cast> {
    telling.chapter("Everything is held as it appears");
    let shape = |pods, pod_gc| Shape {
        pods,
        life: (1.5, 3.0),
        pod_gc,
    };
    let cast = world.create(&[
        ("ci", "build", shape(20, PodGc::Never)),
        ("ci", "check", shape(20, PodGc::OnWorkflowCompletion)),
        ("lab", "tune", shape(16, PodGc::OnPodCompletion)),
    ])?;
    world
        .user
        .create(&Gvr::PERSISTENTVOLUMECLAIMS, SHOP, objects::claim(CLAIM))
        .context("creating a claim")?;
    for pod in DATABASE {
        world.create_pod(SHOP, objects::database(pod, CLAIM))?;
    }
    world.create_pod(LAB, objects::serving())?;
    telling.say(&format!(
        "{} Argo workflows start {} pods; {} start on the claim {SHOP}/{CLAIM}, and {SERVING} on the spot pool.",
        cast.len(),
        cast.pods,
        DATABASE.join(" and ")
    ));
    world.all_held(&cast).await?;
    world
        .until("workflows and claim are held, the database runs", |world| {
            let chronicle = &world.chronicle;
            chronicle.count_flows(|flow| flow.life.hold == Hold::On) == cast.len()
                && chronicle.count_claims(|claim| claim.hold == Hold::On) == 1
                && chronicle.count(|pod| pod.life.namespace == SHOP && pod.started.is_some())
                    == DATABASE.len()
        })
        .await?;
    let pods = world.chronicle.pods(|pod| cast.has(pod));
    let after = spread(pods.iter().filter_map(|pod| pod.life.held_after));
    telling.result(&format!(
        "All of them are held, the pods {after} after they appeared"
    ));
    Ok(cast)
}
