//! What Belayer needs of a cluster, and what of it is missing: the work behind `belayer check`.
//!
//! - Rights: every verb on every resource that a component needs, asked of the API server one by one
//!   (SelfSubjectAccessReview, or SubjectAccessReview for another user). No role is read and
//!   interpreted: aggregation, groups and other authorizers count as well.
//! - Kinds: served, at the version they are read at.
//! - Admission policies: present, bound, switched by the gate ConfigMap, and about what the
//!   configuration selects.
//! - Other owners: who else sets our finalizers, another Belayer, and kube-controller-manager's own
//!   controller of PVCs: by its flag, and by deleted, unused PVCs whose finalizer it has not removed
//!   within a minute.
//!
//! What is needed is data ([`Part`]), filled in by the binary from the components' own lists and the
//! configuration. It changes nothing: reviews are creates that store nothing.
//!
//! ```
//! use belayer_holds::rights::Right;
//! use belayer_inspect::preflight::{Level, Report, Subject};
//!
//! // What a component needs is a list of rights, each with what does not work without it.
//! let right = Right::new("", "pods", "patch", "finalizers are neither added nor removed");
//! assert_eq!(right.to_string(), "patch pods");
//!
//! // Belayer's own account, with the groups that the API server gives it.
//! let account = Subject::service_account("belayer-system", "belayer");
//! assert_eq!(account.to_string(), "system:serviceaccount:belayer-system:belayer");
//!
//! fn may_be_installed(report: &Report) -> bool {
//!     report.of(Level::Missing).next().is_none()
//! }
//! # let _ = may_be_installed;
//! ```

mod beside;
mod finalizers;
mod in_tree;
mod kinds;
mod needs;
mod node_agent;
mod policies;
mod report;
mod rights;
mod text;

use futures::StreamExt as _;
use jiff::Timestamp;

use crate::reader::Reader;
use belayer_core::http::RequestError;

pub use needs::{Claims, Kind, Part, Policy};
pub use report::{API_VERSION, About, Finding, Level, PartReport, Report};
pub use rights::{Authorizer, Ruling, Subject};
pub use text::text;

/// Reviews and looks that run at once.
const PARALLEL: usize = 8;

/// What is checked.
#[derive(Debug, Clone)]
pub struct Query {
    /// Belayer's own namespace.
    pub own_namespace: String,
    /// Whose rights.
    pub subject: Subject,
    /// What each part needs.
    pub parts: Vec<Part>,
    /// Version of this command.
    pub client: &'static str,
    /// The present: what was deleted a moment ago is no sign of anything.
    pub now: Timestamp,
}

/// Looks at everything the parts need. Nothing is changed: rights are asked for by reviews, which
/// the API server answers and forgets.
///
/// # Errors
///
/// As [`Reader::server_version`]. What cannot be found out is part of the report.
pub async fn check(
    reader: &Reader,
    authorizer: &dyn Authorizer,
    query: &Query,
) -> Result<Report, RequestError> {
    let server = reader.server_version().await?;
    let mut parts = Vec::new();
    for part in &query.parts {
        let granted = futures::stream::iter(&part.rights)
            .map(|right| rights::ask(authorizer, right, part, query))
            .buffered(PARALLEL)
            .collect::<Vec<_>>()
            .await;
        let mut findings: Vec<Finding> = granted.into_iter().flatten().collect();
        let refused = findings.len();
        for kind in &part.kinds {
            findings.extend(kinds::look(reader, kind).await);
        }
        for policy in &part.policies {
            findings.extend(policies::look(reader, policy, &query.own_namespace).await);
        }
        if let Some(claims) = part.claims {
            findings.extend(finalizers::claims(reader, claims, query.now).await);
        }
        for (kind, finalizer) in &part.holds {
            findings.extend(finalizers::others(reader, kind, finalizer).await);
        }
        findings.extend(part.advice.iter().map(|advice| {
            let means = "the configuration may not have the effect that you expect";
            Finding::new(Level::Note, About::Configuration, advice.as_str(), means)
        }));
        findings.sort_by_key(|finding| finding.level);
        parts.push(PartReport {
            name: part.name.clone(),
            rights_needed: part.rights.len(),
            rights_granted: part.rights.len() - refused,
            findings,
        });
    }
    if let Some(first) = parts.first_mut() {
        first
            .findings
            .extend(finalizers::installations(reader, &query.own_namespace).await);
        let agent = node_agent::look(reader, server.as_deref()).await;
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
