//! Users, and the workflow controller that works for them. Each repeats one task until it is stopped.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use belayer_sandbox::simulated::kubelet::fingerprint;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::harness::{
    Cluster, HOLD, NODE_ID, PVC_HOLD, PodBuilder, WORKFLOW_HOLD, Workflow, ended, eventually,
    finalizers, gone, pod, pvc, workflow,
};
use crate::wait::answered;

/// Until anything that Belayer does has happened, with several faults in between.
const PATIENCE: Duration = Duration::from_secs(600);

/// A finalizer of another program. Belayer must never remove it.
const OTHERS: &str = "example.com/keep";

/// What a user does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// Deletes pods that have ended, before the workflow controller has read their results.
    Pods,
    /// Deletes a workflow whose pods were deleted.
    Workflow,
    /// Deletes a PVC that a pod uses.
    Pvc,
}

impl Task {
    pub(super) const ALL: [Self; 3] = [Self::Pods, Self::Workflow, Self::Pvc];
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pods => "ended pods deleted, results read later",
            Self::Workflow => "workflows deleted before their results are read",
            Self::Pvc => "PVCs deleted while a pod uses them",
        })
    }
}

/// What came of a user's work.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) task: Task,
    /// How often the task was done as it should.
    pub(super) done: usize,
    /// What went wrong.
    pub(super) problems: Vec<String>,
}

pub(super) struct User {
    cluster: Cluster,
    /// The node to which the pods that use a PVC are bound.
    node: String,
    task: Task,
    number: usize,
    seed: u64,
}

impl User {
    pub(super) fn new(cluster: &Cluster, node: &str, task: Task, number: usize, seed: u64) -> Self {
        Self {
            cluster: cluster.clone(),
            node: node.to_owned(),
            task,
            number,
            seed,
        }
    }

    /// Repeats the task until `stopped` is true. Then it finishes what it has begun.
    pub(super) async fn work_until(self, stopped: watch::Receiver<bool>) -> Work {
        let mut work = Work {
            task: self.task,
            done: 0,
            problems: Vec::new(),
        };
        let mut round = 0;
        while !*stopped.borrow() {
            let name = format!("{:?}-{}-{round}", self.task, self.number).to_lowercase();
            let done = match self.task {
                Task::Pods => self.delete_pods(&name).await,
                Task::Workflow => self.delete_workflow(&name).await,
                Task::Pvc => self.delete_pvc(&name).await,
            };
            match done {
                Ok(()) => work.done += 1,
                Err(problem) => work.problems.push(format!("{name}: {problem:#}")),
            }
            round += 1;
        }
        work
    }

    async fn delete_pods(&self, name: &str) -> Result<()> {
        let (workflow, pods) = self.run_workflow(name).await?;
        self.keeps(&self.cluster.pods(), &pods, HOLD).await?;
        let nodes: Value = pods
            .iter()
            .map(|pod| (pod.clone(), json!({ "phase": "Succeeded" })))
            .collect();
        let status = json!({ "status": { "nodes": nodes } });
        patch(&self.cluster.workflows(), &workflow.name, &status).await?;
        for name in &pods {
            self.is_released(name).await?;
        }
        self.is_gone(&self.cluster.workflows(), &workflow.name)
            .await
    }

    async fn delete_workflow(&self, name: &str) -> Result<()> {
        let (workflow, pods) = self.run_workflow(name).await?;
        delete(&self.cluster.workflows(), &workflow.name).await?;
        for name in &pods {
            self.is_released(name).await?;
        }
        self.is_gone(&self.cluster.workflows(), &workflow.name)
            .await
    }

    async fn delete_pvc(&self, name: &str) -> Result<()> {
        let pvcs = self.cluster.pvcs();
        create(&pvcs, &pvc(name, json!({}))?).await?;
        held(&pvcs, name, PVC_HOLD).await?;
        let user = pod(format!("{name}-user")).pvc(name).on_node(&self.node);
        create(&self.cluster.pods(), &user.build()?).await?;
        delete(&pvcs, name).await?;
        self.keeps(&pvcs, &[name.to_owned()], PVC_HOLD).await?;
        let now = DeleteParams::default().grace_period(0);
        let pods = self.cluster.pods();
        answered(async || {
            let deleted = pods.delete(&format!("{name}-user"), &now).await;
            deleted.map(drop).or_else(gone)
        })
        .await?;
        self.is_gone(&pvcs, name).await
    }

    /// A workflow with two pods that are held, have ended, and are deleted. One has another program's finalizer.
    async fn run_workflow(&self, name: &str) -> Result<(Workflow, Vec<String>)> {
        let workflows = self.cluster.workflows();
        create(&workflows, &workflow(name, json!({}))?).await?;
        let workflow = held(&workflows, name, WORKFLOW_HOLD).await?;
        let workflow = Workflow::of(&workflow)?;
        let pods = self.cluster.pods();
        let names = ["a", "b"].map(|step| format!("{name}-{step}"));
        for (at, name) in names.iter().enumerate() {
            let with = |pod: PodBuilder| if at == 0 { pod } else { pod.finalizer(OTHERS) };
            let pod = with(pod(name).of(&workflow)).annotation(NODE_ID, name);
            create(&pods, &pod.build()?).await?;
        }
        for name in &names {
            held(&pods, name, HOLD).await?;
            answered(async || {
                let how = PatchParams::default();
                let ended = Patch::Merge(ended("Succeeded"));
                pods.patch_status(name, &how, &ended).await.map(drop)
            })
            .await?;
            delete(&pods, name).await?;
        }
        Ok((workflow, names.into()))
    }

    /// Watches for some seconds that the objects keep a finalizer. Only an answer of the API server counts.
    async fn keeps(
        &self,
        objects: &Api<DynamicObject>,
        names: &[String],
        hold: &str,
    ) -> Result<()> {
        const LOOKS: u64 = 24;
        let drawn = fingerprint(&format!("{}/{names:?}", self.seed));
        for _ in 0..=drawn % LOOKS {
            for name in names {
                match objects.get_opt(name).await {
                    Ok(Some(found)) if finalizers(&found).contains(&hold) => {}
                    Ok(Some(_)) => bail!("{name} was released too early"),
                    Ok(None) => bail!("{name} was removed too early"),
                    Err(_) => {}
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }

    /// A pod loses Belayer's finalizer, and no other.
    async fn is_released(&self, name: &str) -> Result<()> {
        let pods = self.cluster.pods();
        if name.ends_with("-b") {
            eventually(&format!("{name} is released"), PATIENCE, async || {
                let found = pods.get_opt(name).await?;
                let Some(found) = found else { return Ok(None) };
                ensure!(!finalizers(&found).contains(&HOLD), "it is held");
                Ok(Some(found))
            })
            .await?
            .filter(|found| finalizers(found) == [OTHERS])
            .with_context(|| format!("{name} has lost {OTHERS}"))?;
            let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            let how = PatchParams::default();
            // A repeated patch may find that the first one was carried out.
            let patched = async || pods.patch(name, &how, &none).await.map(drop).or_else(gone);
            answered(patched).await?;
        }
        self.is_gone(&pods, name).await
    }

    /// Deletes an object, if that was not done, and waits until it is removed.
    async fn is_gone(&self, objects: &Api<DynamicObject>, name: &str) -> Result<()> {
        delete(objects, name).await?;
        eventually(
            &format!("{name} is removed"),
            PATIENCE,
            async || match objects.get_opt(name).await? {
                Some(found) => bail!("its finalizers are {:?}", finalizers(&found)),
                None => Ok(()),
            },
        )
        .await
    }
}

async fn create(objects: &Api<DynamicObject>, object: &DynamicObject) -> Result<()> {
    let created = answered(async || objects.create(&PostParams::default(), object).await).await;
    match created {
        // The first request was carried out, but its answer was lost.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(drop).context("create"),
    }
}

async fn delete(objects: &Api<DynamicObject>, name: &str) -> Result<()> {
    let how = DeleteParams::default();
    let deleted = async || objects.delete(name, &how).await.map(drop).or_else(gone);
    answered(deleted)
        .await
        .with_context(|| format!("delete {name}"))
}

async fn patch(objects: &Api<DynamicObject>, name: &str, patch: &Value) -> Result<()> {
    let (how, patch) = (PatchParams::default(), Patch::Merge(patch));
    let patched = async || objects.patch(name, &how, &patch).await.map(drop);
    answered(patched)
        .await
        .with_context(|| format!("patch {name}"))
}

/// Waits until Belayer has added its finalizer.
async fn held(objects: &Api<DynamicObject>, name: &str, hold: &str) -> Result<DynamicObject> {
    eventually(&format!("{name} is held"), PATIENCE, async || {
        let found = objects.get(name).await?;
        ensure!(finalizers(&found).contains(&hold), "it is not");
        Ok(found)
    })
    .await
}
