//! The story: what goes well by itself. What goes wrong is told in [`super::trouble`].

use anyhow::{Context, Result};
use belayer_sandbox::Propagation;
use belayer_sandbox::workload::PodGc;

use super::chronicle::{Now, Pod};
use super::neighbour::Mood;
use super::telling::{Telling, released, span, spread};
use super::trouble;
use super::world::{Cast, Shape, World};

/// How many chapters there are.
pub(super) const CHAPTERS: usize = 8;

/// Tells all of it.
///
/// # Errors
/// If something does not come about that the story needs.
pub(super) async fn tell(world: &mut World, telling: &Telling) -> Result<()> {
    let first = appear(world, telling).await.context("chapter 1")?;
    slow_consumer(world, telling, &first)
        .await
        .context("chapter 2")?;
    owners_deleted(world, telling).await.context("chapter 3")?;
    namespace_deleted(world, telling)
        .await
        .context("chapter 4")?;
    trouble::crash(world, telling).await.context("chapter 5")?;
    trouble::faults(world, telling).await.context("chapter 6")?;
    trouble::same_name(world, telling)
        .await
        .context("chapter 7")?;
    trouble::consumer_down(world, telling)
        .await
        .context("chapter 8")?;
    world.neighbour.be(Mood::LettingGo);
    Ok(())
}

async fn appear(world: &World, telling: &Telling) -> Result<Cast> {
    telling.chapter("Pods appear and are held");
    let life = (5.0, 8.0);
    let cast = world.create(&[
        (
            "team-a",
            "ingest",
            Shape {
                pods: 24,
                life,
                pod_gc: PodGc::Never,
            },
        ),
        (
            "team-a",
            "train",
            Shape {
                pods: 32,
                life,
                pod_gc: PodGc::OnWorkflowCompletion,
            },
        ),
        (
            "team-b",
            "report",
            Shape {
                pods: 24,
                life,
                pod_gc: PodGc::OnPodCompletion,
            },
        ),
    ])?;
    telling.say(&format!(
        "A user submits {} workflows with {} pods.",
        cast.len(),
        cast.pods
    ));
    world.all_held(&cast).await?;
    let pods = world.chronicle.pods(|pod| cast.has(pod));
    let after = spread(pods.iter().filter_map(|pod| pod.held_after));
    telling.result(&format!(
        "{} of {} are held by {}, {after} after they appeared",
        pods.len(),
        cast.pods,
        super::HOLD
    ));
    Ok(cast)
}

async fn slow_consumer(world: &World, telling: &Telling, cast: &Cast) -> Result<()> {
    telling.chapter("Pods end and are deleted while their consumer is slow");
    let mark = world.controller.ledger().len();
    let running = world
        .chronicle
        .pods(|pod| cast.has(pod) && pod.workflow == "ingest" && pod.now == Now::There);
    let deleted = world.delete_pods(running.iter().step_by(3));
    telling.say(&format!(
        "The user deletes {deleted} running pods; pod GC deletes others as they end."
    ));
    let done = |pod: &Pod| cast.has(pod) && (pod.ended || pod.now != Now::There);
    world
        .until("pods have ended", |world| {
            world.chronicle.count(done) * 2 >= cast.pods
        })
        .await?;
    let ended = world
        .chronicle
        .pods(|pod| cast.has(pod) && pod.workflow == "train" && pod.ended);
    let deleted = world.delete_pods(ended.iter().step_by(2));
    telling.say(&format!("It also deletes {deleted} that have just ended."));
    let waiting = world
        .chronicle
        .pods(|pod| cast.has(pod) && pod.is_waiting());
    telling.say(&format!(
        "{} are Terminating now and held: the workflow controller has not taken their result yet.",
        waiting.len()
    ));
    world.settled(cast).await?;
    report(world, telling, cast, mark);
    Ok(())
}

async fn owners_deleted(world: &World, telling: &Telling) -> Result<()> {
    telling.chapter("Workflows are deleted: background, foreground, orphan");
    let mark = world.controller.ledger().len();
    let long = Shape {
        pods: 20,
        life: (60.0, 60.0),
        pod_gc: PodGc::Never,
    };
    let cast = world.create(&[
        ("team-a", "nightly", long),
        ("team-b", "hourly", long),
        (
            "team-b",
            "adhoc",
            Shape {
                life: (3.0, 5.0),
                ..long
            },
        ),
    ])?;
    world.all_held(&cast).await?;
    telling.say(&format!(
        "{} workflows run, their {} pods are held.",
        cast.len(),
        cast.pods
    ));
    for (namespace, name, how) in [
        ("team-a", "nightly", Propagation::Background),
        ("team-b", "hourly", Propagation::Foreground),
        ("team-b", "adhoc", Propagation::Orphan),
    ] {
        telling.aside(&format!(
            "kubectl delete workflow {name} -n {namespace} --cascade={}",
            how.as_str().to_lowercase()
        ));
        world
            .user
            .delete_workflow(namespace, name, how)
            .context("deleting a workflow")?;
    }
    world.settled(&cast).await?;
    report(world, telling, &cast, mark);
    let orphans = world
        .chronicle
        .count(|pod| cast.has(pod) && pod.now == Now::There);
    telling.say(&format!(
        "{orphans} orphans stay, without an owner and without a hold; nothing waits for the rest."
    ));
    Ok(())
}

async fn namespace_deleted(world: &World, telling: &Telling) -> Result<()> {
    telling.chapter("A namespace is deleted");
    let mark = world.controller.ledger().len();
    let shape = Shape {
        pods: 20,
        life: (2.0, 60.0),
        pod_gc: PodGc::Never,
    };
    let cast = world.create(&[("team-c", "sweep", shape), ("team-c", "backfill", shape)])?;
    world.all_held(&cast).await?;
    telling.say(&format!("{} pods are held in team-c.", cast.pods));
    telling.aside("kubectl delete namespace team-c");
    world
        .user
        .delete_namespace("team-c")
        .context("deleting the namespace")?;
    let took = world
        .until("team-c is gone", |world| {
            world.chronicle.namespace("team-c") == Now::Gone
        })
        .await?;
    report(world, telling, &cast, mark);
    telling.say(&format!(
        "The namespace was gone after {}: no finalizer of ours kept it.",
        span(took)
    ));
    Ok(())
}

/// What Belayer did since a mark, and the pod that waited longest for it.
pub(super) fn report(world: &World, telling: &Telling, cast: &Cast, mark: usize) {
    telling.result(&released(&world.controller.ledger().since(mark)));
    let waited = world
        .chronicle
        .pods(|pod| cast.has(pod) && pod.waited.is_some());
    let longest = waited
        .iter()
        .filter_map(|pod| Some((pod.waited?, pod)))
        .max_by_key(|(waited, _)| *waited);
    if let Some((longest, pod)) = longest {
        telling.aside(&format!(
            "{} were deleted while held, and waited {}; longest of all {}, {}",
            waited.len(),
            spread(waited.iter().filter_map(|pod| pod.waited)),
            pod.key(),
            span(longest)
        ));
    }
}
