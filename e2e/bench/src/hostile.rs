//! What other tenants notice of an attack: their releases during it, against raw PATCHes to the same busy server; the memory
//! of Belayer; and the time until everything that the attacker left is done.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::latency::{self, Held, Waiting};
use super::report::Limit;
use super::{Goal, Measured, Report, Testbed, belayer_says, wait_until_ready};
use belayer_e2e::control_plane::ports::free_ports;
use belayer_e2e::harness::belayer::connect_from;
use belayer_e2e::harness::{Workflow, largest_nodes, pod};
use belayer_e2e::kinds;
use belayer_e2e::providers::ensure_workflow_crd;

/// Releases of other tenants, of each subject and round.
const RELEASES: usize = 100;
/// Maximum of the resident memory, in MB: the requirement of T3.
const PEAK: f64 = 300.0 * 1.048_576;
const DEADLINE: Duration = Duration::from_secs(300);
const PARALLEL: usize = 16;

/// Of T3.
const WORKFLOWS: usize = 12;
/// Of T4: more than a namespace may have.
const DELETED: usize = 1_100;
/// Of T5, from so many addresses.
const CONNECTIONS: u16 = 5_000;
const PEERS: u16 = 50;
const SCRAPERS: u16 = 16;

/// The number of namespaces in which no holds are added.
const CLOSED: &str = "belayer_backlog_namespaces_closed";

/// What an attack needs.
#[derive(Clone)]
struct Site {
    client: Client,
    /// The attacker's namespace.
    namespace: String,
    /// The port of metrics.
    port: u16,
}

/// When an attack has its effect, and when it is to end.
#[derive(Clone, Default)]
struct Signals {
    effective: CancellationToken,
    stop: CancellationToken,
}

/// An attack.
struct Attack {
    name: &'static str,
    /// Attacks until it is to end.
    run: fn(Site, Signals) -> BoxFuture<'static, Result<()>>,
    /// Waits until it has no more effect.
    over: fn(Site) -> BoxFuture<'static, Result<()>>,
}

const ATTACKS: [Attack; 4] = [
    Attack {
        name: "12 workflows of 480,000 nodes, again and again (T3)",
        run: |site, signals| large_workflows(site, signals).boxed(),
        over: |site| no_pods(site).boxed(),
    },
    Attack {
        name: "1,100 deleted pods of a live workflow (T4)",
        run: |site, signals| backlog(site, signals).boxed(),
        over: |site| reopened(site).boxed(),
    },
    Attack {
        name: "5,000 idle connections (T5)",
        run: |site, signals| connections(site, signals).boxed(),
        over: |site| scraped(site).boxed(),
    },
    Attack {
        name: "16 clients that scrape in a loop (T5)",
        run: |site, signals| scrapers(site, signals).boxed(),
        over: |site| scraped(site).boxed(),
    },
];

pub(crate) async fn run(testbed: Testbed) -> Result<Report> {
    let releases = testbed.size.unwrap_or(RELEASES);
    let plane = testbed.api_server().await?;
    let client = plane.client();
    ensure_workflow_crd(client).await?;
    latency::create_namespace(client).await?;
    let waiting = Waiting::default();
    latency::watch(client, &waiting);
    let title = format!("{releases} releases of other tenants during an attack");
    let metrics = [
        ("p50", "ms"),
        ("p99", "ms"),
        ("peak resident", "MB"),
        ("recovered", "s"),
    ];
    let mut report = Report::new("hostile", title, &metrics);
    for (index, attack) in ATTACKS.iter().enumerate() {
        let [raw, belayers] = ["raw PATCH", "Belayer"].map(|of| format!("{}: {of}", attack.name));
        for round in 0..testbed.rounds {
            let [port] = free_ports()?;
            let site = Site {
                client: client.clone(),
                namespace: format!("hostile-{index}-{round}"),
                port,
            };
            create_namespace(&site).await?;
            let mut belayer = Measured::start(|| latency::start(&testbed, &plane, port))?;
            wait_until_ready(belayer.process(), port).await?;
            // They have their holds, and end, before the attack.
            let prefixes = ["raw", "belayer"].map(|of| format!("{of}-{index}-{round}"));
            let for_raw = latency::prepare(client, releases, &prefixes[0]).await?;
            let for_us = latency::prepare(client, releases, &prefixes[1]).await?;
            let signals = Signals::default();
            let mut attacking = tokio::spawn((attack.run)(site.clone(), signals.clone()));
            tokio::select! {
                () = signals.effective.cancelled() => {}
                ended = &mut attacking => ended??,
            }
            let patch = |held| Held::patch(held, client, &waiting).boxed();
            let by_raw = latency::all(for_raw.iter().map(patch).collect()).await?;
            let delete = |held| Held::delete_owner(held, client, &waiting).boxed();
            let by_us = latency::all(for_us.iter().map(delete).collect()).await;
            let by_us = by_us.inspect_err(|_| {
                anstream::eprintln!("{}", belayer.process().log_end());
            })?;
            ensure!(
                !attacking.is_finished(),
                "the attack has ended: {}",
                attack.name
            );
            signals.stop.cancel();
            attacking.await??;
            let since = Instant::now();
            tokio::time::timeout(DEADLINE, (attack.over)(site))
                .await
                .with_context(|| format!("no end of {}", attack.name))??;
            let recovered = since.elapsed().as_secs_f64();
            let peak = belayer.cost()?.peak_resident as f64 / 1e6;
            belayer.end().await?;
            for held in for_raw.iter().chain(&for_us) {
                held.forget_owner(client).await?;
            }
            let [p50, p99, _] = latency::figures(&by_raw);
            report.round(&raw, &[p50, p99, f64::NAN, f64::NAN]);
            let [p50, p99, _] = latency::figures(&by_us);
            report.round(&belayers, &[p50, p99, peak, recovered]);
        }
        report.goal(Goal {
            metric: "p99",
            of: belayers.clone(),
            against: raw,
            at_most: 1.5,
        });
        report.limit(Limit {
            metric: "peak resident",
            of: belayers,
            at_most: PEAK,
        });
    }
    plane.stop().await?;
    Ok(report)
}

async fn create_namespace(site: &Site) -> Result<()> {
    let document =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": site.namespace } });
    let document = serde_json::from_value(document)?;
    kinds::namespaces(&site.client)
        .create(&PostParams::default(), &document)
        .await?;
    Ok(())
}

async fn workflow(site: &Site, name: &str, status: Value) -> Result<Workflow> {
    let document = serde_json::from_value(json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
        "metadata": { "name": name }, "spec": {}, "status": status,
    }))?;
    let workflows = kinds::workflows(&site.client, &site.namespace);
    Workflow::of(&workflows.create(&PostParams::default(), &document).await?)
}

/// Creates an ended pod with a hold, and deletes it.
async fn deleted(site: &Site, name: String, owner: &Workflow, node: &str) -> Result<()> {
    let pods = kinds::pods(&site.client, &site.namespace);
    let pod = pod(&name).of(owner).held();
    let pod = pod
        .annotation("workflows.argoproj.io/node-id", node)
        .build()?;
    pods.create(&PostParams::default(), &pod).await?;
    let ended = json!({ "status": { "phase": "Succeeded" } });
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(ended))
        .await?;
    pods.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

/// T3: their nodes are fulfilled, so each pod costs the decompression of its workflow's status.
async fn large_workflows(site: Site, signals: Signals) -> Result<()> {
    let packed = largest_nodes()?;
    let mut owners = Vec::new();
    for number in 0..WORKFLOWS {
        let status = json!({ "compressedNodes": packed });
        owners.push(workflow(&site, &format!("w{number}"), status).await?);
    }
    for turn in 0.. {
        for (number, owner) in owners.iter().enumerate() {
            if signals.stop.is_cancelled() {
                return Ok(());
            }
            deleted(&site, format!("p{turn}-{number}"), owner, "aaaa").await?;
        }
        signals.effective.cancel();
    }
    Ok(())
}

async fn no_pods(site: Site) -> Result<()> {
    let pods = kinds::pods(&site.client, &site.namespace);
    while !pods
        .list_metadata(&ListParams::default().limit(1))
        .await?
        .items
        .is_empty()
    {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// T4: their workflow lives and has not read their results, so they stay.
async fn backlog(site: Site, signals: Signals) -> Result<()> {
    let owner = workflow(&site, "live", json!({})).await?;
    let (site, owner) = (&site, &owner);
    stream::iter(0..DELETED)
        .map(|number| deleted(site, format!("p{number}"), owner, "none"))
        .buffer_unordered(PARALLEL)
        .try_collect::<()>()
        .await?;
    while belayer_says(site.port, CLOSED).await? < 1.0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    signals.effective.cancel();
    signals.stop.cancelled().await;
    kinds::workflows(&site.client, &site.namespace)
        .delete("live", &DeleteParams::default())
        .await?;
    Ok(())
}

/// Until the pods are gone, and holds are added in the namespace again.
async fn reopened(site: Site) -> Result<()> {
    no_pods(site.clone()).await?;
    while belayer_says(site.port, CLOSED).await? > 0.0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// T5: they send nothing.
async fn connections(site: Site, signals: Signals) -> Result<()> {
    let mut idle = Vec::new();
    for index in 0..CONNECTIONS {
        idle.push(connect_from(index % PEERS, ([127, 0, 0, 1], site.port).into()).await?);
    }
    signals.effective.cancel();
    signals.stop.cancelled().await;
    drop(idle);
    Ok(())
}

/// T5: whether an answer comes does not matter to them.
async fn scrapers(site: Site, signals: Signals) -> Result<()> {
    signals.effective.cancel();
    let each = (0..SCRAPERS).map(async |_| {
        while !signals.stop.is_cancelled() {
            let _ = belayer_says(site.port, "belayer_holds").await;
        }
    });
    futures::future::join_all(each).await;
    Ok(())
}

async fn scraped(site: Site) -> Result<()> {
    while belayer_says(site.port, "belayer_holds").await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
