//! Belayer is killed in the middle of its work, and starts again on an API server that fails.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use belayer_checker::BELAYER;
use belayer_sandbox::{Answer, Fault, FaultHandle, Match, Propagation, Verb};
use belayer_workload::PodGc;

use crate::life::{Hold, Pod};
use crate::neighbour::Mood;
use crate::report::{report, span};
use crate::telling::Telling;
use crate::world::{Cast, Shape, World};

/// How long the API server takes for every other patch of Belayer's: long enough to be killed in
/// the middle of it.
const SLOW: Duration = Duration::from_millis(600);

fn patches() -> Match {
    Match::verb(Verb::Patch).client(BELAYER).resource("pods")
}

pub(super) async fn tell(world: &mut World, telling: &Telling) -> Result<()> {
    telling.chapter("Belayer is killed at work, and starts again on a failing API server");
    let shape = Shape {
        pods: 16,
        life: (60.0, 60.0),
        pod_gc: PodGc::Never,
    };
    let cast = world.create(&[
        ("ci", "fit-0", shape),
        ("ci", "fit-1", shape),
        ("lab", "fit-2", shape),
    ])?;
    world.all_held(&cast).await?;
    kill(world, telling, &cast).await?;
    meanwhile(world, telling, &cast).await?;
    let faults = inject(world);
    let (mark, begun) = (world.controller.ledger().len(), Instant::now());
    world.controller.start()?;
    world
        .until("all of them are released", |world| {
            let held = |pod: &Pod| cast.has(pod) && pod.life.hold == Hold::On;
            world.chronicle.count(held) == 0
        })
        .await?;
    let took = span(begun.elapsed());
    world.neighbour.be(Mood::Busy);
    world.settled(&cast).await?;
    let mut met = Vec::new();
    for (name, handle) in faults {
        handle.remove();
        met.push(format!("{} × {name}", handle.hits()));
        world.faults.push((name, handle));
    }
    telling.aside(&format!("Started again, it meets {}", met.join(", ")));
    report(world, telling, &cast, mark);
    telling.say(&format!(
        "All are let go {took} after its start. Answers that were lost count where they are seen: in the cluster."
    ));
    Ok(())
}

async fn kill(world: &mut World, telling: &Telling, cast: &Cast) -> Result<()> {
    let mark = world.controller.ledger().len();
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
            world.controller.ledger().len() > mark
        })
        .await?;
    world.controller.crash().await?;
    slow.remove();
    let off = world
        .chronicle
        .count(|pod| cast.has(pod) && pod.life.hold == Hold::Off);
    telling.say(&format!(
        "fit-0 is deleted. Belayer is killed when it has let go {off} of its 16 pods."
    ));
    Ok(())
}

/// What happens while it is down, so that no event will tell of it.
async fn meanwhile(world: &World, telling: &Telling, cast: &Cast) -> Result<()> {
    let by_hand = world
        .chronicle
        .pods(|pod| cast.has(pod) && pod.workflow == "fit-1");
    world.delete_pods(&by_hand);
    world
        .user
        .delete_workflow("lab", "fit-2", Propagation::Foreground)
        .context("deleting fit-2")?;
    telling.say(
        "While it is down all pods of fit-1 are deleted by hand, and fit-2 with its workflow.",
    );
    world
        .until("fit-1 has finished", |world| {
            world
                .chronicle
                .count_flows(|flow| flow.life.name == "fit-1" && flow.finished)
                == 1
        })
        .await?;
    world.neighbour.be(Mood::Resting);
    world.still().await?;
    let waiting = world.chronicle.count(|pod| pod.life.is_waiting());
    telling.say(&format!(
        "{waiting} pods are Terminating and wait. Nothing moves any more."
    ));
    world.pause(0.7).await;
    Ok(())
}

fn inject(world: &World) -> [(&'static str, FaultHandle); 4] {
    [
        (
            "answer lost",
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
