//! How soon a hold is removed once it may be, on a busy API server: Belayer, from the time the evidence
//! exists, against a PATCH that is sent at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use belayer_subject::memory;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use belayer_core::http::{METADATA_ONLY, PatchKind, Request};
use belayer_core::informer::{Event, Informer};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::Pod;

use super::raw::Release;
use super::{Goal, Report, Testbed, wait_until_ready};
use belayer_e2e::control_plane::ports::free_ports;
use belayer_e2e::control_plane::{ControlPlane, Process};
use belayer_e2e::harness::{Workflow, pod};
use belayer_e2e::kinds;
use belayer_e2e::providers::ensure_workflow_crd;

const RELEASES: usize = 500;
pub(crate) const NAMESPACE: &str = "latency";
/// Releases in flight at once.
const PARALLEL: usize = 4;
/// Clients that write all the time.
const LOAD: usize = 4;
/// Keeps a workflow after its deletion: its deletion timestamp is the evidence. With a finalizer of another controller Argo
/// would go on running it, and its deletion would be none.
const STAYS: &str = "foregroundDeletion";
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const BELAYER: &str = "Belayer, evidence to gone";
pub(crate) const RAW: &str = "raw PATCH, sent to gone";

/// The waits for the removal of pods.
pub(crate) type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<Instant>>>>;

pub(crate) async fn run(testbed: Testbed) -> Result<Report> {
    let releases = testbed.size.unwrap_or(RELEASES);
    let plane = testbed.api_server().await?;
    ensure_workflow_crd(plane.client()).await?;
    create_namespace(plane.client()).await?;
    let waiting = Waiting::default();
    watch(plane.client(), &waiting);
    let stop = CancellationToken::new();
    let load = load(plane.client(), &stop).await?;

    let title = format!("{releases} releases, {PARALLEL} at once, with {LOAD} busy writers");
    let metrics = [("p50", "ms"), ("p99", "ms"), ("worst", "ms")];
    let mut report = Report::new("latency", title, &metrics);
    for round in 0..=testbed.rounds {
        for subject in [RAW, BELAYER] {
            let prepared = prepare(plane.client(), releases, &format!("r{round}")).await?;
            let took = if subject == RAW {
                let patch = |held| Held::patch(held, plane.client(), &waiting).boxed();
                all(prepared.iter().map(patch).collect()).await?
            } else {
                let [port] = free_ports()?;
                let mut belayer = start(&testbed, &plane, port)?;
                wait_until_ready(&mut belayer, port).await?;
                let delete = |held| Held::delete_owner(held, plane.client(), &waiting).boxed();
                let took = all(prepared.iter().map(delete).collect()).await;
                let took = took.inspect_err(|_| anstream::eprintln!("{}", belayer.log_end()))?;
                belayer.kill().await?;
                took
            };
            for held in &prepared {
                held.forget_owner(plane.client()).await?;
            }
            if round > 0 {
                report.round(subject, &figures(&took));
            }
        }
    }
    stop.cancel();
    for one in load {
        one.await??;
    }
    report.goal(Goal {
        metric: "p99",
        of: BELAYER.to_owned(),
        against: RAW.to_owned(),
        at_most: 1.5,
    });
    report.note(
        "the evidence exists when the server has answered the deletion of the pod's owner; both \
         end when the same watch sees the pod removed",
    );
    plane.stop().await?;
    Ok(report)
}

pub(crate) async fn create_namespace(client: &Client) -> Result<()> {
    let document = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE },
    }))?;
    kinds::namespaces(client)
        .create(&PostParams::default(), &document)
        .await?;
    Ok(())
}

/// The median, the 99th percentile and the maximum of these, in milliseconds.
pub(crate) fn figures(took: &[Duration]) -> [f64; 3] {
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    [0.5, 0.99, 1.0].map(|share| at(share).as_secs_f64() * 1e3)
}

/// How long each took, the shortest first.
pub(crate) async fn all(each: Vec<BoxFuture<'_, Result<Duration>>>) -> Result<Vec<Duration>> {
    let mut took: Vec<Duration> = futures::stream::iter(each)
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await?;
    took.sort_unstable();
    Ok(took)
}

pub(crate) fn watch(client: &Client, waiting: &Waiting) {
    let waiting = Arc::clone(waiting);
    let handler = move |event: &Event<Pod>| {
        let Event::Deleted { last, .. } = event else {
            return;
        };
        let now = Instant::now();
        let sender = waiting
            .lock()
            .ok()
            .and_then(|mut waiting| waiting.remove(last.meta.key.name()));
        // There may be no wait for this one.
        let _ = sender.map(|sender| sender.send(now));
    };
    tokio::spawn(watch_pods(client.clone(), handler));
}

/// Runs an informer of all pods.
pub(crate) async fn watch_pods<H>(client: Client, handler: H)
where
    H: Fn(&Event<Pod>) + Send + Sync + 'static,
{
    let builder = Informer::builder(client, memory::resource(), memory::decoders());
    let (informer, _) = builder.handler(Arc::new(handler)).build();
    informer.run(CancellationToken::new()).await;
}

pub(crate) fn start(testbed: &Testbed, plane: &ControlPlane, port: u16) -> Result<Process> {
    let arguments = [
        "run".to_owned(),
        format!("--kubeconfig={}", plane.admin_path().display()),
        "--controllers=pod-finalizer".to_owned(),
        format!("--metrics-bind-address=127.0.0.1:{port}"),
        "--debug-bind-address=0".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    let log = plane.dir().join(format!("belayer-{port}.log"));
    Process::start("belayer", testbed.belayer(), arguments, &log)
}

/// Clients that each change a pod of their own, one request after the other.
async fn load(
    client: &Client,
    stop: &CancellationToken,
) -> Result<Vec<tokio::task::JoinHandle<Result<()>>>> {
    let mut load = Vec::new();
    for number in 0..LOAD {
        let name = format!("load-{number}");
        kinds::pods(client, NAMESPACE)
            .create(&PostParams::default(), &pod(&*name).build()?)
            .await?;
        let (client, stop) = (client.clone(), stop.clone());
        load.push(tokio::spawn(async move {
            let path = resource().object_path(&ObjectKey::new(NAMESPACE, &*name));
            for beat in 0_u64.. {
                if stop.is_cancelled() {
                    break;
                }
                let body = json!({ "metadata": { "annotations": { "beat": beat.to_string() } } });
                let request = Request::patch(path.clone(), PatchKind::Merge, body.to_string());
                request.accept(METADATA_ONLY).send(&client).await?;
            }
            Ok(())
        }));
    }
    Ok(load)
}

fn resource() -> Resource {
    Resource::new("", "v1", "Pod", "pods")
}

/// A terminating pod with a hold, and its owner.
pub(crate) struct Held {
    name: String,
    owner: Workflow,
    release: Release,
}

pub(crate) async fn prepare(client: &Client, count: usize, prefix: &str) -> Result<Vec<Held>> {
    futures::stream::iter(0..count)
        .map(|number| async move {
            let name = format!("{prefix}-{number}");
            let document = serde_json::from_value(json!({
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow",
                "metadata": { "name": name, "finalizers": [STAYS] }, "spec": {},
            }))?;
            let workflows = kinds::workflows(client, NAMESPACE);
            let created = workflows.create(&PostParams::default(), &document).await?;
            let owner = Workflow::of(&created)?;
            let api = kinds::pods(client, NAMESPACE);
            let pod = pod(&*name).of(&owner).held().build()?;
            api.create(&PostParams::default(), &pod).await?;
            // With a result: a pod that its deletion ended would be released before the measurement.
            let ended = json!({ "status": { "phase": "Succeeded" } });
            api.patch_status(&name, &PatchParams::default(), &Patch::Merge(ended))
                .await?;
            let deleted = api.delete(&name, &DeleteParams::default()).await?;
            let pod = deleted
                .left()
                .context("a pod with a hold was removed at once")?;
            let uid = pod.uid().context("the pod has no UID")?;
            let version = pod
                .resource_version()
                .context("the pod has no resourceVersion")?;
            let key = ObjectKey::new(NAMESPACE, &*name);
            let release = Release::new(&resource(), &key, &uid, &version, &[]);
            anyhow::Ok(Held {
                name,
                owner,
                release,
            })
        })
        .buffer_unordered(16)
        .try_collect()
        .await
}

impl Held {
    fn gone(&self, waiting: &Waiting) -> oneshot::Receiver<Instant> {
        let (sender, gone) = oneshot::channel();
        if let Ok(mut waiting) = waiting.lock() {
            waiting.insert(self.name.clone(), sender);
        }
        gone
    }

    pub(crate) async fn patch(&self, client: &Client, waiting: &Waiting) -> Result<Duration> {
        let gone = self.gone(waiting);
        let since = Instant::now();
        self.release.send(client).await?;
        until(gone, since).await
    }

    pub(crate) async fn delete_owner(
        &self,
        client: &Client,
        waiting: &Waiting,
    ) -> Result<Duration> {
        let gone = self.gone(waiting);
        kinds::workflows(client, NAMESPACE)
            .delete(&self.owner.name, &DeleteParams::default())
            .await?;
        until(gone, Instant::now()).await
    }

    pub(crate) async fn forget_owner(&self, client: &Client) -> Result<()> {
        let workflow = Resource::new("argoproj.io", "v1alpha1", "Workflow", "workflows");
        let path = workflow.object_path(&ObjectKey::new(NAMESPACE, &*self.owner.name));
        let body = json!({ "metadata": { "finalizers": [] } }).to_string();
        let request = Request::patch(path.clone(), PatchKind::Merge, body);
        request.accept(METADATA_ONLY).send(client).await?;
        // If only its pod was patched, it was not deleted before.
        let _ = Request::delete(path, "{}").send(client).await;
        Ok(())
    }
}

async fn until(gone: oneshot::Receiver<Instant>, since: Instant) -> Result<Duration> {
    let at = tokio::time::timeout(DEADLINE, gone)
        .await
        .context("a pod was not released")??;
    Ok(at.saturating_duration_since(since))
}
