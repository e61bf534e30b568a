//! Terminating pods with holds, of deleted workflows, that exist when the controller starts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::{Client, ResourceExt as _};

use belayer_core::object::{ObjectKey, Resource};

use super::raw::{self, Release};
use super::report::Limit;
use super::server::server_cpu;
use super::{Bench, Goal, Measured, Report, Testbed, Traffic};
use belayer_e2e::control_plane::{ControlPlane, Process};
use belayer_e2e::harness::{Workflow, pod};
use belayer_e2e::kinds::{self, Objects};
use belayer_e2e::peers::Peer;
use belayer_e2e::providers::ensure_workflow_crd;

pub(crate) const NAMESPACE: &str = "bench";
/// How many requests prepare the pods in parallel.
const PARALLEL: usize = 32;

const BELAYER: &str = "Belayer";
const KUBE_RS: &str = "kube-rs Controller";

/// The objects to release.
struct Load {
    /// The benchmark's name.
    name: &'static str,
    /// Default number of pods.
    pods: usize,
    /// How many workflows own them.
    workflows: usize,
    /// How many PATCHes the raw senders have in flight.
    raw: &'static [usize],
}

const MANY: Load = Load {
    name: "drain",
    pods: 10_000,
    workflows: 10,
    raw: &[16, 32, 64],
};

const ONE_WORKFLOW: Load = Load {
    name: "workflow",
    pods: 1_000,
    workflows: 1,
    raw: &[32],
};

/// Limit for one deleted workflow from process start: a user waits for it.
const ONE_WORKFLOW_WITHIN: Duration = Duration::from_secs(2);

pub(crate) fn many() -> Bench {
    Bench {
        name: MANY.name,
        about: "held terminating pods of deleted workflows, there at the start: Belayer from process \
                start, against raw parallel PATCHes and kube-rs' Controller",
        run: |testbed| {
            let report = async move {
                let mut report = run(&testbed, &MANY).await?;
                report.goal(Goal {
                    metric: "wall",
                    of: BELAYER.to_owned(),
                    against: raw_of(32),
                    at_most: 1.05,
                });
                report.goal(Goal {
                    metric: "wall",
                    of: BELAYER.to_owned(),
                    against: KUBE_RS.to_owned(),
                    at_most: 1.0,
                });
                anyhow::Ok(report)
            };
            report.boxed()
        },
    }
}

pub(crate) fn one_workflow() -> Bench {
    Bench {
        name: ONE_WORKFLOW.name,
        about: "held terminating pods of one deleted workflow, there at the start: Belayer and kube-rs' \
                Controller from process start until the last is gone, and raw parallel PATCHes",
        run: |testbed| {
            let report = async move {
                let mut report = run(&testbed, &ONE_WORKFLOW).await?;
                report.limit(Limit {
                    metric: "wall",
                    of: BELAYER.to_owned(),
                    at_most: ONE_WORKFLOW_WITHIN.as_secs_f64(),
                });
                anyhow::Ok(report)
            };
            report.boxed()
        },
    }
}

fn raw_of(parallel: usize) -> String {
    format!("raw, {parallel} parallel")
}

async fn run(testbed: &Testbed, load: &Load) -> Result<Report> {
    let pods = testbed.size.unwrap_or(load.pods);
    let plane = testbed.api_server().await?;
    let held = kinds::pods(plane.client(), NAMESPACE);
    set_up(plane.client()).await?;
    let title = match load.workflows {
        1 => format!("{pods} held terminating pods of one deleted workflow"),
        workflows => format!("{pods} held terminating pods of {workflows} deleted workflows"),
    };
    let metrics = [
        ("wall", "s"),
        ("CPU", "s"),
        ("peak resident", "MB"),
        ("CPU of the API server", "s"),
    ];
    let mut report = Report::new(load.name, title, &metrics);
    let controllers = controllers(testbed, &plane);
    if controllers.len() == 1 {
        report.note(format!(
            "{KUBE_RS} was not measured: it cannot be built on this machine"
        ));
    }
    for round in 0..=testbed.rounds {
        let counts = round > 0;
        for parallel in load.raw.iter().copied() {
            let releases = prepare(plane.client(), pods, load.workflows).await?;
            let server = server_cpu(&plane).await?;
            let wall = raw::release_all(plane.client(), &held, &releases, parallel).await?;
            let server = server_cpu(&plane).await? - server;
            if counts {
                let figures = [wall.as_secs_f64(), f64::NAN, f64::NAN, server];
                report.round(&raw_of(parallel), &figures);
            }
        }
        for (name, command) in &controllers {
            prepare(plane.client(), pods, load.workflows).await?;
            let before = Traffic::of(plane.client(), "pods").await?;
            let figures = drained_by(&plane, &held, name, command).await?;
            if counts {
                report.round(name, &figures);
            }
            if round == testbed.rounds {
                let traffic = Traffic::of(plane.client(), "pods").await?.since(&before);
                let each = traffic.requests("PATCH") / pods as f64;
                report.note(format!(
                    "{name}: {each:.2} PATCHes per pod; requests about pods in the last round: {}",
                    traffic.summary()
                ));
            }
        }
    }
    plane.stop().await?;
    Ok(report)
}

/// A program and its arguments.
type Command = (PathBuf, Vec<String>);

/// The subjects that decide by themselves what to release.
fn controllers(testbed: &Testbed, plane: &ControlPlane) -> Vec<(&'static str, Command)> {
    let kubeconfig = format!("--kubeconfig={}", plane.admin_path().display());
    let belayer = [
        "run",
        &kubeconfig,
        "--controllers=pod-finalizer",
        "--metrics-bind-address=0",
        "--debug-bind-address=0",
        "--log-level=warn",
    ]
    .map(str::to_owned);
    let mut all = vec![(BELAYER, (testbed.belayer().to_owned(), belayer.to_vec()))];
    if let Some(program) = Peer::KubeRs.if_available() {
        let arguments = vec!["controller".to_owned(), kubeconfig];
        all.push((KUBE_RS, (program, arguments)));
    }
    all
}

/// From process start until the last pod is removed: the figures in the order of the metrics.
async fn drained_by(
    plane: &ControlPlane,
    held: &Objects,
    name: &str,
    command: &Command,
) -> Result<[f64; 4]> {
    let (program, arguments) = command;
    let server = server_cpu(plane).await?;
    let log = plane.dir().join("drained.log");
    let mut controller = Measured::start(|| Process::start(name, program, arguments, &log))?;
    raw::until_gone(held).await.inspect_err(|_| {
        anstream::eprintln!("{}", controller.process().log_end());
    })?;
    let cost = controller.cost()?;
    let server = server_cpu(plane).await? - server;
    controller.end().await?;
    Ok([
        cost.wall.as_secs_f64(),
        cost.cpu.as_secs_f64(),
        cost.peak_resident as f64 / 1e6,
        server,
    ])
}

/// Creates the kind of workflows, and the namespace.
pub(crate) async fn set_up(client: &Client) -> Result<()> {
    ensure_workflow_crd(client).await?;
    let namespace = serde_json::json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE },
    });
    kinds::namespaces(client)
        .create(&PostParams::default(), &serde_json::from_value(namespace)?)
        .await?;
    Ok(())
}

/// Creates the workflows and their pods, deletes the pods, then the workflows. Returns the patches that
/// release the pods.
pub(crate) async fn prepare(client: &Client, pods: usize, owners: usize) -> Result<Vec<Release>> {
    let workflows = kinds::workflows(client, NAMESPACE);
    let mut made = Vec::with_capacity(owners);
    for number in 0..owners {
        let document = serde_json::from_value(serde_json::json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
            "metadata": { "name": format!("w{number}") }, "spec": {},
        }))?;
        let created: DynamicObject = workflows.create(&PostParams::default(), &document).await?;
        made.push(Workflow::of(&created)?);
    }
    let api = kinds::pods(client, NAMESPACE);
    let owners = Arc::new(made);
    let resource = Resource::new("", "v1", "Pod", "pods");
    let releases = futures::stream::iter(0..pods)
        .map(|number| {
            let (api, owners, resource) = (api.clone(), Arc::clone(&owners), &resource);
            async move {
                let name = format!("p{number}");
                let pod = pod(&name)
                    .of(&owners[number % owners.len()])
                    .held()
                    .build()?;
                api.create(&PostParams::default(), &pod).await?;
                let deleted = api.delete(&name, &DeleteParams::default()).await?;
                let pod = deleted
                    .left()
                    .context("a pod with a hold was removed at once")?;
                let uid = pod.uid().context("the pod has no UID")?;
                let version = pod
                    .resource_version()
                    .context("the pod has no resourceVersion")?;
                let key = ObjectKey::new(NAMESPACE, &*name);
                anyhow::Ok(Release::new(resource, &key, &uid, &version, &[]))
            }
        })
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await?;
    for owner in &*owners {
        workflows
            .delete(&owner.name, &DeleteParams::default())
            .await?;
    }
    Ok(releases)
}
