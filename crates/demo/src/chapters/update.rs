//! RAN-ONCE: a kubelet that restarts on a changed node rejects what ran there, in the very words in
//! which it rejects what never did. Belayer is being updated meanwhile: it sees only the outcome.

use std::time::Duration;

use anyhow::{Result, ensure};
use belayer_sandbox::Gvr;
use serde_json::json;

use crate::life::{Hold, Pod};
use crate::objects::{LAB, POOL, SERVING, SPOT};
use crate::telling::Telling;
use crate::world::World;

/// A pod that was rejected so soon after its start may be one that never ran, as far as anybody can
/// tell from outside. In real time, however fast the story is told.
const RAN_FOR: Duration = Duration::from_secs(12);

pub(super) async fn tell(world: &mut World, telling: &Telling) -> Result<()> {
    telling.chapter("A kubelet restarts, and rejects a pod that ran");
    let serving = |pod: &Pod| pod.life.namespace == LAB && pod.life.name == SERVING;
    world
        .until("it has run for a while and is not held", |world| {
            let long = |pod: &Pod| pod.started.is_some_and(|at| at.elapsed() > RAN_FOR);
            world
                .chronicle
                .count(|pod| serving(pod) && long(pod) && pod.life.hold != Hold::On)
                == 1
        })
        .await?;
    world.controller.stop().await?;
    let (label, _) = POOL;
    let gone = json!({"metadata": {"labels": {label: null}}});
    world.patch(&Gvr::NODES, None, SPOT, gone)?;
    world.sandbox.companions().kubelets().restart(SPOT);
    let rejected = |pod: &Pod| serving(pod) && pod.rejected.is_some();
    world
        .until("it is rejected", |world| {
            world.chronicle.count(rejected) == 1
        })
        .await?;
    telling.say(&format!(
        "Belayer is being updated. {SPOT} loses a label, its kubelet restarts and says of {SERVING}:"
    ));
    let words = world.chronicle.pods(rejected);
    if let Some((words, _)) = words.iter().find_map(|pod| pod.rejected.as_ref()) {
        telling.aside(&format!("\"{words}\""));
    }
    world.controller.start()?;
    // Longer than those took that came back.
    let while_nothing_happens = world.pace.of(2.0).max(Duration::from_secs(1));
    tokio::time::sleep(while_nothing_happens).await;
    ensure!(
        world.chronicle.count(serving) == 1,
        "a pod that ran has come back"
    );
    telling.result(&format!(
        "{SERVING} had run: the new Belayer leaves it as it is"
    ));
    Ok(())
}
