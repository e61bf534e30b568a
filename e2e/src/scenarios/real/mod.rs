//! What only real nodes show: the shipped image and manifests, and what happens to pods of Belayer.

mod argo;
mod attach_limit;
mod chart;
mod evictions;
mod image;
mod leader;
mod node_agent;
mod nodes;
mod rejections;
mod shared;
mod traces;
mod wipes;

use std::future::Future;
use std::time::Duration;

use anyhow::Result;

use super::{hostile_status, install, installation};
use crate::harness::{Installed, Load, Scenario};
use crate::providers::Capability::{
    AdmissionPolicies, Argo, GarbageCollector, Helm, Jq, Kubectl, NamespaceDeletion, NodeControl,
    PvcController, RealNode, Recorder,
};

/// Deadline of a comparison of workflows.
const WORKFLOWS: Duration = Duration::from_secs(900);

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "real-install",
            "the shipped image runs by the shipped manifests: not as root, read-only, with probes and a memory limit",
            image::runs_as_shipped,
        )
        .needs([NodeControl]),
        scenario(
            "real-traces",
            "the shipped image finds a collector of traces by its name, with DNS and with /etc/hosts",
            traces::collector_by_name,
        ),
        scenario(
            "real-shared",
            "the shared scenarios row-* and workflow-* pass with Belayer as pods",
            shared::as_pods,
        )
        .needs([Recorder, GarbageCollector, NamespaceDeletion])
        .nightly(),
        scenario(
            "real-leader-killed",
            "the leader's container gets SIGKILL: the standby takes over, and nothing is lost",
            leader::killed,
        )
        .needs([NodeControl]),
        scenario(
            "real-leader-hangs",
            "the leader's container is stopped: another one leads, the liveness probe restarts it, nothing is lost",
            leader::hangs,
        )
        .needs([NodeControl])
        .nightly(),
        scenario(
            "real-leader-evicted",
            "the leader is evicted: it releases the Lease, and nothing is lost",
            leader::evicted,
        ),
        scenario(
            "real-node-drained",
            "kubectl drain waits for the held pods of the node, and for nothing else",
            nodes::drained,
        ),
        scenario(
            "real-evictions",
            "evicted, tainted and drained pods keep their holds; the commands of the page show and release them",
            evictions::all_ways,
        )
        .needs([NodeControl, Jq]),
        scenario(
            "real-node-lost",
            "the leader's node is lost: the standby takes over and releases the pods of that node as NodeLost",
            nodes::lost,
        )
        .needs([NodeControl]),
        scenario(
            "real-rolling-update",
            "a rolling update under load: every pod is held and released",
            leader::updated,
        ),
        scenario(
            "real-memory-limit",
            "a replica that exceeds its memory limit is killed by the kernel; the other one works on",
            image::memory_limit,
        ),
        scenario(
            "real-hostile-memory",
            "twelve workflows of 480,000 nodes each and a decompression bomb: both replicas stay below 300 MiB (T3)",
            image::hostile_memory,
        )
        .within(Duration::from_secs(600)),
        scenario(
            "real-node-without-room",
            "two kubelets reject a pod with OutOfcpu; it is re-created until a node has room",
            rejections::no_room,
        ),
        scenario(
            "real-kubelet-restarted",
            "a pod that ran is rejected with NodeAffinity when its kubelet restarts, and is not re-created",
            rejections::ran_once,
        )
        .needs([NodeControl]),
        scenario(
            "real-attach-limit",
            "R4: a kubelet rejects a pod after two minutes because its node has too many volumes; it is re-created",
            attach_limit::recreated_after,
        )
        .needs([NodeControl])
        .within(Duration::from_secs(600))
        .nightly(),
        scenario(
            "real-recreation-load",
            "R13: 300 pods, of which kubelets reject 30 %, with kills of the leader: none is lost, none starts twice",
            rejections::load,
        )
        .within(Duration::from_secs(1_800))
        .with_load(Load::Heavy)
        .nightly(),
        scenario(
            "real-node-agent",
            "the shipped DaemonSet wipes the directory of a rejected pod, and not that of a running one",
            node_agent::wipes,
        )
        .needs([NodeControl]),
        scenario(
            "real-last-rejection-wiped",
            "R6, R7: the last rejected pods lose their holds at once, and are wiped after a kill of the agent",
            wipes::last_rejections,
        )
        .needs([NodeControl])
        .nightly(),
        scenario(
            "real-rejected-pod-labelled",
            "R3: a pod that a kubelet rejected gets a label, and is re-created once, with it",
            wipes::labelled,
        )
        .needs([NodeControl])
        .nightly(),
        scenario(
            "real-node-agent-unmount",
            "the privileged overlay unmounts below a rejected pod's directory, and refuses the UID of a running pod",
            node_agent::unmounts,
        )
        .needs([NodeControl])
        .nightly(),
        Scenario::alone(
            "real-chart",
            "helm installs, upgrades and uninstalls Belayer's pods; the Job before the uninstall leaves no finalizer",
            chart::lives,
        )
        .needs([RealNode, Kubectl, Helm, AdmissionPolicies])
        .within(Duration::from_secs(600)),
        Scenario::alone(
            "real-chart-helm3",
            "the same with Helm 3; the pods take over a changed configuration, and a rollback brings back the first revision",
            chart::lives_with_helm3,
        )
        .needs([RealNode, Kubectl, Helm, AdmissionPolicies])
        .within(Duration::from_secs(900))
        .nightly(),
        Scenario::alone(
            "real-chart-refused",
            "the Job before an uninstall fails while a PVC is in use; nothing is deleted, and the next one succeeds",
            chart::refuses,
        )
        .needs([RealNode, Kubectl, Helm, AdmissionPolicies, PvcController])
        .within(Duration::from_secs(600))
        .nightly(),
        scenario(
            "real-argo",
            "workflows of the real Argo end with Belayer as without it",
            argo::same_ends,
        )
        .needs([NodeControl, Argo])
        .within(WORKFLOWS),
        scenario(
            "real-argo-node-lost",
            "a node is lost with running steps of the real Argo: the workflow ends with Belayer as without it",
            argo::lost::same_ends,
        )
        .needs([NodeControl, Argo])
        .within(WORKFLOWS),
        scenario(
            "real-argo-killed",
            "the real Argo is killed and its ended pods are deleted: no result is lost",
            argo::results_survive,
        )
        .needs([NodeControl, Argo])
        .within(WORKFLOWS),
    ]
}

/// A scenario with Belayer as pods, which is removed afterwards.
fn scenario<F>(name: &'static str, shows: &'static str, steps: fn(Installed) -> F) -> Scenario
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    Scenario::alone(name, shows, move |cluster| async move {
        let shown = match Installed::install(&cluster).await {
            Ok(belayer) => {
                let shown = steps(belayer.clone()).await;
                if shown.is_err() {
                    belayer.save_logs().await;
                }
                shown
            }
            Err(error) => Err(error.context("install Belayer")),
        };
        let removed = installation::remove(&cluster).await;
        shown?;
        removed
    })
    .needs([RealNode, Kubectl, AdmissionPolicies])
}
