//! Ways to remove Belayer: in the documented order, in another order, with kubectl only, by Argo CD. Those with Helm are
//! in `chart`.

mod argo_cd;
mod manifests;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use super::admission::remove_cluster_wide;
use super::drain::back_to_work;
use crate::control_plane::PvcController;
use crate::harness::{
    Cluster, HOLD, HOME, PVC_HOLD, SOON, Scenario, eventually, finalizers, pod, throughout,
};
use crate::kinds;
use crate::providers::Capability::{AdmissionPolicies, Faults, Kubectl, UnprotectedPvcs};
use crate::providers::{apply, manifest};

const LONG: Duration = Duration::from_secs(600);

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = manifests::scenarios();
    all.push(argo_cd::scenario());
    all.extend([
        Scenario::alone(
            "break-glass",
            "the commands of the documentation remove every hold with kubectl only",
            break_glass,
        )
        .needs([Kubectl, UnprotectedPvcs])
        .within(LONG),
        Scenario::alone(
            "namespace-guard",
            "Belayer's namespace cannot be deleted before it has been drained",
            guarded,
        )
        .needs([AdmissionPolicies])
        .within(LONG),
        Scenario::alone(
            "namespace-deleted",
            "Belayer's namespace is deleted anyway: no new hold is added, and drain removes the rest",
            namespace_deleted,
        )
        // Only if the cluster is not needed afterwards.
        .needs([Faults])
        .within(LONG),
        Scenario::alone(
            "delete-manifests-first",
            "the manifests are deleted before a drain: a later drain removes the holds",
            delete_manifests_first,
        )
        .needs([Faults, Kubectl])
        .within(LONG),
        Scenario::alone(
            "pod-writes-are-limited",
            "a policy limits Belayer's account to its own finalizers; Belayer works unchanged",
            pod_writes,
        )
        .needs([AdmissionPolicies])
        .within(LONG),
    ]);
    all
}

/// The shell blocks of the documentation's recipe, as one script.
fn recipe() -> Result<String> {
    let page = include_str!("../../../../docs/src/install/uninstall.md");
    let (_, section) = page
        .split_once("\n## Break glass\n")
        .context("the documentation has no section Break glass")?;
    let section = section.split("\n## ").next().unwrap_or(section);
    let blocks: Vec<&str> = section
        .split("\n```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("\n```").next())
        .collect();
    ensure!(blocks.len() == 4, "{} blocks", blocks.len());
    Ok(blocks.join("\n"))
}

async fn break_glass(cluster: Cluster) -> Result<()> {
    cluster
        .backend()
        .switch_pvc_controller(PvcController::Off)
        .await?;
    cluster.fill(20).await?;
    let only_belayers = json!({ "metadata": { "finalizers": [PVC_HOLD] } });
    for name in ["used", "free"] {
        cluster.create_pvc(name, json!({})).await?;
        cluster
            .pvcs()
            .patch(name, &PatchParams::default(), &Patch::Merge(&only_belayers))
            .await?;
    }
    cluster.bound(pod("web").pvc("used")).await?;
    let before = cluster.held_objects().await?;
    let printed = cluster.sh(&recipe()?).await?;
    let after = cluster.held_objects().await?;
    let left: Vec<_> = after.belayers.iter().collect();
    ensure!(
        left == [(&"claims/used".to_owned(), &vec![PVC_HOLD.to_owned()])],
        "left: {left:?}\n{printed}"
    );
    after.lost_only_belayer_holds(&before)?;
    ensure!(
        printed.contains(&format!("in use: {}/used", cluster.namespace())),
        "{printed}"
    );
    cluster.remove("web").await?;
    let printed = cluster.sh(&recipe()?).await?;
    ensure!(printed.contains("no hold of Belayer is left"), "{printed}");
    back_to_work(&cluster).await?;
    cluster
        .backend()
        .switch_pvc_controller(PvcController::On)
        .await
}

async fn guarded(cluster: Cluster) -> Result<()> {
    apply(cluster.client(), &manifest("namespace-guard-policy")?).await?;
    let shown = refuses_until_drained(&cluster).await;
    for kind in [
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
    ] {
        remove_cluster_wide(&cluster, kind, "belayer-namespace-guard").await?;
    }
    shown?;
    back_to_work(&cluster).await
}

async fn refuses_until_drained(cluster: &Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow).held()).await?;
    let namespaces = kinds::namespaces(cluster.client());
    // A dry run: admission applies all the same, and the cluster is needed afterwards.
    let try_it = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    let definitions = kinds::definitions(cluster.client());
    let belayers = ListParams::default().fields("metadata.name=podrecreations.belayer.dev");
    let others = ListParams::default().fields("metadata.name=workflows.argoproj.io");
    let refused = async |expected: bool| {
        eventually(&format!("refused: {expected}"), SOON, async || {
            let tried = definitions
                .delete("podrecreations.belayer.dev", &try_it)
                .await;
            ensure!(tried.is_err() == expected, "{:?}", tried.map(drop));
            let with_others = definitions.delete_collection(&try_it, &belayers).await;
            ensure!(
                with_others.is_err() == expected,
                "{:?}",
                with_others.map(drop)
            );
            let tried = namespaces.delete(HOME, &try_it).await;
            match (tried, expected) {
                (Err(kube::Error::Api(status)), true) => {
                    ensure!(
                        status.message.contains("run `belayer drain` first"),
                        "{}",
                        status.message
                    );
                    Ok(())
                }
                (Ok(_), false) => Ok(()),
                (tried, _) => anyhow::bail!("{:?}", tried.map(drop)),
            }
        })
        .await
    };
    refused(true).await?;
    // Other namespaces and CRDs are not affected.
    namespaces.delete(cluster.namespace(), &try_it).await?;
    definitions.delete_collection(&try_it, &others).await?;
    cluster.drain(&[]).await?.exited_with(0)?;
    cluster.is_not_held("a").await?;
    refused(false).await?;
    // A second installation of the same changes nothing.
    apply(cluster.client(), &manifest("namespace")?).await?;
    apply(cluster.client(), &manifest("namespace-guard-policy")?).await?;
    refused(false).await?;
    // After --resume, it is protected again.
    cluster.drain(&["--resume"]).await?.exited_with(0)?;
    refused(true).await
}

async fn namespace_deleted(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer().await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    cluster.workflow_is_held("w").await?;
    let namespaces = kinds::namespaces(cluster.client());
    // A finalizer of another controller delays the removal.
    let slow = json!({ "metadata": { "finalizers": ["z.example.com/slow"] } });
    let params = PatchParams::default();
    namespaces
        .patch(HOME, &params, &Patch::Merge(&slow))
        .await?;
    namespaces.delete(HOME, &DeleteParams::default()).await?;
    eventually("Belayer has noticed the deletion", SOON, async || {
        ensure!(
            belayer.log()?.contains("own namespace is being deleted"),
            "its log does not report it"
        );
        Ok(())
    })
    .await?;
    cluster.create(&pod("b").of(&workflow)).await?;
    stays_free(&cluster, "b").await?;
    let printed = cluster.drain(&[]).await?.exited_with(0)?;
    cluster.is_not_held("a").await?;
    cluster.nothing_is_held().await.context(printed.out)?;
    let gone = json!({ "metadata": { "finalizers": null } });
    namespaces
        .patch(HOME, &params, &Patch::Merge(&gone))
        .await?;
    eventually("the namespace is removed", SOON, async || {
        ensure!(namespaces.get_opt(HOME).await?.is_none(), "it still exists");
        Ok(())
    })
    .await?;
    belayer.kill().await?;
    // And when nothing of Belayer's installation is left.
    cluster.create(&pod("c").of(&workflow).held()).await?;
    let printed = cluster.drain(&[]).await?.exited_with(0)?;
    ensure!(
        printed.err.contains("namespace does not exist"),
        "{}",
        printed.err
    );
    cluster.is_not_held("c").await
}

async fn stays_free(cluster: &Cluster, name: &str) -> Result<()> {
    throughout("the pod gets no hold", Duration::from_secs(3), async || {
        let seen = cluster.pods().get(name).await?;
        ensure!(!finalizers(&seen).contains(&HOLD), "it has a hold");
        Ok(())
    })
    .await
}

async fn delete_manifests_first(cluster: Cluster) -> Result<()> {
    let belayer = cluster.start_belayer().await?;
    let workflow = cluster.workflow("w").await?;
    cluster.create(&pod("a").of(&workflow)).await?;
    cluster.is_held("a").await?;
    let manifests = crate::harness::manifests();
    let printed = cluster
        .sh(&format!(
            "kubectl delete -k {} --ignore-not-found --wait=false",
            manifests.display()
        ))
        .await?;
    ensure!(
        printed.contains("namespace \"belayer-system\""),
        "{printed}"
    );
    // Deleting the Deployment ends the process.
    belayer.kill().await?;
    let seen = cluster.pods().get("a").await?;
    ensure!(
        finalizers(&seen).contains(&HOLD),
        "the hold was removed without Belayer"
    );
    cluster.drain(&[]).await?.exited_with(0)?;
    cluster.is_not_held("a").await?;
    cluster.nothing_is_held().await
}

async fn pod_writes(cluster: Cluster) -> Result<()> {
    apply(cluster.client(), &manifest("pod-write-policy")?).await?;
    let shown = limited(&cluster).await;
    for kind in [
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
    ] {
        remove_cluster_wide(&cluster, kind, "belayer-pod-writes").await?;
    }
    shown
}

async fn limited(cluster: &Cluster) -> Result<()> {
    let workflow = cluster.workflow("w").await?;
    let others = "z.example.com/theirs";
    let big = "x".repeat(200_000);
    let built = pod("a").of(&workflow).finalizer(others);
    let built = built.annotation("example.com/big", &big);
    cluster.create(&built).await?;
    // As Belayer's account, which has the permission to patch pods.
    let kubeconfig = cluster.backend().belayer_kubeconfig();
    let belayers = kinds::pods(
        &crate::control_plane::client(kubeconfig).await?,
        cluster.namespace(),
    );
    let patch = async |body: serde_json::Value| {
        let params = PatchParams::default();
        belayers.patch("a", &params, &Patch::Merge(&body)).await
    };
    let refused = [
        json!({ "metadata": { "labels": { "a": "b" } } }),
        json!({ "metadata": { "annotations": { "example.com/a": "b" } } }),
        json!({ "metadata": { "annotations": { "example.com/big": null } } }),
        json!({ "metadata": { "annotations": { "belayer.dev/note": "b" } } }),
        json!({ "metadata": { "finalizers": [] } }),
        json!({ "metadata": { "finalizers": [others, "example.com/more"] } }),
        json!({ "metadata": { "ownerReferences": [] } }),
        json!({ "spec": { "activeDeadlineSeconds": 5 } }),
    ];
    eventually("the policy is effective", SOON, async || {
        // A new value each time: a patch without a change is allowed.
        let value = jiff::Timestamp::now().as_microsecond().to_string();
        let tried = patch(json!({ "metadata": { "labels": { "try": value } } })).await;
        ensure!(tried.is_err(), "not denied yet");
        Ok(())
    })
    .await?;
    for body in &refused {
        match patch(body.clone()).await {
            Err(kube::Error::Api(status)) if status.message.contains("belayer-pod-writes") => {}
            other => anyhow::bail!("{body}: {:?}", other.map(drop)),
        }
    }
    for allowed in [
        json!({ "metadata": { "finalizers": [others, "belayer.dev/pod-recreation"] } }),
        json!({ "metadata": { "finalizers": [others] } }),
    ] {
        patch(allowed).await?;
    }
    // An admin is not limited, and Belayer is not affected.
    cluster
        .merge("a", json!({ "metadata": { "labels": { "a": "b" } } }))
        .await?;
    let belayer = cluster.start_belayer().await?;
    cluster.is_held("a").await?;
    cluster.finish("a", "Succeeded").await?;
    cluster.consume("a").await?;
    cluster.is_not_held("a").await?;
    let denied = belayer
        .metric_or_zero("belayer_release_denied_total", &[])
        .await?;
    ensure!(denied == 0.0, "{denied} writes were denied");
    belayer.stop().await
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A cluster of one pod kind and a PVC in use that only Belayer protects, whose server answers no list of this kind.
    fn printed_without_a_list_of(kind: &str) -> String {
        let cluster = r#"
            sleep() { :; }
            kubectl() {
                case "$*" in
                    *"get $FAILS "*) echo "Error from server (ServiceUnavailable)" >&2; return 1 ;;
                    api-resources*) echo persistentvolumeclaims; echo pods ;;
                    *"get persistentvolumeclaims "*alone*) echo "u-1 0 belayer.dev/pvc-protection data shop alone" ;;
                    *" get pods "*) echo data ;;
                    *) ;;
                esac
                case "$1" in patch) echo "patched $3" ;; esac
            }
        "#;
        let output = Command::new("bash")
            .args(["-u", "-c", &format!("{cluster}\n{}", recipe().unwrap())])
            .env("FAILS", kind)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn break_glass_takes_a_failed_list_for_no_proof() {
        let in_use = printed_without_a_list_of("nothing");
        assert!(in_use.contains("in use: shop/data"), "{in_use}");
        assert!(in_use.contains("no hold of Belayer is left"), "{in_use}");
        let unknown = printed_without_a_list_of("pods");
        assert!(!unknown.contains("patched"), "{unknown}");
        for line in [
            "could not list the pods of shop/data",
            "could not list pods",
        ] {
            assert!(unknown.contains(line), "{unknown}");
        }
        assert!(!unknown.contains("no hold of Belayer is left"), "{unknown}");
    }
}
