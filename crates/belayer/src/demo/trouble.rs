//! The chapters in which something goes wrong.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use belayer_sandbox::workload::PodGc;
use belayer_sandbox::{Answer, Fault, Match, Propagation, Verb};

use super::BELAYER;
use super::chronicle::{Hold, Now, Pod};
use super::neighbour::Mood;
use super::story::report;
use super::telling::{Telling, span};
use super::world::{Shape, World};

/// How long the API server takes for a patch of Belayer's in the crash: long enough to be killed
/// in the middle of one.
const SLOW: Duration = Duration::from_millis(40);

fn patches() -> Match {
    Match::verb(Verb::Patch).client(BELAYER).resource("pods")
}

pub(super) async fn crash(world: &mut World, telling: &Telling) -> Result<()> {
    telling.chapter("Belayer is killed in the middle of its work");
    let mark = world.controller.ledger().len();
    let shape = Shape {
        pods: 20,
        life: (60.0, 60.0),
        pod_gc: PodGc::Never,
    };
    let cast = world.create(&[
        ("team-a", "fit-0", shape),
        ("team-a", "fit-1", shape),
        ("team-b", "fit-2", shape),
    ])?;
    world.all_held(&cast).await?;
    let slow = world
        .sandbox
        .faults()
        .inject(Fault::on(patches()).delay(SLOW));
    world
        .user
        .delete_workflow("team-a", "fit-0", Propagation::Background)
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
        .count(|pod| cast.has(pod) && pod.hold == Hold::Off);
    telling.say(&format!(
        "fit-0 is deleted; Belayer is killed when it has let go {off} of its 20 pods."
    ));
    let by_hand = world
        .chronicle
        .pods(|pod| cast.has(pod) && pod.workflow == "fit-1");
    world.delete_pods(&by_hand);
    world
        .user
        .delete_workflow("team-b", "fit-2", Propagation::Foreground)
        .context("deleting fit-2")?;
    telling.say("While it is down the pods of fit-1 are deleted by hand, and all of fit-2 with its workflow.");
    world
        .until("fit-1 has finished", |world| {
            world
                .chronicle
                .count_flows(|flow| flow.name == "fit-1" && flow.finished)
                == 1
        })
        .await?;
    world.neighbour.be(Mood::Resting);
    world.still().await?;
    let waiting = world.chronicle.count(Pod::is_waiting);
    telling.say(&format!(
        "{waiting} pods are Terminating and wait. Nothing moves: no event will arrive any more."
    ));
    world.pause(1.0).await;

    let (mark, begun) = (world.controller.ledger().len(), Instant::now());
    world.controller.start()?;
    world
        .until("all of them are released", |world| {
            world
                .chronicle
                .count(|pod| cast.has(pod) && pod.hold == Hold::On)
                == 0
        })
        .await?;
    let took = span(begun.elapsed());
    world.neighbour.be(Mood::Busy);
    world.settled(&cast).await?;
    report(world, telling, &cast, mark);
    telling.say(&format!(
        "All had been let go {took} after the new Belayer started."
    ));
    Ok(())
}

pub(super) async fn faults(world: &mut World, telling: &Telling) -> Result<()> {
    telling.chapter("The API server misbehaves");
    let mark = world.controller.ledger().len();
    let looks = || Match::verb(Verb::Get).client(BELAYER).resource("workflows");
    let injected = [
        (
            "answers lost after the write was applied",
            Fault::on(patches())
                .after(2)
                .every(5)
                .times(8)
                .lose_answer(),
        ),
        (
            "409 Conflict",
            Fault::on(patches())
                .after(1)
                .every(6)
                .times(6)
                .answer(Answer::conflict()),
        ),
        (
            "429 with Retry-After",
            Fault::on(patches())
                .after(4)
                .every(9)
                .times(4)
                .answer(Answer::too_many_requests(Duration::from_secs(1))),
        ),
        (
            "503 Service Unavailable",
            Fault::on(patches())
                .every(8)
                .times(5)
                .answer(Answer::service_unavailable()),
        ),
        (
            "503 to a look at an owner",
            Fault::on(looks())
                .times(2)
                .answer(Answer::service_unavailable()),
        ),
    ];
    let handles = injected.map(|(name, fault)| (name, world.sandbox.faults().inject(fault)));
    let shape = Shape {
        pods: 20,
        life: (1.5, 3.0),
        pod_gc: PodGc::Never,
    };
    let cast = world.create(&[
        ("team-a", "crawl", shape),
        (
            "team-b",
            "index",
            Shape {
                pod_gc: PodGc::OnWorkflowCompletion,
                ..shape
            },
        ),
    ])?;
    world.all_held(&cast).await?;
    let pods = world.chronicle.pods(|pod| cast.has(pod));
    let deleted = world.delete_pods(pods.iter().step_by(2));
    telling.say(&format!(
        "{} pods run, the user deletes {deleted} of them.",
        cast.pods
    ));
    world.settled(&cast).await?;
    for (name, handle) in handles {
        handle.remove();
        telling.aside(&format!("{} x {name}", handle.hits()));
        world.faults.push((name, handle));
    }
    report(world, telling, &cast, mark);
    telling.say("A release whose answer was lost counts where it is seen: in the cluster.");
    Ok(())
}

pub(super) async fn same_name(world: &mut World, telling: &Telling) -> Result<()> {
    telling.chapter("A workflow is deleted and created again under its name");
    let mark = world.controller.ledger().len();
    let shape = Shape {
        pods: 16,
        life: (60.0, 60.0),
        pod_gc: PodGc::Never,
    };
    let cast = world.create(&[("team-a", "etl", shape)])?;
    world.all_held(&cast).await?;
    let old: HashSet<String> = world
        .chronicle
        .pods(|pod| cast.has(pod))
        .into_iter()
        .map(|pod| pod.uid)
        .collect();
    let still = world
        .sandbox
        .faults()
        .inject(Fault::on(Match::watches().client(BELAYER)).pause_watches());
    world
        .user
        .delete_workflow("team-a", "etl", Propagation::Background)
        .context("deleting etl")?;
    let gone = |world: &World| {
        world
            .chronicle
            .count_flows(|flow| cast.has_flow(flow) && flow.now == Now::Gone)
            == 1
    };
    world.until("the old etl is gone", gone).await?;
    world.create(&[(
        "team-a",
        "etl",
        Shape {
            life: (1.0, 2.0),
            ..shape
        },
    )])?;
    telling.say("Belayer's watches stand still, etl is deleted, and a new etl takes its name.");
    let untouched = |pod: &Pod| old.contains(&pod.uid) && pod.now == Now::There;
    world
        .until("the old pods are deleted", |world| {
            world.chronicle.count(untouched) == 0
        })
        .await?;
    telling.say(&format!(
        "{} pods of the old one are Terminating and block the names of the new ones.",
        world
            .chronicle
            .count(|pod| old.contains(&pod.uid) && pod.is_waiting())
    ));
    world.pause(0.5).await;
    still.remove();
    let all = |world: &World| {
        world
            .chronicle
            .count(|pod| cast.has(pod) && pod.had_its_chance())
            >= 2 * cast.pods
    };
    world.until("the new pods are held", all).await?;
    world.settled(&cast).await?;
    report(world, telling, &cast, mark);
    telling.say("Owners are matched by UID: the old pods went, the new ones stayed until their result was taken.");
    Ok(())
}

pub(super) async fn consumer_down(world: &mut World, telling: &Telling) -> Result<()> {
    telling.chapter("The consumer is down, and comes back");
    let mark = world.controller.ledger().len();
    let shape = Shape {
        pods: 16,
        life: (2.5, 3.5),
        pod_gc: PodGc::Never,
    };
    let cast = world.create(&[("team-a", "score", shape), ("team-b", "rank", shape)])?;
    world.all_held(&cast).await?;
    world.argo.stop();
    telling.say("The workflow controller is down. Pods end, and the user deletes all of them.");
    let mine = |pod: &Pod| cast.has(pod);
    world
        .until("the pods have ended", |world| {
            world.chronicle.count(|pod| mine(pod) && pod.ended) == cast.pods
        })
        .await?;
    world.delete_pods(&world.chronicle.pods(mine));
    world.pause(2.5).await;
    let waiting = world.chronicle.count(|pod| mine(pod) && pod.is_waiting());
    let gone = world
        .chronicle
        .count(|pod| mine(pod) && pod.now == Now::Gone);
    telling.say(&format!(
        "{waiting} of {} are Terminating and held, {gone} have vanished.",
        cast.pods
    ));
    world.argo.start();
    telling.say("It is back, and takes the results one by one.");
    world.settled(&cast).await?;
    report(world, telling, &cast, mark);
    Ok(())
}
