//! Shared by the tests of the simulated controllers: a cluster with some of them, on paused time.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{RunningControllers, SimulatedControllers, object};
use crate::address::{Actor, Gvr, Subresource};
use crate::clock::{Clock, Epoch, SharedRng};
use crate::cluster::{Cluster, DeleteOptions, ListOptions, Patch, Propagation, WriteOptions};

pub(crate) const NS: &str = "default";

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) controllers: RunningControllers,
    cancel: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

pub(crate) fn bare_cluster() -> Cluster {
    let epoch = Epoch::Fixed("2026-01-01T00:00:00Z".parse().unwrap());
    Cluster::new(Clock::new(epoch), SharedRng::new(1), 1_000_000)
}

pub(crate) fn world(controllers: SimulatedControllers) -> World {
    World::around(bare_cluster(), controllers)
}

fn user() -> Actor {
    Actor::new("user")
}

impl World {
    pub(crate) fn around(cluster: Cluster, controllers: SimulatedControllers) -> Self {
        let cancel = CancellationToken::new();
        let controllers = controllers.start(&cluster, &cancel);
        Self {
            cluster,
            controllers,
            cancel,
        }
    }

    /// Runs everything that is due within the next millisecond.
    pub(crate) async fn settle(&self) {
        self.pass(Duration::from_millis(1)).await;
    }

    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    pub(crate) fn create_in(&self, gvr: &Gvr, namespace: Option<&str>, object: Value) -> String {
        let object = self
            .cluster
            .create(&user(), gvr, namespace, object, &WriteOptions::default())
            .unwrap();
        object::uid(&object).to_owned()
    }

    pub(crate) fn create(&self, gvr: &Gvr, object: Value) -> String {
        self.create_in(gvr, Some(NS), object)
    }

    pub(crate) fn get(&self, gvr: &Gvr, name: &str) -> Option<Arc<Value>> {
        let namespace = (!matches!(&*gvr.resource, "nodes" | "namespaces")).then_some(NS);
        self.cluster.get(gvr, namespace, name).ok()
    }

    pub(crate) fn pod(&self, name: &str) -> Arc<Value> {
        self.get(&Gvr::PODS, name)
            .unwrap_or_else(|| panic!("pod {name} not found"))
    }

    pub(crate) fn names(&self, gvr: &Gvr) -> Vec<String> {
        let page = self
            .cluster
            .list(gvr, None, &ListOptions::default())
            .unwrap();
        page.items
            .iter()
            .map(|object| object::name(object).to_owned())
            .collect()
    }

    pub(crate) fn delete(&self, gvr: &Gvr, name: &str) {
        self.delete_with(gvr, name, DeleteOptions::default());
    }

    pub(crate) fn delete_by(&self, gvr: &Gvr, name: &str, policy: Propagation) {
        let options = DeleteOptions {
            propagation_policy: Some(policy),
            ..DeleteOptions::default()
        };
        self.delete_with(gvr, name, options);
    }

    pub(crate) fn delete_with(&self, gvr: &Gvr, name: &str, options: DeleteOptions) {
        let namespace = (!matches!(&*gvr.resource, "nodes" | "namespaces")).then_some(NS);
        self.cluster
            .delete(&user(), gvr, namespace, name, &options)
            .unwrap();
    }

    pub(crate) fn patch(&self, gvr: &Gvr, name: &str, patch: Value) {
        let namespace = (!matches!(&*gvr.resource, "nodes" | "namespaces")).then_some(NS);
        let options = WriteOptions::default();
        self.cluster
            .patch(
                &user(),
                gvr,
                namespace,
                name,
                Patch::Merge(patch),
                Subresource::None,
                &options,
            )
            .unwrap();
    }

    /// What an actor wrote, as `verb resource/subresource name`.
    pub(crate) fn written_by(&self, actor: &str) -> Vec<String> {
        let writes = self.cluster.recorder().writes_by(actor);
        writes
            .iter()
            .map(|write| {
                let slash = if write.subresource.is_empty() {
                    ""
                } else {
                    "/"
                };
                let resource = &write.resource.resource;
                let verb = write.verb.as_str();
                format!(
                    "{verb} {resource}{slash}{} {}",
                    write.subresource, write.key.name
                )
            })
            .collect()
    }
}

/// A ConfigMap with these owners: `(name, uid, blocks)`.
pub(crate) fn map(name: &str, owners: &[(&str, &str, bool)]) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(name, uid, blocks)| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid,
                "blockOwnerDeletion": blocks,
            })
        })
        .collect();
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

/// A pod that ends by itself and is not restarted, with these annotations.
pub(crate) fn pod(name: &str, annotations: Value) -> Value {
    json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox:1"}],
        },
    })
}

/// As [`pod`], bound to a node from the start.
pub(crate) fn bound(name: &str, node: &str, annotations: Value) -> Value {
    let mut pod = pod(name, annotations);
    pod["spec"]["nodeName"] = json!(node);
    pod
}
