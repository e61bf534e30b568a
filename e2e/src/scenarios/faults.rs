//! Failed responses, one scenario for each row of the table of answers in ARCHITECTURE.md.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use belayer_sandbox::{Answer, Fault, FaultHandle, Match, Verb, WatchEnd};
use kube::api::{DeleteParams, DynamicObject};

use crate::harness::{Belayer, Cluster, HOLD, SOON, Scenario, eventually, finalizers, pod};
use crate::kinds;
use crate::providers::BELAYER;
use crate::providers::Capability::Faults;

const PODS: usize = 20;
/// For hundreds of pods.
const LATE: Duration = Duration::from_secs(90);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        passing(
            "fault-answer-lost",
            "the patch is applied, but its response is lost",
            Fault::lose_answer,
            4,
        ),
        passing(
            "fault-request-lost",
            "the connection breaks before the patch arrives",
            Fault::lose_request,
            4,
        ),
        passing(
            "fault-conflict",
            "409 on every patch, several times",
            |fault| fault.answer(Answer::conflict()),
            60,
        ),
        passing(
            "fault-unavailable",
            "503 and 504",
            |fault| fault.answer(Answer::service_unavailable()),
            10,
        ),
        passing(
            "fault-server-error",
            "500",
            |fault| fault.answer(Answer::internal_error()),
            10,
        ),
        Scenario::alone(
            "fault-too-many-requests",
            "Retry-After of a 429 is respected",
            too_many_requests,
        )
        .needs([Faults]),
        Scenario::alone(
            "fault-429-storm",
            "429 on every release: few requests, and all are released afterwards (L2)",
            storm,
        )
        .needs([Faults]),
        Scenario::alone(
            "fault-connection-hangs",
            "a patch that hangs does not delay others",
            hangs,
        )
        .needs([Faults]),
        denied(
            "fault-denied-403",
            "a denied release is reported and does not delay others",
            || Answer::forbidden("denied the request: no ropes today"),
        ),
        denied(
            "fault-denied-422",
            "the same when a policy answers 422",
            || Answer::invalid("denied the request: no ropes today"),
        ),
        Scenario::alone(
            "fault-watch-expired",
            "410 on the watch: list again without missing an event",
            watch_expired,
        )
        .needs([Faults]),
    ]
}

/// A fault for the first `times` patches: all pods are released in the end.
fn passing(
    name: &'static str,
    shows: &'static str,
    fault: impl Fn(Fault) -> Fault + Clone + Send + Sync + 'static,
    times: u64,
) -> Scenario {
    Scenario::alone(name, shows, move |cluster| {
        let fault = fault(Fault::on(releases()).times(times));
        async move {
            let belayer = held_pods(&cluster).await?;
            let handle = cluster.faults()?.inject(fault);
            release(&cluster).await?;
            all_released(&cluster).await?;
            ensure!(
                handle.hits() >= times.min(4),
                "the fault affected {} requests",
                handle.hits()
            );
            belayer.stop().await
        }
    })
    .needs([Faults])
}

fn releases() -> Match {
    Match::verb(Verb::Patch).resource("pods").client(BELAYER)
}

async fn held_pods(cluster: &Cluster) -> Result<Belayer> {
    let belayer = cluster.start_belayer().await?;
    let workflow = cluster.workflow("w").await?;
    cluster
        .create_all((0..PODS).map(|index| pod(format!("p{index}")).of(&workflow)))
        .await?;
    eventually("all pods have the hold", SOON, async || {
        let held = cluster.held_count().await?;
        ensure!(held == PODS, "{held} have the hold");
        Ok(())
    })
    .await?;
    Ok(belayer)
}

async fn release(cluster: &Cluster) -> Result<()> {
    for index in 0..PODS {
        cluster.consume(&format!("p{index}")).await?;
    }
    Ok(())
}

async fn all_released(cluster: &Cluster) -> Result<()> {
    held_is(cluster, 0).await
}

async fn held_is(cluster: &Cluster, expected: usize) -> Result<()> {
    eventually(
        &format!("{expected} pods have the hold"),
        SOON,
        async || {
            let held = cluster.held_count().await?;
            ensure!(held == expected, "{held} have the hold");
            Ok(())
        },
    )
    .await
}

async fn too_many_requests(cluster: Cluster) -> Result<()> {
    let belayer = held_pods(&cluster).await?;
    let wait = Duration::from_secs(3);
    let fault = Fault::on(releases().name("p0"))
        .times(1)
        .answer(Answer::too_many_requests(wait));
    let handle = cluster.faults()?.inject(fault);
    let before_it = Instant::now();
    cluster.consume("p0").await?;
    eventually("the fault was applied", SOON, async || hit(&handle)).await?;
    cluster.is_not_held("p0").await?;
    let waited = before_it.elapsed();
    ensure!(waited >= wait, "it was retried after {waited:?}");
    release(&cluster).await?;
    all_released(&cluster).await?;
    belayer.stop().await
}

async fn storm(cluster: Cluster) -> Result<()> {
    const DUE: usize = 300;
    const SECONDS: u64 = 10;
    let belayer = cluster.start_belayer().await?;
    let workflow = cluster.workflow("w").await?;
    let pods = (0..DUE).map(|index| pod(format!("p{index}")).of(&workflow));
    cluster.create_all(pods).await?;
    eventually("all pods have the hold", LATE, async || {
        let held = cluster.held_count().await?;
        ensure!(held == DUE, "{held} have the hold");
        Ok(())
    })
    .await?;
    let refused = Fault::on(releases()).answer(Answer::too_many_requests(Duration::from_secs(1)));
    let handle = cluster.faults()?.inject(refused);
    for index in 0..DUE {
        cluster.consume(&format!("p{index}")).await?;
    }
    eventually("the fault was applied", SOON, async || hit(&handle)).await?;
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let refused = handle.hits();
    cluster.faults()?.clear();
    cluster.note(format!(
        "{refused} requests for {DUE} releases in a storm of 429"
    ));
    ensure!(
        refused <= 2 * DUE as u64,
        "{refused} requests were refused for {DUE} releases"
    );
    eventually("all pods are released", LATE, async || {
        let held = cluster.held_count().await?;
        ensure!(held == 0, "{held} have the hold");
        Ok(())
    })
    .await?;
    belayer.stop().await
}

fn hit(handle: &FaultHandle) -> Result<()> {
    ensure!(handle.hits() > 0, "the fault was not applied");
    Ok(())
}

async fn hangs(cluster: Cluster) -> Result<()> {
    let belayer = held_pods(&cluster).await?;
    let handle = cluster
        .faults()?
        .inject(Fault::on(releases().name("p0")).hang());
    release(&cluster).await?;
    held_is(&cluster, 1).await?;
    ensure!(handle.hits() > 0, "the fault was not applied");
    cluster.faults()?.clear();
    eventually(
        "the last pod is released",
        Duration::from_secs(90),
        async || {
            let last = cluster.pods().get("p0").await?;
            ensure!(!finalizers(&last).contains(&HOLD), "it still has the hold");
            Ok(())
        },
    )
    .await?;
    belayer.stop().await
}

/// A release that the server permanently refuses: reported by Event and metric, retried slowly, without
/// delaying others.
fn denied(name: &'static str, shows: &'static str, answer: fn() -> Answer) -> Scenario {
    Scenario::alone(name, shows, move |cluster| async move {
        let belayer = held_pods(&cluster).await?;
        let handle = cluster
            .faults()?
            .inject(Fault::on(releases().name("p0")).answer(answer()));
        release(&cluster).await?;
        // The other pods are released at once.
        held_is(&cluster, 1).await?;
        eventually("the metric counts it", SOON, async || {
            let denied = belayer.metric("belayer_release_denied_total", &[]).await?;
            ensure!(denied >= 1.0, "it counts {denied}");
            Ok(())
        })
        .await?;
        eventually("an Event reports it", SOON, async || {
            let events = kinds::events(cluster.client(), cluster.namespace());
            let all = events.list(&Default::default()).await?;
            let about = |event: &&DynamicObject| event.data["involvedObject"]["name"] == "p0";
            let warning = all
                .iter()
                .filter(about)
                .find(|event| event.data["type"] == "Warning");
            let message = warning.context("no Warning about the pod")?.data["message"].to_string();
            ensure!(
                message.contains("no ropes today"),
                "its message is {message}"
            );
            Ok(())
        })
        .await?;
        ensure!(
            handle.hits() <= 3,
            "it was retried {} times within seconds",
            handle.hits()
        );
        cluster.faults()?.clear();
        belayer.stop().await?;
        // A restart retries at once.
        let belayer = cluster.start_belayer().await?;
        all_released(&cluster).await?;
        belayer.stop().await
    })
    .needs([Faults])
}

async fn watch_expired(cluster: Cluster) -> Result<()> {
    let belayer = held_pods(&cluster).await?;
    let faults = cluster.faults()?;
    // Watches break, and the versions from which they would continue are refused once.
    let expired = Fault::on(Match::watches().client(BELAYER))
        .times(3)
        .answer(Answer::gone());
    let handle = faults.inject(expired);
    faults.end_watches(&Match::watches().client(BELAYER), WatchEnd::Break);
    cluster
        .workflows()
        .delete("w", &DeleteParams::background())
        .await?;
    eventually("the fault was applied", SOON, async || hit(&handle)).await?;
    cluster.is_empty(SOON).await?;
    belayer.stop().await
}
