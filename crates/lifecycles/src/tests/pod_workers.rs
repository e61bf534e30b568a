//! Cases of the kubelet's own tests of its pod workers and of their housekeeping that
//! [`kubelet`](super::kubelet) does not cover.

use std::sync::Arc;

use tokio::time::sleep;

use super::kubelet::{phase, view};
use super::world::{Act, SECOND, World, named, soon, web};
use crate::{Activity, Deadline, Known, Pass, Phase};

/// A pod is created, killed and updated at once: the update must not undo the kill.
#[tokio::test(start_paused = true)]
async fn a_kill_between_a_creation_and_an_update_counts() {
    let world = World::new();
    let workers = world.start();
    for n in 0..20 {
        let object = named(&format!("web-{n}"), &format!("u-{n}"));
        workers.created(&object, "a");
        workers.kill(&object, Deadline::within(SECOND * 30));
        workers.updated(&object, "b");
    }
    soon(workers.settled()).await;
    for n in 0..20 {
        let all = world.log();
        let object = format!(" u-{n}");
        let of: Vec<_> = all
            .iter()
            .filter(|line| line.split(' ').nth(1) == Some(object.trim()))
            .collect();
        // Nothing was begun, so nothing is synced first.
        let expected = [
            format!("terminate{object} b in 30s"),
            format!("clean{object} b"),
            format!("finished{object}"),
        ];
        assert_eq!(of, expected.iter().collect::<Vec<_>>());
    }
}

/// The replay of an orphan uses the last update, even if no worker had begun with it.
#[tokio::test(start_paused = true)]
async fn an_orphan_is_ended_with_the_newest_snapshot_even_if_it_was_not_used() {
    for call in ["sync u-1", "terminate u-1", "clean u-1"] {
        let world = World::new();
        world.script(call, [Act::Take(SECOND)]);
        let workers = world.start();
        workers.created(&web("u-1"), "a");
        if call != "sync u-1" {
            workers.kill(&web("u-1"), Deadline::NONE);
        }
        sleep(SECOND / 2).await;
        workers.updated(&web("u-1"), "b");
        assert_eq!(view(&workers, "u-1").snapshot, Some(Arc::new("a")));
        workers.reconcile(Pass::begin());
        soon(workers.finished(&web("u-1"))).await;
        let log = world.log();
        let after = log.iter().position(|line| line.starts_with(call)).unwrap() + 1;
        let rest = &log[after..];
        assert!(rest.iter().all(|line| !line.ends_with(" a")), "{log:?}");
        assert_eq!(workers.all(), [], "an orphan leaves no tombstone");
    }
}

/// A worker that had not started is removed when its pod is orphaned; one that might have started
/// is not.
#[tokio::test(start_paused = true)]
async fn an_orphan_that_waited_ends_without_a_run() {
    let world = World::new();
    world.script("terminate u-1", [Act::Take(SECOND * 5)]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    workers.created(&web("u-2"), "b");
    sleep(SECOND).await;
    // While it is desired it waits.
    workers.reconcile(Pass::begin().desired(web("u-2"), "b"));
    assert_eq!(view(&workers, "u-2").activity, Activity::Blocked);
    workers.reconcile(Pass::begin());
    assert_eq!(workers.known(&web("u-2")), Known::Absent);
    soon(workers.finished(&web("u-1"))).await;
    let log = world.log();
    assert!(
        log.contains(&"finished u-2 unstarted".to_owned()),
        "{log:?}"
    );
    assert!(!log.contains(&"sync u-2 b".to_owned()), "{log:?}");
    assert_eq!(workers.all(), []);
}

/// A pod that could not start is found running: an earlier process had begun it.
#[tokio::test(start_paused = true)]
async fn remains_of_an_object_that_was_never_begun_are_terminated_when_the_name_is_free() {
    let world = World::new();
    world.script("terminate u-1", [Act::Take(SECOND * 5)]);
    world.script("remains u-2", [Act::Fail]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    workers.created(&web("u-2"), "b");
    let pass = || Pass::begin().found(web("u-2"), Deadline::NONE);
    workers.reconcile(pass());
    sleep(SECOND).await;
    assert!(!world.log().iter().any(|line| line.starts_with("remains")));
    soon(workers.finished(&web("u-1"))).await;
    workers.reconcile(pass());
    soon(workers.finished(&web("u-2"))).await;
    assert_eq!(
        world.news(),
        "finished u-2 unstarted, terminate u-1 a, clean u-1 a, finished u-1, remains u-2, \
         remains u-2, finished u-2"
    );
    assert_eq!(workers.all(), []);
}

/// Housekeeping between a creation during a termination that fails and the end of that termination.
#[tokio::test(start_paused = true)]
async fn a_pass_between_a_second_creation_and_its_beginning_changes_nothing() {
    let world = World::new();
    world.script("terminate u-1", [Act::Fail, Act::Fail]);
    let workers = world.start();
    workers.created(&web("u-1"), "a");
    soon(workers.settled()).await;
    workers.kill(&web("u-1"), Deadline::NONE);
    sleep(SECOND / 2).await;
    workers.created(&web("u-1"), "b");
    for _ in 0..3 {
        workers.reconcile(Pass::begin().desired(web("u-1"), "from the list"));
        assert_eq!(phase(&workers, "u-1"), Phase::Terminating);
    }
    sleep(SECOND * 5).await;
    assert_eq!(
        world.news(),
        "sync u-1 a, terminate u-1 a, terminate u-1 a, terminate u-1 a, clean u-1 a, \
         finished u-1 restarting, sync u-1 b"
    );
}

/// Unlike the kubelet, which ends what it does not know by UID: here a name has one worker.
#[tokio::test(start_paused = true)]
async fn remains_of_an_older_object_wait_for_the_end_of_the_newer_one() {
    let world = World::new();
    let workers = world.start();
    let found = |pass: Pass<_>| pass.found(web("u-1"), Deadline::NONE);
    workers.created(&web("u-2"), "b");
    soon(workers.settled()).await;
    workers.reconcile(found(Pass::begin().desired(web("u-2"), "b")));
    soon(workers.settled()).await;
    assert_eq!(workers.known(&web("u-1")), Known::Absent);
    // With the newer object the name is still in use in this pass; the next one ends the remains.
    workers.reconcile(found(Pass::begin()));
    soon(workers.finished(&web("u-2"))).await;
    workers.reconcile(found(Pass::begin()));
    soon(workers.finished(&web("u-1"))).await;
    assert!(world.log().contains(&"remains u-1".to_owned()));
    assert_eq!(workers.all(), []);
}
