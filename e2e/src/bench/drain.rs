//! Held, terminating pods of deleted workflows that are there when the controller starts.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::{Client, ResourceExt as _};

use belayer_core::object::{ObjectKey, Resource};

use super::raw::{self, Release};
use super::server::server_cpu;
use super::{Bed, Bench, Goal, Measured, Report, Traffic};
use crate::control_plane::{ControlPlane, Process};
use crate::harness::{Workflow, pod};
use crate::kinds;
use crate::providers::ensure_workflow_crd;

const PODS: usize = 10_000;
const WORKFLOWS: usize = 10;
const NAMESPACE: &str = "bench";
/// How many requests prepare the pods at once.
const PARALLEL: usize = 32;

/// How many PATCHes the raw senders have under way.
const RAW: [usize; 3] = [16, 32, 64];

pub(super) fn bench() -> Bench {
    Bench {
        name: "drain",
        about: "held terminating pods of deleted workflows, there at the start: Belayer from process \
                start, against raw parallel PATCHes",
        run: |bed| run(bed).boxed(),
    }
}

async fn run(bed: Bed) -> Result<Report> {
    let pods = bed.size.unwrap_or(PODS);
    let plane = bed.api_server().await?;
    let held = kinds::pods(plane.client(), NAMESPACE);
    ensure_workflow_crd(plane.client()).await?;
    let namespace = serde_json::json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE },
    });
    kinds::namespaces(plane.client())
        .create(&PostParams::default(), &serde_json::from_value(namespace)?)
        .await?;
    let title = format!("{pods} held terminating pods of {WORKFLOWS} deleted workflows");
    let metrics = [
        ("wall", "s"),
        ("CPU", "s"),
        ("peak resident", "MB"),
        ("CPU of the API server", "s"),
    ];
    let mut report = Report::new("drain", title, &metrics);
    for round in 0..=bed.rounds {
        let counts = round > 0;
        for parallel in RAW {
            let releases = prepare(plane.client(), pods).await?;
            let server = server_cpu(&plane).await?;
            let wall = raw::release_all(plane.client(), &held, &releases, parallel).await?;
            let server = server_cpu(&plane).await? - server;
            if counts {
                let figures = [wall.as_secs_f64(), f64::NAN, f64::NAN, server];
                report.round(&format!("raw, {parallel} parallel"), &figures);
            }
        }
        prepare(plane.client(), pods).await?;
        let before = Traffic::of(plane.client(), "pods").await?;
        let server = server_cpu(&plane).await?;
        let mut belayer = start(&bed, &plane)?;
        raw::until_gone(&held).await.inspect_err(|_| {
            anstream::eprintln!("{}", belayer.process().log_end());
        })?;
        let cost = belayer.cost()?;
        let server = server_cpu(&plane).await? - server;
        belayer.end().await?;
        if counts {
            let figures = [
                cost.wall.as_secs_f64(),
                cost.cpu.as_secs_f64(),
                cost.peak_resident as f64 / 1e6,
                server,
            ];
            report.round("Belayer", &figures);
        }
        if round == bed.rounds {
            let traffic = Traffic::of(plane.client(), "pods").await?.since(&before);
            let each = traffic.requests("PATCH") / pods as f64;
            report.note(format!("{each:.2} PATCHes of Belayer per pod"));
            report.note(format!(
                "requests about pods in the last round of Belayer: {}",
                traffic.summary()
            ));
        }
    }
    report.goal(Goal {
        metric: "wall",
        of: "Belayer".to_owned(),
        against: "raw, 32 parallel".to_owned(),
        at_most: 1.05,
    });
    plane.stop().await?;
    Ok(report)
}

fn start(bed: &Bed, plane: &ControlPlane) -> Result<Measured> {
    let arguments = [
        "run".to_owned(),
        format!("--kubeconfig={}", plane.admin_path().display()),
        "--controllers=pod-finalizer".to_owned(),
        "--metrics-bind-address=0".to_owned(),
        "--debug-bind-address=0".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    let log = plane.dir().join("belayer.log");
    Measured::start(|| Process::start("belayer", bed.belayer(), arguments, &log))
}

/// Makes the workflows and their pods, deletes the pods, then the workflows. The releases that let
/// the pods go.
async fn prepare(client: &Client, pods: usize) -> Result<Vec<Release>> {
    let workflows = kinds::workflows(client, NAMESPACE);
    let mut owners = Vec::new();
    for number in 0..WORKFLOWS {
        let document = serde_json::from_value(serde_json::json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
            "metadata": { "name": format!("w{number}") }, "spec": {},
        }))?;
        let created: DynamicObject = workflows.create(&PostParams::default(), &document).await?;
        owners.push(Workflow::of(&created)?);
    }
    let api = kinds::pods(client, NAMESPACE);
    let owners = Arc::new(owners);
    let resource = Resource::new("", "v1", "Pod", "pods");
    let releases = futures::stream::iter(0..pods)
        .map(|number| {
            let (api, owners, resource) = (api.clone(), Arc::clone(&owners), &resource);
            async move {
                let name = format!("p{number}");
                let pod = pod(&name).of(&owners[number % WORKFLOWS]).held().build()?;
                api.create(&PostParams::default(), &pod).await?;
                let deleted = api.delete(&name, &DeleteParams::default()).await?;
                let pod = deleted.left().context("a held pod is gone at once")?;
                let uid = pod.uid().context("a pod without UID")?;
                let version = pod.resource_version().context("a pod without version")?;
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
