//! The guarantees of the module, on paused time.

use std::time::Duration;

use tokio::time::sleep;

use super::world::{Act, SECOND, World, named, stop_within, web};
use crate::lifecycles::{Deadline, Known, Phase};

#[tokio::test(start_paused = true)]
async fn an_object_goes_through_its_phases_each_run_at_once() {
    let world = World::new();
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    workers.settled().await;
    assert_eq!(world.news(), "sync u-1 a");
    workers.observe(&web("u-1"), stop_within("b", 30));
    workers.settled().await;
    assert_eq!(
        world.news(),
        "terminate u-1 b in 30s, clean u-1 b, finished u-1"
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_object_of_a_name_waits_until_the_work_of_the_older_uid_has_finished() {
    let world = World::new();
    world.script("sync u-1", [Act::LingerWhenCancelled(SECOND)]);
    world.script("terminate u-1", [Act::Fail, Act::Take(SECOND)]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    sleep(SECOND).await;
    workers.deleted(&web("u-1"));
    workers.created(&web("u-2"), "b");
    workers.updated(&web("u-2"), "c");
    workers.finished(&web("u-1")).await;
    workers.settled().await;
    assert_eq!(
        world.log(),
        [
            "sync u-1 a",
            "sync u-1 cancelled",
            "sync u-1 ended",
            "terminate u-1 a",
            "terminate u-1 a",
            "clean u-1 a",
            "finished u-1",
            "sync u-2 c",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn names_do_not_wait_for_each_other() {
    let world = World::new();
    world.script("sync u-1", [Act::UntilCancelled]);
    let workers = world.start();
    workers.created(&named("a", "u-1"), "a");
    workers.created(&named("b", "u-2"), "b");
    sleep(SECOND).await;
    assert_eq!(world.news(), "sync u-1 a, sync u-2 b");
    assert_eq!(workers.all().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_known_until_the_first_pass_and_unknown_is_not_absent() {
    let workers = World::new().start();
    let stranger = workers.known(&web("u-1"));
    assert_eq!(stranger, Known::Unknown);
    assert!(stranger.could_run() && !stranger.is_finished() && !stranger.is_known_terminated());
    workers.reconcile(crate::lifecycles::Pass::begin());
    let absent = workers.known(&web("u-1"));
    assert_eq!(absent, Known::Absent);
    assert!(!absent.could_run() && absent.is_finished() && !absent.is_known_terminated());
    workers.observe(&web("u-1"), stop_within("a", 1));
    assert!(matches!(
        workers.known(&web("u-1")),
        Known::Known(view) if view.phase == Phase::Terminating
            && view.deadline == Deadline::within(Duration::from_secs(1))
    ));
}
