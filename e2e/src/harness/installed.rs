//! Belayer as a cluster runs it: the shipped manifests, the shipped image, on real nodes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, EvictParams, ListParams};
use kube::{Api, Client, ResourceExt as _};

use super::belayer::sum;
use super::cluster::{Cluster, HOME};
use super::scenario::Scenario;
use crate::control_plane::{Container, RealNode};
use crate::kinds;
use crate::wait::{SOON, eventually};

/// The Lease of the controllers other than pod-recreation.
pub(crate) const LEASE: &str = "belayer";

/// How many shared scenarios run at the same time.
const AT_ONCE: usize = 8;

/// The shipped manifests.
pub fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/manifests")
}

/// Belayer in the cluster, as pods.
#[derive(Clone)]
pub struct Installed {
    /// The scenario's cluster.
    pub cluster: Cluster,
}

impl Installed {
    /// Applies the shipped manifests, and waits until all replicas are ready and one leads.
    pub async fn install(cluster: &Cluster) -> Result<Self> {
        for node in cluster.backend().nodes() {
            node.power_on().await?;
        }
        let installed = Self {
            cluster: cluster.clone(),
        };
        let home = manifests();
        cluster
            .sh(&format!("kubectl apply -k {}", home.display()))
            .await?;
        installed.is_rolled_out().await?;
        installed.leader().await?;
        Ok(installed)
    }

    /// Waits until the Deployment has all replicas of its current version, and no other.
    pub async fn is_rolled_out(&self) -> Result<()> {
        self.cluster
            .sh("for name in belayer belayer-pod-recreation; do
                kubectl -n belayer-system rollout status deployment/$name --timeout=240s || exit 1
            done")
            .await?;
        eventually("two replicas are ready", SOON, async || {
            let ready = self.replicas().await?.into_iter().filter(is_ready).count();
            ensure!(ready == 2, "{ready} are");
            Ok(())
        })
        .await
    }

    /// The pods that are not being deleted.
    pub async fn replicas(&self) -> Result<Vec<DynamicObject>> {
        let own = ListParams::default().labels("app.kubernetes.io/name=belayer");
        let mut pods = self.cluster.pods_in(HOME).list(&own).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(pods)
    }

    /// The identity of the leader, from the Lease; it begins with the name of its pod.
    pub async fn holder(&self) -> Result<String> {
        lease_holder(self.cluster.client(), HOME, LEASE).await
    }

    /// The leader's pod, once it is ready.
    pub async fn leader(&self) -> Result<DynamicObject> {
        eventually("a replica is the leader", SOON, async || {
            let holder = self.holder().await?;
            let name = holder.split('_').next().unwrap_or_default();
            let pod = self.cluster.pods_in(HOME).get(name).await?;
            ensure!(is_ready(&pod), "the leader {name} is not ready");
            Ok(pod)
        })
        .await
    }

    /// Waits until another process than `holder` is the leader. Returns the time since `since`.
    pub async fn is_succeeded(&self, holder: &str, since: Instant) -> Result<Duration> {
        eventually("another replica is the leader", SOON, async || {
            let now = self.holder().await?;
            ensure!(now != holder, "{holder} still is");
            Ok(since.elapsed())
        })
        .await
    }

    /// The node of a pod.
    pub fn node_of(&self, pod: &DynamicObject) -> Result<&RealNode> {
        let name = pod.data["spec"]["nodeName"].as_str().unwrap_or_default();
        let mut nodes = self.cluster.backend().nodes().iter();
        nodes
            .find(|node| node.name() == name)
            .with_context(|| format!("the pod {} is not on a node", pod.name_any()))
    }

    /// The container of a pod, on its node.
    pub fn container_of(&self, pod: &DynamicObject) -> Result<Container> {
        let id = pod.data["status"]["containerStatuses"][0]["containerID"].as_str();
        let id = id.and_then(|id| id.strip_prefix("containerd://"));
        self.node_of(pod)?
            .container(id.context("the pod has no container")?)
    }

    /// The sum of the series of the leader's metric with these labels; an error if there is none.
    pub async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        let leader = self.leader().await?.name_any();
        self.metric_of((HOME, &leader), name, labels).await
    }

    /// The sum of the series of a metric of a pod, by its namespace and name, with these labels; an error if there is none.
    pub async fn metric_of(
        &self,
        (namespace, pod): (&str, &str),
        name: &str,
        labels: &[(&str, &str)],
    ) -> Result<f64> {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:8080/proxy/metrics");
        let request = http::Request::get(path).body(Vec::new())?;
        let text = self.cluster.client().request_text(request).await?;
        sum(&text, name, labels)
            .with_context(|| format!("{pod} has no series {name} with the labels {labels:?}"))
    }

    /// Evicts a pod of Belayer's.
    pub async fn evict(&self, pod: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client().clone(), HOME);
        pods.evict(pod, &EvictParams::default()).await?;
        Ok(())
    }

    /// Runs shared scenarios with these pods, each in its own namespace, and cleans up after each.
    /// The error names those that fail.
    pub async fn run(&self, scenarios: &[Scenario]) -> Result<()> {
        let runs: Vec<_> = scenarios
            .iter()
            .map(|scenario| self.run_one(scenario).boxed())
            .collect();
        let results: Vec<Result<()>> = futures::stream::iter(runs)
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let failed = results.into_iter().filter_map(Result::err);
        let failed: Vec<String> = failed.map(|error| format!("{error:#}")).collect();
        ensure!(failed.is_empty(), "{}", failed.join("\n"));
        Ok(())
    }

    async fn run_one(&self, scenario: &Scenario) -> Result<()> {
        self.ran(scenario).await.context(scenario.name)
    }

    async fn ran(&self, scenario: &Scenario) -> Result<()> {
        let cluster = self.cluster.beside(scenario.name).await?;
        let steps = scenario.run(cluster.clone());
        let result = tokio::time::timeout(scenario.deadline, steps).await;
        let cleaned = cluster.clean_up().await;
        result.context("it timed out")??;
        cleaned.context("clean up")?.removed().await
    }

    /// Writes the logs of all replicas into the scenario's folder.
    pub async fn save_logs(&self) {
        save_logs(&self.cluster, HOME).await;
    }
}

/// Writes the logs of all pods of a namespace, and what the cluster has of pods and Events, into the scenario's folder.
pub async fn save_logs(cluster: &Cluster, namespace: &str) {
    let script = format!(
        "cd {}; kubectl get pods -A -o wide >pods.txt; kubectl get events -A >events.txt
        for pod in $(kubectl -n {namespace} get pods -o name); do
            kubectl -n {namespace} logs $pod >${{pod#*/}}.log
            kubectl -n {namespace} logs --previous $pod >${{pod#*/}}.previous.log
        done; true",
        cluster.dir().display()
    );
    // The scenario's own error is reported.
    let _ = cluster.sh(&script).await;
}

/// The identity of the leader, from a Lease in Belayer's namespace.
pub async fn lease_holder(client: &Client, namespace: &str, lease: &str) -> Result<String> {
    let lease = kinds::leases(client, namespace).get(lease).await?;
    let holder = lease.data["spec"]["holderIdentity"].as_str();
    let holder = holder.filter(|holder| !holder.is_empty());
    Ok(holder.context("no replica is the leader")?.to_owned())
}

fn is_ready(pod: &DynamicObject) -> bool {
    let conditions = pod.data["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}
