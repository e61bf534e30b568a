//! Terminating pods with holds, of deleted workflows, that exist when the controller starts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::{Client, ResourceExt as _};

use belayer_core::object::{ObjectKey, Resource};

use super::latency;
use super::raw::{self, Release};
use super::report::Limit;
use super::server::{Account, server_cpu};
use super::{Bench, Goal, Measured, Report, Testbed, Traffic};
use belayer_e2e::control_plane::{ControlPlane, Options, Process};
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
    /// How many requests the API server processes at once, if not as many as by default.
    max_in_flight: Option<u32>,
}

const MANY: Load = Load {
    name: "drain",
    pods: 10_000,
    workflows: 10,
    raw: &[16, 32, 64],
    max_in_flight: None,
};

const ONE_WORKFLOW: Load = Load {
    name: "workflow",
    pods: 1_000,
    workflows: 1,
    raw: &[32],
    max_in_flight: None,
};

const LIMITED: Load = Load {
    name: "limited",
    max_in_flight: Some(100),
    ..MANY
};

/// With fewer releases in flight than by default. A worker waits for its release.
const FEWER: [&str; 2] = ["--concurrent-releases=32", "--workers=32"];

/// How much longer than raw PATCHes one deleted workflow may take, for that includes the start of the process.
const START: Duration = Duration::from_millis(150);

pub(crate) fn many() -> Bench {
    Bench {
        name: MANY.name,
        about: "held terminating pods of deleted workflows, there at the start: Belayer from process \
                start, against raw parallel PATCHes and kube-rs' Controller",
        run: |testbed| {
            let report = async move {
                let mut report = run(&testbed, &MANY).await?;
                let raw: Vec<String> = MANY.raw.iter().copied().map(raw_of).collect();
                if let Some(against) = report.best("wall", &raw) {
                    report.goal(Goal {
                        metric: "wall",
                        of: BELAYER.to_owned(),
                        against,
                        at_most: 1.03,
                    });
                }
                report.limit(Limit {
                    metric: "CPU per release",
                    of: BELAYER.to_owned(),
                    at_most: 0.10,
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
                if let Some(raw) = report.median(&raw_of(32), "wall") {
                    report.limit(Limit {
                        metric: "wall",
                        of: BELAYER.to_owned(),
                        at_most: raw + START.as_secs_f64(),
                    });
                }
                anyhow::Ok(report)
            };
            report.boxed()
        },
    }
}

pub(crate) fn limited() -> Bench {
    Bench {
        name: LIMITED.name,
        about: "as drain, on an API server that processes 100 requests at once: Belayer with its defaults, and with 32 \
                releases in flight, against raw parallel PATCHes",
        run: |testbed| {
            let report = async move {
                let mut report = run(&testbed, &LIMITED).await?;
                report.goal(Goal {
                    metric: "wall",
                    of: BELAYER.to_owned(),
                    against: with_fewer(),
                    at_most: 1.05,
                });
                anyhow::Ok(report)
            };
            report.boxed()
        },
    }
}

fn with_fewer() -> String {
    format!("{BELAYER}, {}", FEWER.join(" "))
}

fn raw_of(parallel: usize) -> String {
    format!("raw, {parallel} parallel")
}

const METRICS: [(&str, &str); 5] = [
    ("wall", "s"),
    ("CPU", "s"),
    ("CPU per release", "ms"),
    ("peak resident", "MB"),
    ("CPU of the API server", "s"),
];

async fn run(testbed: &Testbed, load: &Load) -> Result<Report> {
    let pods = testbed.size.unwrap_or(load.pods);
    let options = Options {
        max_in_flight: load.max_in_flight,
        ..Options::api_server_alone()
    };
    let plane = ControlPlane::start(&testbed.binaries, &options).await?;
    let admin = plane.client();
    set_up(admin).await?;
    let held = kinds::pods(admin, NAMESPACE);
    let mut title = match load.workflows {
        1 => format!("{pods} held terminating pods of one deleted workflow"),
        workflows => format!("{pods} held terminating pods of {workflows} deleted workflows"),
    };
    if let Some(max) = load.max_in_flight {
        title.push_str(&format!(
            ", on an API server that processes {max} requests at once"
        ));
    }
    let mut report = Report::new(load.name, title, &METRICS);
    let (sender, controllers) = if load.max_in_flight.is_some() {
        let Account { kubeconfig, client } = Account::create(&plane, NAMESPACE).await?;
        let usual = belayer(testbed, &kubeconfig);
        let mut fewer = usual.clone();
        fewer.1.extend(FEWER.map(str::to_owned));
        (
            client,
            vec![(BELAYER.to_owned(), usual), (with_fewer(), fewer)],
        )
    } else {
        let mut controllers = vec![(BELAYER.to_owned(), belayer(testbed, plane.admin_path()))];
        match kube_rs(&plane) {
            Some(command) => controllers.push((KUBE_RS.to_owned(), command)),
            None => report.note(format!(
                "{KUBE_RS} was not measured: it cannot be built on this machine"
            )),
        }
        (admin.clone(), controllers)
    };
    for round in 0..=testbed.rounds {
        let counts = round > 0;
        for parallel in load.raw.iter().copied() {
            let releases = prepare(admin, pods, load.workflows).await?;
            let figures = drained_raw(&plane, &sender, &releases, parallel).await?;
            if counts {
                report.round(&raw_of(parallel), &figures);
            }
        }
        // A controller cannot do without a watch, which costs the API server an event for each release.
        let most = load.raw.iter().copied().max().unwrap_or(1);
        let releases = prepare(admin, pods, load.workflows).await?;
        let watch = tokio::spawn(latency::watch_pods(admin.clone(), |_| {}));
        let figures = drained_raw(&plane, &sender, &releases, most).await?;
        watch.abort();
        if counts {
            let name = format!("{}, beside a watch", raw_of(most));
            report.round(&name, &figures);
        }
        for (name, command) in &controllers {
            prepare(admin, pods, load.workflows).await?;
            let before = Traffic::of(admin, "pods").await?;
            let figures = drained_by(&plane, &held, pods, name, command).await?;
            if counts {
                report.round(name, &figures);
            }
            if round == testbed.rounds {
                let traffic = Traffic::of(admin, "pods").await?.since(&before);
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

/// kube-rs' `Controller`, if it can be built here.
fn kube_rs(plane: &ControlPlane) -> Option<Command> {
    let kubeconfig = format!("--kubeconfig={}", plane.admin_path().display());
    let arguments = vec!["controller".to_owned(), kubeconfig];
    Some((Peer::KubeRs.if_available()?, arguments))
}

/// Belayer, which only releases pods.
pub(crate) fn belayer(testbed: &Testbed, kubeconfig: &Path) -> Command {
    let arguments = [
        "run",
        &format!("--kubeconfig={}", kubeconfig.display()),
        "--controllers=pod-finalizer",
        "--metrics-bind-address=0",
        "--debug-bind-address=0",
        "--log-level=error",
    ];
    (
        testbed.belayer().to_owned(),
        arguments.map(str::to_owned).to_vec(),
    )
}

/// Raw PATCHes of this client until the last pod is removed: the figures in the order of the metrics, without those of the
/// sender, which is this process.
async fn drained_raw(
    plane: &ControlPlane,
    client: &Client,
    releases: &[Release],
    parallel: usize,
) -> Result<[f64; 5]> {
    let held = kinds::pods(plane.client(), NAMESPACE);
    let server = server_cpu(plane).await?;
    let wall = raw::release_all(client, &held, releases, parallel).await?;
    let server = server_cpu(plane).await? - server;
    Ok([wall.as_secs_f64(), f64::NAN, f64::NAN, f64::NAN, server])
}

/// From process start until the last pod is removed: the figures in the order of the metrics.
async fn drained_by(
    plane: &ControlPlane,
    held: &Objects,
    pods: usize,
    name: &str,
    command: &Command,
) -> Result<[f64; 5]> {
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
        cost.cpu.as_secs_f64() * 1e3 / pods as f64,
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
