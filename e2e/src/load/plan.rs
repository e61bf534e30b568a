//! What a run creates and rejects. A seed decides which pods are rejected.

use std::time::Duration;

use anyhow::Result;
use belayer_sandbox::simulated::kubelet::fingerprint;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// Has the name of the run, on each of its objects.
pub(super) const RUN: &str = "load.belayer.dev/run";

/// The scheduler of the pods that are to be rejected: this program.
const SCHEDULER: &str = "belayer-load";

/// How pods come to be rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejector {
    /// This program writes the status, on nodes that have no kubelet, so that no kubelet starts the pod meanwhile.
    Status,
    /// The kubelet: the pod is bound to a node that it does not select.
    Kubelet,
}

/// What a run does.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// How many pods it creates.
    pub(crate) pods: usize,
    /// Pods per second.
    pub(crate) rate: f64,
    /// The most pods that use a node at a time; by default a share of the nodes' room.
    pub(crate) at_once: Option<usize>,
    /// The namespaces, in which it creates pods in turn.
    pub(crate) namespaces: Vec<String>,
    /// The share of pods that are rejected, from 0 to 1. It applies to re-created pods, too.
    pub(crate) rejected: f64,
    /// How they are rejected.
    pub(crate) rejector: Rejector,
    /// The pause between kills of the leader.
    pub(crate) kill_leader: Option<Duration>,
    /// How often Belayer is disturbed; without a number until the pods have their fate. More pods are created until then.
    pub(crate) disruptions: Option<usize>,
    /// `maxRetries` of pod-recreation.
    pub(crate) max_retries: usize,
    /// The image of the pods.
    pub(crate) image: String,
    /// Decides which pods are rejected, and is a part of every name.
    pub(crate) seed: u64,
    /// After this time without any change the run ends, and what is missing is lost.
    pub(crate) patience: Duration,
    /// How long the pods are watched after the fate of all is known.
    pub(crate) settle: Duration,
}

impl Plan {
    /// The value of the label [`RUN`].
    pub(super) fn run(&self) -> String {
        format!("load-{}", self.seed)
    }

    /// The selector of the run's objects.
    pub(super) fn selector(&self) -> String {
        format!("{RUN}={}", self.run())
    }

    pub(super) fn name(&self, index: usize) -> String {
        format!("load-{}-{index}", self.seed)
    }

    pub(super) fn namespace(&self, index: usize) -> &str {
        let at = index % self.namespaces.len().max(1);
        self.namespaces.get(at).map_or("default", String::as_str)
    }

    pub(super) fn index(&self, name: &str) -> Option<usize> {
        let prefix = format!("load-{}-", self.seed);
        name.strip_prefix(&prefix)?.parse().ok()
    }

    /// Whether the pod of this name is rejected, after so many others of its name.
    pub(super) fn is_rejected(&self, name: &str, before: usize) -> bool {
        const PARTS: u64 = 100_000;
        // Texts that differ only at their end have similar hashes.
        let drawn = fingerprint(&format!("{before}/{name}")) % PARTS;
        (drawn as f64) < self.rejected * PARTS as f64
    }

    /// The pod of this number, for a node of this hostname.
    pub(super) fn pod(&self, index: usize, hostname: &str) -> Result<DynamicObject> {
        let name = self.name(index);
        // What rejects a pod also binds the pods that are created after it under its name.
        let is_belayers = self.is_rejected(&name, 0);
        let scheduler = if is_belayers {
            SCHEDULER
        } else {
            "default-scheduler"
        };
        let selector = match self.rejector {
            Rejector::Kubelet if is_belayers => json!({ "kubernetes.io/hostname": hostname }),
            _ => Value::Null,
        };
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": { RUN: self.run() },
                "annotations": { "belayer.dev/recreate": "true" },
            },
            "spec": {
                "schedulerName": scheduler,
                "nodeSelector": selector,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "containers": [{ "name": "main", "image": self.image, "imagePullPolicy": "IfNotPresent" }],
            },
        });
        Ok(serde_json::from_value(pod)?)
    }
}
