//! pod-finalizer: nobody has taken the results yet.

use anyhow::Result;

use crate::life::{Now, Pod};
use crate::report::report;
use crate::telling::Telling;
use crate::world::{Cast, World};

pub(super) async fn tell(world: &World, telling: &Telling, cast: &Cast) -> Result<()> {
    telling.chapter("Pods are deleted before anybody has taken their result");
    let mark = world.controller.ledger().len();
    world.argo.stop();
    let running = world.chronicle.pods(|pod| {
        cast.has(pod) && pod.workflow == "build" && !pod.ended && pod.life.now == Now::There
    });
    let killed = world.delete_pods(running.iter().step_by(3));
    telling.say("The workflow controller goes down. Pods end, and pods are deleted:");
    let mine = |pod: &Pod| cast.has(pod);
    world
        .until("the pods have ended", |world| {
            world
                .chronicle
                .count(|pod| mine(pod) && (pod.ended || pod.life.now == Now::Gone))
                == cast.pods
        })
        .await?;
    let ended = world
        .chronicle
        .pods(|pod| mine(pod) && pod.life.now == Now::There);
    let ended = world.delete_pods(&ended);
    telling.say(&format!(
        "{killed} while they run, {ended} after they have ended."
    ));
    world.pause(0.8).await;
    let waiting = world
        .chronicle
        .count(|pod| mine(pod) && pod.life.is_waiting());
    telling.say(&format!(
        "{waiting} are Terminating and held. The controller is back, and takes the results:"
    ));
    world.argo.start();
    world.settled(cast).await?;
    report(world, telling, cast, mark);
    Ok(())
}
