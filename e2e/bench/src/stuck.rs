//! `belayer stuck` on a large cluster: time, memory and requests, against listing each kind once.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use kube::api::PostParams;
use kube::discovery::{ApiGroup, Discovery, verbs};
use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;

use belayer_core::http::{METADATA_ONLY_LIST, Request};
use belayer_core::object::Resource;

use super::measure::{Cost, cost_of};
use super::report::Limit;
use super::{Report, Testbed, etcd};
use belayer_e2e::control_plane::ControlPlane;
use belayer_e2e::kinds;

const OBJECTS: usize = 100_000;
const KINDS: usize = 100;
const GROUP: &str = "bench.example.com";
const NAMESPACE: &str = "bench";
/// Of so many objects one has a deletion timestamp and a finalizer.
const ONE_STUCK_OF: usize = 1_000;
/// Kinds that are listed concurrently, as Belayer does.
const PARALLEL: usize = 8;
/// Requests in addition to one per kind.
const MORE_REQUESTS: f64 = 20.0;
const DEADLINE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(2);

const RAW: &str = "raw, one list per kind, 8 parallel";
const BELAYER: &str = "belayer stuck";

/// The beginning of the output as JSON.
#[derive(Deserialize)]
struct Output {
    summary: Summary,
}

#[derive(Deserialize)]
struct Summary {
    stuck: usize,
    kinds: usize,
    objects: u64,
    requests: u64,
}

pub(crate) async fn run(testbed: Testbed) -> Result<Report> {
    let objects = testbed.size.unwrap_or(OBJECTS);
    let plane = testbed.api_server().await?;
    let resources: Vec<_> = (0..KINDS).map(resource).collect();
    prepare(&plane, &resources, objects).await?;
    let expected = (0..objects).filter(|number| is_stuck(*number)).count();

    let title = format!("{objects} objects of {KINDS} kinds, {expected} of them stuck");
    let metrics = [
        ("wall", "s"),
        ("CPU", "s"),
        ("peak resident", "MB"),
        ("requests in addition to one per kind", "count"),
    ];
    let mut report = Report::new("stuck", title, &metrics);
    let served = served(plane.client()).await?;
    for round in 0..=testbed.rounds {
        let raw = list_all(plane.client(), &served).await?;
        let (cost, found) = stuck(testbed.belayer(), plane.admin_path()).await?;
        ensure!(
            found.stuck == expected && found.objects >= objects as u64,
            "{} of {expected} stuck objects were found, among {} objects",
            found.stuck,
            found.objects
        );
        if round > 0 {
            report.round(RAW, &[raw.as_secs_f64(), f64::NAN, f64::NAN, f64::NAN]);
            let figures = [
                cost.wall.as_secs_f64(),
                cost.cpu.as_secs_f64(),
                cost.peak_resident as f64 / 1e6,
                found.requests as f64 - found.kinds as f64,
            ];
            report.round(BELAYER, &figures);
        }
        if round == testbed.rounds {
            report.note(format!(
                "Belayer sent {} requests for {} kinds, from the start of its process; the raw lists, of {} kinds, need no discovery",
                found.requests, found.kinds, served.len()
            ));
        }
    }
    let limits = [
        ("wall", 1.5),
        ("peak resident", 40.0),
        ("requests in addition to one per kind", MORE_REQUESTS),
    ];
    for (metric, at_most) in limits {
        report.limit(Limit {
            metric,
            of: BELAYER.to_owned(),
            at_most,
        });
    }
    plane.stop().await?;
    Ok(report)
}

fn resource(kind: usize) -> Resource {
    let plural = format!("things{kind:03}");
    Resource::new(GROUP, "v1", &format!("Thing{kind:03}"), &plural)
}

fn is_stuck(number: usize) -> bool {
    number.is_multiple_of(ONE_STUCK_OF)
}

/// Creates the kinds, waits until they are served, and writes the objects into etcd.
async fn prepare(plane: &ControlPlane, resources: &[Resource], objects: usize) -> Result<()> {
    let client = plane.client();
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    kinds::namespaces(client)
        .create(&PostParams::default(), &serde_json::from_value(namespace)?)
        .await?;
    etcd::write(plane, 0..objects, |number| {
        let resource = &resources[number % resources.len()];
        let key = format!(
            "/registry/{GROUP}/{}/{NAMESPACE}/t{number}",
            resource.plural
        );
        (key, stored(resource, number))
    })
    .await?;
    let each: Vec<_> = resources
        .iter()
        .map(|resource| define(client, resource))
        .collect();
    stream::iter(each)
        .buffer_unordered(PARALLEL)
        .try_collect::<()>()
        .await
}

/// An object as etcd has it.
fn stored(resource: &Resource, number: usize) -> Vec<u8> {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": *resource.kind,
        "metadata": {
            "name": format!("t{number}"), "namespace": NAMESPACE, "generation": 1,
            "uid": format!("00000000-0000-4000-8000-{number:012x}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "app": "checkout", "part-of": "shop" },
        },
        "spec": { "text": "x".repeat(500) },
    });
    if is_stuck(number) {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
        object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        object["metadata"]["finalizers"] = json!([format!("{GROUP}/keep")]);
    }
    object.to_string().into_bytes()
}

/// Creates a kind, and waits until it can be listed.
async fn define(client: &Client, resource: &Resource) -> Result<()> {
    let (kind, plural) = (&*resource.kind, &*resource.plural);
    let document = serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List") },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    }))?;
    kinds::definitions(client)
        .create(&PostParams::default(), &document)
        .await?;
    let started = Instant::now();
    while let Err(error) = list(client, resource, 1).await {
        ensure!(
            started.elapsed() < DEADLINE,
            "{plural} is not served: {error:#}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// All kinds that can be listed, the built-in ones too.
async fn served(client: &Client) -> Result<Vec<Resource>> {
    let discovered = Discovery::new(client.clone()).run_aggregated().await?;
    let kinds = discovered
        .groups()
        .flat_map(ApiGroup::recommended_resources)
        .filter(|(_, capabilities)| capabilities.supports_operation(verbs::LIST))
        .map(|(kind, _)| Resource::new(&kind.group, &kind.version, &kind.kind, &kind.plural));
    Ok(kinds.collect())
}

async fn list(client: &Client, resource: &Resource, limit: u32) -> Result<()> {
    let request = Request::list(resource.path(None), limit, None).accept(METADATA_ONLY_LIST);
    request.send(client).await?;
    Ok(())
}

/// One list of each kind: what a program needs that knows the kinds and does nothing with the objects.
async fn list_all(client: &Client, resources: &[Resource]) -> Result<Duration> {
    let started = Instant::now();
    let each: Vec<_> = resources
        .iter()
        .map(|resource| list(client, resource, 100_000))
        .collect();
    stream::iter(each)
        .buffer_unordered(PARALLEL)
        .try_collect::<()>()
        .await?;
    Ok(started.elapsed())
}

/// Runs the command: its cost by the last look before it exited, and its output.
async fn stuck(belayer: &Path, kubeconfig: &Path) -> Result<(Cost, Summary)> {
    let started = Instant::now();
    let child = Command::new(belayer)
        .args(["stuck", "-ojson"])
        .env("KUBECONFIG", kubeconfig)
        .env_remove("BELAYER_CONFIG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let pid = child.id().context("belayer has exited")?;
    let mut output = std::pin::pin!(child.wait_with_output());
    let mut last = None;
    let output = loop {
        tokio::select! {
            output = &mut output => break output?,
            () = tokio::time::sleep(POLL) => {
                // A process that has ended has no memory.
                last = cost_of(pid, started).ok().filter(|cost| cost.peak_resident > 0).or(last);
            }
        }
        ensure!(started.elapsed() < DEADLINE, "belayer stuck does not end");
    };
    let wall = started.elapsed();
    let read: Output = serde_json::from_slice(&output.stdout).with_context(|| {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        format!("exit code {:?}: {error}", output.status.code())
    })?;
    let cost = last.context("belayer ended at once")?;
    Ok((Cost { wall, ..cost }, read.summary))
}
