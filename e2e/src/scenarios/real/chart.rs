//! The chart where its pods run: a release from its installation to its end, and the Job that drains before an uninstall.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, future};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    DynamicObject, ListParams, LogParams, Patch, PatchParams, WatchEvent, WatchParams,
};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::nodes::in_phase;
use crate::control_plane::{Program, PvcController};
use crate::harness::{Cluster, PVC_HOLD, SOON, eventually, pod, save_logs};
use crate::kinds::{self, Objects};
use crate::scenarios::chart::release::{CONTROLLERS, Release};
use crate::scenarios::chart::restored;

/// Longer than a drain and the end of all pods of the release.
const UNINSTALL: Duration = Duration::from_secs(180);

/// A kubelet writes a changed ConfigMap into volumes within some two minutes.
const RELOAD: Duration = Duration::from_secs(180);

/// The Job of the hook, its pod and its account.
const DRAIN: &str = "belayer-drain";

pub(super) async fn lives(cluster: Cluster) -> Result<()> {
    with_release(cluster, Program::Helm4, async |release| {
        installed(release).await?;
        upgraded(release).await?;
        uninstalled(release).await
    })
    .await
}

pub(super) async fn lives_with_helm3(cluster: Cluster) -> Result<()> {
    with_release(cluster, Program::Helm3, async |release| {
        installed(release).await?;
        upgraded(release).await?;
        reloaded(release).await?;
        rolled_back(release).await?;
        uninstalled(release).await
    })
    .await
}

pub(super) async fn refuses(cluster: Cluster) -> Result<()> {
    let switch = |pvcs| cluster.backend().switch_pvc_controller(pvcs);
    switch(PvcController::Off).await?;
    let shown = with_release(cluster.clone(), Program::Helm4, in_use).await;
    switch(PvcController::On).await?;
    shown
}

async fn with_release(
    cluster: Cluster,
    program: Program,
    steps: impl AsyncFnOnce(&Release) -> Result<()>,
) -> Result<()> {
    let release = Release::with_pods(&cluster, program).await?;
    let shown = steps(&release).await;
    if shown.is_err() {
        save_logs(&cluster, &release.namespace).await;
    }
    let cleaned = restored(&cluster, &release).await;
    shown?;
    cleaned
}

/// Belayer's pods that are not being deleted.
async fn replicas(release: &Release) -> Result<Vec<DynamicObject>> {
    let own = ListParams::default().labels("app.kubernetes.io/name=belayer");
    let pods = release.cluster.pods_in(&release.namespace);
    let mut pods = pods.list(&own).await?.items;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(pods)
}

/// Two replicas are ready and were never restarted.
async fn run(release: &Release) -> Result<Vec<DynamicObject>> {
    eventually("two replicas run", SOON, async || {
        let replicas = replicas(release).await?;
        let statuses: Vec<_> = replicas
            .iter()
            .map(|pod| &pod.data["status"]["containerStatuses"][0])
            .collect();
        let runs = |status: &&serde_json::Value| status["ready"] == true;
        let never = |status: &&serde_json::Value| status["restartCount"] == 0;
        ensure!(
            statuses.len() == 2 && statuses.iter().all(runs) && statuses.iter().all(never),
            "{statuses:?}"
        );
        Ok(replicas)
    })
    .await
}

async fn installed(release: &Release) -> Result<()> {
    let cluster = &release.cluster;
    let since = Instant::now();
    release.applied("install", &[]).await?;
    run(release).await?;
    cluster.note(format!(
        "installed and ready after {:.1} s",
        since.elapsed().as_secs_f64()
    ));
    // The real pod of the chart's test.
    release.helm(&["test", "belayer"]).await?;
    let (code, report) = release
        .belayer(&["check", "--service-account", CONTROLLERS])
        .await?;
    ensure!(code == 0, "{report}");

    let workflow = cluster.workflow("w").await?;
    cluster.workflow_is_held("w").await?;
    for (name, command, phase) in [("runs", "", "Running"), ("ended", "exit 0", "Succeeded")] {
        let step = pod(name).of(&workflow).scheduled().runs(command);
        cluster.create(&step).await?;
        cluster.is_held(name).await?;
        in_phase(cluster, name, phase).await?;
    }
    cluster.create(&pod("waits").of(&workflow)).await?;
    cluster.is_held("waits").await?;
    cluster.delete("ended").await?;
    cluster.stays_held("ended").await
}

/// Both replicas are replaced, and no hold is lost.
async fn upgraded(release: &Release) -> Result<()> {
    let cluster = &release.cluster;
    let since = Instant::now();
    let more = ["podAnnotations.e2e=upgraded", "config.limits.qps=50"];
    release.applied("upgrade", &more).await?;
    let replicas = run(release).await?;
    ensure!(
        replicas.iter().all(is_upgraded),
        "replicas of the old version are left"
    );
    let held = cluster.held_count().await?;
    ensure!(held == 3, "{held} of 3 pods are held");
    cluster.note(format!(
        "upgraded after {:.1} s",
        since.elapsed().as_secs_f64()
    ));
    Ok(())
}

fn is_upgraded(pod: &DynamicObject) -> bool {
    pod.annotations()
        .get("e2e")
        .is_some_and(|value| value == "upgraded")
}

/// The running pods take over a changed configuration, which the kubelet writes into their volumes.
async fn reloaded(release: &Release) -> Result<()> {
    let uids = |pods: &[DynamicObject]| {
        pods.iter()
            .filter_map(|pod| pod.uid())
            .collect::<BTreeSet<_>>()
    };
    let before = uids(&run(release).await?);
    let since = Instant::now();
    let changed = [
        "podAnnotations.e2e=upgraded",
        "config.limits.qps=50",
        "config.podFinalizer.backlogThreshold=3000",
    ];
    release.applied("upgrade", &changed).await?;
    let pods: Api<Pod> = Api::namespaced(release.cluster.client().clone(), &release.namespace);
    eventually("both replicas have reloaded", RELOAD, async || {
        for pod in replicas(release).await? {
            let log = pods.logs(&pod.name_any(), &LogParams::default()).await?;
            let reloaded = log.lines().any(|line| {
                line.contains("configuration reloaded") && line.contains("backlogThreshold")
            });
            ensure!(reloaded, "{} has not", pod.name_any());
        }
        Ok(())
    })
    .await?;
    let after = uids(&run(release).await?);
    ensure!(before == after, "pods were replaced: {before:?}, {after:?}");
    release.cluster.note(format!(
        "reloaded after {:.1} s",
        since.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// Both replicas are those of the first revision again, and no hold is lost.
async fn rolled_back(release: &Release) -> Result<()> {
    release
        .helm(&["rollback", "belayer", "1", "--wait"])
        .await?;
    let replicas = run(release).await?;
    ensure!(
        !replicas.iter().any(is_upgraded),
        "replicas of the later revision are left"
    );
    let held = release.cluster.held_count().await?;
    ensure!(held == 3, "{held} of 3 pods are held");
    Ok(())
}

async fn uninstalled(release: &Release) -> Result<()> {
    let cluster = &release.cluster;
    let since = Instant::now();
    let ended = uninstall(release).await?;
    ensure!(
        ended.helm_succeeded && ended.code == 0 && ended.job_succeeded,
        "{ended:?}"
    );
    cluster.note(format!(
        "uninstalled after {:.1} s, the Job exits with {}",
        since.elapsed().as_secs_f64(),
        ended.code
    ));
    cluster.nothing_is_held().await?;
    cluster.is_removed("ended").await?;
    in_phase(cluster, "runs", "Running").await?;
    is_gone(release).await
}

/// Nothing of the release is left but its CRDs.
async fn is_gone(release: &Release) -> Result<()> {
    let left = release.remaining().await?;
    ensure!(left.is_empty(), "left: {left}");
    let client = release.cluster.client();
    let pods = release.cluster.pods_in(&release.namespace);
    let gates = kinds::gates(client, &release.namespace);
    eventually("the pods and the gate are deleted", SOON, async || {
        let left = pods.list_metadata(&ListParams::default()).await?.items;
        ensure!(left.is_empty(), "{} pods are left", left.len());
        ensure!(gates.get_opt("belayer-gate").await?.is_none(), "the gate");
        Ok(())
    })
    .await
}

/// A PVC in use that only Belayer protects stops the uninstall.
async fn in_use(release: &Release) -> Result<()> {
    let cluster = &release.cluster;
    release.applied("install", &[]).await?;
    run(release).await?;
    cluster.create_pvc("used", json!({})).await?;
    let held = Patch::Merge(json!({ "metadata": { "finalizers": [PVC_HOLD] } }));
    cluster
        .pvcs()
        .patch("used", &PatchParams::default(), &held)
        .await?;
    cluster.bound(pod("web").pvc("used")).await?;
    let refused = uninstall(release).await?;
    ensure!(
        !refused.helm_succeeded && refused.code == 3 && !refused.job_succeeded,
        "{refused:?}"
    );
    ensure!(
        refused.printed.contains("used"),
        "helm does not print why: {}",
        refused.printed
    );
    run(release).await?;

    cluster.remove("web").await?;
    let ended = uninstall(release).await?;
    ensure!(
        ended.helm_succeeded && ended.code == 0 && ended.job_succeeded,
        "{ended:?}"
    );
    cluster.nothing_is_held().await?;
    is_gone(release).await
}

/// How an uninstall and its Job ended.
#[derive(Debug)]
struct Ended {
    helm_succeeded: bool,
    printed: String,
    job_succeeded: bool,
    /// Exit code of the Job's container.
    code: i64,
}

/// Uninstalls the release. Helm deletes the Job when it has ended, so its end is watched.
async fn uninstall(release: &Release) -> Result<Ended> {
    let client = release.cluster.client();
    let jobs = kinds::jobs(client, &release.namespace);
    let pods = release.cluster.pods_in(&release.namespace);
    eventually("no earlier Job is left", SOON, async || {
        for objects in [&jobs, &pods] {
            let left = objects.list_metadata(&of_hook()).await?.items;
            ensure!(left.is_empty(), "{} objects are left", left.len());
        }
        Ok(())
    })
    .await?;
    let helm = release.output(&["uninstall", "belayer", "--timeout=150s"]);
    let (helm, job, pod) = tokio::try_join!(
        helm,
        end_of(&jobs, |job| {
            let status = &job.data["status"];
            status["succeeded"] == 1 || status["failed"] == 1
        }),
        end_of(&pods, |pod| exit_code(pod).is_some()),
    )?;
    let account = &pod.data["spec"]["serviceAccountName"];
    ensure!(account == DRAIN, "the Job's account is {account}");
    Ok(Ended {
        helm_succeeded: helm.code == 0,
        printed: helm.printed(),
        job_succeeded: job.data["status"]["succeeded"] == 1,
        code: exit_code(&pod).context("no exit code")?,
    })
}

fn label() -> String {
    format!("app.kubernetes.io/name={DRAIN}")
}

fn of_hook() -> ListParams {
    ListParams::default().labels(&label())
}

fn exit_code(pod: &DynamicObject) -> Option<i64> {
    pod.data["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"].as_i64()
}

/// The first state of an object of the hook for which `is_end` holds.
async fn end_of(
    objects: &Objects,
    is_end: impl Fn(&DynamicObject) -> bool,
) -> Result<DynamicObject> {
    let listed = objects.list_metadata(&of_hook()).await?;
    let from = listed.metadata.resource_version;
    let parameters = WatchParams::default().labels(&label());
    let events = objects
        .watch(&parameters, &from.unwrap_or_default())
        .await?;
    let mut ends = pin!(events.filter_map(|event| future::ready(match event {
        Ok(
            WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object),
        ) if is_end(&object) => Some(object),
        _ => None,
    })));
    let end = tokio::time::timeout(UNINSTALL, ends.next()).await;
    end.context("the Job of the hook did not end in time")?
        .context("the watch ended before the Job of the hook")
}
