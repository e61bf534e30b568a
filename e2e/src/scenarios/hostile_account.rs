//! T2: what a client can do that has the token of Belayer's ServiceAccount, with the admission policies about its writes.
//! Belayer itself needs nothing that they refuse.

use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::admission::with_write_policies;
use super::recreation::{held, rejection};
use crate::harness::{Cluster, NO_SCHEDULER, SOON, Scenario, eventually, pod, pvc};
use crate::kinds;
use crate::providers::Capability::{AdmissionPolicies, Faults, Rbac};

const WRITES: &str = "belayer-pod-writes";
const DELETES: &str = "belayer-pod-deletes";
const OWNERS: &str = "belayer-owner-writes";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(
            "hostile-account",
            "Belayer's own token creates no pod in the system's namespaces, deletes no pod that runs, and changes only \
             finalizers (T2)",
            account,
        )
        .needs([Rbac, AdmissionPolicies]),
    ]
}

async fn account(cluster: Cluster) -> Result<()> {
    with_write_policies(&cluster, shown(&cluster)).await
}

async fn shown(cluster: &Cluster) -> Result<()> {
    let token = crate::control_plane::client(cluster.backend().belayer_kubeconfig()).await?;
    let thief = Thief {
        cluster,
        token: &token,
    };
    thief.creates().await?;
    thief.deletes().await?;
    thief.updates_pods().await?;
    thief.updates_owners().await?;
    if !cluster.can(Faults) {
        thief.writes_beside_many_finalizers().await?;
    }
    belayer_works(cluster).await
}

/// A client with the token of Belayer's account.
struct Thief<'a> {
    cluster: &'a Cluster,
    token: &'a Client,
}

/// A pod as the thief wants it.
fn pod_of(name: &str, metadata: Value) -> Result<DynamicObject> {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {
            "schedulerName": NO_SCHEDULER, "serviceAccountName": "default", "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 1,
            // As the Pod Security level restricted requires it, which is checked before the policies.
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{ "name": "main", "image": "busybox", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
            } }],
        },
    });
    object["metadata"]["name"] = name.into();
    Ok(serde_json::from_value(object)?)
}

/// The metadata of a re-created pod.
fn marked() -> Value {
    json!({
        "annotations": { "belayer.dev/recreation-uid": "0b1a2c3d-4e5f-4071-8293-a4b5c6d7e8f9" },
        "finalizers": ["belayer.dev/pod-recreation"],
    })
}

fn is_refused<T>(what: &str, policy: &str, tried: kube::Result<T>) -> Result<()> {
    match tried {
        Ok(_) => bail!("{what}: allowed"),
        Err(error) => ensure!(
            error.to_string().contains(policy),
            "{what}: refused, but not by {policy}: {error}"
        ),
    }
    Ok(())
}

/// A patch as a dry run, so that nothing is left before the policy is effective.
async fn tried(
    objects: &Api<DynamicObject>,
    name: &str,
    body: &Value,
) -> kube::Result<DynamicObject> {
    let dry = PatchParams::default().dry_run();
    objects.patch(name, &dry, &Patch::Merge(body)).await
}

impl Thief<'_> {
    async fn creates(&self) -> Result<()> {
        let params = PostParams::default();
        let ignored = json!({ "belayer.dev/ignore": "true" });
        let ignored = self.cluster.another_namespace("ignored", ignored).await?;
        for namespace in [
            "kube-system",
            "belayer-system",
            "belayer-node-agent",
            ignored.as_str(),
        ] {
            eventually("no pod can be created there", SOON, async || {
                let made = pod_of("mine", marked())?;
                let pods = kinds::pods(self.token, namespace);
                // A dry run, so that nothing is left before the policy is effective.
                let dry = PostParams {
                    dry_run: true,
                    ..PostParams::default()
                };
                is_refused(namespace, DELETES, pods.create(&dry, &made).await)
            })
            .await?;
        }
        let pods = kinds::pods(self.token, self.cluster.namespace());
        let plain = pods.create(&params, &pod_of("plain", json!({}))?).await;
        is_refused("a pod without the mark", DELETES, plain)
    }

    async fn deletes(&self) -> Result<()> {
        let belayers = kinds::pods(self.token, self.cluster.namespace());
        for phase in ["Pending", "Running", "Succeeded"] {
            let name = phase.to_lowercase();
            self.with_status(&name, json!({}), phase).await?;
            let deleted = belayers.delete(&name, &DeleteParams::default()).await;
            is_refused(phase, DELETES, deleted)?;
        }
        // Marked, but it runs.
        self.with_status("marked", marked(), "Running").await?;
        let deleted = belayers.delete("marked", &DeleteParams::default()).await;
        is_refused("a marked pod that runs", DELETES, deleted)?;
        self.cluster
            .merge("marked", json!({ "metadata": { "finalizers": null } }))
            .await?;
        // The two that it may delete.
        self.with_status("failed", json!({}), "Failed").await?;
        belayers.delete("failed", &DeleteParams::default()).await?;
        belayers
            .create(&PostParams::default(), &pod_of("new", marked())?)
            .await?;
        belayers.delete("new", &DeleteParams::default()).await?;
        self.cluster
            .merge("new", json!({ "metadata": { "finalizers": null } }))
            .await?;
        // Not where Belayer has nothing to do.
        let system = self.cluster.pods_in("kube-system");
        let name = self.cluster.namespace();
        let admin = PostParams::default();
        system.create(&admin, &pod_of(name, json!({}))?).await?;
        let failed = Patch::Merge(json!({ "status": { "phase": "Failed" } }));
        system
            .patch_status(name, &PatchParams::default(), &failed)
            .await?;
        let theirs = kinds::pods(self.token, "kube-system");
        let deleted = theirs.delete(name, &DeleteParams::default()).await;
        system.delete(name, &DeleteParams::default()).await?;
        is_refused("a failed pod in kube-system", DELETES, deleted)
    }

    /// Creates a pod as an admin.
    async fn with_status(&self, name: &str, metadata: Value, phase: &str) -> Result<()> {
        let pods = self.cluster.pods();
        pods.create(&PostParams::default(), &pod_of(name, metadata)?)
            .await?;
        let status = Patch::Merge(json!({ "status": { "phase": phase } }));
        pods.patch_status(name, &PatchParams::default(), &status)
            .await?;
        Ok(())
    }

    async fn updates_pods(&self) -> Result<()> {
        let belayers = kinds::pods(self.token, self.cluster.namespace());
        let patch = async |body: &Value| {
            belayers
                .patch("pending", &PatchParams::default(), &Patch::Merge(body))
                .await
        };
        for mark in ["recreation", "recreation-uid", "recreation-attempt"] {
            let body =
                json!({ "metadata": { "annotations": { format!("belayer.dev/{mark}"): "x" } } });
            // Each policy becomes effective at a moment of its own.
            eventually("no mark can be written", SOON, async || {
                is_refused(mark, WRITES, tried(&belayers, "pending", &body).await)
            })
            .await?;
        }
        for annotation in [
            "belayer.dev/release",
            "belayer.dev/recreate",
            "belayer.dev/wipe",
            "example.com/other",
        ] {
            let body = json!({ "metadata": { "annotations": { annotation: "true" } } });
            is_refused(annotation, WRITES, patch(&body).await)?;
        }
        let other = json!({ "metadata": { "finalizers": ["belayer.dev/other"] } });
        is_refused("a finalizer that is no hold", WRITES, patch(&other).await)?;
        for body in [
            json!({ "metadata": { "finalizers": ["belayer.dev/pvc-protection"] } }),
            json!({ "metadata": { "generateName": "stolen-" } }),
        ] {
            is_refused(&body.to_string(), WRITES, patch(&body).await)?;
        }
        // A user's finalizer on the wrong kind may be removed.
        let wrong = json!({ "metadata": { "finalizers": ["belayer.dev/workflow-cleanup"] } });
        self.cluster.merge("pending", wrong).await?;
        patch(&json!({ "metadata": { "finalizers": null } })).await?;
        for holds in [json!(["belayer.dev/pod-recreation"]), Value::Null] {
            patch(&json!({ "metadata": { "finalizers": holds } })).await?;
        }
        self.removes_only().await
    }

    /// Where Belayer holds no pod, its account can only remove finalizers.
    async fn removes_only(&self) -> Result<()> {
        let ignored = json!({ "belayer.dev/ignore": "true" });
        let ignored = self.cluster.another_namespace("closed", ignored).await?;
        let name = self.cluster.namespace();
        let admin = PostParams::default();
        for namespace in ["kube-system", ignored.as_str()] {
            let pods = self.cluster.pods_in(namespace);
            let metadata = json!({ "finalizers": ["belayer.dev/pod-recreation"] });
            pods.create(&admin, &pod_of(name, metadata)?).await?;
            let belayers = kinds::pods(self.token, namespace);
            let patch = async |holds: Value| {
                let body = json!({ "metadata": { "finalizers": holds } });
                belayers
                    .patch(name, &PatchParams::default(), &Patch::Merge(body))
                    .await
            };
            let added = json!(["belayer.dev/pod-recreation", "belayer.dev/pod-status"]);
            let added = is_refused(namespace, WRITES, patch(added).await);
            let removed = patch(Value::Null).await;
            pods.delete(name, &DeleteParams::default()).await?;
            added?;
            removed?;
        }
        Ok(())
    }

    /// L1: a tenant can set so many finalizers that a search for each of them in a list would occupy the API server for half
    /// a minute with each write of Belayer's.
    async fn writes_beside_many_finalizers(&self) -> Result<()> {
        const MANY: usize = 20_000;
        let theirs: Vec<_> = (0..MANY).map(|index| format!("a/{index}")).collect();
        let pod = pod_of("many", json!({ "finalizers": theirs }))?;
        let pods = self.cluster.pods();
        pods.create(&PostParams::default(), &pod).await?;
        let label = json!({ "metadata": { "labels": { "a": "b" } } });
        let fastest = async |pods: &Api<DynamicObject>| {
            let mut times = Vec::new();
            for _ in 0..5 {
                let begun = Instant::now();
                let written = tried(pods, "many", &label).await;
                times.push((begun.elapsed(), written.err()));
            }
            times
                .into_iter()
                .min_by_key(|(time, _)| *time)
                .context("no time")
        };
        let belayers = kinds::pods(self.token, self.cluster.namespace());
        let (checked, refused) = fastest(&belayers).await?;
        ensure!(refused.is_some_and(|why| why.to_string().contains(WRITES)));
        let (unchecked, refused) = fastest(&pods).await?;
        ensure!(refused.is_none(), "{refused:?}");
        let ratio = checked.as_secs_f64() / unchecked.as_secs_f64();
        self.cluster.note(format!(
            "{MANY} finalizers: with the policies a write takes {ratio:.1} times as long"
        ));
        ensure!(ratio < 5.0, "{checked:?} instead of {unchecked:?}");
        let freed = json!({ "metadata": { "finalizers": null } });
        pods.patch("many", &PatchParams::default(), &Patch::Merge(&freed))
            .await?;
        Ok(())
    }

    async fn updates_owners(&self) -> Result<()> {
        let namespace = self.cluster.namespace();
        let workflow = self.cluster.workflow("w").await?;
        let pvcs = kinds::pvcs(self.cluster.client(), namespace);
        pvcs.create(&PostParams::default(), &pvc("data", json!({}))?)
            .await?;
        let workflows = kinds::workflows(self.token, namespace);
        let pvcs = kinds::pvcs(self.token, namespace);
        let theirs = "example.com/theirs";
        for (all, name) in [(&workflows, workflow.name.as_str()), (&pvcs, "data")] {
            let (hold, wrong) = match name {
                "data" => ("belayer.dev/pvc-protection", "belayer.dev/workflow-cleanup"),
                _ => ("belayer.dev/workflow-cleanup", "belayer.dev/pvc-protection"),
            };
            let kept = all.get(name).await?.finalizers().to_vec();
            let with = |more: &str| -> Value {
                let more = kept.iter().cloned().chain([more.to_owned()]);
                more.collect::<Vec<_>>().into()
            };
            let patch = async |body: &Value| {
                all.patch(name, &PatchParams::default(), &Patch::Merge(body))
                    .await
            };
            for body in [
                json!({ "metadata": { "labels": { "a": "b" } } }),
                json!({ "metadata": { "annotations": { "belayer.dev/release": "true" } } }),
                json!({ "metadata": { "generateName": "stolen-" } }),
                json!({ "metadata": { "finalizers": with(theirs) } }),
                json!({ "metadata": { "finalizers": with(wrong) } }),
                json!({ "metadata": { "ownerReferences": [
                    { "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x" } ] } }),
                json!({ "spec": { "volumeName": "stolen", "entrypoint": "stolen" } }),
            ] {
                eventually("an owner cannot be changed", SOON, async || {
                    let what = format!("{name}: {body}");
                    is_refused(&what, OWNERS, tried(all, name, &body).await)
                })
                .await?;
            }
            for finalizers in [with(hold), kept.clone().into()] {
                patch(&json!({ "metadata": { "finalizers": finalizers } })).await?;
            }
        }
        for body in [
            json!({ "status": { "phase": "Succeeded" } }),
            // A custom resource may have any field, and that of a workflow here keeps what its CRD does not name.
            json!({ "data": { "stolen": "true" } }),
            json!({ "metadata": { "finalizers": null }, "data": "stolen" }),
        ] {
            let params = PatchParams::default();
            let changed = workflows
                .patch(&workflow.name, &params, &Patch::Merge(&body))
                .await;
            is_refused(&body.to_string(), OWNERS, changed)?;
        }
        Ok(())
    }
}

/// With the policies: holds of pods and workflows, and a re-creation.
async fn belayer_works(cluster: &Cluster) -> Result<()> {
    let config = "podRecreation:\n  backoffSeconds: 1\n";
    let options = crate::harness::BelayerOptions::default().config(config);
    let belayer = cluster.start_belayer_with(&options).await?;
    let workflow = cluster.workflow("live").await?;
    cluster.create(&pod("step").of(&workflow)).await?;
    cluster.is_held("step").await?;
    cluster.finish("step", "Succeeded").await?;
    cluster.consume("step").await?;
    cluster.is_not_held("step").await?;

    let asks = json!({ "annotations": { "belayer.dev/recreate": "true" } });
    let first = cluster
        .pods()
        .create(&PostParams::default(), &pod_of("web", asks)?)
        .await?;
    held(cluster, "web").await?;
    let rejected = Patch::Merge(json!({ "status": rejection() }));
    cluster
        .pods()
        .patch_status("web", &PatchParams::default(), &rejected)
        .await?;
    eventually("it is re-created", SOON, async || {
        let pod = cluster.pods().get("web").await.context("no pod")?;
        ensure!(pod.uid() != first.uid(), "it is still the first pod");
        Ok(())
    })
    .await?;
    belayer.stop().await
}
