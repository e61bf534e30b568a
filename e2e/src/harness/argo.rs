//! A simulated Argo workflow controller: it changes workflows and pods as Argo's documentation and its
//! users' reports describe, at the same time as Belayer.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::cluster::Cluster;
use super::objects::{COMPLETED_LABEL, WORKFLOW_LABEL};

/// The finalizer by which Argo itself can hold its pods.
pub(crate) const STATUS_FINALIZER: &str = "workflows.argoproj.io/status";

/// Annotation: the key of a pod's node in its workflow's status.
pub(crate) const NODE_ID: &str = "workflows.argoproj.io/node-id";

const PAUSE: Duration = Duration::from_millis(50);

/// How the controller writes the nodes of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Nodes {
    /// In `status.nodes`.
    #[default]
    Plain,
    /// In `status.compressedNodes`, as Argo does with large workflows.
    Compressed,
}

/// Settings of the simulated controller.
#[derive(Debug, Clone, Copy, Default)]
pub struct ArgoOptions {
    /// Whether it labels pods whose result it has consumed.
    pub labels: bool,
    /// Whether it deletes them: pod GC on completion.
    pub deletes: bool,
    /// How it writes nodes.
    pub nodes: Nodes,
}

/// The running controller. Dropping it stops it.
pub struct Argo {
    taken: Arc<Mutex<BTreeMap<String, String>>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<()>>,
}

impl Argo {
    /// Starts it for the workflows of a scenario's namespace.
    #[must_use]
    pub fn start(cluster: &Cluster, options: ArgoOptions) -> Self {
        let taken = Arc::new(Mutex::default());
        let (stop, mut stopped) = watch::channel(false);
        let standin = SimulatedArgo {
            cluster: cluster.clone(),
            options,
            taken: Arc::clone(&taken),
        };
        let task = tokio::spawn(async move {
            while !*stopped.borrow_and_update() {
                standin.round().await?;
                tokio::select! {
                    _ = stopped.changed() => {}
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
            Ok(())
        });
        Self { taken, stop, task }
    }

    /// The results it has consumed: phases by pod name.
    #[must_use]
    pub fn taken(&self) -> BTreeMap<String, String> {
        lock(&self.taken).clone()
    }

    /// Stops it.
    ///
    /// # Errors
    /// When it received an unexpected error.
    pub async fn stop(mut self) -> Result<()> {
        self.stop.send_replace(true);
        (&mut self.task)
            .await
            .context("the simulated Argo controller")?
    }
}

impl Drop for Argo {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

struct SimulatedArgo {
    cluster: Cluster,
    options: ArgoOptions,
    taken: Arc<Mutex<BTreeMap<String, String>>>,
}

impl SimulatedArgo {
    async fn round(&self) -> Result<()> {
        let all = ListParams::default();
        let workflows = self.cluster.workflows().list(&all).await?.items;
        let pods = self.cluster.pods().list(&all).await?.items;
        for workflow in &workflows {
            let own: Vec<_> = pods.iter().filter(|pod| is_owned(pod, workflow)).collect();
            if workflow.metadata.deletion_timestamp.is_none() {
                self.take(workflow, &own).await?;
            }
        }
        for pod in &pods {
            let workflow = workflows.iter().find(|workflow| is_owned(pod, workflow));
            self.settle(pod, workflow).await?;
        }
        Ok(())
    }

    /// Writes the results of pods that have ended into their workflow.
    async fn take(&self, workflow: &DynamicObject, pods: &[&DynamicObject]) -> Result<()> {
        let mut nodes = Map::new();
        let mut results = BTreeMap::new();
        let known = lock(&self.taken).clone();
        for pod in pods {
            let name = pod.name_any();
            let phase = pod.data["status"]["phase"].as_str().unwrap_or_default();
            let (Some(id), true) = (
                pod.annotations().get(NODE_ID),
                matches!(phase, "Succeeded" | "Failed"),
            ) else {
                continue;
            };
            if known.contains_key(&name) {
                continue;
            }
            let node = json!({ "id": id, "name": id, "type": "Pod", "phase": phase });
            nodes.insert(id.clone(), node);
            results.insert(name, phase.to_owned());
        }
        if results.is_empty() {
            return Ok(());
        }
        let status = match self.options.nodes {
            Nodes::Plain => json!({ "nodes": nodes }),
            Nodes::Compressed => {
                let mut all = nodes_of(workflow)?;
                all.extend(nodes);
                json!({ "compressedNodes": pack(&Value::Object(all))?, "nodes": null })
            }
        };
        let patch = json!({ "metadata": { "uid": workflow.uid() }, "status": status });
        let patched = self
            .cluster
            .workflows()
            .patch(
                &workflow.name_any(),
                &PatchParams::default(),
                &Patch::Merge(&patch),
            )
            .await;
        if accepted(patched)? {
            lock(&self.taken).extend(results);
        }
        Ok(())
    }

    /// Labels, releases and deletes a pod whose result was consumed; releases one whose workflow is deleted.
    async fn settle(&self, pod: &DynamicObject, workflow: Option<&DynamicObject>) -> Result<()> {
        let name = pod.name_any();
        let pods = self.cluster.pods();
        let ends = workflow.is_none_or(|owner| owner.metadata.deletion_timestamp.is_some());
        let taken = lock(&self.taken).contains_key(&name);
        if !taken && !ends {
            return Ok(());
        }
        let labelled = pod.labels().contains_key(COMPLETED_LABEL);
        if self.options.labels && taken && !labelled {
            let patch = json!({ "metadata": {
                "uid": pod.uid(), "labels": { COMPLETED_LABEL: "true" },
            } });
            let patch = Patch::Merge(&patch);
            accepted(pods.patch(&name, &PatchParams::default(), &patch).await)?;
        }
        if pod.finalizers().iter().any(|own| own == STATUS_FINALIZER) {
            let others = pod
                .finalizers()
                .iter()
                .filter(|own| *own != STATUS_FINALIZER);
            let others: Vec<_> = others.collect();
            let patch = json!({ "metadata": {
                "uid": pod.uid(), "resourceVersion": pod.resource_version(), "finalizers": others,
            } });
            let patch = Patch::Merge(&patch);
            accepted(pods.patch(&name, &PatchParams::default(), &patch).await)?;
        }
        if self.options.deletes && taken && pod.metadata.deletion_timestamp.is_none() {
            let how = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: pod.uid(),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            match pods.delete(&name, &how).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn is_owned(pod: &DynamicObject, workflow: &DynamicObject) -> bool {
    let owners = pod.owner_references();
    pod.labels().contains_key(WORKFLOW_LABEL)
        && owners
            .iter()
            .any(|owner| Some(&owner.uid) == workflow.uid().as_ref())
}

/// Whether the write succeeded. A conflict is retried in the next round.
fn accepted(answer: kube::Result<DynamicObject>) -> Result<bool> {
    match answer {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(false),
        Err(error) => Err(error).context("a write of the simulated Argo controller"),
    }
}

/// gzip in base64.
pub(crate) fn pack(nodes: &Value) -> Result<String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(nodes.to_string().as_bytes())?;
    Ok(STANDARD.encode(encoder.finish()?))
}

fn nodes_of(workflow: &DynamicObject) -> Result<Map<String, Value>> {
    let Some(packed) = workflow.data["status"]["compressedNodes"].as_str() else {
        return Ok(Map::new());
    };
    let bytes = STANDARD.decode(packed)?;
    match serde_json::from_reader(flate2::read::GzDecoder::new(&*bytes))? {
        Value::Object(nodes) => Ok(nodes),
        other => bail!("invalid nodes: {other}"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
