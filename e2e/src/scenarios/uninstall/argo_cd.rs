//! The deletion of an Application of Argo CD with its resources, done with kubectl as Argo CD's controller does it.

use anyhow::{Context as _, Result, bail, ensure};
use kube::ResourceExt as _;
use kube::api::DynamicObject;

use super::LONG;
use super::manifests::{installed, renewed};
use crate::harness::{Cluster, SOON, Scenario, eventually, manifests};
use crate::kinds;
use crate::providers::Capability::{
    AdmissionPolicies, GarbageCollector, IdleDeployments, Kubectl, Rbac,
};

/// The annotation by which an object sets options of Argo CD.
const OPTIONS: &str = "argocd.argoproj.io/sync-options";

pub(super) fn scenario() -> Scenario {
    Scenario::alone(
        "uninstall-by-argo-cd",
        "Argo CD deletes nothing of an Application before an admin confirms it; without a drain before, one after it removes all holds",
        |cluster| renewed(cluster, cascades),
    )
    .needs([Kubectl, AdmissionPolicies, Rbac, GarbageCollector, IdleDeployments])
    .within(LONG)
}

/// The confirmation of an admin, an annotation on the Application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deletion {
    Requested,
    Confirmed,
}

async fn cascades(cluster: &Cluster) -> Result<()> {
    let belayer = installed(cluster, "confirmed").await?;
    let refused = cascade(cluster, Deletion::Requested).await;
    let why = refused.err().context("it was deleted")?.to_string();
    ensure!(why.contains("ServiceAccount belayer "), "{why}");
    let leases = kinds::leases(cluster.client(), "belayer-system");
    leases.get("belayer").await.context("Belayer still runs")?;

    // Against the documentation: without a drain.
    cascade(cluster, Deletion::Confirmed).await?;
    belayer.kill().await?;
    ensure!(
        cluster.nothing_is_held().await.is_err(),
        "nothing removes holds without an account"
    );
    cluster.drain(&[]).await?.exited_with(0)?;
    cluster.nothing_is_held().await?;

    let belayer = installed(cluster, "drained").await?;
    cluster.drain(&[]).await?.exited_with(0)?;
    cascade(cluster, Deletion::Confirmed).await?;
    belayer.kill().await?;
    cluster.nothing_is_held().await
}

/// Deletes the objects of the manifests, all at once, in the foreground, again and again until none is left. CRDs stay. If
/// one object requires a confirmation, Argo CD deletes none before it has it.
async fn cascade(cluster: &Cluster, deletion: Deletion) -> Result<()> {
    let rendered = format!("kubectl kustomize {}", manifests().display());
    let mut objects: Vec<DynamicObject> =
        serde_saphyr::from_multiple(&cluster.sh(&rendered).await?)?;
    objects.retain(|object| kind(object) != "CustomResourceDefinition");
    let confirmed = objects.iter().find(|object| {
        let options = object.annotations().get(OPTIONS);
        options.is_some_and(|options| options.split(',').any(|one| one == "Delete=confirm"))
    });
    if let (Some(object), Deletion::Requested) = (confirmed, deletion) {
        bail!(
            "{} {} requires a confirmation",
            kind(object),
            object.name_any()
        );
    }
    let file = cluster.dir().join("application.json");
    let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    std::fs::write(&file, serde_json::to_vec(&list)?)?;
    let file = file.display();
    let script = format!(
        "kubectl delete -f {file} --cascade=foreground --wait=false --ignore-not-found
        kubectl get -f {file} --ignore-not-found -o name | sed 's/^/left: /'"
    );
    eventually("all objects are deleted", SOON, async || {
        let printed = cluster.sh(&script).await?;
        ensure!(!printed.contains("left: "), "{printed}");
        Ok(())
    })
    .await
}

fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| &*types.kind)
}
