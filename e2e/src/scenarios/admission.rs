//! The admission policy that adds the hold (a finalizer) at creation.

use anyhow::{Result, ensure};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::json;

use crate::harness::{
    Cluster, HOLD, PodBuilder, SOON, Scenario, Workflow, eventually, finalizers, pod,
};
use crate::kinds;
use crate::providers::Capability::AdmissionPolicies;
use crate::providers::{apply, manifest, open_gate};

const POLICY: &str = "belayer-pod-hold";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "policy-adds-hold-at-creation",
            "the admission policy adds the hold at creation and respects its switch, and no gate can be created with a mistyped mode",
            at_creation,
        )
        .needs([AdmissionPolicies]),
    ]
}

/// No Belayer runs, so the policy has added every hold.
async fn at_creation(cluster: Cluster) -> Result<()> {
    mode_is_checked(&cluster).await?;
    apply(cluster.client(), &manifest("pod-hold-policy")?).await?;
    let shown = obeys(&cluster).await;
    remove_policy(&cluster, POLICY).await?;
    switch(&cluster, "hold", "on").await?;
    shown?;
    // Wait until the change is effective, so that later scenarios are not affected.
    let workflow = cluster.workflow("after").await?;
    policy_adds_to_pods(&cluster, &workflow, false).await
}

/// The rule of the CRD runs also for a gate without earlier keys.
async fn mode_is_checked(cluster: &Cluster) -> Result<()> {
    let gates = kinds::gates(cluster.client(), "belayer-system");
    let create = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    for (mode, is_valid) in [("draining", true), ("Draining", false)] {
        let gate = json!({
            "apiVersion": "belayer.dev/v1alpha1", "kind": "Gate", "metadata": { "name": "another" },
            "data": { "mode": mode },
        });
        let created = gates.create(&create, &serde_json::from_value(gate)?).await;
        ensure!(created.is_ok() == is_valid, "{mode}: {created:?}");
    }
    Ok(())
}

/// Removes a policy and its binding.
pub(super) async fn remove_policy(cluster: &Cluster, name: &str) -> Result<()> {
    for kind in ["MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"] {
        remove_cluster_wide(cluster, kind, name).await?;
    }
    Ok(())
}

/// The manifests of the policies that limit Belayer's writes, and their names.
const WRITE_POLICIES: [(&str, &str); 3] = [
    ("pod-write-policy", "belayer-pod-writes"),
    ("pod-delete-policy", "belayer-pod-deletes"),
    ("owner-write-policy", "belayer-owner-writes"),
];

/// Applies the policies that limit Belayer's writes, and removes them at the end.
pub(super) async fn with_write_policies(
    cluster: &Cluster,
    shown: impl Future<Output = Result<()>>,
) -> Result<()> {
    for (file, _) in WRITE_POLICIES {
        apply(cluster.client(), &manifest(file)?).await?;
    }
    let shown = shown.await;
    for (_, policy) in WRITE_POLICIES {
        remove_validating_policy(cluster, policy).await?;
    }
    shown
}

/// Removes a policy that validates, and its binding.
pub(super) async fn remove_validating_policy(cluster: &Cluster, name: &str) -> Result<()> {
    for kind in [
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
    ] {
        remove_cluster_wide(cluster, kind, name).await?;
    }
    Ok(())
}

/// Deletes an object of the admission API, if it exists.
pub(super) async fn remove_cluster_wide(cluster: &Cluster, kind: &str, name: &str) -> Result<()> {
    let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    let all: Api<DynamicObject> =
        Api::all_with(cluster.client().clone(), &ApiResource::from_gvk(&gvk));
    match all.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn obeys(cluster: &Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    policy_adds_to_pods(cluster, &workflow, true).await?;

    let held_last = pod("b").of(&workflow).finalizer("z.example.com/first");
    let created = cluster.create(&held_last).await?;
    ensure!(
        finalizers(&created) == ["z.example.com/first", HOLD],
        "{:?}",
        finalizers(&created)
    );
    let twice = cluster.create(&pod("c").of(&workflow).held()).await?;
    ensure!(finalizers(&twice) == [HOLD], "{:?}", finalizers(&twice));

    free(cluster, &pod("plain"), "not selected").await?;
    let label = "workflows.argoproj.io/workflow";
    free(
        cluster,
        &pod("bare").label(label, "none"),
        "without an owner",
    )
    .await?;
    let component = "workflows.argoproj.io/component";
    for of in ["agent", "artifact-gc"] {
        let argos_own = pod(of).of(&workflow).label(component, of);
        free(cluster, &argos_own, "run by Argo for itself").await?;
    }
    let ignored = cluster
        .another_namespace("ignored", json!({ "belayer.dev/ignore": "true" }))
        .await?;
    let there = cluster.workflow_in(&ignored, "w", json!({})).await?;
    let created = cluster.create_in(&ignored, &pod("a").of(&there)).await?;
    ensure!(
        finalizers(&created).is_empty(),
        "in an ignored namespace: {:?}",
        finalizers(&created)
    );

    switch(cluster, "hold", "off").await?;
    policy_adds_to_pods(cluster, &workflow, false).await?;
    switch(cluster, "hold", "on").await?;
    policy_adds_to_pods(cluster, &workflow, true).await?;

    let closed = format!("closed.{}", cluster.namespace());
    switch(cluster, &closed, json!("maintenance")).await?;
    policy_adds_to_pods(cluster, &workflow, false).await?;
    switch(cluster, &closed, json!(null)).await?;
    policy_adds_to_pods(cluster, &workflow, true).await?;

    let gates = kinds::gates(cluster.client(), "belayer-system");
    gates
        .delete("belayer-gate", &DeleteParams::default())
        .await?;
    let without_switch = policy_adds_to_pods(cluster, &workflow, false).await;
    open_gate(cluster.client()).await?;
    without_switch
}

/// Waits until an object that is created anew has this hold from the policy, or has it no more: API servers apply policies late.
pub(super) async fn policy_adds<K, F>(
    hold: &str,
    expected: bool,
    create: impl Fn(String) -> F,
) -> Result<()>
where
    K: kube::Resource,
    F: Future<Output = Result<K>>,
{
    let with = if expected { "with" } else { "without" };
    let what = format!("a new object is created {with} {hold}");
    eventually(&what, SOON, async || {
        let name = format!("try-{}", jiff::Timestamp::now().as_microsecond());
        let created = create(name).await?;
        let all = finalizers(&created);
        ensure!(all.contains(&hold) == expected, "{all:?}");
        Ok(())
    })
    .await
}

async fn policy_adds_to_pods(cluster: &Cluster, workflow: &Workflow, expected: bool) -> Result<()> {
    policy_adds(HOLD, expected, |name| async move {
        cluster.create(&pod(name).of(workflow)).await
    })
    .await
}

async fn free(cluster: &Cluster, pod: &PodBuilder, why: &str) -> Result<()> {
    let created = cluster.create(pod).await?;
    ensure!(
        finalizers(&created).is_empty(),
        "a pod {why} has {:?}",
        finalizers(&created)
    );
    Ok(())
}

/// Sets one of the switches of the gate.
pub(super) async fn switch(
    cluster: &Cluster,
    key: &str,
    position: impl Into<serde_json::Value>,
) -> Result<()> {
    let position = position.into();
    let gates = kinds::gates(cluster.client(), "belayer-system");
    let patch = Patch::Merge(json!({ "data": { key: position } }));
    gates
        .patch("belayer-gate", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}
