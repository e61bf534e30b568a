//! Lessons of the node agent that wipes rejected pods: before the state of a pod is removed,
//! everything that handles the pod must have ended, and nothing may start the pod again.

use std::time::Duration;

use tokio::time::sleep;

use super::world::{Act, SECOND, World, named, soon, stop_within, web};
use crate::{Deadline, Known, Pass};

#[tokio::test(start_paused = true)]
async fn the_wipe_begins_only_when_every_handler_has_ended() {
    let world = World::new();
    world.script("sync u-1", [Act::LingerWhenCancelled(SECOND * 9)]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    sleep(SECOND).await;
    workers.observe(&web("u-1"), stop_within("rejected", 10));
    soon(workers.finished(&web("u-1"))).await;
    assert_eq!(
        world.log()[1..4],
        [
            "sync u-1 cancelled",
            "sync u-1 ended",
            "terminate u-1 rejected in 1s"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn late_updates_of_a_wiped_pod_are_ignored_and_its_deletion_is_applied() {
    let world = World::new();
    let workers = world.start();
    workers.observe(&web("u-1"), stop_within("rejected", 10));
    soon(workers.finished(&web("u-1"))).await;
    world.news();
    workers.updated(&web("u-1"), "late");
    workers.observe(&web("u-1"), stop_within("later", 10));
    workers.kill(&web("u-1"), Deadline::NONE);
    soon(workers.settled()).await;
    assert_eq!(world.news(), "");
    assert!(workers.known(&web("u-1")).is_finished());
    workers.deleted(&web("u-1"));
    assert_eq!(workers.known(&web("u-1")), Known::Unknown);
    assert_eq!(workers.all(), []);
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_is_removed_by_the_first_pass_without_its_uid() {
    let workers = World::new().start();
    workers.observe(&web("u-1"), stop_within("rejected", 10));
    soon(workers.finished(&web("u-1"))).await;
    workers.reconcile(Pass::begin().desired(web("u-1"), "late"));
    assert!(matches!(workers.known(&web("u-1")), Known::Known(_)));
    workers.reconcile(Pass::begin().desired(web("u-2"), "new"));
    assert_eq!(workers.known(&web("u-1")), Known::Absent);
}

#[tokio::test(start_paused = true)]
async fn two_pods_of_one_name_in_quick_succession_are_distinguished_by_their_uid() {
    let world = World::new();
    world.script("terminate u-1", [Act::Fail]);
    let workers = world.start();
    workers.observe(&web("u-1"), stop_within("rejected", 10));
    workers.deleted(&web("u-1"));
    workers.created(&web("u-2"), "b");
    workers.observe(&web("u-2"), stop_within("rejected", 10));
    workers.deleted(&web("u-2"));
    workers.created(&web("u-3"), "c");
    soon(workers.finished(&web("u-1"))).await;
    soon(workers.settled()).await;
    assert_eq!(
        world.news(),
        "finished u-2 unstarted, terminate u-1 rejected in 10s, terminate u-1 rejected in 9s, \
         clean u-1 rejected, finished u-1, sync u-3 c"
    );
}

#[tokio::test(start_paused = true)]
async fn two_hundred_wipes_run_at_once() {
    let world = World::new();
    let workers = world.start();
    for n in 0..200 {
        world.script(&format!("terminate u-{n}"), [Act::Take(SECOND * 10)]);
        let pod = named(&format!("web-{n}"), &format!("u-{n}"));
        workers.observe(&pod, stop_within("rejected", 60));
    }
    sleep(SECOND * 10 + Duration::from_millis(1)).await;
    for (key, view) in workers.all() {
        let pod = crate::Identity::new(key, view.uid);
        assert!(workers.known(&pod).is_finished(), "{pod}");
    }
    assert_eq!(workers.all().len(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_wipe_that_cannot_complete_blocks_the_next_pod_of_that_name() {
    let world = World::new();
    world.script("terminate u-1", [Act::Fail; 30]);
    let workers = world.start();
    workers.observe(&web("u-1"), stop_within("rejected", 10));
    workers.deleted(&web("u-1"));
    workers.created(&web("u-2"), "new");
    sleep(SECOND * 20).await;
    assert!(!world.log().contains(&"sync u-2 new".to_owned()));
    sleep(SECOND * 20).await;
    assert!(world.log().contains(&"sync u-2 new".to_owned()));
}
