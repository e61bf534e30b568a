//! A tenant with all permissions in its namespace tries to have another tenant's running pod wiped (row T1).

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::site::{Site, Timeout, wiped, wiped_message};
use crate::harness::{Cluster, SOON, TenantPermissions, eventually, throughout};
use crate::kinds;
use crate::providers::Capability::{AdmissionPolicies, Rbac};

const WINDOW: std::time::Duration = std::time::Duration::from_secs(2);

/// What the tenant writes into its record: that another tenant's pod was rejected here.
fn lie(site: &Site, uid: &str) -> Value {
    json!({ "status": {
        "phase": "Rejected", "nodeName": site.node, "rejectedUID": uid, "conditions": null,
    } })
}

/// A pod of another namespace that runs on this node, with files. Returns its UID.
async fn victim(site: &Site, namespace: &str) -> Result<String> {
    let pods = site.cluster().pods_in(namespace);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "victim" },
        "spec": {
            "nodeName": site.node, "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": "busybox" }],
        },
    });
    let made = pods
        .create(&PostParams::default(), &serde_json::from_value(pod)?)
        .await?;
    let runs = json!({ "status": {
        "phase": "Running",
        "containerStatuses": [{
            "name": "main", "image": "busybox", "imageID": "", "ready": true, "started": true, "restartCount": 0,
            "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } },
        }],
    } });
    pods.patch_status("victim", &PatchParams::default(), &Patch::Merge(&runs))
        .await?;
    let uid = made.uid().context("a pod without a uid")?;
    site.leave_state(&uid)?;
    Ok(uid)
}

/// Waits until Belayer has refused, and checks that the files still exist.
async fn is_refused(site: &Site, uid: &str) -> Result<()> {
    eventually(
        "Belayer reports that it requests no wipe",
        SOON,
        async || {
            let status = site.record().await?.data["status"].clone();
            ensure!(site.dir(uid).exists(), "the pod's files were removed");
            ensure!(
                wiped(&status) == "False" && wiped_message(&status).contains("never had this UID"),
                "{status}"
            );
            Ok(())
        },
    )
    .await?;
    let file = site.dir(uid).join("content/src/deep/file-0");
    ensure!(file.exists(), "a file of the pod was removed");
    Ok(())
}

pub(super) async fn hostile_wipe(cluster: Cluster) -> Result<()> {
    let site = Site::new(&cluster, "one").await?;
    let other = cluster.another_namespace("prod", json!({})).await?;
    // A node simulated by files: the running pods are those in its folder.
    let host = site.sibling("host");
    fs::create_dir_all(host.join("proc"))?;
    fs::create_dir_all(host.join("sys/fs/cgroup/kubepods"))?;

    // A record of its own, from a pod that its node rejected.
    let belayer = site.controllers(Timeout::Never).await?;
    site.pod("mine").await?;
    site.reject("mine").await?;
    let record = site.in_phase("Rejected").await?.name_any();

    let victim = victim(&site, &other).await?;
    let options = site
        .agent_options()
        .argument(&format!("--host-root={}", host.display()));
    let agent = cluster.start_belayer_with(&options).await?;
    let params = PatchParams::default();
    let patch = Patch::Merge(lie(&site, &victim));
    if cluster.can(Rbac) && cluster.can(AdmissionPolicies) {
        policy_refuses(&cluster, &site.node, &record, &patch).await?;
    }
    // A status that passes the policy, as an admin's does, is refused by Belayer.
    site.records()
        .patch_status(&record, &params, &patch)
        .await?;
    is_refused(&site, &victim).await?;
    let listed = site.listed().await?;
    ensure!(!listed.contains(&victim), "the victim's pod is listed");

    // A pod that is no longer in the API, of which a container still runs.
    let gone = "0b1a2c3d-4e5f-4071-8293-a4b5c6d7e8f9";
    site.leave_state(gone)?;
    let group = host.join(format!("sys/fs/cgroup/kubepods/burstable/pod{gone}/main"));
    fs::create_dir_all(&group)?;
    let patch = Patch::Merge(lie(&site, gone));
    site.records()
        .patch_status(&record, &params, &patch)
        .await?;
    eventually("the agent sees that it runs", SOON, async || {
        let status = site.record().await?.data["status"].clone();
        ensure!(wiped_message(&status).contains("still runs"), "{status}");
        Ok(())
    })
    .await?;
    throughout("its files are kept", WINDOW, async || {
        ensure!(site.dir(gone).exists(), "they were removed");
        Ok(())
    })
    .await?;
    fs::remove_dir_all(host.join("sys/fs/cgroup/kubepods/burstable"))?;
    site.is_wiped(gone).await?;
    ensure!(
        site.dir(&victim).join("cache/file-0").exists(),
        "the victim's files were removed"
    );
    agent.stop().await?;
    belayer.stop().await
}

/// With exactly the tenant's permissions.
async fn policy_refuses(
    cluster: &Cluster,
    node: &str,
    record: &str,
    patch: &Patch<Value>,
) -> Result<()> {
    let tenant = cluster.tenant(TenantPermissions::Everything).await?;
    let records = kinds::records(&tenant, cluster.namespace());
    let params = PatchParams::default();
    // Permissions for a kind are effective some time after the kind was created.
    eventually("the tenant may write its records", SOON, async || {
        let label = Patch::Merge(json!({ "metadata": { "labels": { "x": "y" } } }));
        records.patch(record, &params, &label).await?;
        Ok(())
    })
    .await?;
    match records.patch_status(record, &params, patch).await {
        Ok(_) => bail!("the tenant wrote the status of its record"),
        Err(error) => ensure!(
            error.to_string().contains("may settle podrecreations"),
            "refused, but: {error}"
        ),
    }
    // The list itself: not by a tenant, and not by anybody but Belayer.
    let entry = json!({ "namespace": "prod", "podName": "victim", "record": "x", "requestedAt": "2026-01-01T00:00:00Z" });
    let forged = Patch::Merge(
        json!({ "spec": { "wipes": { "0b1a2c3d-4e5f-4071-8293-a4b5c6d7e8f9": entry } } }),
    );
    for (client, says) in [
        (&tenant, "forbidden"),
        (cluster.client(), "only Belayer creates"),
    ] {
        let wipes = kinds::node_wipes(client);
        let refused = wipes.patch(node, &params, &forged).await;
        let error = refused.err().context("the list was forged")?;
        ensure!(error.to_string().contains(says), "refused, but: {error}");
    }
    let odd = Patch::Merge(json!({ "status": { "rejectedUID": "../../etc" } }));
    let refused = kinds::records(cluster.client(), cluster.namespace())
        .patch_status(record, &params, &odd)
        .await;
    let error = refused.err().context("an invalid UID was accepted")?;
    ensure!(error.to_string().contains("rejectedUID"), "{error}");
    Ok(())
}
