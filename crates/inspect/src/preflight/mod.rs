//! What Belayer requires of a cluster, and what is missing: the checks of `belayer check`.
//!
//! - Permissions: every verb on every resource that a component needs, each checked by an access review
//!   (SelfSubjectAccessReview, or SubjectAccessReview for another user). Roles are not interpreted, so
//!   aggregation, groups and other authorizers are taken into account.
//! - Kinds: served in the version that Belayer reads.
//! - Admission policies: present, bound, switched by the gate, and matching what the
//!   configuration selects; those that limit writes: present, bound, and for this account.
//! - Other owners: other field managers that set Belayer's finalizers, another Belayer, and
//!   kube-controller-manager's own PVC controller (its flag, and deleted, unused PVCs whose finalizer it has not
//!   removed within a minute).
//!
//! The requirements are data ([`Part`]) that the binary builds from the components' own lists and the
//! configuration. Nothing is changed: access reviews are creates that store nothing.
//!
//! ```
//! use belayer_holds::permissions::Permission;
//! use belayer_inspect::preflight::{Level, Report, Subject};
//!
//! // A component requires a list of permissions, each with the consequence if it is missing.
//! let permission = Permission::new("", "pods", "patch", "finalizers are neither added nor removed");
//! assert_eq!(permission.to_string(), "patch pods");
//!
//! // Belayer's own ServiceAccount, with the groups that the API server adds.
//! let account = Subject::service_account("belayer-system", "belayer");
//! assert_eq!(account.to_string(), "system:serviceaccount:belayer-system:belayer");
//!
//! fn may_be_installed(report: &Report) -> bool {
//!     report.of(Level::Missing).next().is_none()
//! }
//! # let _ = may_be_installed;
//! ```
//!
//! ```
//! use belayer_core::object::Resource;
//! use belayer_holds::permissions::{FOLLOW, Permission};
//! use belayer_inspect::preflight::Part;
//!
//! let maps = Resource::config_maps();
//! let follow = Permission::on(&maps, FOLLOW, "no ConfigMap is seen");
//! let part = Part::new("keeper", "ClusterRole keeper", follow.collect());
//! assert!(!part.permissions.is_empty());
//! ```

mod argo;
mod finalizers;
mod in_tree;
mod installations;
mod kinds;
mod limits;
mod needs;
mod node_agent;
mod permissions;
mod policies;
mod pvcs;
mod report;
mod text;

use futures::StreamExt as _;
use jiff::Timestamp;

use crate::reader::Reader;
use belayer_core::http::RequestError;

pub use installations::with_configuration_file;
pub use limits::{unlimited, write_policy_kinds};
pub use needs::{AdoptsArgo, Kind, Limit, Named, Part, Policy, PvcMode, RequiredValue, only_in};
pub use permissions::{Authorizer, Ruling, Subject, ask_in};
pub use report::{API_VERSION, About, Finding, Level, PartReport, Report};
pub use text::text;

/// Concurrent access reviews.
const PARALLEL: usize = 8;

/// What to check. Its [parts](crate::preflight) are those of the controllers that run.
#[derive(Debug, Clone)]
pub struct Query {
    /// Belayer's own namespace.
    pub own_namespace: String,
    /// The user whose permissions are checked.
    pub subject: Subject,
    /// The requirements of each part.
    pub parts: Vec<Part>,
    /// Version of this command.
    pub client: &'static str,
    /// The current time: a recent deletion proves nothing.
    pub now: Timestamp,
}

/// Checks all requirements of the parts. Nothing is changed: access reviews are not stored. The
/// [module's example](crate::preflight) makes one of the parts.
///
/// # Errors
///
/// As [`Reader::server_version`]. What cannot be determined is part of the report.
pub async fn check(
    reader: &Reader,
    authorizer: &dyn Authorizer,
    query: &Query,
) -> Result<Report, RequestError> {
    let server = reader.server_version().await?;
    let mut parts = Vec::new();
    for part in &query.parts {
        let granted = futures::stream::iter(&part.permissions)
            .map(|permission| permissions::ask(authorizer, permission, part, query))
            .buffered(PARALLEL)
            .collect::<Vec<_>>()
            .await;
        let mut findings: Vec<Finding> = granted.into_iter().flatten().collect();
        let refused = findings.len();
        for kind in &part.kinds {
            findings.extend(kinds::check(reader, kind).await);
        }
        for policy in &part.policies {
            findings.extend(policies::check(reader, policy, query).await);
        }
        for limit in &part.limits {
            findings.extend(limits::check(reader, limit, query).await);
        }
        if let Some(pvcs) = part.pvcs {
            findings.extend(finalizers::pvcs(reader, pvcs, query.now).await);
        }
        for (kind, finalizer) in &part.holds {
            findings.extend(finalizers::others(reader, kind, finalizer).await);
        }
        for (kind, finalizer) in &part.removes {
            findings.extend(limits::removal(reader, kind, finalizer).await);
        }
        if let Some(adopts) = part.argo {
            findings.extend(argo::check(reader, adopts == AdoptsArgo::Yes).await);
        }
        findings.extend(part.advice.iter().map(|advice| {
            let means = "the configuration may not have the effect that you expect";
            Finding::note(About::Configuration, advice.as_str(), means)
        }));
        findings.sort_by_key(|finding| finding.level);
        parts.push(PartReport {
            name: part.name.clone(),
            rights_needed: part.permissions.len(),
            rights_granted: part.permissions.len() - refused,
            findings,
        });
    }
    if let Some(first) = parts.first_mut() {
        first
            .findings
            .extend(installations::installations(reader, authorizer, &query.own_namespace).await);
        for limit in limits::of_writes(query) {
            first
                .findings
                .extend(limits::check(reader, &limit, query).await);
        }
        let agent = node_agent::check(reader, server.as_deref()).await;
        first.findings.extend(agent);
        first.findings.sort_by_key(|finding| finding.level);
    }
    Ok(Report {
        api_version: API_VERSION,
        kind: "CheckReport",
        server,
        client: query.client,
        subject: query.subject.to_string(),
        parts,
    })
}
