//! Re-creation in a namespace that is being deleted. Its controller removes pods before it deletes records.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::admission::remove_validating_policy;
use super::recreation::{RECREATION_HOLD, options, rejection};
use crate::harness::{Cluster, NO_SCHEDULER, SOON, Scenario, eventually, finalizers};
use crate::kinds;
use crate::providers::Capability::{AdmissionPolicies, NamespaceDeletion};
use crate::providers::apply;

/// Denies the status of records.
const POLICY: &str = "e2e-no-recreation-status";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "recreation-namespace-deleted",
            "a namespace is deleted while a record has no status yet: its pod is released, and the namespace is removed",
            deleted,
        )
        .needs([AdmissionPolicies, NamespaceDeletion]),
    ]
}

async fn deleted(cluster: Cluster) -> Result<()> {
    let doomed = cluster.another_namespace("doomed", json!({})).await?;
    apply(cluster.client(), &policy(&doomed)).await?;
    let shown = with_refused_status(&cluster, &doomed).await;
    remove_validating_policy(&cluster, POLICY).await?;
    shown
}

async fn with_refused_status(cluster: &Cluster, doomed: &str) -> Result<()> {
    is_refused(cluster, doomed).await?;
    let belayer = cluster.start_belayer_with(&options()).await?;
    let pods = cluster.pods_in(doomed);
    reject(&pods).await?;
    eventually("its rejection is recorded", SOON, async || {
        let all = kinds::records(cluster.client(), doomed);
        let all = all.list(&Default::default()).await?;
        let record = all.items.first().context("no record")?;
        ensure!(record.data["status"].is_null(), "its status was written");
        Ok(())
    })
    .await?;
    // As after a crash between both writes.
    belayer.kill().await?;
    let namespaces = kinds::namespaces(cluster.client());
    namespaces.delete(doomed, &DeleteParams::default()).await?;
    eventually("its pod is deleted", SOON, async || {
        let pod = pods.get("web").await?;
        ensure!(pod.metadata.deletion_timestamp.is_some(), "not yet");
        ensure!(finalizers(&pod).contains(&RECREATION_HOLD), "not held");
        Ok(())
    })
    .await?;
    remove_validating_policy(cluster, POLICY).await?;
    let belayer = cluster.start_belayer_with(&options()).await?;
    // A request that is still denied is repeated after 30 s.
    let within = Duration::from_secs(90);
    eventually("the namespace is removed", within, async || {
        let left = namespaces.get_opt(doomed).await?;
        ensure!(left.is_none(), "it is Terminating");
        Ok(())
    })
    .await?;
    belayer.stop().await
}

/// A pod that requests re-creation, is held, and is rejected.
async fn reject(pods: &Api<DynamicObject>) -> Result<()> {
    let pod: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web", "annotations": { "belayer.dev/recreate": "true" } },
        "spec": { "schedulerName": NO_SCHEDULER, "containers": [{ "name": "main", "image": "busybox" }] },
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    eventually("the pod has the hold", SOON, async || {
        let pod = pods.get("web").await?;
        ensure!(finalizers(&pod).contains(&RECREATION_HOLD), "it has not");
        Ok(())
    })
    .await?;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "web" },
        "target": { "apiVersion": "v1", "kind": "Node", "name": "no-such-node" },
    });
    let _: Value = pods
        .create_subresource("binding", "web", &PostParams::default(), &binding)
        .await?;
    let rejected = Patch::Merge(json!({ "status": rejection() }));
    let how = PatchParams::default();
    pods.patch_status("web", &how, &rejected).await?;
    Ok(())
}

/// Waits until the policy is effective, which a Secret shows: only Belayer may create records.
async fn is_refused(cluster: &Cluster, namespace: &str) -> Result<()> {
    let gvk = GroupVersionKind::gvk("", "v1", "Secret");
    let secrets: Api<DynamicObject> = Api::namespaced_with(
        cluster.client().clone(),
        namespace,
        &ApiResource::from_gvk(&gvk),
    );
    let secret: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "probe" } }))?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually("the policy is effective", SOON, async || {
        let created = secrets.create(&dry_run, &secret).await;
        ensure!(created.is_err(), "it is not");
        Ok(())
    })
    .await
}

fn policy(namespace: &str) -> String {
    let rule = |group: &str, resource: &str| {
        json!({
            "apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
            "resources": [resource],
        })
    };
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": POLICY },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [
                rule("belayer.dev", "podrecreations/status"),
                rule("", "secrets"),
            ] },
            "validations": [{
                "expression": format!("request.namespace != '{namespace}'"), "message": "not now",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": POLICY },
        "spec": { "policyName": POLICY, "validationActions": ["Deny"] },
    });
    format!("{policy}\n---\n{binding}")
}
