//! A node with a directory for its pods' files, its agent, and the controllers.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use rustix::mount::UnmountFlags;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{
    Belayer, BelayerOptions, Cluster, NO_SCHEDULER, SOON, eventually, finalizers,
};
use crate::kinds;
use crate::providers::{apply, manifest};

/// The hold (finalizer) of pod-recreation.
const HOLD: &str = "belayer.dev/pod-recreation";

/// What happens when a wipe takes too long.
#[derive(Debug, Clone, Copy)]
pub(super) enum Timeout {
    /// Wait for it.
    Never,
    /// Re-create the pod on another node after this many seconds.
    Proceed(u32),
    /// Give the pod up after this many seconds.
    Fail(u32),
}

/// A node in these scenarios.
pub(super) struct Site {
    cluster: Cluster,
    pub(super) node: String,
    dir: TempDir,
}

impl Site {
    /// A node that exists only in the API: the scenario writes what its kubelet would.
    pub(super) async fn new(cluster: &Cluster, name: &str) -> Result<Self> {
        let node = cluster.node_without_kubelet(name).await?;
        Self::on(cluster, &node).await
    }

    /// An existing node.
    pub(super) async fn on(cluster: &Cluster, node: &str) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("belayer-node-").tempdir()?;
        let site = Self {
            cluster: cluster.clone(),
            node: node.to_owned(),
            dir,
        };
        fs::create_dir(site.root())?;
        eventually("the agent's account has a token", SOON, async || {
            let backend = cluster.backend();
            backend.agent_kubeconfig(node, &site.kubeconfig()).await
        })
        .await?;
        Ok(site)
    }

    fn base(&self) -> PathBuf {
        // A root must have no symbolic link in its path.
        fs::canonicalize(self.dir.path()).unwrap_or_else(|_| self.dir.path().to_owned())
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(super) fn root(&self) -> PathBuf {
        self.base().join("root")
    }

    /// A path next to the root.
    pub(super) fn sibling(&self, name: &str) -> PathBuf {
        self.base().join(name)
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.base().join("kubeconfig")
    }

    /// The directory of a pod.
    pub(super) fn dir(&self, uid: &str) -> PathBuf {
        self.root().join(uid)
    }

    /// Creates files, as a workload's daemon prepares them for a pod before it starts.
    pub(super) fn leave_state(&self, uid: &str) -> Result<()> {
        for dir in ["content/src/deep", "cache"] {
            let dir = self.dir(uid).join(dir);
            fs::create_dir_all(&dir)?;
            for number in 0..5 {
                fs::write(dir.join(format!("file-{number}")), "of the old pod")?;
            }
        }
        Ok(())
    }

    // ---- processes

    /// The options of this node's agent.
    pub(super) fn agent_options(&self) -> BelayerOptions {
        BelayerOptions::node_agent(&self.node)
            .kubeconfig(self.kubeconfig())
            .argument(&format!("--root={}", self.root().display()))
    }

    /// Starts the agent and waits until its caches are synced.
    pub(super) async fn agent(&self) -> Result<Belayer> {
        self.cluster.start_belayer_with(&self.agent_options()).await
    }

    /// Permits the agent to read pods, which it needs for handlers only.
    pub(super) async fn allow_handlers(&self) -> Result<()> {
        apply(
            self.cluster.client(),
            &manifest("node-agent-rbac-handlers")?,
        )
        .await
    }

    /// Starts pod-recreation.
    pub(super) async fn controllers(&self, timeout: Timeout) -> Result<Belayer> {
        let (seconds, then) = match timeout {
            Timeout::Never => (3_600, "proceed"),
            Timeout::Proceed(seconds) => (seconds, "proceed"),
            Timeout::Fail(seconds) => (seconds, "fail"),
        };
        let config = format!(
            "podRecreation:\n  backoffSeconds: 1\n  wipeTimeoutSeconds: {seconds}\n  onWipeTimeout: {then}\n"
        );
        self.controllers_with(&config).await
    }

    /// Starts pod-recreation with this configuration.
    pub(super) async fn controllers_with(&self, config: &str) -> Result<Belayer> {
        let options = BelayerOptions::default()
            .argument("--controllers=pod-recreation")
            .config(config);
        self.cluster.start_belayer_with(&options).await
    }

    // ---- pods

    /// A pod that requests re-creation and wiping, with a hold and bound to this node. Returns its UID.
    pub(super) async fn pod(&self, name: &str) -> Result<String> {
        let spec = json!({
            "schedulerName": NO_SCHEDULER,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": "busybox" }],
        });
        let uid = self.create(name, spec, json!({})).await?;
        self.bind(name).await?;
        Ok(uid)
    }

    /// A pod that requests re-creation and wiping, with a hold. Returns its UID.
    pub(super) async fn create(
        &self,
        name: &str,
        spec: Value,
        annotations: Value,
    ) -> Result<String> {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "annotations": annotations },
            "spec": spec,
        });
        let annotations = &mut pod["metadata"]["annotations"];
        annotations["belayer.dev/recreate"] = "true".into();
        annotations["belayer.dev/wipe"] = "true".into();
        let pods = self.cluster.pods();
        let made = pods
            .create(&PostParams::default(), &serde_json::from_value(pod)?)
            .await?;
        eventually("the pod has the hold", SOON, async || {
            let pod = pods.get(name).await?;
            let all = finalizers(&pod);
            ensure!(all.contains(&HOLD), "{all:?}");
            Ok(())
        })
        .await?;
        made.uid().context("the pod has no UID")
    }

    /// Binds a pod to this node.
    pub(super) async fn bind(&self, name: &str) -> Result<()> {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
            "target": { "apiVersion": "v1", "kind": "Node", "name": self.node },
        });
        let bound: kube::Result<Value> = self
            .cluster
            .pods()
            .create_subresource("binding", name, &PostParams::default(), &binding)
            .await;
        bound.context("bind")?;
        Ok(())
    }

    /// Writes a status as a kubelet would.
    pub(super) async fn report(&self, name: &str, status: Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "status": status }));
        self.cluster
            .pods()
            .patch_status(name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Rejects a pod as a kubelet does.
    pub(super) async fn reject(&self, name: &str) -> Result<()> {
        let status = json!({
            "phase": "Failed", "reason": "OutOfcpu",
            "message": "Pod was rejected: Node didn't have enough resource: cpu",
        });
        self.report(name, status).await
    }

    /// The next pod of the name.
    pub(super) async fn successor(&self, name: &str, before: &str) -> Result<DynamicObject> {
        eventually("the pod is re-created", SOON, async || {
            let pod = self.cluster.pods().get(name).await?;
            ensure!(
                pod.uid().as_deref() != Some(before),
                "it is still the old pod; the record: {}",
                self.record().await?.data["status"]
            );
            Ok(pod)
        })
        .await
    }

    /// Waits until nothing of the pod is left.
    pub(super) async fn is_wiped(&self, uid: &str) -> Result<()> {
        eventually("its directory is removed", SOON, async || {
            ensure!(!self.dir(uid).exists(), "it still exists");
            Ok(())
        })
        .await
    }

    /// Checks that no scheduler can bind it to this node.
    pub(super) fn is_kept_off(&self, pod: &DynamicObject) -> Result<()> {
        let affinity = &pod.data["spec"]["affinity"]["nodeAffinity"];
        let required = &affinity["requiredDuringSchedulingIgnoredDuringExecution"];
        let text = required.to_string();
        ensure!(
            text.contains("NotIn") && text.contains(&self.node),
            "it may be bound to {}: {affinity}",
            self.node
        );
        Ok(())
    }

    // ---- records

    pub(super) fn records(&self) -> Api<DynamicObject> {
        kinds::records(self.cluster.client(), self.cluster.namespace())
    }

    /// The UIDs in the list of this node.
    pub(super) async fn listed(&self) -> Result<Vec<String>> {
        let wipes = kinds::node_wipes(self.cluster.client());
        let list = wipes.get_opt(&self.node).await?;
        let entries = list.and_then(|list| list.data["spec"]["wipes"].as_object().cloned());
        Ok(entries.into_iter().flatten().map(|(uid, _)| uid).collect())
    }

    /// Waits until the list of this node has no entry of the pod.
    pub(super) async fn is_forgotten(&self, uid: &str) -> Result<()> {
        eventually("its entry is removed", SOON, async || {
            let listed = self.listed().await?;
            ensure!(!listed.iter().any(|one| one == uid), "{listed:?}");
            Ok(())
        })
        .await
    }

    /// The one record of the scenario.
    pub(super) async fn record(&self) -> Result<DynamicObject> {
        let all = self.records().list(&Default::default()).await?;
        all.items.into_iter().next().context("no record")
    }

    pub(super) async fn in_phase(&self, phase: &str) -> Result<DynamicObject> {
        eventually(
            &format!("the record is in phase {phase}"),
            SOON,
            async || {
                let record = self.record().await?;
                let status = &record.data["status"];
                ensure!(status["phase"] == phase, "{status}");
                Ok(record)
            },
        )
        .await
    }
}

fn wiped_condition(status: &Value) -> Value {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let is_belayers = |condition: &Value| condition["type"] == "StateWiped";
    conditions.into_iter().find(is_belayers).unwrap_or_default()
}

/// `True`, `False`, or empty.
pub(super) fn wiped(status: &Value) -> String {
    let condition = wiped_condition(status);
    condition["status"].as_str().unwrap_or_default().to_owned()
}

/// The condition's message about remaining files.
pub(super) fn wiped_message(status: &Value) -> String {
    let condition = wiped_condition(status);
    condition["message"].as_str().unwrap_or_default().to_owned()
}

/// A mount that is in use, until this is released.
pub(super) struct Busy {
    point: PathBuf,
    file: File,
}

impl Busy {
    pub(super) fn mount(point: &Path) -> Result<Self> {
        fs::create_dir_all(point)?;
        let none: Option<&std::ffi::CStr> = None;
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("belayer-e2e", point, "tmpfs", flags, none).context("mount")?;
        let file = File::create(point.join("in-use"))?;
        Ok(Self {
            point: point.to_owned(),
            file,
        })
    }

    /// Whether it is still mounted.
    pub(super) fn is_there(&self) -> bool {
        self.file.metadata().is_ok() && self.point.join("in-use").exists()
    }

    /// Ends its use.
    pub(super) fn release(self) {}
}

impl Drop for Site {
    /// Unmounts, so that no mount remains on this machine.
    fn drop(&mut self) {
        let base = self.base();
        for _ in 0..64 {
            let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            let points = table.lines().filter_map(|line| line.split(' ').nth(4));
            let Some(last) = points.map(PathBuf::from).rfind(|p| p.starts_with(&base)) else {
                return;
            };
            if rustix::mount::unmount(&last, UnmountFlags::DETACH).is_err() {
                return;
            }
        }
    }
}
