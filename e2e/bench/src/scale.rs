//! How cost grows: with the number of changes, not with the number of pods.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use belayer_subject::Pods;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Client;
use serde_json::json;

use belayer_core::http::{METADATA_ONLY, PatchKind, Request};
use belayer_core::object::{ObjectKey, Resource};

use super::measure::cpu_exactly;
use super::report::Limit;
use super::server::{API_SERVER, QUIET, settled};
use super::{Goal, Report, Testbed, belayer_says, etcd, wait_until_ready};
use belayer_e2e::control_plane::ports::free_ports;
use belayer_e2e::control_plane::{ControlPlane, Process};
use belayer_e2e::peers::Peer;
use belayer_subject::informer::SYNCED;

const PODS: usize = 50_000;
/// Heartbeats per round, spread over as many pods.
const EVENTS: usize = 3000;
const PARALLEL: usize = 16;
const DEADLINE: Duration = Duration::from_secs(120);

pub(crate) async fn run(testbed: Testbed) -> Result<Report> {
    let most = testbed.size.unwrap_or(PODS);
    let sizes = [most / 25, most / 5, most];
    let plane = testbed.api_server().await?;
    etcd::create_namespaces(&plane).await?;
    let title = format!("{EVENTS} status heartbeats in a settled cluster");
    let metrics = [
        ("CPU per event", "us"),
        ("keys queued", "count"),
        ("resident", "MB"),
    ];
    let mut report = Report::new("scale", title, &metrics);
    let mut there = 0;
    let mut beat = 0_u32;
    let mut rates = Vec::new();
    for size in sizes {
        etcd::fill(&plane, Pods::usual().unheld(), there..size).await?;
        there = size;
        let [port] = free_ports()?;
        let mut belayer = start(&testbed, &plane, port)?;
        wait_until_ready(&mut belayer, port).await?;
        let pid = belayer.pid().context("belayer has exited")?;
        for round in 0..=testbed.rounds {
            let adds = queued(port).await?;
            beat += 1;
            let each = cpu_per_event(&plane, pid, size, beat).await?;
            if round > 0 {
                let figures = [
                    each,
                    queued(port).await? - adds,
                    belayer_subject::resident_of(pid)? as f64 / 1e6,
                ];
                report.round(&name(size), &figures);
            }
        }
        if size == most {
            for round in 0..=testbed.rounds {
                let adds = queued(port).await?;
                beat += 1;
                let burst = burst(&plane, pid, most, beat).await?;
                if round > 0 {
                    let resident = belayer_subject::resident_of(pid)? as f64 / 1e6;
                    let keys = queued(port).await? - adds;
                    report.round(&at_once(&name(most)), &[burst.each, keys, resident]);
                    rates.push(burst.rate);
                }
            }
        }
        belayer.kill().await?;
    }
    for (peer, arguments, name) in PEERS {
        let Some(program) = peer.if_available() else {
            report.note(format!(
                "{name} was not measured: it cannot be built on this machine"
            ));
            continue;
        };
        let mut process = start_peer(&plane, &program, arguments).await?;
        let pid = process.pid().context("the peer has exited")?;
        for round in 0..=testbed.rounds {
            beat += 1;
            let each = cpu_per_event(&plane, pid, most, beat).await?;
            if round > 0 {
                let resident = belayer_subject::resident_of(pid)? as f64 / 1e6;
                report.round(&format!("{name}, {most} pods"), &[each, f64::NAN, resident]);
            }
        }
        for round in 0..=testbed.rounds {
            beat += 1;
            let burst = burst(&plane, pid, most, beat).await?;
            if round > 0 {
                let resident = belayer_subject::resident_of(pid)? as f64 / 1e6;
                let name = at_once(&format!("{name}, {most} pods"));
                report.round(&name, &[burst.each, f64::NAN, resident]);
            }
        }
        process.kill().await?;
    }
    report.limit(Limit {
        metric: "CPU per event",
        of: name(most),
        at_most: 12.0,
    });
    report.limit(Limit {
        metric: "CPU per event",
        of: at_once(&name(most)),
        at_most: 15.0,
    });
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    report.note(format!(
        "all at once: written into etcd, and sent by the API server to Belayer at {slowest:.0} events a second or more"
    ));
    report.goal(Goal {
        metric: "CPU per event",
        of: name(sizes[2]),
        against: name(sizes[0]),
        at_most: 1.25,
    });
    plane.stop().await?;
    Ok(report)
}

/// The informers of others that are measured with most pods: the program, its first arguments and its name in the table.
const PEERS: [(Peer, &[&str], &str); 2] = [
    (Peer::Sync, &[], "client-go informer"),
    (Peer::KubeRs, &["reflector"], "kube-rs reflector"),
];

/// Starts an informer, and waits until it is synced.
pub(crate) async fn start_peer(
    plane: &ControlPlane,
    program: &Path,
    arguments: &[&str],
) -> Result<Process> {
    let kubeconfig = format!("--kubeconfig={}", plane.admin_path().display());
    let arguments = arguments.iter().copied().chain([&*kubeconfig]);
    let [port] = free_ports()?;
    let log = plane.dir().join(format!("peer-{port}.log"));
    let mut peer = Process::start("peer", program, arguments, &log)?;
    let started = Instant::now();
    while !peer.log()?.contains(SYNCED) {
        peer.check_running()?;
        ensure!(started.elapsed() < DEADLINE, "{}", peer.log_end());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(peer)
}

/// Sends heartbeats, and returns what each costs the process, in microseconds.
async fn cpu_per_event(plane: &ControlPlane, pid: u32, pods: usize, beat: u32) -> Result<f64> {
    let before = cpu_exactly(pid)?;
    heartbeats(plane.client(), pods, beat).await?;
    // Changes in flight arrive and are counted.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let cpu = cpu_exactly(pid)?.saturating_sub(before);
    Ok(cpu.as_secs_f64() * 1e6 / EVENTS as f64)
}

/// What it costs a process when all pods change at once.
struct Burst {
    /// CPU time per event, in microseconds.
    each: f64,
    /// Events per second.
    rate: f64,
}

/// Writes every pod into etcd again, as fast as that can. The API server sends one event per pod.
async fn burst(plane: &ControlPlane, pid: u32, pods: usize, beat: u32) -> Result<Burst> {
    let before = cpu_exactly(pid)?;
    let started = Instant::now();
    etcd::fill(plane, Pods::usual().unheld().after(beat), 0..pods).await?;
    // The API server sends what it has read from etcd, and the process reads at once what it is sent.
    settled(plane, API_SERVER).await?;
    let sent = started.elapsed().saturating_sub(QUIET);
    let cpu = cpu_exactly(pid)?.saturating_sub(before);
    Ok(Burst {
        each: cpu.as_secs_f64() * 1e6 / pods as f64,
        rate: pods as f64 / sent.as_secs_f64(),
    })
}

fn at_once(name: &str) -> String {
    format!("{name}, all at once")
}

fn name(pods: usize) -> String {
    format!("Belayer, {pods} pods")
}

fn start(testbed: &Testbed, plane: &ControlPlane, port: u16) -> Result<Process> {
    let arguments = [
        "run".to_owned(),
        format!("--kubeconfig={}", plane.admin_path().display()),
        format!("--metrics-bind-address=127.0.0.1:{port}"),
        "--debug-bind-address=0".to_owned(),
        super::COMPONENTS.to_owned(),
        "--log-level=warn".to_owned(),
    ];
    let log = plane.dir().join(format!("belayer-{port}.log"));
    Process::start("belayer", testbed.belayer(), arguments, &log)
}

async fn queued(port: u16) -> Result<f64> {
    belayer_says(port, belayer_metrics::WORKQUEUE_ADDS).await
}

/// Writes the status of pods as a kubelet without changes does: a condition was probed.
async fn heartbeats(client: &Client, pods: usize, beat: u32) -> Result<()> {
    let resource = Resource::new("", "v1", "Pod", "pods");
    futures::stream::iter(0..EVENTS)
        .map(|event| {
            let number = event * (pods / EVENTS).max(1) % pods;
            let key = ObjectKey::new(Pods::namespace(number), Pods::name(number));
            let seconds = 1_800_000_000 + u64::from(beat) * 10_000 + event as u64 % 10_000;
            let time = jiff::Timestamp::from_second(seconds as i64).unwrap_or_default();
            let body = json!({ "status": { "conditions": [
                { "type": "Ready", "status": "True", "lastProbeTime": time.to_string() },
            ] } });
            let path = format!("{}/status", resource.object_path(&key));
            let request =
                Request::patch(path, PatchKind::Merge, body.to_string()).accept(METADATA_ONLY);
            async move { request.send(client).await.map(drop) }
        })
        .buffer_unordered(PARALLEL)
        .try_collect::<()>()
        .await?;
    Ok(())
}
