//! Pods that a kubelet rejected, while the shipped node agent cannot wipe them yet: those that are not re-created lose their
//! holds at once (rules R6 and R7), and the others may be changed (rule R3).

use std::future::Future;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{DynamicObject, ListParams};
use serde_json::{Value, json};

use super::node_agent::{files, start_agents, to_wipe};
use super::nodes::in_phase;
use super::rejections::{fill, most_cpus, successor};
use crate::control_plane::RealNode;
use crate::harness::{Cluster, HOME, Installed, NO_SCHEDULER, SOON, eventually, finalizers};
use crate::kinds;
use crate::scenarios::recreation::{bind, held, records};

/// The namespace of the node agents.
const AGENTS: &str = "belayer-node-agent";

const CONFIG: &str = "podRecreation: {maxRetries: 1, backoff: {initial: 1s, factor: 1}}";

pub(super) async fn last_rejections(belayer: Installed) -> Result<()> {
    configure(&belayer, CONFIG).await?;
    let site = Site::new(&belayer).await?;
    let shown = async {
        let cancelled = site.deleted_by_its_user().await?;
        let exhausted = site.exhausted().await?;
        site.are_wiped_later(&[cancelled, exhausted]).await
    };
    site.unmounts_after(shown).await
}

pub(super) async fn labelled(belayer: Installed) -> Result<()> {
    let site = Site::new(&belayer).await?;
    site.unmounts_after(site.is_labelled()).await
}

/// Gives pod-recreation a configuration file.
async fn configure(belayer: &Installed, config: &str) -> Result<()> {
    let patch = json!([
        { "op": "add", "path": "/spec/template/spec/volumes",
          "value": [{ "name": "config", "configMap": { "name": "recreation" } }] },
        { "op": "add", "path": "/spec/template/spec/containers/0/volumeMounts",
          "value": [{ "name": "config", "mountPath": "/etc/belayer" }] },
        { "op": "add", "path": "/spec/template/spec/containers/0/args/-",
          "value": "--config=/etc/belayer/belayer.yaml" },
    ]);
    let script = format!(
        "set -e; kubectl -n {HOME} create configmap recreation --from-literal=belayer.yaml='apiVersion: \
         config.belayer.dev/v1alpha1\n{config}'
        kubectl -n {HOME} patch deployment belayer-pod-recreation --type=json --patch '{patch}'"
    );
    belayer.cluster.sh(&script).await?;
    belayer.is_rolled_out().await
}

/// A node that has no room for the pods, and its agent.
struct Site<'a> {
    belayer: &'a Installed,
    node: &'a RealNode,
    cpu: String,
}

/// A rejected pod that is not re-created.
struct Last {
    uid: String,
    files: PathBuf,
    record: String,
}

impl<'a> Site<'a> {
    async fn new(belayer: &'a Installed) -> Result<Self> {
        let cluster = &belayer.cluster;
        start_agents(cluster, "node-agent").await?;
        let node = cluster.backend().nodes().first().context("no node")?;
        let cpu = most_cpus(cluster, node.name()).await?;
        fill(cluster, node.name(), &cpu).await?;
        Ok(Self { belayer, node, cpu })
    }

    fn cluster(&self) -> &Cluster {
        &self.belayer.cluster
    }

    /// A mount that a failed scenario left would keep the files of the node.
    async fn unmounts_after(&self, shown: impl Future<Output = Result<()>>) -> Result<()> {
        let shown = shown.await;
        let unmounted = self.unmount_all().await;
        shown?;
        unmounted
    }

    async fn create(&self, name: &str) -> Result<DynamicObject> {
        let unscheduled = json!({ "schedulerName": NO_SCHEDULER });
        let pod = to_wipe(name).cpu(&self.cpu).spec(unscheduled);
        let pod = self.cluster().create(&pod).await?;
        held(self.cluster(), name).await?;
        Ok(pod)
    }

    /// Prepares files of the pod and a mount below them, which the agent leaves alone, and has its kubelet reject it.
    async fn rejected(&self, pod: &DynamicObject, phase: &str) -> Result<Last> {
        let files = files(self.node, pod).await?;
        let uid = pod.uid().context("no uid")?;
        let mount = format!("mount -t tmpfs tmpfs /var/lib/workspaces/{uid}/cache");
        self.node.sh(&mount).await?;
        bind(self.cluster(), &pod.name_any(), self.node.name()).await?;
        let record = eventually("the agent reports the mount", SOON, async || {
            let all = records(self.cluster()).list(&ListParams::default()).await?;
            let of_pod = |record: &&DynamicObject| record.data["status"]["rejectedUID"] == *uid;
            let record = all.iter().find(of_pod).context("no record of it")?;
            let status = &record.data["status"];
            let wiped = condition(status);
            let message = wiped["message"].as_str().unwrap_or_default();
            ensure!(
                status["phase"] == phase && status["reason"] == "OutOfcpu",
                "{status}"
            );
            ensure!(
                wiped["status"] == "False" && message.contains("cache is a mount"),
                "{wiped}"
            );
            Ok(record.name_any())
        })
        .await?;
        Ok(Last { uid, files, record })
    }

    /// The user deletes the rejected pod before Belayer does: its record ends.
    async fn deleted_by_its_user(&self) -> Result<Last> {
        let pod = self.create("deleted").await?;
        let last = self.rejected(&pod, "Rejected").await?;
        self.cluster().delete("deleted").await?;
        self.cluster().is_removed("deleted").await?;
        eventually("its record ends", SOON, async || {
            let status = self.status(&last).await?;
            ensure!(status["phase"] == "Ended", "{status}");
            Ok(())
        })
        .await?;
        Ok(last)
    }

    /// The re-created pod is rejected too, and no further re-creation is allowed. Nothing of the first one is left.
    async fn exhausted(&self) -> Result<Last> {
        let first = self.create("web").await?;
        bind(self.cluster(), "web", self.node.name()).await?;
        let second = successor(self.cluster(), &first).await?;
        held(self.cluster(), "web").await?;
        let last = self.rejected(&second, "Exhausted").await?;
        eventually("its hold leaves at once", SOON, async || {
            let pod = self.cluster().pods().get("web").await?;
            ensure!(finalizers(&pod).is_empty(), "{:?}", finalizers(&pod));
            Ok(())
        })
        .await?;
        ensure!(last.files.exists(), "its files were removed");
        // From here on, only the list of the node knows of it.
        self.cluster().delete("web").await?;
        self.cluster().is_removed("web").await?;
        Ok(last)
    }

    async fn are_wiped_later(&self, all: &[Last]) -> Result<()> {
        let pending = all.len() as f64;
        self.are_listed(all).await?;
        self.are_pending(pending).await?;
        self.restart_agent().await?;
        self.are_pending(pending).await?;
        self.are_listed(all).await?;
        for last in all {
            ensure!(last.files.exists(), "the files of {} are gone", last.uid);
        }
        let since = Instant::now();
        self.unmount_all().await?;
        eventually("their directories are removed", SOON, async || {
            for last in all {
                ensure!(!last.files.exists(), "that of {} exists", last.uid);
                let wiped = condition(&self.status(last).await?).clone();
                ensure!(wiped["status"] == "True", "{wiped}");
            }
            Ok(())
        })
        .await?;
        self.cluster().note(format!(
            "wiped and reported {:.1} s after the mounts were removed",
            since.elapsed().as_secs_f64()
        ));
        self.are_listed(&[]).await?;
        self.are_pending(0.0).await
    }

    /// Its user labels and annotates a rejected pod, before Belayer intends to delete it.
    async fn is_labelled(&self) -> Result<()> {
        let cluster = self.cluster();
        let first = self.create("web").await?;
        let rejected = self.rejected(&first, "Rejected").await?;
        let namespace = cluster.namespace();
        let change = format!(
            "set -e; kubectl -n {namespace} label pod web tier=front
            kubectl -n {namespace} annotate pod web note=late"
        );
        cluster.sh(&change).await?;
        let changed = cluster.pods().get("web").await?;
        let status = self.status(&rejected).await?;
        ensure!(
            changed.uid() == first.uid() && status["phase"] == "Rejected",
            "it is too late: {status}"
        );
        self.unmount_all().await?;
        let second = successor(cluster, &first).await?;
        let note = second.annotations().get("note").map(String::as_str);
        let tier = second.labels().get("tier").map(String::as_str);
        ensure!(
            (tier, note) == (Some("front"), Some("late")),
            "{:?}",
            second.metadata
        );
        cluster
            .delete(&format!("filler-{}", self.node.name()))
            .await?;
        cluster
            .is_removed(&format!("filler-{}", self.node.name()))
            .await?;
        bind(cluster, "web", self.node.name()).await?;
        in_phase(cluster, "web", "Running").await?;
        let record = eventually("its record is in phase Started", SOON, async || {
            let record = records(cluster).get(&rejected.record).await?;
            let phase = &record.data["status"]["phase"];
            ensure!(phase == "Started", "its phase is {phase}");
            Ok(record)
        })
        .await?;
        let status = &record.data["status"];
        ensure!(
            status["podStarts"] == 2 && status["podRecreated"] == 1,
            "{status}"
        );
        // The spec of the record is immutable: what changed later is in its status.
        let metadata = &status["podMetadata"];
        let recorded = &record.data["spec"]["pod"]["metadata"];
        ensure!(
            metadata["labels"]["tier"] == "front" && metadata["annotations"]["note"] == "late",
            "{metadata}"
        );
        ensure!(recorded["labels"]["tier"].is_null(), "{recorded}");
        self.events_are(&["Recreated", "RecreatedPodStarted"]).await
    }

    /// Waits until the Events of Belayer about the scenario's pods and records have these reasons, each once.
    async fn events_are(&self, expected: &[&str]) -> Result<()> {
        eventually("the Events are right", SOON, async || {
            let events = kinds::events(self.cluster().client(), self.cluster().namespace());
            let events = events.list(&ListParams::default()).await?;
            let of_belayer = events.iter().filter(|event| {
                let source = event.data["source"]["component"].as_str();
                let source = source.or_else(|| event.data["reportingComponent"].as_str());
                source.is_some_and(|source| source.starts_with("belayer"))
            });
            let mut reasons: Vec<&str> = of_belayer
                .filter_map(|event| event.data["reason"].as_str())
                .collect();
            reasons.sort_unstable();
            let mut expected = expected.to_vec();
            expected.sort_unstable();
            ensure!(reasons == expected, "{reasons:?}");
            Ok(())
        })
        .await
    }

    async fn status(&self, last: &Last) -> Result<Value> {
        let record = records(self.cluster()).get(&last.record).await?;
        Ok(record.data["status"].clone())
    }

    /// Waits until the list of the node has the entries of these pods, and no others.
    async fn are_listed(&self, all: &[Last]) -> Result<()> {
        let mut expected: Vec<&str> = all.iter().map(|last| &*last.uid).collect();
        expected.sort_unstable();
        eventually("the list of the node is right", SOON, async || {
            let wipes = kinds::node_wipes(self.cluster().client());
            let list = wipes.get(self.node.name()).await?;
            let entries = list.data["spec"]["wipes"].as_object();
            let mut listed: Vec<&str> = entries
                .into_iter()
                .flat_map(|all| all.keys().map(String::as_str))
                .collect();
            listed.sort_unstable();
            ensure!(listed == expected, "{listed:?} instead of {expected:?}");
            Ok(())
        })
        .await
    }

    /// The pod of the node's agent.
    async fn agent(&self) -> Result<DynamicObject> {
        let on_node = ListParams::default().fields(&format!("spec.nodeName={}", self.node.name()));
        let agents = self.cluster().pods_in(AGENTS).list(&on_node).await?;
        agents.items.into_iter().next().context("no agent")
    }

    /// Waits until the agent's metric has this value.
    async fn are_pending(&self, expected: f64) -> Result<()> {
        eventually("belayer_wipes_pending is right", SOON, async || {
            let name = self.agent().await?.name_any();
            let pending = self
                .belayer
                .metric_of((AGENTS, &name), "belayer_wipes_pending", &[])
                .await?;
            ensure!((pending - expected).abs() < f64::EPSILON, "{pending}");
            Ok(())
        })
        .await
    }

    /// Kills the agent with SIGKILL. Its kubelet starts it again.
    async fn restart_agent(&self) -> Result<()> {
        let agent = self.agent().await?;
        self.belayer.container_of(&agent)?.kill()?;
        eventually("the agent is ready again", SOON, async || {
            let agent = self.agent().await?;
            let container = &agent.data["status"]["containerStatuses"][0];
            ensure!(
                container["restartCount"] == 1 && container["ready"] == true,
                "{container}"
            );
            Ok(())
        })
        .await
    }

    async fn unmount_all(&self) -> Result<()> {
        let script =
            "for dir in $(awk '$5 ~ \"^/var/lib/workspaces/\" {print $5}' /proc/self/mountinfo); do
            umount $dir || exit 1
        done";
        self.node.sh(script).await.map(drop)
    }
}

/// The condition about the wipe.
fn condition(status: &Value) -> &Value {
    let conditions = status["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions
        .find(|condition| condition["type"] == "StateWiped")
        .unwrap_or(&Value::Null)
}
