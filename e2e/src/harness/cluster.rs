//! What a scenario sees of its cluster.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use belayer_sandbox::Faults;
use futures::StreamExt as _;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::belayer::{Belayer, BelayerOptions};
use super::kubectl::Kubectl;
use super::objects::{COMPLETED_LABEL, HOLD, PodBuilder, Workflow, finalizers, pod};
use super::wait::{eventually, throughout};
use crate::kinds;
use crate::providers::{Backend, Capability, Recorder};

/// How long anything that needs a few requests may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// How long a thing that must not happen is watched for, once Belayer is known to have caught up.
const WINDOW: Duration = Duration::from_secs(2);
/// Requests of a scenario's own that run at once.
const PARALLEL: usize = 32;

/// Label of a Node that a scenario made, with the scenario's namespace: removed with it.
pub const OWN_NODE: &str = "e2e.belayer.dev/namespace";

/// What all scenarios of a run have in common.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The built `belayer` binary.
    pub belayer: PathBuf,
    /// How long a settled cluster is watched for writes.
    pub quiet: Duration,
    /// How many pods the scenarios about size make.
    pub large: usize,
}

/// One scenario's view of a cluster: a namespace of its own and what can be done in it.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    backend: Arc<dyn Backend>,
    setting: Setting,
    namespace: String,
    /// Where this scenario's Belayers write their logs.
    dir: PathBuf,
    shared: Option<Arc<Belayer>>,
    more_namespaces: Mutex<Vec<String>>,
    notes: Mutex<Vec<String>>,
}

impl Cluster {
    pub(super) async fn new(
        backend: Arc<dyn Backend>,
        setting: Setting,
        shared: Option<Arc<Belayer>>,
        namespace: &str,
        dir: PathBuf,
    ) -> Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let cluster = Self(Arc::new(Inner {
            backend,
            setting,
            namespace: namespace.to_owned(),
            dir,
            shared,
            more_namespaces: Mutex::default(),
            notes: Mutex::default(),
        }));
        cluster.create_namespace(namespace, json!({})).await?;
        Ok(cluster)
    }

    // ---- the cluster itself

    /// A client that may do everything.
    #[must_use]
    pub fn client(&self) -> &Client {
        self.0.backend.client()
    }

    /// The scenario's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// A second namespace, removed with the first.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn another_namespace(&self, suffix: &str, labels: Value) -> Result<String> {
        let name = format!("{}-{suffix}", self.namespace());
        self.create_namespace(&name, labels).await?;
        lock(&self.0.more_namespaces).push(name.clone());
        Ok(name)
    }

    async fn create_namespace(&self, name: &str, labels: Value) -> Result<()> {
        let document = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": name, "labels": labels },
        });
        let namespace: DynamicObject = serde_json::from_value(document)?;
        let api = kinds::namespaces(self.client());
        api.create(&PostParams::default(), &namespace)
            .await
            .context("create a namespace")?;
        Ok(())
    }

    /// Whether the provider can do this.
    #[must_use]
    pub fn can(&self, capability: Capability) -> bool {
        self.0.backend.capabilities().contains(&capability)
    }

    /// The cluster behind this view.
    #[must_use]
    pub fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    /// The record of what Belayer sent.
    ///
    /// # Errors
    /// Where there is none: the scenario must name [`Capability::Recorder`] as a need.
    pub fn recorder(&self) -> Result<&dyn Recorder> {
        self.0
            .backend
            .recorder()
            .context("this provider has no record of requests")
    }

    /// Fault injection.
    ///
    /// # Errors
    /// Where there is none: the scenario must name [`Capability::Faults`] as a need.
    pub fn faults(&self) -> Result<&Faults> {
        self.0
            .backend
            .faults()
            .context("this provider cannot inject faults")
    }

    /// What all scenarios of this run have in common.
    #[must_use]
    pub fn setting(&self) -> &Setting {
        &self.0.setting
    }

    /// kubectl, as an admin in the scenario's namespace.
    #[must_use]
    pub fn kubectl(&self) -> Kubectl {
        Kubectl {
            kubeconfig: self.0.backend.admin_kubeconfig().to_owned(),
            namespace: self.namespace().to_owned(),
        }
    }

    /// A folder for the scenario's files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// A figure or remark that is printed beside the scenario's result.
    pub fn note(&self, text: impl Into<String>) {
        lock(&self.0.notes).push(text.into());
    }

    pub(super) fn notes(&self) -> Vec<String> {
        lock(&self.0.notes).clone()
    }

    // ---- Belayer

    /// The Belayer that shared scenarios have in common.
    ///
    /// # Errors
    /// In a scenario that runs alone.
    pub fn shared_belayer(&self) -> Result<&Belayer> {
        self.0
            .shared
            .as_deref()
            .context("a scenario that runs alone starts its own Belayer")
    }

    /// Starts a Belayer with the default configuration and waits until it is ready.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_belayer(&self) -> Result<Belayer> {
        self.start_belayer_with(&BelayerOptions::default()).await
    }

    /// The same with other options.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start_belayer_with(&self, options: &BelayerOptions) -> Result<Belayer> {
        let mut belayer = self.spawn_belayer(options)?;
        belayer.ready().await?;
        Ok(belayer)
    }

    /// Starts a Belayer and waits for nothing.
    ///
    /// # Errors
    /// When the binary cannot be run.
    pub fn spawn_belayer(&self, options: &BelayerOptions) -> Result<Belayer> {
        ensure!(
            self.0.shared.is_none(),
            "a second Belayer beside the shared one"
        );
        let kubeconfig = self.0.backend.belayer_kubeconfig();
        Belayer::spawn(&self.0.setting.belayer, kubeconfig, self.dir(), options)
    }

    /// Waits until Belayer has dealt with everything that happened before: a pod made now has been
    /// held, and released once its workflow was deleted.
    ///
    /// # Errors
    /// When that does not happen.
    pub async fn belayer_has_caught_up(&self) -> Result<()> {
        let tag = lock(&self.0.notes).len() + std::process::id() as usize;
        let name = format!(
            "sentinel-{tag}-{}",
            jiff::Timestamp::now().as_nanosecond() % 1_000_000_000
        );
        let workflow = self.workflow(&name).await?;
        self.create(
            &pod(&name)
                .of(&workflow)
                .finalizer("e2e.belayer.dev/sentinel"),
        )
        .await?;
        self.is_held(&name).await?;
        self.workflows()
            .delete(&name, &DeleteParams::background())
            .await?;
        self.is_not_held(&name).await?;
        self.merge(&name, json!({ "metadata": { "finalizers": null } }))
            .await?;
        self.pods()
            .delete(&name, &DeleteParams::default().grace_period(0))
            .await
            .map(drop)
            .or_else(gone)?;
        Ok(())
    }

    // ---- objects

    /// The pods of the scenario's namespace.
    #[must_use]
    pub fn pods(&self) -> Api<DynamicObject> {
        self.pods_in(self.namespace())
    }

    /// The pods of another namespace.
    #[must_use]
    pub fn pods_in(&self, namespace: &str) -> Api<DynamicObject> {
        kinds::pods(self.client(), namespace)
    }

    /// The workflows of the scenario's namespace.
    #[must_use]
    pub fn workflows(&self) -> Api<DynamicObject> {
        kinds::workflows(self.client(), self.namespace())
    }

    /// Creates a workflow.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn workflow(&self, name: &str) -> Result<Workflow> {
        self.workflow_in(self.namespace(), name, json!({})).await
    }

    /// Creates a workflow in another namespace, with more metadata.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn workflow_in(
        &self,
        namespace: &str,
        name: &str,
        metadata: Value,
    ) -> Result<Workflow> {
        let mut document = json!({
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": metadata,
            "spec": { "entrypoint": "main" },
        });
        document["metadata"]["name"] = name.into();
        let object: DynamicObject = serde_json::from_value(document)?;
        let created = kinds::workflows(self.client(), namespace)
            .create(&PostParams::default(), &object)
            .await;
        Workflow::of(&created.with_context(|| format!("create the workflow {name}"))?)
    }

    /// Creates a pod.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn create(&self, pod: &PodBuilder) -> Result<DynamicObject> {
        self.create_in(self.namespace(), pod).await
    }

    /// Creates a pod in another namespace.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn create_in(&self, namespace: &str, pod: &PodBuilder) -> Result<DynamicObject> {
        let pod = pod.build()?;
        let created = self
            .pods_in(namespace)
            .create(&PostParams::default(), &pod)
            .await;
        created.with_context(|| format!("create the pod {}", pod.name_any()))
    }

    /// Creates many pods, some at once.
    ///
    /// # Errors
    /// When the server refuses one.
    pub async fn create_all(&self, pods: impl IntoIterator<Item = PodBuilder>) -> Result<()> {
        let mut created = futures::stream::iter(pods)
            .map(|pod| async move { self.create(&pod).await })
            .buffer_unordered(PARALLEL);
        while let Some(pod) = created.next().await {
            pod?;
        }
        Ok(())
    }

    /// A merge patch on a pod, as any other writer would send it.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn merge(&self, pod: &str, patch: Value) -> Result<DynamicObject> {
        let patched = self
            .pods()
            .patch(pod, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        patched.with_context(|| format!("patch the pod {pod}"))
    }

    /// Ends a pod: what a kubelet would write when its container has exited.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn finish(&self, pod: &str, phase: &str) -> Result<()> {
        let exit_code = i32::from(phase == "Failed");
        let status = json!({ "status": {
            "phase": phase,
            "containerStatuses": [{
                "name": "main", "image": "registry.invalid/step:1", "imageID": "", "ready": false, "restartCount": 0,
                "state": { "terminated": { "exitCode": exit_code, "reason": "Completed" } },
            }],
        }});
        let patched = self
            .pods()
            .patch_status(pod, &PatchParams::default(), &Patch::Merge(&status))
            .await;
        patched
            .map(drop)
            .with_context(|| format!("end the pod {pod}"))
    }

    /// Says what the workflow controller says once it has read a pod's result.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn consume(&self, pod: &str) -> Result<()> {
        self.merge(
            pod,
            json!({ "metadata": { "labels": { COMPLETED_LABEL: "true" } } }),
        )
        .await?;
        Ok(())
    }

    /// Deletes a pod without waiting for it to go.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn delete(&self, pod: &str) -> Result<()> {
        let deleted = self.pods().delete(pod, &DeleteParams::default()).await;
        deleted
            .map(drop)
            .with_context(|| format!("delete the pod {pod}"))
    }

    /// Deletes all pods of the namespace without waiting for them to go.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn delete_all(&self) -> Result<()> {
        let (how, which) = (DeleteParams::default(), ListParams::default());
        let deleted = self.pods().delete_collection(&how, &which).await;
        deleted.map(drop).context("delete all pods")
    }

    // ---- what must come true

    /// Waits until the pod carries the hold.
    ///
    /// # Errors
    /// When it does not get it.
    pub async fn is_held(&self, pod: &str) -> Result<DynamicObject> {
        eventually(&format!("the pod {pod} is held"), SOON, async || {
            let seen = self.pods().get(pod).await?;
            ensure!(finalizers(&seen).contains(&HOLD), "{}", describe(&seen));
            Ok(seen)
        })
        .await
    }

    /// Waits until the pod no longer carries the hold, or is gone.
    ///
    /// # Errors
    /// When it keeps the hold.
    pub async fn is_not_held(&self, pod: &str) -> Result<()> {
        eventually(
            &format!("the pod {pod} is released"),
            SOON,
            async || match self.pods().get_opt(pod).await? {
                Some(seen) if finalizers(&seen).contains(&HOLD) => bail!("{}", describe(&seen)),
                _ => Ok(()),
            },
        )
        .await
    }

    /// Waits until the pod is gone.
    ///
    /// # Errors
    /// When it stays.
    pub async fn is_gone(&self, pod: &str) -> Result<()> {
        eventually(&format!("the pod {pod} is gone"), SOON, async || match self
            .pods()
            .get_opt(pod)
            .await?
        {
            Some(seen) => bail!("{}", describe(&seen)),
            None => Ok(()),
        })
        .await
    }

    /// Waits until the namespace has no pods.
    ///
    /// # Errors
    /// When some are left at the deadline.
    pub async fn is_empty(&self, deadline: Duration) -> Result<()> {
        eventually("all pods are gone", deadline, async || {
            let left = self
                .pods()
                .list_metadata(&ListParams::default().limit(5))
                .await?;
            match left.items.first() {
                Some(first) => bail!("some are left, for example {}", describe(first)),
                None => Ok(()),
            }
        })
        .await
    }

    /// How many pods carry the hold.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn held_count(&self) -> Result<usize> {
        let all = self.pods().list_metadata(&ListParams::default()).await?;
        Ok(all
            .items
            .iter()
            .filter(|pod| finalizers(*pod).contains(&HOLD))
            .count())
    }

    /// Belayer has caught up with everything, and for a while after that the pod keeps the hold.
    ///
    /// # Errors
    /// When it loses it.
    pub async fn stays_held(&self, pod: &str) -> Result<()> {
        self.belayer_has_caught_up().await?;
        self.keeps_hold(pod).await
    }

    /// For a while the pod keeps the hold.
    ///
    /// # Errors
    /// When it loses it.
    pub async fn keeps_hold(&self, pod: &str) -> Result<()> {
        throughout(
            &format!("the pod {pod} must stay held"),
            WINDOW,
            async || {
                let seen = self.pods().get(pod).await?;
                ensure!(finalizers(&seen).contains(&HOLD), "{}", describe(&seen));
                Ok(())
            },
        )
        .await
    }

    /// Belayer has caught up with everything, and for a while after that the pod gets no hold.
    ///
    /// # Errors
    /// When it gets one.
    pub async fn stays_free(&self, pod: &str) -> Result<()> {
        self.belayer_has_caught_up().await?;
        throughout(
            &format!("the pod {pod} must not be held"),
            WINDOW,
            async || {
                let seen = self.pods().get(pod).await?;
                ensure!(!finalizers(&seen).contains(&HOLD), "{}", describe(&seen));
                Ok(())
            },
        )
        .await
    }

    /// Takes everything away, finalizers included, and waits until it is gone.
    ///
    /// # Errors
    /// When something stays.
    pub(super) async fn clean_up(&self) -> Result<()> {
        let own = ListParams::default().labels(&format!("{OWN_NODE}={}", self.namespace()));
        let nodes = kinds::nodes(self.client());
        nodes
            .delete_collection(&DeleteParams::default(), &own)
            .await
            .context("remove the scenario's nodes")?;
        let mut namespaces = lock(&self.0.more_namespaces).clone();
        namespaces.push(self.namespace().to_owned());
        for namespace in namespaces {
            self.clean_up_namespace(&namespace).await?;
        }
        Ok(())
    }

    async fn clean_up_namespace(&self, namespace: &str) -> Result<()> {
        let pods = self.pods_in(namespace);
        let workflows = kinds::workflows(self.client(), namespace);
        let claims = kinds::claims(self.client(), namespace);
        let api = kinds::namespaces(self.client());
        api.delete(namespace, &DeleteParams::default())
            .await
            .map(drop)
            .or_else(gone)?;
        eventually(
            &format!("the namespace {namespace} is empty"),
            SOON * 2,
            async || {
                let now = DeleteParams::default().grace_period(0);
                pods.delete_collection(&now, &ListParams::default())
                    .await
                    .map(drop)
                    .or_else(gone)?;
                workflows
                    .delete_collection(&DeleteParams::background(), &ListParams::default())
                    .await
                    .map(drop)
                    .or_else(gone)?;
                strip_finalizers(&pods).await?;
                strip_finalizers(&workflows).await?;
                claims
                    .delete_collection(&DeleteParams::default(), &ListParams::default())
                    .await
                    .map(drop)
                    .or_else(gone)?;
                strip_finalizers(&claims).await?;
                // The namespace takes these away by itself.
                strip_finalizers(&kinds::outcomes(self.client(), namespace)).await?;
                strip_finalizers(&kinds::config_maps(self.client(), namespace)).await?;
                let left = pods
                    .list_metadata(&ListParams::default().limit(1))
                    .await?
                    .items
                    .len();
                ensure!(left == 0, "pods are left");
                if self.can(Capability::NamespaceDeletion) {
                    ensure!(
                        api.get_opt(namespace).await?.is_none(),
                        "the namespace is there"
                    );
                }
                Ok(())
            },
        )
        .await
    }
}

async fn strip_finalizers(api: &Api<DynamicObject>) -> Result<()> {
    let all = match api.list_metadata(&ListParams::default()).await {
        Ok(all) => all.items,
        // The kind itself may have been deleted.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let none = json!({ "metadata": { "finalizers": null } });
    let held = all.into_iter().filter(|object| {
        !object
            .metadata
            .finalizers
            .as_deref()
            .unwrap_or_default()
            .is_empty()
    });
    let mut patched = futures::stream::iter(held)
        .map(|object| {
            let none = &none;
            async move {
                let name = object.metadata.name.unwrap_or_default();
                let params = PatchParams::default();
                api.patch_metadata(&name, &params, &Patch::Merge(none))
                    .await
                    .map(drop)
                    .or_else(gone)
            }
        })
        .buffer_unordered(PARALLEL);
    while let Some(done) = patched.next().await {
        done?;
    }
    Ok(())
}

/// An object that is not there is as good as deleted.
fn gone(error: kube::Error) -> Result<(), kube::Error> {
    match error {
        kube::Error::Api(status) if status.code == 404 => Ok(()),
        error => Err(error),
    }
}

fn describe(object: &impl kube::ResourceExt) -> String {
    let deleting = match &object.meta().deletion_timestamp {
        Some(_) => "being deleted",
        None => "not being deleted",
    };
    format!(
        "{} is {deleting} with finalizers {:?}",
        object.name_any(),
        object.finalizers()
    )
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
