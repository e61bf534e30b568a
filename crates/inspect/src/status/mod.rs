//! What Belayer holds in a cluster, and its installation: the documented form of `belayer status`.
//!
//! ```no_run
//! use belayer_core::clock;
//! use belayer_inspect::Reader;
//! use belayer_inspect::status::{self, Query};
//! use belayer_inspect::text::{Plain, Style};
//!
//! # async fn print(reader: &Reader, query: &Query) -> Result<(), belayer_core::RequestError> {
//! let status = status::status(reader, query, clock::now).await?;
//! println!("{}", status::text(&status, Style::default(), &Plain));
//! # Ok(())
//! # }
//! ```

mod collect;
mod count;
mod events;
mod installation;
mod kept;
mod own;
mod page;
mod recreations;
mod text;

use jiff::Timestamp;
use serde::Serialize;

use belayer_core::object::Resource;

pub use crate::report::API_VERSION;
pub use collect::status;
pub use kept::{Kept, reported};
pub use page::{Page, Recorded, page};
pub use recreations::{Progress, Recreation, Recreations};
pub use text::text;

/// The hold of one component on one kind. Part of a [query](crate::status).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Name of the component.
    pub component: &'static str,
    /// Its finalizers on this kind; more than one if its name has changed.
    pub finalizers: Vec<&'static str>,
    /// The kind.
    pub kind: Resource,
}

/// What to report. The [module's example](crate::status) takes one.
#[derive(Debug, Clone)]
pub struct Query {
    /// Belayer's own namespace.
    pub own_namespace: String,
    /// `namespace/name` of its leader election Lease, if leader election is enabled.
    pub lease: Option<String>,
    /// Count objects in this namespace only.
    pub namespace: Option<String>,
    /// What is held.
    pub holds: Vec<Hold>,
    /// The configuration file that was given, for commands that need the same one.
    pub config: Option<String>,
    /// Version of this command.
    pub client: &'static str,
    /// At most this many held objects are listed in [`Page`]; those that are being deleted come first.
    pub objects: usize,
}

/// What Belayer holds, and its installation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `Status`.
    pub kind: &'static str,
    /// Versions of the server and of this command.
    pub versions: Versions,
    /// The only namespace that was counted; absent for all namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The pods that run it.
    pub installation: Installation,
    /// One per component of this build, with or without holds.
    pub components: Vec<Component>,
    /// The namespaces with held objects; the one with the oldest waiting deletion comes first.
    pub namespaces: Vec<Place>,
    /// Namespaces in which no hold is added to pods, by the gate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub closed_namespaces: Vec<String>,
    /// What an admin should check.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What could not be determined.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
    /// Further information.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Whether a running Belayer answered with its own counters.
    #[serde(skip)]
    pub asked: bool,
}

/// Versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// Of the API server; absent if it may not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Of this command.
    pub client: &'static str,
}

/// The pods that run Belayer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Installation {
    /// Belayer's namespace.
    pub namespace: String,
    /// The holder of the Lease; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
    /// The other Leases that the gate names: of controllers that run in a Deployment of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_leases: Vec<OtherLease>,
    /// The Leases that could not be read, each as `namespace/name`: it is unknown who holds them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread_leases: Vec<String>,
    /// The pods, sorted by name; absent if they cannot be listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<Vec<Replica>>,
}

impl Installation {
    /// Whether Belayer may be running.
    fn may_run(&self) -> bool {
        let pods = self.pods.as_ref();
        self.may_be_led() || pods.is_none_or(|pods| pods.iter().any(|pod| pod.ready))
    }

    /// Whether there is a leader: then Belayer runs, in any pod or outside the cluster.
    pub fn is_led(&self) -> bool {
        self.leaders().any(|leader| !leader.lapsed)
    }

    /// Whether there may be a leader: there is one, or a Lease could not be read.
    pub(crate) fn may_be_led(&self) -> bool {
        self.is_led() || !self.unread_leases.is_empty()
    }

    /// The holders of all Leases.
    fn leaders(&self) -> impl Iterator<Item = &Leader> {
        let others = self.other_leases.iter();
        let others = others.filter_map(|other| other.leader.as_ref());
        self.leader.iter().chain(others)
    }
}

/// A Lease beside the configured one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct OtherLease {
    /// `namespace/name`.
    pub lease: String,
    /// Its holder; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
}

/// The leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Leader {
    /// The holder identity of the Lease.
    pub identity: String,
    /// Time of the last renewal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>", extend("format" = "date-time")))]
    pub renewed: Option<Timestamp>,
    /// Time since then, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed_seconds_ago: Option<i64>,
    /// Whether the Lease has expired: it was not renewed for several times its duration.
    pub lapsed: bool,
}

/// A pod that runs Belayer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Replica {
    /// Its name.
    pub name: String,
    /// The version that it reports, or the tag or digest of its image.
    pub version: String,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it is the leader.
    pub leads: bool,
}

/// Numbers of a component, in total or in one namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Numbers {
    /// Objects that carry its hold.
    pub held: u64,
    /// Of these, the ones that are being deleted.
    pub waiting: u64,
    /// Of these, the ones whose release the API server has recently rejected.
    pub denied: u64,
    /// The longest waiting of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Oldest>,
}

/// The deletion that has waited longest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Oldest {
    /// `pods`, `workflows.argoproj.io`.
    pub resource: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// End of its grace period.
    #[cfg_attr(test, schemars(with = "String", extend("format" = "date-time")))]
    pub deletion_timestamp: Timestamp,
    /// Time since then, in seconds; 0 within the grace period.
    pub age_seconds: i64,
}

/// What a component holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// Its name.
    pub component: &'static str,
    /// Its finalizers.
    pub holds: Vec<&'static str>,
    /// The numbers.
    #[serde(flatten)]
    pub numbers: Numbers,
    /// Whether all its kinds could be listed; if not, the numbers are lower bounds.
    pub complete: bool,
    /// Counters of the running component; absent if its metrics could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<Own>,
}

/// Counters of the running process, from its metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Own {
    /// Deletions that began before the hold could be added, since the process started.
    pub missed: u64,
    /// Holds that are kept because that many unselected objects at once look like a mistake.
    pub unselected_kept: u64,
    /// Objects in observe mode that were deleted before their result was read, since the process started.
    pub observed_losses: u64,
    /// Whether the backlog limit is reached.
    pub backlog_gate_closed: bool,
}

/// What a component holds in one namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The namespace.
    pub namespace: String,
    /// The component.
    pub component: &'static str,
    /// The numbers.
    #[serde(flatten)]
    pub numbers: Numbers,
}

/// An object with a hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HeldObject {
    /// The component that holds it.
    pub component: &'static str,
    /// `pods`, `workflows.argoproj.io`.
    pub resource: String,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// End of its grace period; absent if it is not being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<String>", extend("format" = "date-time")))]
    pub deletion_timestamp: Option<Timestamp>,
    /// Whether the API server has recently rejected its release.
    pub denied: bool,
    /// What its latest Event of Belayer's says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Status {
    /// Whether there are warnings.
    pub fn needs_attention(&self) -> bool {
        !self.warnings.is_empty()
    }

    /// Whether everything could be determined.
    pub fn is_complete(&self) -> bool {
        self.unknown.is_empty()
    }
}

#[cfg(test)]
mod tests;
