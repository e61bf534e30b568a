//! What Belayer holds in a cluster, and who runs it: the documented form of `belayer status`.

mod count;
mod events;
mod installation;
mod kept;
mod look;
mod own;
mod text;

use jiff::Timestamp;
use serde::Serialize;

use belayer_core::object::Resource;

pub use crate::report::API_VERSION;
pub use kept::{Kept, reported};
pub use look::status;
pub use own::leader_of;
pub use text::text;

/// The hold of one component on one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Name of the component.
    pub component: &'static str,
    /// Its finalizers on this kind. More than one where it has changed its name.
    pub finalizers: Vec<&'static str>,
    /// The kind.
    pub kind: Resource,
}

/// What to report.
#[derive(Debug, Clone)]
pub struct Query {
    /// Belayer's own namespace.
    pub own_namespace: String,
    /// `namespace/name` of the Lease that it leads by, where it elects a leader.
    pub lease: Option<String>,
    /// Look at objects of this namespace only.
    pub namespace: Option<String>,
    /// What is held.
    pub holds: Vec<Hold>,
    /// Version of this command.
    pub client: &'static str,
}

/// What Belayer holds, and who runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `Status`.
    pub kind: &'static str,
    /// Who is asked, and who asks.
    pub versions: Versions,
    /// The only namespace in which was counted; nothing where it was all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The pods that run it.
    pub installation: Installation,
    /// One per component of this build, with or without holds.
    pub components: Vec<Component>,
    /// The places in which anything is held, the longest waiting first.
    pub namespaces: Vec<Place>,
    /// The namespaces to whose pods no hold is added, by the gate ConfigMap.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub closed_namespaces: Vec<String>,
    /// What should be looked into.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What could not be found out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
    /// What would have been good to know besides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Whether a running Belayer said what it counts itself.
    #[serde(skip)]
    pub asked: bool,
}

/// Versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// Of the API server; nothing if it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Of this command.
    pub client: &'static str,
}

/// The pods that run Belayer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Installation {
    /// Belayer's namespace.
    pub namespace: String,
    /// The holder of the Lease; nothing where nobody leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
    /// The pods, by name; nothing if they cannot be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<Vec<Replica>>,
}

impl Installation {
    /// Whether it may run somewhere.
    fn may_run(&self) -> bool {
        let pods = self.pods.as_ref();
        self.is_led() || pods.is_none_or(|pods| pods.iter().any(|pod| pod.ready))
    }

    /// Whether somebody leads: then it runs, in whatever pod or outside of the cluster.
    pub fn is_led(&self) -> bool {
        self.leader.as_ref().is_some_and(|leader| !leader.lapsed)
    }
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Leader {
    /// As the Lease names it.
    pub identity: String,
    /// When it last renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Timestamp>,
    /// How long ago that was, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed_seconds_ago: Option<i64>,
    /// Whether it still leads: a Lease that was not renewed within its length has lapsed.
    pub lapsed: bool,
}

/// A pod that runs Belayer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replica {
    /// Its name.
    pub name: String,
    /// Its image's tag or digest, or what it says itself.
    pub version: String,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it leads.
    pub leads: bool,
}

/// What a component holds, in all or in one place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Numbers {
    /// Objects that carry its hold.
    pub held: u64,
    /// Of these, the ones that are being deleted.
    pub waiting: u64,
    /// Of these, the ones whose release the API server has lately refused.
    pub denied: u64,
    /// The longest waiting of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Oldest>,
}

/// The deletion that has waited longest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Oldest {
    /// `pods`, `workflows.argoproj.io`.
    pub resource: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Since when it is past its grace.
    pub deletion_timestamp: Timestamp,
    /// How long that is, in seconds; 0 within the grace.
    pub age_seconds: i64,
}

/// What a component holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// Its name.
    pub component: &'static str,
    /// Its finalizers.
    pub holds: Vec<&'static str>,
    /// In numbers.
    #[serde(flatten)]
    pub numbers: Numbers,
    /// Whether all its kinds could be listed: if not, the numbers are the least there is.
    pub complete: bool,
    /// What the running component counts besides; nothing if it could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<Own>,
}

/// What only the running process knows, by its metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Own {
    /// Deletions that began before the hold could be added, since the process started.
    pub missed: u64,
    /// Holds kept back because so many unselected objects at once look like a mistake.
    pub unselected_kept: u64,
    /// Objects of observe mode that vanished before their result was taken, since the start.
    pub observed_losses: u64,
    /// Whether the backlog gate is closed.
    pub backlog_gate_closed: bool,
}

/// What a component holds in one namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The namespace.
    pub namespace: String,
    /// The component.
    pub component: &'static str,
    /// In numbers.
    #[serde(flatten)]
    pub numbers: Numbers,
}

impl Status {
    /// Whether something is wrong that needs somebody.
    pub fn needs_somebody(&self) -> bool {
        !self.warnings.is_empty()
    }

    /// Whether all that was asked for is known.
    pub fn is_complete(&self) -> bool {
        self.unknown.is_empty()
    }
}

#[cfg(test)]
mod tests;
