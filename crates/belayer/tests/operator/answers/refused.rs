//! Refusals that are neither 403 nor 422, mostly by an admission webhook.

use super::*;

/// A release of pod `a` or a hold on it, for which each patch has this answer.
async fn refused(world: &World, reason: &str, answer: Answer) -> belayer_sandbox::FaultHandle {
    let inject = || {
        let fault = Fault::on(patches().name("a")).answer(answer);
        world.sandbox.faults().inject(fault)
    };
    if reason == "ReleaseDenied" {
        deleted_pod(world).await;
        let fault = inject();
        world.consume("a");
        return fault;
    }
    let fault = inject();
    let uid = world.workflow("build");
    world.pod("a", "build", &uid);
    fault
}

/// A webhook that denies with 409: the object does not change.
#[rstest]
#[case("ReleaseDenied")]
#[case("HoldDenied")]
#[tokio::test(start_paused = true)]
async fn answer_409_of_an_unchanged_object_is_a_denial(#[case] reason: &str) {
    let world = World::new();
    let _belayer = world.run();
    let reads = || world.requests(Verb::Get, "pods");
    let before = reads();
    let fault = refused(&world, reason, Answer::conflict()).await;
    let_pass(Duration::from_secs(120)).await;
    assert_eq!(world.events(reason), 1);
    // Six at a time, and every 30 s or less often.
    assert!(fault.hits() <= 30, "{} patches", fault.hits());
    assert!(reads() - before <= 40, "{} reads", reads() - before);
    fault.remove();
    let holds = reason == "HoldDenied";
    within(Duration::from_secs(700), "the write", || {
        world.find("a").is_some() == holds && (!holds || world.is_held("a"))
    })
    .await;
}

/// 500: a webhook that is down and may not be skipped. Other codes: as a webhook chooses.
#[rstest]
#[case::webhook_down("ReleaseDenied", Answer::internal_error())]
#[case::chosen_by_a_webhook("ReleaseDenied", Answer::raw(405, "text/plain", "no"))]
#[case::hold("HoldDenied", Answer::internal_error())]
#[tokio::test(start_paused = true)]
async fn a_write_that_is_refused_for_a_minute_is_reported(
    #[case] reason: &str,
    #[case] answer: Answer,
) {
    let log = Log::kept_from(tracing::Level::WARN);
    let world = World::new();
    let _belayer = world.run();
    let fault = refused(&world, reason, answer).await;
    let_pass(Duration::from_secs(55)).await;
    assert_eq!(world.events(reason), 0);
    within(Duration::from_secs(400), "the Event", || {
        world.events(reason) == 1
    })
    .await;
    let_pass(Duration::from_secs(900)).await;
    assert_eq!(world.events(reason), 1);
    let reports = log.lines("rejected the write").len();
    assert!((2..=5).contains(&reports), "{reports}: {}", log.text());
    fault.remove();
    if reason == "ReleaseDenied" {
        // Not slower than before.
        within(Duration::from_secs(31), "the release", || {
            world.find("a").is_none()
        })
        .await;
    }
}

#[rstest]
#[case::overloaded(Answer::service_unavailable())]
#[case::slow(Answer::timeout())]
#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_denies_nothing(#[case] answer: Answer) {
    let world = World::new();
    let _belayer = world.run();
    let fault = refused(&world, "ReleaseDenied", answer).await;
    let_pass(Duration::from_secs(600)).await;
    assert_eq!(world.events("ReleaseDenied"), 0);
    fault.remove();
    within(Duration::from_secs(61), "the release", || {
        world.find("a").is_none()
    })
    .await;
}

/// A minute of success in between starts it again.
#[tokio::test(start_paused = true)]
async fn errors_with_successes_in_between_are_not_reported() {
    let world = World::new();
    let _belayer = world.run();
    deleted_pod(&world).await;
    let faults = world.sandbox.faults();
    let some = Fault::on(patches().name("a")).answer(Answer::internal_error());
    let fault = faults.inject(some.clone());
    world.consume("a");
    let_pass(Duration::from_secs(40)).await;
    fault.remove();
    within(Duration::from_secs(31), "the release", || {
        world.find("a").is_none()
    })
    .await;
    let fault = faults.inject(some);
    let uid = world.workflow("again");
    world.pod("a", "again", &uid);
    let_pass(Duration::from_secs(40)).await;
    assert!(fault.hits() > 0);
    assert_eq!(world.events("HoldDenied"), 0);
}
