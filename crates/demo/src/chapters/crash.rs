//! Belayer is killed during its work, and restarts while the API server fails.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use belayer_checker::BELAYER;
use belayer_sandbox::{Answer, Fault, FaultHandle, Match, Propagation, Verb};
use belayer_workload::PodGc;

use crate::other_operator::Mode;
use crate::output::Output;
use crate::report::{report, span};
use crate::tracked::{Hold, Pod};
use crate::world::{WorkflowSet, WorkflowShape, World};

/// Delay of every other patch of Belayer's: long enough to kill Belayer between the request and
/// the response.
const SLOW: Duration = Duration::from_millis(600);

fn patches() -> Match {
    Match::verb(Verb::Patch).client(BELAYER).resource("pods")
}

pub(super) async fn run(world: &mut World, output: &Output) -> Result<()> {
    output.chapter("Belayer is killed during its work, and restarts while the API server fails");
    let shape = WorkflowShape {
        pods: 16,
        run_time: (60.0, 60.0),
        pod_gc: PodGc::Never,
    };
    let set = world.create(&[
        ("ci", "fit-0", shape),
        ("ci", "fit-1", shape),
        ("lab", "fit-2", shape),
    ])?;
    world.all_held(&set).await?;
    kill(world, output, &set).await?;
    meanwhile(world, output, &set).await?;
    let faults = inject(world);
    let (mark, begun) = (world.controller.release_log().len(), Instant::now());
    world.controller.start()?;
    world
        .until("all of them are released", |world| {
            let held = |pod: &Pod| set.has(pod) && pod.object.hold == Hold::On;
            world.state.count(held) == 0
        })
        .await?;
    let took = span(begun.elapsed());
    world.other_operator.set_mode(Mode::Busy);
    world.settled(&set).await?;
    let mut met = Vec::new();
    for (name, handle) in faults {
        handle.remove();
        met.push(format!("{} × {name}", handle.hits()));
        world.faults.push((name, handle));
    }
    output.detail(&format!("Faults after the restart: {}", met.join(", ")));
    report(world, output, &set, mark);
    output.say(&format!(
        "All are released {took} after the restart. When a response is lost, Belayer reads the result from the cluster."
    ));
    Ok(())
}

async fn kill(world: &mut World, output: &Output, set: &WorkflowSet) -> Result<()> {
    let mark = world.controller.release_log().len();
    let slow = world
        .sandbox
        .faults()
        .inject(Fault::on(patches()).every(2).delay(SLOW));
    world
        .user
        .delete_workflow("ci", "fit-0", Propagation::Background)
        .context("deleting fit-0")?;
    world
        .until("the first pods are released", |world| {
            world.controller.release_log().len() > mark
        })
        .await?;
    world.controller.crash().await?;
    slow.remove();
    let off = world
        .state
        .count(|pod| set.has(pod) && pod.object.hold == Hold::Off);
    output.say(&format!(
        "fit-0 is deleted. Belayer is killed after it has released {off} of its 16 pods."
    ));
    Ok(())
}

/// Changes while Belayer is down, of which it receives no event.
async fn meanwhile(world: &World, output: &Output, set: &WorkflowSet) -> Result<()> {
    let by_hand = world
        .state
        .pods(|pod| set.has(pod) && pod.workflow == "fit-1");
    world.delete_pods(&by_hand);
    world
        .user
        .delete_workflow("lab", "fit-2", Propagation::Foreground)
        .context("deleting fit-2")?;
    output.say(
        "While it is down, all pods of fit-1 are deleted by hand, and fit-2 with its workflow.",
    );
    world
        .until("fit-1 has finished", |world| {
            world
                .state
                .count_workflows(|workflow| workflow.object.name == "fit-1" && workflow.finished)
                == 1
        })
        .await?;
    world.other_operator.set_mode(Mode::Resting);
    world.still().await?;
    let waiting = world.state.count(|pod| pod.object.is_waiting());
    output.say(&format!(
        "{waiting} pods are Terminating with a hold. Nothing changes any more."
    ));
    world.pause(0.7).await;
    Ok(())
}

fn inject(world: &World) -> [(&'static str, FaultHandle); 4] {
    [
        (
            "lost response",
            Fault::on(patches())
                .after(2)
                .every(5)
                .times(6)
                .lose_answer(),
        ),
        (
            "409 Conflict",
            Fault::on(patches())
                .after(1)
                .every(6)
                .times(5)
                .answer(Answer::conflict()),
        ),
        (
            "429 Too Many Requests",
            Fault::on(patches())
                .after(4)
                .every(9)
                .times(2)
                .answer(Answer::too_many_requests(Duration::from_secs(1))),
        ),
        (
            "503 Service Unavailable",
            Fault::on(patches())
                .every(8)
                .times(4)
                .answer(Answer::service_unavailable()),
        ),
    ]
    .map(|(name, fault)| (name, world.sandbox.faults().inject(fault)))
}
