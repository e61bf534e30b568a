//! What scenarios do with pods, and conditions they wait for.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::cluster::{Cluster, OWN_NODE};
use super::conditions::{self, describe};
use super::objects::{COMPLETED_LABEL, HOLD, PodBuilder, ended, finalizers, pod};
use crate::kinds;
use crate::wait::{SOON, eventually, gone, throughout};

/// How long the absence of a change is observed after Belayer has caught up.
const WINDOW: Duration = Duration::from_secs(2);
/// Requests of the scenario in parallel.
const PARALLEL: usize = 32;

impl Cluster {
    /// The pods of the scenario's namespace.
    pub fn pods(&self) -> Api<DynamicObject> {
        self.pods_in(self.namespace())
    }

    /// The pods of another namespace.
    pub fn pods_in(&self, namespace: &str) -> Api<DynamicObject> {
        kinds::pods(self.client(), namespace)
    }

    /// Creates a Node object that no kubelet serves. Returns its name. Pods that name a node without such an object are
    /// removed after 40 s, by the garbage collector of pods.
    pub async fn node_without_kubelet(&self, name: &str) -> Result<String> {
        let node = format!("{}-{name}", self.namespace());
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": node, "labels": { OWN_NODE: self.namespace() } },
        }))?;
        kinds::nodes(self.client())
            .create(&PostParams::default(), &object)
            .await
            .context("create a node")?;
        Ok(node)
    }

    /// Creates a pod.
    pub async fn create(&self, pod: &PodBuilder) -> Result<DynamicObject> {
        self.create_in(self.namespace(), pod).await
    }

    /// Creates a pod in another namespace.
    pub async fn create_in(&self, namespace: &str, pod: &PodBuilder) -> Result<DynamicObject> {
        let pod = pod.build()?;
        let created = self
            .pods_in(namespace)
            .create(&PostParams::default(), &pod)
            .await;
        created.with_context(|| format!("create the pod {}", pod.name_any()))
    }

    /// Creates many pods, in parallel.
    pub async fn create_all(&self, pods: impl IntoIterator<Item = PodBuilder>) -> Result<()> {
        let mut created = futures::stream::iter(pods)
            .map(|pod| async move { self.create(&pod).await })
            .buffer_unordered(PARALLEL);
        while let Some(pod) = created.next().await {
            pod?;
        }
        Ok(())
    }

    /// A merge patch on a pod, as from any other client.
    pub async fn merge(&self, pod: &str, patch: Value) -> Result<DynamicObject> {
        let patched = self
            .pods()
            .patch(pod, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        patched.with_context(|| format!("patch the pod {pod}"))
    }

    /// Writes the status of an ended pod, as a kubelet does.
    pub async fn finish(&self, pod: &str, phase: &str) -> Result<()> {
        let patched = self
            .pods()
            .patch_status(pod, &PatchParams::default(), &Patch::Merge(ended(phase)))
            .await;
        patched
            .map(drop)
            .with_context(|| format!("end the pod {pod}"))
    }

    /// The same for many pods, in parallel, with the phase Succeeded.
    pub async fn finish_all(&self, pods: impl IntoIterator<Item = String>) -> Result<()> {
        let mut finished = futures::stream::iter(pods)
            .map(|pod| async move { self.finish(&pod, "Succeeded").await })
            .buffer_unordered(PARALLEL);
        while let Some(done) = finished.next().await {
            done?;
        }
        Ok(())
    }

    /// Labels a pod as the workflow controller does after it has consumed the result.
    pub async fn consume(&self, pod: &str) -> Result<()> {
        self.merge(
            pod,
            json!({ "metadata": { "labels": { COMPLETED_LABEL: "true" } } }),
        )
        .await?;
        Ok(())
    }

    /// Deletes a pod without waiting for its removal.
    pub async fn delete(&self, pod: &str) -> Result<()> {
        let deleted = self.pods().delete(pod, &DeleteParams::default()).await;
        deleted
            .map(drop)
            .with_context(|| format!("delete the pod {pod}"))
    }

    /// Deletes all pods of the namespace without waiting for their removal.
    pub async fn delete_all(&self) -> Result<()> {
        let (how, which) = (DeleteParams::default(), ListParams::default());
        let deleted = self.pods().delete_collection(&how, &which).await;
        deleted.map(drop).context("delete all pods")
    }

    /// Waits until the pod has the hold.
    pub async fn is_held(&self, pod: &str) -> Result<DynamicObject> {
        let what = format!("the pod {pod} has the hold");
        conditions::is_held(&self.pods(), pod, HOLD, &what).await
    }

    /// Waits until the pod has lost the hold, or is removed.
    pub async fn is_not_held(&self, pod: &str) -> Result<()> {
        let what = format!("the pod {pod} is released");
        conditions::is_not_held(&self.pods(), pod, HOLD, &what).await
    }

    /// Waits until the pod is removed.
    pub async fn is_removed(&self, pod: &str) -> Result<()> {
        let what = format!("the pod {pod} is removed");
        conditions::is_removed(&self.pods(), pod, SOON, &what).await
    }

    /// Waits until the namespace has no pods.
    pub async fn is_empty(&self, deadline: Duration) -> Result<()> {
        eventually("all pods are removed", deadline, async || {
            let left = self
                .pods()
                .list_metadata(&ListParams::default().limit(5))
                .await?;
            match left.items.first() {
                Some(first) => bail!("some remain, for example {}", describe(first)),
                None => Ok(()),
            }
        })
        .await
    }

    /// How many pods have the hold.
    pub async fn held_count(&self) -> Result<usize> {
        let all = self.pods().list_metadata(&ListParams::default()).await?;
        Ok(all
            .items
            .iter()
            .filter(|pod| finalizers(*pod).contains(&HOLD))
            .count())
    }

    /// Waits until Belayer has caught up, then checks that the pod keeps the hold for a while.
    pub async fn stays_held(&self, pod: &str) -> Result<()> {
        self.belayer_has_caught_up().await?;
        self.keeps_hold(pod).await
    }

    /// Checks that the pod keeps the hold for a while.
    pub async fn keeps_hold(&self, pod: &str) -> Result<()> {
        let what = format!("the pod {pod} must keep the hold");
        conditions::keeps_hold(&self.pods(), pod, HOLD, WINDOW, &what).await
    }

    /// Checks that the pod is not replaced for a while.
    pub async fn stays_itself(&self, pod: &str, uid: &str, within: Duration) -> Result<()> {
        throughout(&format!("the pod {pod} stays"), within, async || {
            let seen = self.pods().get(pod).await?;
            ensure!(
                seen.uid().as_deref() == Some(uid),
                "another pod has its name"
            );
            Ok(())
        })
        .await
    }

    /// Waits until Belayer has caught up, then checks that the pod gets no hold for a while.
    pub async fn stays_free(&self, pod: &str) -> Result<()> {
        self.belayer_has_caught_up().await?;
        throughout(
            &format!("the pod {pod} must not get a hold"),
            WINDOW,
            async || {
                let seen = self.pods().get(pod).await?;
                ensure!(!finalizers(&seen).contains(&HOLD), "{}", describe(&seen));
                Ok(())
            },
        )
        .await
    }

    /// Waits until Belayer has processed all earlier changes: a pod created now gets its hold, and loses it
    /// after its workflow was deleted.
    pub async fn belayer_has_caught_up(&self) -> Result<()> {
        let tag = self.notes().len() + std::process::id() as usize;
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
}
