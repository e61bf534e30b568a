//! A simulated Argo workflow controller: it does what `belayer_workload::model` says, at the same time as Belayer, with
//! the pods that a scenario creates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use belayer_workload::model::{self, Action, Cleanup, Observed, Rules, TaskResults};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::cluster::Cluster;
use super::objects::{COMPLETED_LABEL, WORKFLOW_LABEL};
use super::packed::Packing;

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
    Compressed(Packing),
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
        let mut controller = SimulatedArgo {
            cluster: cluster.clone(),
            options,
            taken: Arc::clone(&taken),
            cleanup: BTreeSet::new(),
        };
        let task = tokio::spawn(async move {
            while !*stopped.borrow_and_update() {
                controller.round().await?;
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
    pub fn taken(&self) -> BTreeMap<String, String> {
        self.taken.lock().clone()
    }

    /// Stops it.
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
    cleanup: BTreeSet<Cleanup>,
}

impl SimulatedArgo {
    async fn round(&mut self) -> Result<()> {
        let all = ListParams::default();
        let workflows = self.cluster.workflows().list(&all).await?.items;
        let pods = self.cluster.pods().list(&all).await?.items;
        for workflow in &workflows {
            let own: Vec<_> = pods.iter().filter(|pod| is_owned(pod, workflow)).collect();
            if workflow.metadata.deletion_timestamp.is_none() {
                self.process(workflow, &own).await?;
            }
        }
        for cleanup in self.cleanup.clone() {
            if self.clean(&cleanup).await? {
                self.cleanup.remove(&cleanup);
            }
        }
        let is_deleted = |workflow: &&DynamicObject| workflow.metadata.deletion_timestamp.is_some();
        for pod in pods
            .iter()
            .filter(|pod| pod.labels().contains_key(WORKFLOW_LABEL))
        {
            let workflow = workflows.iter().find(|workflow| is_owned(pod, workflow));
            if workflow.is_none_or(|workflow| is_deleted(&workflow)) {
                self.release(pod).await?;
            }
        }
        Ok(())
    }

    /// Processes a workflow, and writes what has changed into it.
    async fn process(&mut self, workflow: &DynamicObject, pods: &[&DynamicObject]) -> Result<()> {
        let mut object = serde_json::to_value(workflow)?;
        if self.options.deletes {
            object["spec"]["podGC"] =
                json!({ "strategy": "OnPodCompletion", "deleteDelayDuration": "0s" });
        }
        let packed = workflow.data["status"]["compressedNodes"].as_str();
        let known = match (self.options.nodes, packed) {
            (Nodes::Compressed(packing), Some(packed)) => packing.unpack(packed)?,
            _ => Map::new(),
        };
        if !known.is_empty() {
            object["status"]["nodes"] = json!(known);
        }
        let values = pods
            .iter()
            .map(|pod| Ok(Arc::new(serde_json::to_value(pod)?)));
        let values = values.collect::<Result<Vec<Arc<Value>>>>()?;
        let mut results = TaskResults::default();
        values.iter().for_each(|pod| results.observe(pod));
        let observed = Observed {
            workflow: &object,
            pods: &values,
            results: &results,
            now: Timestamp::now(),
        };
        let processed = model::look(&Rules::default(), &observed);
        let Some(mut patch) = processed.patch else {
            self.cleanup.extend(processed.cleanup);
            return Ok(());
        };
        let changed = patch["status"]["nodes"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        if let (Nodes::Compressed(packing), false) = (self.options.nodes, changed.is_empty()) {
            let mut all = known;
            all.extend(
                changed
                    .clone()
                    .into_iter()
                    .map(|(id, node)| (id, without_nulls(node))),
            );
            patch["status"]["nodes"] = Value::Null;
            patch["status"]["compressedNodes"] = json!(packing.pack(&Value::Object(all))?);
        }
        patch["metadata"]["uid"] = json!(workflow.uid());
        let (workflows, name) = (self.cluster.workflows(), workflow.name_any());
        let patch = Patch::Merge(&patch);
        let patched = workflows
            .patch(&name, &PatchParams::default(), &patch)
            .await;
        if accepted(patched)? {
            self.cleanup.extend(processed.cleanup);
            let phase = |id: &String| {
                changed.get(id)?["phase"]
                    .as_str()
                    .filter(|phase| is_final(phase))
            };
            let taken = pods.iter().filter_map(|pod| {
                let phase = phase(pod.annotations().get(NODE_ID)?)?;
                Some((pod.name_any(), phase.to_owned()))
            });
            self.taken.lock().extend(taken);
        }
        Ok(())
    }

    /// Labels, releases or deletes a pod whose result was read. Returns whether that is done.
    async fn clean(&self, cleanup: &Cleanup) -> Result<bool> {
        let pods = self.cluster.pods();
        let found = pods.get_opt(&cleanup.pod).await?;
        let Some(pod) = found.filter(|pod| pod.uid().as_deref() == Some(&cleanup.uid)) else {
            return Ok(true);
        };
        if self.options.labels && !pod.labels().contains_key(COMPLETED_LABEL) {
            let patch = json!({ "metadata": {
                "uid": pod.uid(), "labels": { COMPLETED_LABEL: "true" },
            } });
            let patch = Patch::Merge(&patch);
            if !accepted(
                pods.patch(&cleanup.pod, &PatchParams::default(), &patch)
                    .await,
            )? {
                return Ok(false);
            }
        }
        // A conflict, also with the label: read again in the next round.
        if !self.release(&pod).await? {
            return Ok(false);
        }
        if cleanup.action == Action::Delete && pod.metadata.deletion_timestamp.is_none() {
            let how = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: pod.uid(),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            match pods.delete(&cleanup.pod, &how).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Removes Argo's own finalizer. Returns whether it is removed.
    async fn release(&self, pod: &DynamicObject) -> Result<bool> {
        let own = |finalizer: &&String| *finalizer == STATUS_FINALIZER;
        if !pod.finalizers().iter().any(|finalizer| own(&finalizer)) {
            return Ok(true);
        }
        let others: Vec<_> = pod
            .finalizers()
            .iter()
            .filter(|other| !own(other))
            .collect();
        let patch = json!({ "metadata": {
            "uid": pod.uid(), "resourceVersion": pod.resource_version(), "finalizers": others,
        } });
        let patch = Patch::Merge(&patch);
        let pods = self.cluster.pods();
        accepted(
            pods.patch(&pod.name_any(), &PatchParams::default(), &patch)
                .await,
        )
    }
}

fn without_nulls(mut node: Value) -> Value {
    if let Some(fields) = node.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    node
}

fn is_final(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed" | "Error")
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
