//! A crash before and after every single write, each write applied with its response lost, and an old leader that
//! resumes at every step. Exhaustive over the positions of writes, not sampled.

use std::time::Duration;

use belayer_holds::invariants::{self, Invariant};
use belayer_pod_recreation::Settings;
use belayer_sandbox::{Answer, ApiError, Fault, Gvr, Match, Verb, Write};
use rstest::rstest;

use super::{RECORDS, YARD, Yard, text};
use crate::world::BELAYER;

/// What happens at a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The process ends before the write is carried out.
    CrashBefore,
    /// The write is carried out and the process ends.
    CrashAfter,
    /// The write is carried out and its response is lost; the process continues.
    AnswerLost,
    /// The write is not carried out, and the process cannot tell.
    RequestLost,
}

const KINDS: [(Gvr, &str); 2] = [(Gvr::PODS, "pods"), (RECORDS, "podrecreations")];

/// The number of writes of each kind without faults: a pod is rejected twice, then runs.
async fn undisturbed(rejections: usize) -> [usize; 2] {
    let yard = Yard::rejecting(rejections);
    let belayer = yard.run();
    yard.pod("web");
    yard.until("it is settled", || has_ended(&yard)).await;
    belayer.stop().await;
    KINDS.map(|(gvr, _)| yard.writes_of(&gvr).len())
}

fn has_ended(yard: &Yard) -> bool {
    yard.is_settled("web") || (yard.phase() == "Exhausted" && !yard.is_held("web"))
}

/// Conditions that must hold in every case.
fn check(yard: &Yard, rejections: usize, case: &str) {
    let record = yard.record();
    let status = &record["status"];
    let number = |field: &str| status[field].as_u64().unwrap() as u32;
    let live = yard.list(&Gvr::PODS).len();
    assert!(
        invariants::one_pod(live, number("attempts"), 3),
        "{case}: {}: {status:#}",
        Invariant::OnePod
    );
    let ran = yard.started("web");
    assert!(invariants::ran_once(ran), "{case}: {}", Invariant::RanOnce);
    let recreated = rejections.min(3);
    assert_eq!(status["attempts"], recreated, "{case}: {status:#}");
    assert_eq!(status["podRecreated"], recreated, "{case}: {status:#}");
    assert_eq!(status["podStarts"], recreated + 1, "{case}: {status:#}");
    assert_eq!(yard.creates(), recreated, "{case}: pods were created");
    assert_eq!(yard.started("web"), usize::from(rejections <= 3), "{case}");
}

async fn fail_at(gvr: &str, position: u64, failure: Failure, rejections: usize) {
    let case = format!("{failure:?} at write {position} of {gvr}");
    let yard = Yard::rejecting(rejections);
    let faults = yard.world.sandbox.faults();
    let writes = || Match::writes().resource(gvr).client(BELAYER);
    let fault = match failure {
        Failure::CrashBefore => Fault::on(writes()).nth(position).hang(),
        Failure::CrashAfter | Failure::AnswerLost => {
            Fault::on(writes()).nth(position).lose_answer()
        }
        Failure::RequestLost => Fault::on(writes()).nth(position).lose_request(),
    };
    let hit = faults.inject(fault);
    // A crashed process sends nothing more.
    let silenced = (failure == Failure::CrashAfter).then(|| {
        let all = Match::writes().client(BELAYER);
        faults.inject(Fault::on(all.resource(gvr)).after(position).hang())
    });
    let belayer = yard.run();
    yard.pod("web");
    yard.until("the write is reached", || {
        hit.hits() == 1 || has_ended(&yard)
    })
    .await;
    assert_eq!(hit.hits(), 1, "{case}: there is no such write");
    let belayer = match failure {
        Failure::AnswerLost | Failure::RequestLost => belayer,
        Failure::CrashBefore | Failure::CrashAfter => {
            belayer.crash();
            tokio::task::yield_now().await;
            faults.clear();
            yard.run()
        }
    };
    drop(silenced);
    yard.until(&case, || has_ended(&yard)).await;
    yard.pass(Duration::from_secs(30)).await;
    check(&yard, rejections, &case);
    belayer.stop().await;
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn at_every_write(
    #[values(
        Failure::CrashBefore,
        Failure::CrashAfter,
        Failure::AnswerLost,
        Failure::RequestLost
    )]
    failure: Failure,
    #[values(1, 2, 9)] rejections: usize,
) {
    let counts = undisturbed(rejections).await;
    for ((_, plural), count) in KINDS.iter().zip(counts) {
        assert!(count >= 5, "{count} writes of {plural}");
        for position in 1..=count {
            fail_at(plural, position as u64, failure, rejections).await;
        }
    }
}

/// An old leader pauses before a write, resumes later, and continues while a new leader runs.
async fn old_leader(gvr: &str, position: u64, pause: Duration) {
    const OLD: &str = "belayer-old";
    let case = format!("paused for {pause:?} before write {position} of {gvr}");
    let yard = Yard::rejecting(2);
    let mut settings = Settings::default();
    settings.policy.backoff_seconds = 1;
    let faults = yard.world.sandbox.faults();
    let writes = Match::writes().resource(gvr).client(OLD);
    let hit = faults.inject(Fault::on(writes).nth(position).delay(pause));
    let old = yard.run_as(OLD, settings.clone());
    yard.pod("web");
    yard.until("the write is reached", || {
        hit.hits() == 1 || has_ended(&yard)
    })
    .await;
    let new = yard.run_as(BELAYER, settings);
    yard.until(&case, || has_ended(&yard)).await;
    yard.pass(Duration::from_secs(60)).await;
    let record = yard.record();
    let status = &record["status"];
    assert!(
        status["attempts"].as_u64().unwrap() <= 3,
        "{case}: {status:#}"
    );
    assert_eq!(
        yard.started("web"),
        1,
        "{case}: it ran more than once or never"
    );
    assert!(yard.is_running("web"), "{case}");
    assert_eq!(
        status["attempts"], status["podRecreated"],
        "{case}: {status:#}"
    );
    assert!(!yard.is_held("web"), "{case}");
    old.stop().await;
    new.stop().await;
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn an_old_leader_resumes(#[values(100, 1_500, 4_000, 20_000)] millis: u64) {
    let counts = undisturbed(2).await;
    for ((_, plural), count) in KINDS.iter().zip(counts) {
        for position in 1..=count {
            old_leader(plural, position as u64, Duration::from_millis(millis)).await;
        }
    }
}

/// An old leader pauses before it creates a pod. Meanwhile the user has cancelled, or the new leader's pod ran and
/// was deleted by its user: no pod may be left, whether or not the old leader lives to read again.
#[rstest]
#[tokio::test(start_paused = true)]
async fn an_old_leader_creates_after_the_end(#[values("reads again", "ends at once")] then: &str) {
    const OLD: &str = "belayer-old";
    let yard = Yard::rejecting(1);
    let faults = yard.world.sandbox.faults();
    let creates = || Match::verb(Verb::Create).resource("pods").client(OLD);
    // The first is the server-side dry run.
    let pause = Duration::from_secs(15);
    let hit = faults.inject(Fault::on(creates()).nth(2).delay(pause));
    let mut settings = Settings::default();
    settings.policy.backoff_seconds = 1;
    let old = yard.run_as(OLD, settings.clone());
    yard.pod("web");
    yard.until("the old leader is about to create", || hit.hits() == 1)
        .await;
    let new = yard.run_as(BELAYER, settings);
    yard.until("the new one's pod runs", || yard.is_settled("web"))
        .await;
    yard.delete("web");
    yard.wait("it is gone", || yard.find("web").is_none()).await;
    if then == "ends at once" {
        // Everything that the old leader sends after its create is lost.
        let rest = Match::writes().resource("pods").client(OLD);
        faults.inject(Fault::on(rest).hang());
    }
    let before = yard.creates();
    yard.wait("the old leader has created", || {
        let writes = yard.writes_of(&Gvr::PODS);
        let its = |w: &&Write| w.actor.to_string() == OLD && w.verb == Verb::Create && w.changed();
        writes.iter().filter(its).count() == 1
    })
    .await;
    assert_eq!(before, 1);
    yard.wait("its pod is deleted", || yard.find("web").is_none())
        .await;
    yard.pass(Duration::from_secs(300)).await;
    assert!(
        yard.find("web").is_none(),
        "it was created again after the end"
    );
    assert_eq!(yard.started("web"), 1);
    old.crash();
    new.stop().await;
}

/// A user deletes the record while the create of its pod is in flight, and the process that sent the create does not delete the pod:
/// it cannot read the record afterwards, or it ends at once and another one leads.
#[rstest]
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_created_after_its_record_was_deleted_is_deleted(
    #[values("cannot read", "ends at once")] then: &str,
) {
    const OLD: &str = "belayer-old";
    let yard = Yard::rejecting(1);
    let faults = yard.world.sandbox.faults();
    let creates = |client| Match::verb(Verb::Create).resource("pods").client(client);
    // The first is the server-side dry run.
    let pause = Duration::from_secs(15);
    let hit = faults.inject(Fault::on(creates(OLD)).nth(2).delay(pause));
    let old = yard.run_as(OLD, Settings::default());
    yard.pod("web");
    yard.until("it is to be created", || hit.hits() == 1).await;
    let new = if then == "ends at once" {
        faults.inject(Fault::on(creates(BELAYER)).lose_request());
        let rest = Match::writes().resource("pods").client(OLD);
        faults.inject(Fault::on(rest).hang());
        Some(yard.run())
    } else {
        let reads = Match::verb(Verb::Get).resource("podrecreations");
        let failed = Answer::error(ApiError::internal("leader changed"));
        faults.inject(Fault::on(reads.client(OLD)).times(2).answer(failed));
        None
    };
    yard.wait_for(Duration::from_secs(2)).await;
    let name = text(&yard.record(), "/metadata/name");
    yard.world.delete(&RECORDS, Some(YARD), &name);
    yard.wait("it is created", || yard.creates() == 1).await;
    yard.wait("it is deleted", || yard.find("web").is_none())
        .await;
    yard.wait_for(Duration::from_secs(300)).await;
    assert!(yard.find("web").is_none(), "it was created again");
    assert_eq!(yard.creates(), 1);
    old.crash();
    if let Some(new) = new {
        new.stop().await;
    }
}
