//! Statuses of running workflows as evidence: deleted pods wait until the status of their workflow says that their results
//! were read.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use belayer_core::http::{METADATA_ONLY, PatchKind, Request};
use belayer_core::object::{ObjectKey, Resource};

use super::latency::{self, NAMESPACE, Waiting};
use super::measure::cpu_exactly;
use super::report::Limit;
use super::scale::start_peer;
use super::{Goal, Report, Testbed, wait_until_ready};
use belayer_e2e::control_plane::Process;
use belayer_e2e::control_plane::ports::free_ports;
use belayer_e2e::harness::{Packing, Workflow, pod};
use belayer_e2e::kinds;
use belayer_e2e::peers::Peer;
use belayer_e2e::providers::ensure_workflow_crd;

const WORKFLOWS: usize = 200;
/// Of each workflow.
const NODES: usize = 500;
/// Of each workflow, deleted and held.
const PODS: usize = 50;
/// Between two updates of a workflow.
const EVERY: Duration = Duration::from_secs(10);
/// Updates of each workflow in a round; each says that one further pod was read.
const UPDATES: usize = 3;
const PARALLEL: usize = 32;
const DEADLINE: Duration = Duration::from_secs(60);

const BELAYER: &str = "Belayer";
const KUBE_RS: &str = "kube-rs reflector of whole workflows";

pub(crate) async fn run(testbed: Testbed) -> Result<Report> {
    let workflows = testbed.size.unwrap_or(WORKFLOWS);
    let rounds = testbed.rounds + 1;
    ensure!(
        rounds * UPDATES <= PODS,
        "at most {} rounds: each releases {UPDATES} pods of each workflow",
        PODS / UPDATES - 1
    );
    let plane = testbed.api_server().await?;
    let client = plane.client();
    ensure_workflow_crd(client).await?;
    latency::create_namespace(client).await?;
    let waiting = Waiting::default();
    latency::watch(client, &waiting);
    for number in 0..workflows {
        prepare(client, number).await?;
    }
    let [port] = free_ports()?;
    let mut belayer = latency::start(&testbed, &plane, port)?;
    wait_until_ready(&mut belayer, port).await?;
    let pid = belayer.pid().context("belayer has exited")?;
    // It sees the same updates at the same time, and decides nothing.
    let peer = match Peer::KubeRs.if_available() {
        Some(program) => Some(start_peer(&plane, &program, &["workflows"]).await?),
        None => None,
    };
    let peer_pid = peer.as_ref().and_then(Process::pid);

    let size = nodes(0, 0).to_string().len();
    let title = format!(
        "{workflows} running workflows of {NODES} nodes and {PODS} deleted pods, each status written every {} s",
        EVERY.as_secs()
    );
    let metrics = [
        ("CPU", "% of a core"),
        ("resident", "MB"),
        ("p50", "ms"),
        ("p99", "ms"),
    ];
    let mut report = Report::new("status", title, &metrics);
    for round in 0..rounds {
        let (started, cpu) = (Instant::now(), cpu_exactly(pid)?);
        let peer_cpu = peer_pid.map(cpu_exactly).transpose()?;
        let each = (0..workflows).map(|number| {
            let offset = EVERY * number as u32 / workflows as u32;
            updates(client, &waiting, number, round * UPDATES, started + offset)
        });
        let took = try_join_all(each).await;
        let took = took.with_context(|| belayer.log_end())?;
        // The last update is followed by its pause.
        tokio::time::sleep_until(started + EVERY * UPDATES as u32).await;
        let share = |pid, before| {
            let cpu: Duration = cpu_exactly(pid)?.saturating_sub(before);
            anyhow::Ok(cpu.as_secs_f64() / started.elapsed().as_secs_f64() * 100.0)
        };
        let cpu = share(pid, cpu)?;
        let mut took: Vec<_> = took.into_iter().flatten().collect();
        took.sort_unstable();
        if round > 0 {
            let [p50, p99, _] = latency::figures(&took);
            report.round(BELAYER, &[cpu, resident(pid)?, p50, p99]);
            if let (Some(pid), Some(before)) = (peer_pid, peer_cpu) {
                let figures = [share(pid, before)?, resident(pid)?, f64::NAN, f64::NAN];
                report.round(KUBE_RS, &figures);
            }
        }
    }
    belayer.kill().await?;
    if let Some(mut peer) = peer {
        peer.kill().await?;
    }
    report.goal(Goal {
        metric: "resident",
        of: BELAYER.to_owned(),
        against: KUBE_RS.to_owned(),
        at_most: 1.0,
    });
    report.note("kube-rs' reflector stores the compressed tables and does not read them");
    for (metric, at_most) in [("CPU", 10.0), ("resident", 60.0), ("p99", 1000.0)] {
        report.limit(Limit {
            metric,
            of: BELAYER.to_owned(),
            at_most,
        });
    }
    report.note(format!(
        "a table of nodes has {:.1} MB before compression; each update releases one pod of its workflow",
        size as f64 / 1e6
    ));
    plane.stop().await?;
    Ok(report)
}

/// In MB.
fn resident(pid: u32) -> Result<f64> {
    Ok(belayer_subject::resident_of(pid)? as f64 / 1e6)
}

fn workflow(number: usize) -> String {
    format!("w{number}")
}

/// The name of a pod, and of its node.
fn pod_name(workflow: usize, number: usize) -> String {
    format!("w{workflow}-p{number}")
}

/// The nodes of a workflow of which the first pods have succeeded; all others are running.
fn nodes(workflow: usize, succeeded: usize) -> Value {
    let one = |number: usize| {
        let name = pod_name(workflow, number);
        // Digits that differ, so that gzip packs them as it packs real outputs.
        let output: String = (0..200_u32)
            .map(|word| {
                let mixed = (number as u32 * 31 + word).wrapping_mul(2_654_435_761);
                format!("{mixed:08x} ")
            })
            .collect();
        let phase = if number < succeeded {
            "Succeeded"
        } else {
            "Running"
        };
        let node = json!({
            "id": name, "name": name, "displayName": name, "type": "Pod", "phase": phase,
            "templateName": "step", "startedAt": "2026-01-01T00:00:00Z",
            "outputs": { "parameters": [{ "name": "result", "value": output }] },
        });
        (name, node)
    };
    Value::Object((0..NODES).map(one).collect::<Map<_, _>>())
}

/// Creates a workflow, and its pods, which end and are deleted.
async fn prepare(client: &Client, number: usize) -> Result<()> {
    let document = serde_json::from_value(json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
        "metadata": { "name": workflow(number) }, "spec": {},
        "status": { "phase": "Running", "compressedNodes": Packing::Gzip.pack(&nodes(number, 0))? },
    }))?;
    let workflows = kinds::workflows(client, NAMESPACE);
    let owner = Workflow::of(&workflows.create(&PostParams::default(), &document).await?)?;
    let each: Vec<_> = (0..PODS)
        .map(|at| deleted(client, &owner, pod_name(number, at)))
        .collect();
    futures::stream::iter(each)
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await
}

async fn deleted(client: &Client, owner: &Workflow, name: String) -> Result<()> {
    let pods = kinds::pods(client, NAMESPACE);
    let held = pod(&*name)
        .of(owner)
        .held()
        .annotation("workflows.argoproj.io/node-id", &name);
    pods.create(&PostParams::default(), &held.build()?).await?;
    let ended = json!({ "status": { "phase": "Succeeded" } });
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(ended))
        .await?;
    pods.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

/// Writes the status of a workflow again and again. Returns how long the pod of each update took to be seen gone.
async fn updates(
    client: &Client,
    waiting: &Waiting,
    number: usize,
    first: usize,
    start: Instant,
) -> Result<Vec<Duration>> {
    let resource = Resource::new("argoproj.io", "v1alpha1", "Workflow", "workflows");
    let path = resource.object_path(&ObjectKey::new(NAMESPACE, &*workflow(number)));
    let mut took = Vec::new();
    for turn in 0..UPDATES {
        tokio::time::sleep_until(start + EVERY * turn as u32).await;
        let released = first + turn;
        let packed = Packing::Gzip.pack(&nodes(number, released + 1))?;
        let body = json!({ "status": { "compressedNodes": packed } }).to_string();
        let name = pod_name(number, released);
        let (sender, gone) = oneshot::channel();
        if let Ok(mut waiting) = waiting.lock() {
            waiting.insert(name.clone(), sender);
        }
        let request = Request::patch(path.clone(), PatchKind::Merge, body);
        request.accept(METADATA_ONLY).send(client).await?;
        let since = std::time::Instant::now();
        let at = tokio::time::timeout(DEADLINE, gone)
            .await
            .with_context(|| format!("the pod {name} was not released"))??;
        took.push(at.saturating_duration_since(since));
    }
    Ok(took)
}
