//! Live answers that cannot be decoded.

use super::*;

/// After a conflict the object is read live. The answer is JSON, but no object of Kubernetes.
#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_is_read_seldom_and_logged_once() {
    let log = Log::kept_from(tracing::Level::WARN);
    let world = World::new();
    let _belayer = world.run();
    deleted_pod(&world).await;
    let faults = world.sandbox.faults();
    let conflicts = faults.inject(Fault::on(patches()).answer(Answer::conflict()));
    let reads = Match::verb(Verb::Get).resource("pods").client(BELAYER);
    let garbage = Answer::raw(200, "application/json", "{}");
    let reads = faults.inject(Fault::on(reads).answer(garbage));
    world.consume("a");
    let_pass(Duration::from_secs(300)).await;
    assert!((5..60).contains(&reads.hits()), "{} reads", reads.hits());
    assert_eq!(log.lines("cannot be read").len(), 1, "{}", log.text());
    conflicts.remove();
    reads.remove();
    within(Duration::from_secs(35), "the release", || {
        world.find("a").is_none()
    })
    .await;
}
