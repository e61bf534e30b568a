//! The guarantees of the module, on paused time.

use std::time::Duration;

use tokio::time::sleep;

use super::world::{Act, SECOND, World, named, soon, stop_within, web};
use crate::{Deadline, Known, Pass, Phase};
use belayer_core::workqueue::Backoff;

#[tokio::test(start_paused = true)]
async fn an_object_goes_through_its_phases_each_run_at_once() {
    let world = World::new();
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    soon(workers.settled()).await;
    assert_eq!(world.news(), "sync u-1 a");
    workers.observe(&web("u-1"), stop_within("b", 30));
    soon(workers.settled()).await;
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
    soon(workers.finished(&web("u-1"))).await;
    soon(workers.settled()).await;
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
async fn names_do_not_block_each_other() {
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
async fn objects_are_unknown_until_the_first_pass() {
    let workers = World::new().start();
    let stranger = workers.known(&web("u-1"));
    assert_eq!(stranger, Known::Unknown);
    assert!(stranger.could_run() && !stranger.is_finished() && !stranger.is_known_terminated());
    workers.reconcile(Pass::begin());
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

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_is_run_again_at_once_if_something_is_pending() {
    let world = World::new();
    world.script("terminate u-1", [Act::FailWhenCancelled]);
    let workers = world.start();
    workers.observe(&web("u-1"), stop_within("a", 60));
    sleep(SECOND).await;
    workers.observe(&web("u-1"), stop_within("b", 5));
    soon(workers.finished(&web("u-1"))).await;
    // No failure was counted, and there was no backoff.
    assert_eq!(world.times("terminate u-1 b in 5s"), [SECOND]);
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_cancelled_sync_is_ignored() {
    for act in [
        Act::UntilCancelled,
        Act::FailWhenCancelled,
        Act::LingerWhenCancelled(SECOND),
    ] {
        let world = World::new();
        world.script("sync u-1", [act]);
        let workers = world.start();
        workers.created(&web("u-1"), "a");
        sleep(SECOND).await;
        workers.deleted(&web("u-1"));
        soon(workers.finished(&web("u-1"))).await;
        let log = world.log();
        let rest = &log[log.len() - 3..];
        assert_eq!(rest, ["terminate u-1 a", "clean u-1 a", "finished u-1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn errors_back_off_and_a_success_resets_the_backoff() {
    let world =
        World::backing_off(Backoff::new(Duration::from_millis(1), SECOND * 4).at_least(SECOND));
    world.script("sync u-1", [Act::Fail; 3]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    sleep(SECOND * 10).await;
    assert_eq!(
        world.times("sync u-1 a"),
        [0, 1, 2, 3].map(Duration::from_secs)
    );
    let Known::Known(view) = workers.known(&web("u-1")) else {
        panic!("not known");
    };
    assert_eq!(view.failures, 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_caught_and_retried_without_effect_on_other_names() {
    let world = World::new();
    for call in ["sync u-1", "terminate u-1", "clean u-1"] {
        world.script(call, [Act::Panic]);
    }
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    workers.created(&named("other", "u-2"), "b");
    sleep(SECOND).await;
    workers.deleted(&web("u-1"));
    soon(workers.finished(&web("u-1"))).await;
    assert_eq!(
        world.news(),
        "sync u-1 a, sync u-2 b, sync u-1 a, terminate u-1 a, terminate u-1 a, clean u-1 a, \
         clean u-1 a, finished u-1"
    );
    workers.updated(&named("other", "u-2"), "c");
    soon(workers.settled()).await;
    assert_eq!(world.news(), "sync u-2 c");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_cancels_running_work_waits_for_it_and_begins_none() {
    let world = World::new();
    world.script("sync u-1", [Act::LingerWhenCancelled(SECOND * 5)]);
    world.script("sync u-2", [Act::Fail]);
    let workers = world.start();
    workers.created(&named("a", "u-1"), "a");
    workers.created(&named("b", "u-2"), "b");
    sleep(SECOND / 2).await;
    world.news();
    soon(workers.shutdown()).await;
    assert_eq!(world.news(), "sync u-1 cancelled, sync u-1 ended");
    workers.deleted(&named("a", "u-1"));
    workers.created(&named("c", "u-3"), "c");
    sleep(SECOND * 60).await;
    assert_eq!(world.news(), "");
    // There is no wait for work that will never be done.
    soon(workers.settled()).await;
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_cancels_running_work() {
    let world = World::new();
    world.script("sync u-1", [Act::UntilCancelled]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    let clone = workers.clone();
    drop(workers);
    sleep(SECOND).await;
    assert_eq!(world.news(), "sync u-1 a");
    drop(clone);
    sleep(SECOND).await;
    assert_eq!(world.news(), "sync u-1 cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_pass_ignores_objects_observed_after_it_began() {
    let world = World::new();
    let workers = world.start();
    workers.created(&named("old", "u-1"), "a");
    let pass = Pass::begin();
    workers.created(&named("new", "u-2"), "b");
    workers.updated(&named("old", "u-1"), "c");
    workers.reconcile(pass);
    soon(workers.settled()).await;
    assert_eq!(
        workers.known(&named("new", "u-2")).phase(),
        Some(Phase::Sync)
    );
    assert_eq!(
        workers.known(&named("old", "u-1")).phase(),
        Some(Phase::Sync)
    );
}

#[tokio::test(start_paused = true)]
async fn a_pass_does_not_begin_objects_removed_after_it_began() {
    let world = World::new();
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    let stale = Pass::begin().desired(web("u-1"), "a");
    workers.deleted(&web("u-1"));
    soon(workers.settled()).await;
    world.news();
    workers.reconcile(stale);
    soon(workers.settled()).await;
    assert_eq!(world.news(), "");
}

#[tokio::test(start_paused = true)]
async fn a_pass_without_changes_does_nothing() {
    let world = World::new();
    world.script("terminate u-2", [Act::Fail; 3]);
    let workers = world.start();
    workers.created(&named("a", "u-1"), "a");
    workers.observe(&named("b", "u-2"), stop_within("b", 60));
    sleep(SECOND / 2).await;
    world.news();
    for _ in 0..5 {
        let pass = Pass::begin()
            .desired(named("a", "u-1"), "from the list")
            .desired(named("b", "u-2"), "from the list");
        workers.reconcile(pass);
        soon(workers.settled()).await;
    }
    assert_eq!(world.news(), "");
}

#[tokio::test(start_paused = true)]
async fn names_without_work_have_no_task_and_names_without_objects_are_removed() {
    let world = World::new();
    let workers = world.start();
    for n in 0..100 {
        workers.created(&named(&format!("web-{n}"), "u-1"), "a");
    }
    soon(workers.settled()).await;
    assert_eq!(workers.slots().workers(), 0);
    assert_eq!(workers.slots().names(), 100);
    for n in 0..100 {
        workers.deleted(&named(&format!("web-{n}"), "u-1"));
    }
    soon(workers.settled()).await;
    assert_eq!(workers.slots().workers(), 0);
    assert_eq!(workers.slots().names(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_observations_are_not_lost() {
    let world = World::new();
    let workers = world.start();
    let mut tellers = tokio::task::JoinSet::new();
    for observer in 0..8 {
        let workers = workers.clone();
        tellers.spawn(async move {
            let object = named(&format!("web-{observer}"), "u-1");
            workers.created(&object, "first");
            for _ in 0..200 {
                workers.updated(&object, "next");
                tokio::task::yield_now().await;
            }
            workers.updated(&object, "last");
            workers.deleted(&object);
            workers.created(&named(&format!("web-{observer}"), "u-2"), "new");
        });
    }
    while tellers.join_next().await.is_some() {}
    soon(workers.settled()).await;
    let log = world.log();
    let count = |line: &str| log.iter().filter(|it| *it == line).count();
    assert_eq!(count("terminate u-1 last"), 8);
    assert_eq!(count("clean u-1 last"), 8);
    assert_eq!(count("sync u-2 new"), 8);
    assert_eq!(count("finished u-1"), 8);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_object_does_not_wait_for_its_successor() {
    let world = World::new();
    world.script("sync u-2", [Act::UntilCancelled]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    workers.created(&web("u-2"), "b");
    soon(workers.finished(&web("u-1"))).await;
    let news = world.news();
    assert!(news.contains("finished u-1"), "{news}");
    let successor = workers.known(&web("u-2")).phase();
    assert_eq!(successor, Some(Phase::Sync));
}
