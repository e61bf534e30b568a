//! What every cluster gets before the first scenario: the Workflow CRD and Belayer's RBAC permissions.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::control_plane::{Kubeconfig, service_account_kubeconfig};
use crate::kinds;
use crate::wait::{SOON, eventually, gone};

/// The first minor version that serves MutatingAdmissionPolicies as Belayer uses them.
pub(super) const MUTATING_POLICIES: u32 = 36;

const WORKFLOW_CRD: &str = include_str!("../../manifests/workflow-crd.yaml");

/// Manifests that no folder includes, for options.
pub(crate) const APART: [&str; 2] = ["rbac-metrics-authorization", "rbac-pod-cleanup"];

/// A file of `deploy/manifests`, by name, with one account for all controllers: most scenarios run them in one process.
pub(crate) fn manifest(name: &str) -> Result<String> {
    let mut shipped = SHIPPED.iter();
    let found = shipped.find(|(shipped, _)| *shipped == name);
    let (_, text) = found.with_context(|| format!("unknown manifest {name}"))?;
    let text = text.replace(":belayer-pod-recreation'", ":belayer'");
    Ok(text.replace(
        "- kind: ServiceAccount\n  name: belayer-pod-recreation\n",
        "- kind: ServiceAccount\n  name: belayer\n",
    ))
}

/// Files of `deploy/manifests`: each by its name, and those of a folder with the folder's name before it.
macro_rules! shipped {
    ($($name:literal),+; node-agent: $($agent:literal),+ $(,)?) => {
        &[
            $(($name, include_str!(concat!("../../../deploy/manifests/", $name, ".yaml"))),)+
            $((
                concat!("node-agent-", $agent),
                include_str!(concat!("../../../deploy/manifests/node-agent/", $agent, ".yaml")),
            ),)+
        ]
    };
}

const SHIPPED: &[(&str, &str)] = shipped![
    "namespace",
    "service-account",
    "rbac-core",
    "rbac-pod-finalizer",
    "rbac-pvc-protection",
    "crd-pod-recreation",
    "crd-node-wipe",
    "pod-recreation-records-policy",
    "pod-recreation-hold-policy",
    "rbac-pod-recreation",
    "claim-hold-policy",
    "rbac-workflow-finalizer",
    "rbac-outcome-capture",
    "rbac-metrics-authorization",
    "rbac-pod-cleanup",
    "podoutcome-crd",
    "workflow-hold-policy",
    "crd-gate",
    "pod-hold-policy",
    "namespace-guard-policy",
    "pod-write-policy",
    "pod-delete-policy",
    "owner-write-policy",
    "deployment";
    node-agent:
    "namespace",
    "service-account",
    "rbac",
    "rbac-handlers",
    "policy",
    "daemonset",
];

/// Applies every object of a YAML text.
pub(crate) async fn apply(client: &Client, yaml: &str) -> Result<()> {
    let objects: Vec<DynamicObject> =
        serde_saphyr::from_multiple(yaml).context("read a manifest")?;
    for object in objects {
        apply_one(client, &object).await?;
    }
    Ok(())
}

async fn apply_one(client: &Client, object: &DynamicObject) -> Result<()> {
    let (kind, api) = kind_of(client, object)?;
    let name = object.name_any();
    let parameters = PatchParams::apply("belayer-e2e").force();
    api.patch(&name, &parameters, &Patch::Apply(object))
        .await
        .with_context(|| format!("apply {kind} {name}"))?;
    Ok(())
}

/// Deletes every object of a manifest that exists.
pub(super) async fn remove(client: &Client, manifest: &str) -> Result<()> {
    let objects: Vec<DynamicObject> =
        serde_saphyr::from_multiple(manifest).context("read a manifest")?;
    for object in objects {
        let (kind, api) = kind_of(client, &object)?;
        let name = object.name_any();
        let deleted = api.delete(&name, &DeleteParams::default()).await;
        deleted
            .map(drop)
            .or_else(gone)
            .with_context(|| format!("remove {kind} {name}"))?;
    }
    Ok(())
}

fn kind_of(client: &Client, object: &DynamicObject) -> Result<(String, Api<DynamicObject>)> {
    let types = object.types.as_ref().context("the manifest has no kind")?;
    let gvk = GroupVersionKind::try_from(types)?;
    let resource = ApiResource::from_gvk_with_plural(&gvk, &plural(&gvk.kind));
    let api = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    Ok((gvk.kind, api))
}

/// The plural of the kinds in Belayer's manifests.
fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    match lower.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{lower}s"),
    }
}

/// The minor version of the server.
pub(super) async fn minor(client: &Client) -> Result<u32> {
    let version = client.apiserver_version().await?;
    // Some managed servers append a plus sign.
    let minor = version.minor.trim_end_matches('+').parse();
    minor.with_context(|| format!("the server's version is {}", version.git_version))
}

/// Installs the Workflow CRD, also after a scenario that removed it, and waits until it is served.
pub async fn ensure_workflow_crd(client: &Client) -> Result<()> {
    let definitions = kinds::definitions(client);
    eventually("the Workflow kind is served", SOON, async || {
        apply(client, WORKFLOW_CRD).await?;
        let definition = definitions.get("workflows.argoproj.io").await?;
        ensure!(
            definition.metadata.deletion_timestamp.is_none(),
            "the old CRD is still being deleted"
        );
        kinds::workflows(client, "default")
            .list(&Default::default())
            .await?;
        Ok(())
    })
    .await
}

/// The gate as a leader leaves it: no manifest contains it, and most scenarios of the policies run no Belayer.
pub(super) fn opened_gate() -> Result<DynamicObject> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "belayer.dev/v1alpha1", "kind": "Gate",
        "metadata": { "name": "belayer-gate", "namespace": "belayer-system" },
        "data": {
            "hold": "on",
            "holdClaims": "switched-off",
            "holdRecreations": "on",
            "holdWorkflows": "on",
            "mode": "normal",
        },
    }))?)
}

/// Creates the gate, opened, once its kind is served.
pub(crate) async fn open_gate(client: &Client) -> Result<()> {
    let gate = opened_gate()?;
    eventually("the gate exists", SOON, async || {
        apply_one(client, &gate).await
    })
    .await
}

/// Creates Belayer's namespace, account, RBAC permissions and gate, as in `deploy`.
pub(crate) async fn grant_permissions(client: &Client) -> Result<()> {
    for name in [
        "namespace",
        "service-account",
        "rbac-core",
        "rbac-pod-finalizer",
        "rbac-pod-recreation",
        "rbac-pvc-protection",
        "rbac-workflow-finalizer",
        "rbac-outcome-capture",
        "crd-gate",
        "podoutcome-crd",
        "crd-pod-recreation",
        "crd-node-wipe",
        "pod-recreation-records-policy",
        "node-agent-namespace",
        "node-agent-service-account",
        "node-agent-rbac",
        "node-agent-policy",
    ] {
        apply(client, &manifest(name)?).await?;
    }
    open_gate(client).await
}

/// Writes the kubeconfig of Belayer's ServiceAccount, once it has a token.
pub(super) async fn belayer_kubeconfig(
    client: &Client,
    server: &Kubeconfig,
    path: &Path,
) -> Result<()> {
    let what = "Belayer's account has a token";
    eventually(what, SOON, async || {
        service_account_kubeconfig(client, server, "belayer-system", "belayer", path).await
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("Pod", "pods")]
    #[case("MutatingAdmissionPolicy", "mutatingadmissionpolicies")]
    #[case("ClusterRoleBinding", "clusterrolebindings")]
    fn plurals(#[case] kind: &str, #[case] expected: &str) {
        assert_eq!(plural(kind), expected);
    }

    #[test]
    fn every_manifest_can_be_read() {
        for (name, _) in SHIPPED {
            let text = manifest(name).unwrap();
            let objects: Vec<DynamicObject> = serde_saphyr::from_multiple(&text).unwrap();
            assert!(!objects.is_empty(), "{name}");
        }
    }
}
