//! What scenarios do with workflows, and conditions they wait for.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::conditions;
use super::objects::{COMPLETED_LABEL, PodBuilder, WORKFLOW_HOLD, Workflow, pod, workflow};
use crate::kinds;
use crate::wait::{SOON, eventually};

impl Cluster {
    /// The workflows of the scenario's namespace.
    pub fn workflows(&self) -> Api<DynamicObject> {
        kinds::workflows(self.client(), self.namespace())
    }

    /// Creates a workflow.
    pub async fn workflow(&self, name: &str) -> Result<Workflow> {
        self.workflow_in(self.namespace(), name, json!({})).await
    }

    /// Creates a workflow in another namespace, with more metadata.
    pub async fn workflow_in(
        &self,
        namespace: &str,
        name: &str,
        metadata: Value,
    ) -> Result<Workflow> {
        let object = workflow(name, metadata)?;
        let created = kinds::workflows(self.client(), namespace)
            .create(&PostParams::default(), &object)
            .await;
        Workflow::of(&created.with_context(|| format!("create the workflow {name}"))?)
    }

    /// Creates terminating pods with holds, of a workflow that is removed: all of them have to be released.
    /// `with` adds further properties to each.
    pub async fn orphans(
        &self,
        count: usize,
        with: impl Fn(PodBuilder) -> PodBuilder,
    ) -> Result<()> {
        self.held_pods_of_w(count, with).await?;
        self.delete_all().await?;
        self.delete_workflow("w", PropagationPolicy::Background)
            .await
    }

    /// The same with pods that had ended before: only their owner's absence releases them.
    pub async fn ended_orphans(&self, count: usize) -> Result<()> {
        self.held_pods_of_w(count, |pod| pod).await?;
        self.finish_all((0..count).map(|index| format!("p{index}")))
            .await?;
        self.delete_all().await?;
        self.delete_workflow("w", PropagationPolicy::Background)
            .await
    }

    async fn held_pods_of_w(
        &self,
        count: usize,
        with: impl Fn(PodBuilder) -> PodBuilder,
    ) -> Result<()> {
        let workflow = self.workflow("w").await?;
        let each = |index| with(pod(format!("p{index}")).of(&workflow).held());
        self.create_all((0..count).map(each)).await
    }

    /// Deletes a workflow without waiting for its removal.
    pub async fn delete_workflow(&self, name: &str, policy: PropagationPolicy) -> Result<()> {
        let how = DeleteParams {
            propagation_policy: Some(policy),
            ..DeleteParams::default()
        };
        let deleted = self.workflows().delete(name, &how).await;
        deleted
            .map(drop)
            .with_context(|| format!("delete the workflow {name}"))
    }

    /// Deletes a workflow and removes every finalizer by hand, until it is removed.
    pub async fn force_workflow_removal(&self, name: &str) -> Result<()> {
        self.delete_workflow(name, PropagationPolicy::Background)
            .await?;
        let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        eventually(
            &format!("the workflow {name} is removed"),
            SOON,
            async || {
                let patched = self
                    .workflows()
                    .patch(name, &PatchParams::default(), &none)
                    .await;
                match patched {
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                    Err(error) => Err(error.into()),
                    Ok(_) => match self.workflows().get_opt(name).await? {
                        Some(left) => bail!("its finalizers are {:?}", left.finalizers()),
                        None => Ok(()),
                    },
                }
            },
        )
        .await
    }

    /// A merge patch on a workflow, as from its own controller.
    pub async fn merge_workflow(&self, name: &str, patch: Value) -> Result<()> {
        let patched = self
            .workflows()
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        patched
            .map(drop)
            .with_context(|| format!("patch the workflow {name}"))
    }

    /// Waits until the workflow has the hold.
    pub async fn workflow_is_held(&self, name: &str) -> Result<()> {
        self.workflow_is_held_in(self.namespace(), name).await
    }

    /// Labels a workflow as its controller does at its end.
    pub async fn workflow_has_finished(&self, name: &str) -> Result<()> {
        let labels = json!({ "metadata": { "labels": { COMPLETED_LABEL: "true" } } });
        let workflows = self.workflows();
        let patch = Patch::Merge(labels);
        let patched = workflows.patch(name, &PatchParams::default(), &patch).await;
        patched.map(drop).context("label the workflow")
    }

    /// The same in another namespace.
    pub async fn workflow_is_held_in(&self, namespace: &str, name: &str) -> Result<()> {
        let workflows = kinds::workflows(self.client(), namespace);
        let what = format!("the workflow {name} has the hold");
        conditions::is_held(&workflows, name, WORKFLOW_HOLD, &what).await?;
        Ok(())
    }

    /// Waits until the workflow is removed.
    pub async fn workflow_is_removed(&self, name: &str, deadline: Duration) -> Result<()> {
        let what = format!("the workflow {name} is removed");
        conditions::is_removed(&self.workflows(), name, deadline, &what).await
    }
}
