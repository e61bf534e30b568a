//! Bugs of the kubelet's pod workers, and changes that it made to prevent them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{advance, sleep};

use super::world::{Act, SECOND, World, named, soon, stop_within, web};
use crate::{
    Activity, Config, Deadline, Known, Lifecycle, Lifecycles, Observation, Options, Pass, Phase,
    View,
};

pub(super) fn view(
    workers: &Lifecycles<World>,
    uid: &str,
) -> View<Arc<<World as Lifecycle>::Snapshot>> {
    match workers.known(&web(uid)) {
        Known::Known(view) => view,
        other => panic!("{uid} is not known: {other:?}"),
    }
}

pub(super) fn phase(workers: &Lifecycles<World>, uid: &str) -> Phase {
    view(workers, uid).phase
}

/// A test that read state while workers changed it was a data race that was hard to reproduce.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_can_wait_until_the_workers_are_stable() {
    let world = World::new();
    let workers = world.start();
    for round in 0..50 {
        let object = named(&format!("web-{round}"), "u");
        workers.created(&object, "a");
        workers.observe(&object, stop_within("b", 30));
        soon(workers.settled()).await;
        assert!(workers.known(&object).is_known_terminated(), "{round}");
        assert!(workers.known(&object).is_finished());
    }
}

/// An error while a force-deleted pod was terminating left it until the kubelet restarted, because
/// it got no more updates.
#[tokio::test(start_paused = true)]
async fn a_force_deleted_object_whose_termination_fails_is_terminated_until_it_succeeds() {
    let world = World::new();
    world.script("terminate u-1", [Act::Fail; 5]);
    world.script("clean u-1", [Act::Fail; 5]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    soon(workers.settled()).await;
    workers.deleted(&web("u-1"));
    soon(workers.finished(&web("u-1"))).await;
    assert_eq!(world.times("terminate u-1 a").len(), 6);
    assert_eq!(world.times("clean u-1 a").len(), 6);
    assert_eq!(workers.all(), []);
}

/// Syncing the known pods replays the last valid update of those that are not desired any more.
#[tokio::test(start_paused = true)]
async fn a_pod_orphaned_by_its_config_is_replayed_with_its_last_snapshot_until_it_has_finished() {
    let world = World::new();
    world.script("terminate u-1", [Act::Fail, Act::Fail]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    workers.updated(&web("u-1"), "b");
    soon(workers.settled()).await;
    world.news();
    workers.reconcile(Pass::begin());
    sleep(SECOND / 2).await;
    assert_eq!(view(&workers, "u-1").config, Config::Orphan);
    soon(workers.finished(&web("u-1"))).await;
    assert_eq!(
        world.news(),
        "terminate u-1 b, terminate u-1 b, terminate u-1 b, clean u-1 b, finished u-1"
    );
}

/// Other components saw updates before the worker had begun to sync them.
#[tokio::test(start_paused = true)]
async fn readers_do_not_see_an_update_before_its_worker_acts_on_it() {
    let world = World::new();
    world.script("sync u-1", [Act::Take(SECOND)]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    assert_eq!(view(&workers, "u-1").snapshot, None);
    sleep(SECOND / 2).await;
    workers.updated(&web("u-1"), "b");
    assert_eq!(view(&workers, "u-1").snapshot, Some(Arc::new("a")));
    sleep(SECOND).await;
    assert_eq!(view(&workers, "u-1").snapshot, Some(Arc::new("b")));
    assert_eq!(world.log(), ["sync u-1 a", "sync u-1 b"]);
}

/// The update channel became a notifier, so that the pending update can be replaced.
#[tokio::test(start_paused = true)]
async fn of_updates_while_a_worker_is_busy_only_the_last_counts() {
    let world = World::new();
    world.script("sync u-1", [Act::Take(SECOND)]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    sleep(SECOND / 2).await;
    for snapshot in ["b", "c", "d"] {
        workers.updated(&web("u-1"), snapshot);
    }
    soon(workers.settled()).await;
    assert_eq!(world.log(), ["sync u-1 a", "sync u-1 d"]);
}

/// Pods computed from the runtime have no spec and must not be mixed with those of the config.
#[tokio::test(start_paused = true)]
async fn remains_are_never_taken_for_an_object_of_the_store() {
    let world = World::new();
    world.script("remains u-1", [Act::Fail]);
    let workers = world.start();
    workers.reconcile(Pass::begin().found(web("u-1"), Deadline::within(SECOND * 10)));
    sleep(SECOND / 2).await;
    assert_eq!(view(&workers, "u-1").snapshot, None);
    assert_eq!(view(&workers, "u-1").config, Config::Orphan);
    soon(workers.finished(&web("u-1"))).await;
    // Neither a sync nor a cleanup: both need a snapshot.
    assert_eq!(
        world.news(),
        "remains u-1 in 10s, remains u-1 in 9s, finished u-1"
    );
    assert_eq!(workers.all(), []);
}

/// Housekeeping terminates what runs and is unknown, and starts what is admitted and unknown.
#[tokio::test(start_paused = true)]
async fn a_pass_terminates_unknown_remains_and_begins_unknown_desired_objects() {
    let world = World::new();
    let workers = world.start();
    let pass = Pass::begin()
        .found(named("left", "u-1"), Deadline::NONE)
        .found(named("wanted", "u-2"), Deadline::NONE)
        .desired(named("wanted", "u-2"), "a")
        .desired(named("missed", "u-3"), "b");
    workers.reconcile(pass);
    soon(workers.settled()).await;
    let log: BTreeSet<_> = world.log().into_iter().collect();
    let expected = ["remains u-1", "finished u-1", "sync u-2 a", "sync u-3 b"];
    assert_eq!(log, expected.map(str::to_owned).into());
}

/// Remains of the predecessor are terminated before the object that has its name now is begun.
#[tokio::test(start_paused = true)]
async fn remains_of_an_older_object_are_terminated_before_the_new_one_begins() {
    let world = World::new();
    world.script("remains u-1", [Act::Take(SECOND)]);
    let workers = world.start();
    let pass = Pass::begin()
        .found(web("u-1"), Deadline::NONE)
        .desired(web("u-2"), "a");
    workers.reconcile(pass);
    soon(workers.finished(&web("u-1"))).await;
    soon(workers.settled()).await;
    assert_eq!(world.news(), "remains u-1, finished u-1, sync u-2 a");
}

/// After a restart an object may wait behind remains and have remains itself.
#[tokio::test(start_paused = true)]
async fn an_object_that_waits_behind_remains_is_terminated() {
    let world = World::new();
    world.script("remains u-1", [Act::Take(SECOND)]);
    let workers = world.start();
    workers.reconcile(Pass::begin().found(web("u-1"), Deadline::NONE));
    sleep(SECOND / 2).await;
    workers.observe(&web("u-2"), stop_within("a", 30));
    soon(workers.finished(&web("u-2"))).await;
    assert_eq!(
        world.news(),
        "remains u-1, finished u-1, terminate u-2 a in 29s, clean u-2 a, finished u-2"
    );
}

/// A pod was reported terminal while containers still ran.
#[tokio::test(start_paused = true)]
async fn an_object_is_reported_terminated_only_when_nothing_of_it_runs() {
    let world = World::new();
    world.script("sync u-1", [Act::Terminal]);
    world.script("terminate u-1", [Act::Take(SECOND)]);
    world.script("clean u-1", [Act::Take(SECOND)]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    sleep(SECOND / 2).await;
    assert_eq!(phase(&workers, "u-1"), Phase::Terminating);
    assert!(!workers.known(&web("u-1")).is_known_terminated());
    assert!(workers.known(&web("u-1")).could_run());
    sleep(SECOND).await;
    assert_eq!(phase(&workers, "u-1"), Phase::Terminated);
    assert!(workers.known(&web("u-1")).is_known_terminated());
    assert!(!workers.known(&web("u-1")).could_run());
    assert!(!workers.known(&web("u-1")).is_finished());
    sleep(SECOND).await;
    assert_eq!(phase(&workers, "u-1"), Phase::Finished);
}

/// A terminal sync is a separate result, besides success and error.
#[tokio::test(start_paused = true)]
async fn terminal_is_a_result_not_an_error() {
    let world = World::new();
    world.script("sync u-1", [Act::Fail, Act::Terminal]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    soon(workers.finished(&web("u-1"))).await;
    // The error is retried in the same phase, after its backoff; the terminal result starts the
    // next phase.
    assert_eq!(
        world.log(),
        [
            "sync u-1 a",
            "sync u-1 a",
            "terminate u-1 a",
            "clean u-1 a",
            "finished u-1"
        ]
    );
    assert_eq!(world.times("sync u-1 a"), [Duration::ZERO, SECOND]);
    assert_eq!(world.times("terminate u-1 a"), [SECOND]);
}

/// A pod blocked by another that had been terminated before it started waited for ever.
#[tokio::test(start_paused = true)]
async fn an_object_may_start_if_what_blocks_it_was_terminated_before_it_started() {
    let world = World::new();
    world.script("sync u-1", [Act::LingerWhenCancelled(SECOND)]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    sleep(SECOND).await;
    workers.created(&web("u-2"), "b");
    workers.deleted(&web("u-2"));
    workers.created(&web("u-3"), "c");
    assert_eq!(view(&workers, "u-3").activity, Activity::Blocked);
    soon(workers.finished(&web("u-1"))).await;
    soon(workers.settled()).await;
    assert_eq!(
        world.news(),
        "sync u-1 a, finished u-2 unstarted, sync u-1 cancelled, sync u-1 ended, terminate u-1 a, \
         clean u-1 a, finished u-1, sync u-3 c"
    );
}

/// A pod that cannot start and has already been terminated has to end cleanly.
#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_start_and_is_terminated_ends_at_once_without_a_run() {
    let world = World::new();
    world.script("sync u-1", [Act::LingerWhenCancelled(SECOND)]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    sleep(SECOND).await;
    workers.created(&web("u-2"), "b");
    workers.observe(&web("u-2"), stop_within("c", 30));
    assert_eq!(phase(&workers, "u-2"), Phase::Finished);
    assert_eq!(phase(&workers, "u-1"), Phase::Terminating);
    soon(workers.finished(&web("u-1"))).await;
    assert!(!world.news().contains(" u-2 c"));
}

/// A create after a kill means that the UID is reused: the worker's history is removed when its
/// work is done, so that the object can start, and the component that requested the kill sees that
/// it was not final.
#[tokio::test(start_paused = true)]
async fn a_create_during_termination_is_stored_and_runs_afterwards() {
    let world = World::new();
    world.script("terminate u-1", [Act::Take(SECOND)]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    soon(workers.settled()).await;
    workers.observe(&web("u-1"), stop_within("b", 30));
    sleep(SECOND / 2).await;
    workers.created(&web("u-1"), "c");
    sleep(SECOND).await;
    assert_eq!(
        world.news(),
        "sync u-1 a, terminate u-1 b in 30s, clean u-1 b, finished u-1 restarting, sync u-1 c"
    );
    assert_eq!(phase(&workers, "u-1"), Phase::Sync);
}

/// Also if the first life had ended before the second was observed.
#[tokio::test(start_paused = true)]
async fn a_finished_object_that_is_created_again_starts_again() {
    let world = World::new();
    let workers = world.start();
    workers.observe(&web("u-1"), stop_within("a", 30));
    soon(workers.settled()).await;
    world.news();
    workers.updated(&web("u-1"), "late");
    soon(workers.settled()).await;
    assert_eq!(world.news(), "");
    workers.created(&web("u-1"), "b");
    soon(workers.settled()).await;
    assert_eq!(world.news(), "sync u-1 b");
}

/// A desired pod that is unknown to its workers was usually deleted and created again with one UID.
#[tokio::test(start_paused = true)]
async fn a_removed_object_that_is_desired_is_begun_by_the_next_pass() {
    let world = World::new();
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    workers.deleted(&web("u-1"));
    soon(workers.settled()).await;
    world.news();
    workers.reconcile(Pass::begin().desired(web("u-1"), "b"));
    soon(workers.settled()).await;
    assert_eq!(world.news(), "sync u-1 b");
}

/// Admission has to count pods that no worker has seen yet: `is_known_terminated` is the weaker
/// check, `could_run` the stronger one.
#[tokio::test(start_paused = true)]
async fn admission_counts_objects_that_no_worker_has_seen_yet() {
    let workers = World::new().start();
    assert!(!workers.known(&web("u-1")).is_known_terminated());
    assert!(workers.known(&web("u-1")).could_run());
    workers.observe(&web("u-1"), stop_within("a", 30));
    assert!(!workers.known(&web("u-1")).is_known_terminated());
    soon(workers.settled()).await;
    assert!(workers.known(&web("u-1")).is_known_terminated());
}

/// A terminated pod must not be terminated again because a stale cache still shows a container;
/// once it was removed, the next pass may do so.
#[tokio::test(start_paused = true)]
async fn stale_remains_of_a_terminated_object_are_ignored() {
    let world = World::new();
    world.script("clean u-1", [Act::Take(SECOND)]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    workers.deleted(&web("u-1"));
    sleep(SECOND / 2).await;
    assert_eq!(phase(&workers, "u-1"), Phase::Terminated);
    workers.reconcile(Pass::begin().found(web("u-1"), Deadline::NONE));
    soon(workers.finished(&web("u-1"))).await;
    assert!(!world.news().contains("remains"));
    workers.reconcile(Pass::begin().found(web("u-1"), Deadline::NONE));
    soon(workers.settled()).await;
    assert_eq!(world.news(), "remains u-1, finished u-1");
}

/// Removing containers is background work: it must not return the pod to terminating.
#[tokio::test(start_paused = true)]
async fn a_failed_cleanup_does_not_repeat_the_termination() {
    let world = World::new();
    world.script("clean u-1", [Act::Fail, Act::Panic]);
    let workers = world.start();
    workers.observe(&web("u-1"), stop_within("a", 30));
    sleep(SECOND / 2).await;
    workers.kill(&web("u-1"), Deadline::within(SECOND));
    workers.updated(&web("u-1"), "b");
    soon(workers.finished(&web("u-1"))).await;
    assert_eq!(
        world.news(),
        "terminate u-1 a in 30s, clean u-1 a, clean u-1 b, clean u-1 b, finished u-1"
    );
}

/// Every ten seconds all pods were synced at once. Now each worker schedules its own next sync.
#[tokio::test(start_paused = true)]
async fn objects_resync_individually_and_drift_apart() {
    let world = World::new();
    let every = SECOND * 60;
    let workers = Lifecycles::new(world.clone(), Options::new("test").resync(every));
    let objects: Vec<_> = (0..20)
        .map(|n| named(&format!("web-{n}"), &format!("u-{n}")))
        .collect();
    for object in &objects {
        workers.created(object, "a");
    }
    sleep(every * 3 / 2).await;
    let mut at = BTreeSet::new();
    for object in &objects {
        let times = world.times(&format!("sync {} a", object.uid));
        assert_eq!(times.len(), 2, "{object} resyncs once per interval");
        assert!(times[1] >= every);
        at.insert(times[1].as_millis());
    }
    assert!(at.len() > 10, "resyncs happen together: {at:?}");
}

/// "Never", written as an interval, must not overflow.
#[tokio::test(start_paused = true)]
async fn the_longest_interval_is_never() {
    let world = World::new();
    let options = Options::new("test").resync(Duration::MAX);
    let workers = Lifecycles::new(world.clone(), options);
    let object = named("web", "u");
    workers.created(&object, "a");
    sleep(SECOND * 3600).await;
    assert_eq!(world.times(&format!("sync {} a", object.uid)).len(), 1);
    workers.deleted(&object);
    workers.settled().await;
}

/// A sync triggered by an update delays the next resync.
#[tokio::test(start_paused = true)]
async fn an_update_delays_the_resync() {
    let world = World::new();
    let workers = Lifecycles::new(world.clone(), Options::new("test").resync(SECOND * 60));
    workers.created(&web("u-1"), "a");
    sleep(SECOND * 50).await;
    workers.updated(&web("u-1"), "b");
    sleep(SECOND * 55).await;
    assert_eq!(world.news(), "sync u-1 a, sync u-1 b");
    sleep(SECOND * 40).await;
    assert_eq!(world.news(), "sync u-1 b");
}

/// The worker may request an earlier sync, and after an error it does so.
#[tokio::test(start_paused = true)]
async fn a_failed_sync_or_a_requested_one_runs_before_the_resync() {
    let world = World::new();
    world.script("sync u-1", [Act::Fail, Act::Again(SECOND * 5)]);
    let workers = Lifecycles::new(world.clone(), Options::new("test").resync(SECOND * 60));
    workers.created(&web("u-1"), "a");
    sleep(SECOND * 30).await;
    assert_eq!(
        world.times("sync u-1 a"),
        [Duration::ZERO, SECOND, SECOND * 6]
    );
}

/// The phase transitions are visible to other components.
#[tokio::test(start_paused = true)]
async fn every_phase_is_visible() {
    let world = World::new();
    for call in ["sync u-1", "terminate u-1", "clean u-1"] {
        world.script(call, [Act::Take(SECOND)]);
    }
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    let mut seen = vec![phase(&workers, "u-1")];
    sleep(SECOND / 2).await;
    workers.kill(&web("u-1"), Deadline::NONE);
    for _ in 0..3 {
        seen.push(phase(&workers, "u-1"));
        advance(SECOND).await;
        sleep(Duration::from_millis(1)).await;
    }
    seen.push(phase(&workers, "u-1"));
    assert!(seen.is_sorted(), "{seen:?}");
    let phases = [
        Phase::Sync,
        Phase::Terminating,
        Phase::Terminating,
        Phase::Terminated,
        Phase::Finished,
    ];
    assert_eq!(seen, phases);
}

/// A grace period only shrinks, and a shorter one interrupts the wait for the longer one.
#[tokio::test(start_paused = true)]
async fn a_shorter_grace_period_interrupts_the_termination_and_a_longer_one_does_nothing() {
    let world = World::new();
    world.script(
        "terminate u-1",
        [Act::FailWhenCancelled, Act::FailWhenCancelled],
    );
    let workers = world.start();
    workers.observe(&web("u-1"), stop_within("a", 60));
    sleep(SECOND).await;
    workers.kill(&web("u-1"), Deadline::within(SECOND * 600));
    sleep(SECOND).await;
    assert_eq!(world.news(), "terminate u-1 a in 60s");
    workers.kill(&web("u-1"), Deadline::within(SECOND * 5));
    sleep(SECOND).await;
    assert_eq!(
        world.news(),
        "terminate u-1 cancelled, terminate u-1 a in 5s"
    );
    workers.observe(&web("u-1"), stop_within("b", 2));
    soon(workers.finished(&web("u-1"))).await;
    assert_eq!(
        world.news(),
        "terminate u-1 cancelled, terminate u-1 b in 2s, clean u-1 b, finished u-1"
    );
}

/// Only the worker knows whether something is being started, so only it can end the start.
#[tokio::test(start_paused = true)]
async fn termination_stops_a_start_and_no_update_undoes_it() {
    let world = World::new();
    world.script("sync u-1", [Act::UntilCancelled]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    sleep(SECOND).await;
    workers.kill(&web("u-1"), Deadline::NONE);
    workers.observe(&web("u-1"), Observation::Updated(Arc::new("b")));
    soon(workers.settled()).await;
    assert_eq!(
        world.news(),
        "sync u-1 a, sync u-1 cancelled, terminate u-1 b, clean u-1 b, finished u-1"
    );
}
