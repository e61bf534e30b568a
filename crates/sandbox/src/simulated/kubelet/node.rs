//! A simulated node: its capacity, and its Node object.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::quantity::parse_milli;
use crate::simulated::quantity::Amount;

/// A simulated node. Part of the [`KubeletConfig`](crate::simulated::KubeletConfig); the
/// [example](crate::simulated) keeps the default nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    /// `metadata.name`.
    pub name: String,
    /// Cores, as a Kubernetes quantity.
    pub cpu: String,
    /// Memory, as a Kubernetes quantity.
    pub memory: String,
    /// Pod slots.
    pub pods: u32,
    /// Labels in addition to `kubernetes.io/hostname`.
    pub labels: BTreeMap<String, String>,
}

impl NodeSpec {
    /// A node big enough never to be full: 1,000 cores, 4 Ti, 10,000 pods.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            cpu: "1000".to_owned(),
            memory: "4Ti".to_owned(),
            pods: 10_000,
            labels: BTreeMap::new(),
        }
    }

    /// `node-1` to `node-N`, all as [`NodeSpec::new`] makes them.
    #[must_use]
    pub fn many(count: usize) -> Vec<Self> {
        (1..=count)
            .map(|n| Self::new(format!("node-{n}")))
            .collect()
    }

    /// With this many cores, as a Kubernetes quantity.
    #[must_use]
    pub fn cpu(self, cpu: impl Into<String>) -> Self {
        Self {
            cpu: cpu.into(),
            ..self
        }
    }

    /// With this much memory, as a Kubernetes quantity.
    #[must_use]
    pub fn memory(self, memory: impl Into<String>) -> Self {
        Self {
            memory: memory.into(),
            ..self
        }
    }

    /// With this many pod slots.
    #[must_use]
    pub fn pods(self, pods: u32) -> Self {
        Self { pods, ..self }
    }

    /// With this label in addition.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    pub(super) fn capacity(&self) -> Amount {
        Amount {
            cpu: parse_milli(&self.cpu).unwrap_or_default(),
            memory: parse_milli(&self.memory).unwrap_or_default(),
            pods: i128::from(self.pods),
        }
    }

    /// The object a kubelet registers.
    pub(super) fn object(&self, address: &str, now: &str) -> Value {
        let mut labels = self.labels.clone();
        labels.insert("kubernetes.io/hostname".to_owned(), self.name.clone());
        labels.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {},
            "status": self.status(address, now),
        })
    }

    pub(super) fn status(&self, address: &str, now: &str) -> Value {
        let resources =
            json!({"cpu": self.cpu, "memory": self.memory, "pods": self.pods.to_string()});
        json!({
            "capacity": resources,
            "allocatable": resources,
            "conditions": [ready(Readiness::Ready, now)],
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": self.name},
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.36.0-sandbox", "operatingSystem": "linux",
                "architecture": "amd64", "containerRuntimeVersion": "sandbox://1",
                "kernelVersion": "", "osImage": "sandbox", "machineID": "", "systemUUID": "",
                "bootID": "", "kubeProxyVersion": "",
            },
        })
    }
}

/// The state of a node's kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// The kubelet reports that it is ready.
    Ready,
    /// The kubelet has not reported for a long time.
    Unknown,
}

/// The `Ready` condition.
pub(super) fn ready(readiness: Readiness, now: &str) -> Value {
    let (status, reason, message) = match readiness {
        Readiness::Ready => ("True", "KubeletReady", "kubelet is posting ready status"),
        Readiness::Unknown => (
            "Unknown",
            "NodeStatusUnknown",
            "Kubelet stopped posting node status.",
        ),
    };
    json!({
        "type": "Ready", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now, "lastHeartbeatTime": now,
    })
}
