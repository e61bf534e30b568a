//! The requests of a run. Each is repeated until the API server has answered it.

use anyhow::{Context as _, Result};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::judge::Seen;
use super::step::LoadStep;
use crate::kinds;
use crate::wait::answered;

/// Creates a pod.
pub(super) async fn create(client: &Client, namespace: &str, pod: &DynamicObject) -> Result<()> {
    let pods = kinds::pods(client, namespace);
    let created = answered(async || pods.create(&PostParams::default(), pod).await.map(drop)).await;
    // A repeated create may find that the first one was carried out.
    unless(created, &[409]).with_context(|| format!("create the pod {}", pod.name_any()))
}

/// Does one step.
pub(super) async fn take(client: &Client, seen: &Seen, step: &LoadStep) -> Result<()> {
    let pods = kinds::pods(client, &seen.namespace);
    let name = seen.name.as_str();
    let done = match step {
        LoadStep::Bind(node) => {
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding",
                "metadata": { "name": name, "uid": seen.uid },
                "target": { "apiVersion": "v1", "kind": "Node", "name": node },
            });
            answered(async || {
                let bound: kube::Result<Value> = pods
                    .create_subresource("binding", name, &PostParams::default(), &binding)
                    .await;
                bound.map(drop)
            })
            .await
        }
        LoadStep::Reject => {
            let patch = Patch::Merge(json!({
                "metadata": { "uid": seen.uid },
                "status": {
                    "phase": "Failed",
                    "reason": "NodeAffinity",
                    "message": "Pod was rejected: Predicate NodeAffinity failed: rejected by a load test",
                },
            }));
            let how = PatchParams::default();
            answered(async || pods.patch_status(name, &how, &patch).await.map(drop)).await
        }
        LoadStep::Delete => {
            let how = DeleteParams::default().preconditions(Preconditions {
                uid: Some(seen.uid.clone()),
                resource_version: None,
            });
            answered(async || pods.delete(name, &how).await.map(drop)).await
        }
    };
    // The pod is gone, or is another one, or the request was carried out before.
    unless(done, &[404, 409]).with_context(|| format!("{step:?} for the pod {name}"))
}

fn unless(done: kube::Result<()>, codes: &[u16]) -> kube::Result<()> {
    match done {
        Err(kube::Error::Api(status)) if codes.contains(&status.code) => Ok(()),
        done => done,
    }
}
