//! The nodes: their Node objects, and whether they are connected.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::decide::Progress as PodProgress;
use super::super::node::{Readiness, ready};
use super::super::{CLOUD_ACTOR, NODE_LIFECYCLE_ACTOR, NodeSpec, actor_of};
use super::state::{Host, Hosts, Key, Link, Registration};
use crate::address::{Actor, Gvr, Subresource};
use crate::cluster::{Cluster, DeleteOptions, Patch, WriteOptions};
use crate::error::{ApiError, Reason};
use crate::simulated::driver::Change;
use crate::simulated::object;
use crate::simulated::quantity::Amount;

impl Hosts {
    pub(super) fn add(&mut self, spec: NodeSpec) -> String {
        let name = spec.name.clone();
        let number = u32::try_from(self.hosts.len())
            .unwrap_or(u32::MAX)
            .wrapping_add(1);
        let [_, _, high, low] = number.to_be_bytes();
        let host = Host {
            actor: Actor::new(actor_of(&name)),
            address: format!("10.0.{high}.{low}"),
            spec,
            link: Link::Up,
            registration: Registration::Wanted,
            object: None,
            used: Amount::default(),
            addresses: 0,
            number,
        };
        self.hosts.entry(name.clone()).or_insert(host);
        name
    }

    pub(super) fn destroy(&mut self, name: &str, now: Instant) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        host.link = Link::Silent { since: now };
        host.registration = Registration::Done;
        host.used = Amount::default();
        for uid in self.by_node.get(name).into_iter().flatten() {
            if let Some(pod) = self.pods.get_mut(uid) {
                pod.progress = PodProgress::New;
                pod.charged = Amount::default();
            }
        }
        let options = DeleteOptions::default();
        let actor = Actor::new(CLOUD_ACTOR);
        if let Err(error) = self
            .cluster
            .delete(&actor, &Gvr::NODES, None, name, &options)
        {
            tracing::debug!(%error, node = name, "the Node object of a destroyed machine is already gone");
        }
    }

    /// Its pods and resource usage are checked again.
    pub(super) fn restart(&mut self, name: &str) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        for uid in self.by_node.get(name).into_iter().flatten() {
            if let Some(pod) = self.pods.get_mut(uid).filter(|pod| pod.is_alive()) {
                host.used = host.used - std::mem::take(&mut pod.charged);
                pod.unchecked = true;
            }
        }
    }

    pub(super) fn process_node(&mut self, name: &str, now: Instant) -> Result<(), ApiError> {
        let Some(host) = self.hosts.get_mut(name) else {
            return Ok(());
        };
        let time = self.cluster.clock().now_rfc3339();
        let options = WriteOptions::default();
        if host.link == Link::Up && host.registration == Registration::Wanted {
            let object = host.spec.object(&host.address, &time);
            match self
                .cluster
                .create(&host.actor, &Gvr::NODES, None, object, &options)
            {
                Ok(_) => {}
                Err(error) if error.reason == Reason::AlreadyExists => {
                    let status = host.spec.status(&host.address, &time);
                    patch_status(&self.cluster, &host.actor, name, &status)?;
                }
                Err(error) => return Err(error),
            }
            host.registration = Registration::Done;
            return Ok(());
        }
        let Some(object) = &host.object else {
            return Ok(());
        };
        let told_ready = is_ready(object);
        match host.link {
            Link::Up if !told_ready => {
                let status = json!({"conditions": [ready(Readiness::Ready, &time)]});
                patch_status(&self.cluster, &host.actor, name, &status)
            }
            Link::Silent { since } if told_ready => {
                let due = since + self.unreachable_after;
                if due > now {
                    self.agenda.add_at(Key::Node(name.to_owned()), due);
                    return Ok(());
                }
                let status = json!({"conditions": [ready(Readiness::Unknown, &time)]});
                patch_status(
                    &self.cluster,
                    &Actor::new(NODE_LIFECYCLE_ACTOR),
                    name,
                    &status,
                )
            }
            _ => Ok(()),
        }
    }

    pub(super) fn observe_node(&mut self, change: &Change) {
        let (Change::Upserted(object) | Change::Removed(object)) = change;
        let name = object::name(object);
        if let Some(host) = self.hosts.get_mut(name) {
            host.object = match change {
                Change::Upserted(object) => Some(Arc::clone(object)),
                Change::Removed(_) => None,
            };
            self.agenda.add(Key::Node(name.to_owned()));
        }
    }
}

fn is_ready(node: &Value) -> bool {
    object::items(node, "/status/conditions")
        .iter()
        .any(|condition| {
            object::text(condition, "/type") == Some("Ready")
                && object::text(condition, "/status") == Some("True")
        })
}

fn patch_status(
    cluster: &Cluster,
    actor: &Actor,
    node: &str,
    status: &Value,
) -> Result<(), ApiError> {
    let patch = Patch::Strategic(json!({"status": status}));
    let options = WriteOptions::default();
    cluster
        .patch(
            actor,
            &Gvr::NODES,
            None,
            node,
            patch,
            Subresource::Status,
            &options,
        )
        .map(drop)
}
