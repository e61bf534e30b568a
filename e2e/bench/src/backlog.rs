//! How soon a hold is removed while thousands of live reads are queued (rule L1): Belayer, from the time
//! the evidence exists, against a PATCH sent at once to the same busy server.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use kube::Client;
use kube::api::PostParams;
use serde_json::json;

use super::latency::{self, BELAYER, Held, NAMESPACE, RAW, Waiting};
use super::measure::sockets_of;
use super::{Goal, Report, Testbed, belayer_says, wait_until_ready};
use belayer_e2e::control_plane::ports::free_ports;
use belayer_e2e::harness::{PodBuilder, Workflow, pod};
use belayer_e2e::kinds;
use belayer_e2e::providers::ensure_workflow_crd;

/// Queued live reads, one for each pod whose owner is removed.
const QUESTIONS: usize = 10_000;
/// Pods that get a hold meanwhile.
const HOLDS: usize = 3_000;
/// Releases of each subject and round.
const RELEASES: usize = 100;

pub(crate) async fn run(testbed: Testbed) -> Result<Report> {
    let queries = testbed.size.unwrap_or(QUESTIONS);
    let plane = testbed.api_server().await?;
    let client = plane.client();
    ensure_workflow_crd(client).await?;
    latency::create_namespace(client).await?;
    // No other pod has this owner, so that each costs a live read.
    let orphan = |name: &str| {
        let owner = Workflow {
            name: name.to_owned(),
            uid: format!("{name}-is-gone"),
        };
        pod(name).of(&owner).held()
    };
    create(client, "orphan", queries, orphan).await?;
    let document = serde_json::from_value(json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
        "metadata": { "name": "lives" }, "spec": {},
    }))?;
    let workflows = kinds::workflows(client, NAMESPACE);
    let owner = Workflow::of(&workflows.create(&PostParams::default(), &document).await?)?;
    create(client, "new", HOLDS, |name| pod(name).of(&owner)).await?;
    let waiting = Waiting::default();
    latency::watch(client, &waiting);

    let [port] = free_ports()?;
    let mut belayer = latency::start(&testbed, &plane, port)?;
    wait_until_ready(&mut belayer, port).await?;
    let begun = (Instant::now(), Counts::read(port).await?);
    let mut sockets = 0;
    let title = format!("{RELEASES} releases with {queries} queued live reads, at 100 a second");
    let metrics = [("p50", "ms"), ("p99", "ms"), ("worst", "ms")];
    let mut report = Report::new("backlog", title, &metrics);
    for round in 0..=testbed.rounds {
        for subject in [RAW, BELAYER] {
            let prefix = format!("r{round}");
            let prepared = latency::prepare(client, RELEASES, &prefix).await?;
            let each = prepared.iter().map(|held| match subject {
                RAW => Held::patch(held, client, &waiting).boxed(),
                _ => Held::delete_owner(held, client, &waiting).boxed(),
            });
            let took = latency::all(each.collect()).await;
            let took = took.inspect_err(|_| anstream::eprintln!("{}", belayer.log_end()))?;
            for held in &prepared {
                held.forget_owner(client).await?;
            }
            let pid = belayer.pid().context("belayer has exited")?;
            sockets = sockets.max(sockets_of(pid)?);
            let left = belayer_says(port, "belayer_api_waiting").await?;
            ensure!(
                left > 0.0,
                "every live read was answered in round {round}: ask for more by --size, or for fewer rounds"
            );
            if round > 0 {
                report.round(subject, &latency::figures(&took));
            }
        }
    }
    let seconds = begun.0.elapsed().as_secs_f64();
    let Counts { holds, reads } = Counts::read(port).await?.since(&begun.1);
    belayer.kill().await?;
    report.goal(Goal {
        metric: "p99",
        of: BELAYER.to_owned(),
        against: RAW.to_owned(),
        at_most: 1.5,
    });
    report.note(format!(
        "meanwhile {:.0} holds a second were added and {:.0} live reads a second completed",
        holds / seconds,
        reads / seconds,
    ));
    report.note(format!(
        "Belayer had at most {sockets} sockets open: at most 64 requests are in flight, watches apart (L10)"
    ));
    plane.stop().await?;
    Ok(report)
}

/// Creates pods of these names, in parallel.
async fn create(
    client: &Client,
    prefix: &str,
    count: usize,
    build: impl Fn(&str) -> PodBuilder,
) -> Result<()> {
    let api = kinds::pods(client, NAMESPACE);
    let pods = (0..count).map(|number| build(&format!("{prefix}-{number}")).build());
    futures::stream::iter(pods)
        .map(|pod| async {
            let pod = pod?;
            api.create(&PostParams::default(), &pod)
                .await
                .with_context(|| format!("create pods {prefix}"))
                .map(drop)
        })
        .buffer_unordered(16)
        .try_collect()
        .await
}

/// Counters of the Belayer on this port.
struct Counts {
    holds: f64,
    reads: f64,
}

impl Counts {
    async fn read(port: u16) -> Result<Self> {
        Ok(Self {
            holds: belayer_says(port, "belayer_holds_added_total").await?,
            reads: belayer_says(port, "belayer_facts_total").await?,
        })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            holds: self.holds - before.holds,
            reads: self.reads - before.reads,
        }
    }
}
