//! RAN-ONCE: a kubelet that restarts on a changed node rejects pods that ran, with the same message as
//! pods that never ran. Belayer is being updated meanwhile, so it sees only the result.

use std::time::Duration;

use anyhow::{Result, ensure};
use belayer_sandbox::Gvr;
use serde_json::json;

use crate::objects::{LAB, POOL, SERVING, SPOT};
use crate::output::Output;
use crate::tracked::{Hold, Pod};
use crate::world::World;

/// Minimum run time: a pod that was rejected sooner after its start looks like one that never ran.
/// In real time, whatever the speed of the demo.
const RAN_FOR: Duration = Duration::from_secs(12);

pub(super) async fn run(world: &mut World, output: &Output) -> Result<()> {
    output.chapter("A kubelet restarts and rejects a pod that ran");
    let serving = |pod: &Pod| pod.object.namespace == LAB && pod.object.name == SERVING;
    world
        .until("it has run for a while and has no hold", |world| {
            let long = |pod: &Pod| pod.started.is_some_and(|at| at.elapsed() > RAN_FOR);
            world
                .state
                .count(|pod| serving(pod) && long(pod) && pod.object.hold != Hold::On)
                == 1
        })
        .await?;
    world.controller.stop().await?;
    let (label, _) = POOL;
    let gone = json!({"metadata": {"labels": {label: null}}});
    world.patch(&Gvr::NODES, None, SPOT, gone)?;
    world.sandbox.controllers().kubelets().restart(SPOT);
    let rejected = |pod: &Pod| serving(pod) && pod.rejected.is_some();
    world
        .until("it is rejected", |world| world.state.count(rejected) == 1)
        .await?;
    output.say(&format!(
        "Belayer is being updated. {SPOT} loses a label; its kubelet restarts and rejects {SERVING}:"
    ));
    let message = world.state.pods(rejected);
    if let Some((message, _)) = message.iter().find_map(|pod| pod.rejected.as_ref()) {
        output.detail(&format!("\"{message}\""));
    }
    world.controller.start()?;
    // Longer than the re-creations of the earlier chapter took.
    let while_nothing_happens = world.pace.of(2.0).max(Duration::from_secs(1));
    tokio::time::sleep(while_nothing_happens).await;
    ensure!(
        world.state.count(serving) == 1,
        "a pod that ran was re-created"
    );
    output.result(&format!(
        "{SERVING} had run, so the new Belayer does not re-create it"
    ));
    Ok(())
}
