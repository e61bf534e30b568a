//! Logs live reads that fail repeatedly.

use hashbrown::HashMap;

use super::{Query, ReadError};
use crate::duration;
use crate::failure_log::{Failure, FailureLog, Recovered};

/// The number of failures in a row after which a query is logged. Objects stay held while they wait
/// for its answer, and nothing else in the log explains why.
const LOGGED_AT: u32 = 3;

/// Maximum number of queries that are logged at a time. If an RBAC permission is missing, thousands
/// of queries may fail for the same reason.
const MAX_QUERIES: usize = 8;

/// The queries whose failure was logged. Each has its own outage: an answer to another query does
/// not end it.
pub(super) struct FailureReports<Q>(HashMap<Q, FailureLog>);

impl<Q: Query> FailureReports<Q> {
    pub(super) fn none() -> Self {
        Self(HashMap::new())
    }

    /// Records a failed read of `query`, after `before` other failures in a row.
    pub(super) fn failed(&mut self, query: &Q, error: &ReadError, before: u32) {
        match self.classify(query, &error.message, before) {
            Failure::First => tracing::warn!(
                about = Q::NAME, %query, %error,
                "live reads fail; objects that wait for the answers stay held"
            ),
            Failure::NewCause => tracing::warn!(
                about = Q::NAME, %query, %error,
                "live reads fail for another reason"
            ),
            Failure::Repeated => {
                tracing::debug!(%query, %error, "a live read failed and will be retried");
            }
        }
    }

    fn classify(&mut self, query: &Q, cause: &str, before: u32) -> Failure {
        if let Some(failure_log) = self.0.get_mut(query) {
            return failure_log.failed(cause);
        }
        // One query is enough to log a cause.
        let known = self
            .0
            .values()
            .any(|failure_log| failure_log.has_logged(cause));
        if before + 1 < LOGGED_AT || known || self.0.len() >= MAX_QUERIES {
            return Failure::Repeated;
        }
        self.0.entry(query.clone()).or_default().failed(cause)
    }

    /// Records that a read of `query` was answered.
    pub(super) fn answered(&mut self, query: &Q) {
        let failure_log = self.0.remove(query);
        if let Some(Recovered { lasted, .. }) =
            failure_log.and_then(|mut failure_log| failure_log.recovered())
        {
            let lasted = duration::format(lasted);
            tracing::info!(about = Q::NAME, %query, lasted, "live reads succeed again");
        }
    }

    /// Removes a query that no key waits for.
    pub(super) fn remove(&mut self, query: &Q) {
        self.0.remove(query);
    }

    /// Removes all queries but those for which `is_known` is true.
    pub(super) fn retain(&mut self, is_known: impl Fn(&Q) -> bool) {
        self.0.retain(|query, _| is_known(query));
    }
}
