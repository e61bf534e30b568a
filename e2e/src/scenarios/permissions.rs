//! Belayer with fewer RBAC permissions than deployed.

use anyhow::{Result, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::harness::{Belayer, Cluster, SOON, Scenario, eventually, pod};
use crate::providers::Capability::Rbac;

/// The role of the controller whose permissions are removed.
const ROLE: &str = "belayer-pvc-protection";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "a-permission-is-missing",
            "a controller reports its missing RBAC permissions and waits; the others work",
            missing,
        )
        .needs([Rbac]),
    ]
}

async fn missing(cluster: Cluster) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(cluster.client().clone());
    let whole = roles.get(ROLE).await?;
    let rules = json!({ "rules": whole.rules });
    let none = Patch::Merge(json!({ "rules": [] }));
    roles.patch(ROLE, &PatchParams::default(), &none).await?;
    let shown = without_rights(&cluster).await;
    // Restored in any case: other scenarios need the role.
    let back = Patch::Merge(rules);
    roles.patch(ROLE, &PatchParams::default(), &back).await?;
    let belayer = shown?;
    // It retries within half a minute.
    eventually("it works with all its permissions", SOON, async || {
        belayer.probe("/readyz").await.map(drop)
    })
    .await?;
    belayer.stop().await
}

async fn without_rights(cluster: &Cluster) -> Result<Belayer> {
    let question: SubjectAccessReview = serde_json::from_value(json!({ "spec": {
        "user": "system:serviceaccount:belayer-system:belayer",
        "resourceAttributes": { "verb": "list", "resource": "persistentvolumeclaims" },
    } }))?;
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client().clone());
    // A server applies the change some time later.
    eventually("the permission is gone", SOON, async || {
        let answer = reviews.create(&PostParams::default(), &question).await?;
        ensure!(
            answer.status.is_some_and(|status| !status.allowed),
            "still allowed"
        );
        Ok(())
    })
    .await?;
    let belayer = cluster.spawn_belayer(&Default::default())?;
    let workflow = cluster.workflow("w").await?;
    eventually("its log names the missing permission", SOON, async || {
        let log = belayer.log()?;
        let reported = log
            .lines()
            .any(|line| line.contains("persistentvolumeclaims is forbidden"));
        ensure!(reported, "not in the log yet");
        Ok(())
    })
    .await?;
    cluster.create(&pod("p").of(&workflow)).await?;
    cluster.is_held("p").await?;
    cluster.consume("p").await?;
    cluster.is_not_held("p").await?;
    let unready = match belayer.probe("/readyz").await {
        Ok(answer) => answer,
        Err(error) => error.to_string(),
    };
    ensure!(
        unready.contains("informer persistentvolumeclaims"),
        "/readyz returned {unready}"
    );
    ensure!(belayer.probe("/livez").await? == "ok\n", "not alive");
    Ok(belayer)
}
