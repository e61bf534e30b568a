//! pod-finalizer: pods are deleted before their results are consumed.

use anyhow::Result;

use crate::output::Output;
use crate::report::report;
use crate::tracked::{Existence, Pod};
use crate::world::{WorkflowSet, World};

pub(super) async fn run(world: &World, output: &Output, set: &WorkflowSet) -> Result<()> {
    output.chapter("Pods are deleted before their results are consumed");
    let mark = world.controller.release_log().len();
    world.argo.stop();
    let running = world.state.pods(|pod| {
        set.has(pod) && pod.workflow == "build" && !pod.ended && pod.object.now == Existence::Exists
    });
    let killed = world.delete_pods(running.iter().step_by(3));
    output.say("The workflow controller stops. Pods end, and users delete pods:");
    let mine = |pod: &Pod| set.has(pod);
    world
        .until("the pods have ended", |world| {
            world
                .state
                .count(|pod| mine(pod) && (pod.ended || pod.object.now == Existence::Gone))
                == set.pods
        })
        .await?;
    let ended = world
        .state
        .pods(|pod| mine(pod) && pod.object.now == Existence::Exists);
    let ended = world.delete_pods(&ended);
    output.say(&format!(
        "{killed} while they run, {ended} after they have ended."
    ));
    world.pause(0.8).await;
    let waiting = world
        .state
        .count(|pod| mine(pod) && pod.object.is_waiting());
    output.say(&format!(
        "{waiting} are Terminating with a hold. The controller starts again and consumes the results:"
    ));
    world.argo.start();
    world.settled(set).await?;
    report(world, output, set, mark);
    Ok(())
}
