//! Bugs of Kubernetes that `docs/src/reference/kubernetes-bugs.md` describes. A scenario that fails shows that one is fixed.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::harness::{Cluster, SOON, Scenario, eventually, throughout};
use crate::providers::Capability::{AdmissionPolicies, KubeApiserver, Kubectl};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "kubernetes-keeps-an-old-parameter",
            "kube-apiserver 1.36: a policy made after the last one with its built-in paramKind reads an old parameter",
            old_parameter,
        )
        .needs([Kubectl, AdmissionPolicies, KubeApiserver])
        .nightly(),
    ]
}

async fn old_parameter(cluster: Cluster) -> Result<()> {
    let shown = reproduced(&cluster).await;
    cluster.sh(&format!("{DELETE} --ignore-not-found")).await?;
    shown
}

const DELETE: &str =
    "kubectl delete validatingadmissionpolicybinding,validatingadmissionpolicy e2e-parameter";

async fn reproduced(cluster: &Cluster) -> Result<()> {
    switch(cluster, "deny").await?;
    policy(cluster).await?;
    eventually(
        "the policy denies while the switch is `deny`",
        SOON,
        async || {
            let why = created(cluster).await.err().context("it is allowed")?;
            ensure!(why.to_string().contains("e2e-parameter"), "{why}");
            Ok(())
        },
    )
    .await?;
    switch(cluster, "allow").await?;
    eventually("it follows the switch", SOON, async || {
        created(cluster).await
    })
    .await?;
    switch(cluster, "deny").await?;
    eventually("it follows the switch back", SOON, async || {
        created(cluster)
            .await
            .err()
            .context("it is allowed")
            .map(drop)
    })
    .await?;

    // The last policy with this paramKind goes, and the parameter changes before there is another one.
    cluster.sh(DELETE).await?;
    eventually("the policy is gone", SOON, async || created(cluster).await).await?;
    switch(cluster, "allow").await?;
    policy(cluster).await?;
    eventually(
        "the new policy denies, as the switch was",
        SOON,
        async || {
            created(cluster)
                .await
                .err()
                .context("it is allowed")
                .map(drop)
        },
    )
    .await?;
    throughout(
        "it keeps the old parameter",
        Duration::from_secs(20),
        async || {
            created(cluster)
                .await
                .err()
                .context("it reads the new one")
                .map(drop)
        },
    )
    .await
}

/// The parameter: a PodTemplate, as kube-apiserver itself watches none. Of ConfigMaps the clusters of scenarios have a policy
/// that stays.
async fn switch(cluster: &Cluster, value: &str) -> Result<()> {
    let script = format!(
        "kubectl -n {} apply -f - <<END
apiVersion: v1
kind: PodTemplate
metadata: {{name: switch, labels: {{mode: {value}}}}}
template: {{spec: {{containers: [{{name: main, image: registry.invalid/main:1}}]}}}}
END",
        cluster.namespace()
    );
    cluster.sh(&script).await.map(drop)
}

/// A dry run of what the policy may deny.
async fn created(cluster: &Cluster) -> Result<()> {
    let script = format!(
        "kubectl -n {} create configmap asked --dry-run=server",
        cluster.namespace()
    );
    cluster.sh(&script).await.map(drop)
}

/// Denies ConfigMaps in the namespace unless the switch is `allow`.
async fn policy(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace();
    let script = format!(
        "kubectl create -f - <<END
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: e2e-parameter}}
spec:
  paramKind: {{apiVersion: v1, kind: PodTemplate}}
  matchConstraints:
    namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}
    resourceRules:
    - {{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}
  validations:
  - expression: params.metadata.labels['mode'] == 'allow'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: e2e-parameter}}
spec:
  policyName: e2e-parameter
  validationActions: [Deny]
  paramRef: {{name: switch, namespace: {namespace}, parameterNotFoundAction: Deny}}
END"
    );
    cluster.sh(&script).await.map(drop)
}
