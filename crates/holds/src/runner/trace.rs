//! The span of a reconcile: the decision about one object, its rule, its evidence and its result. Its requests are
//! child spans.

use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use super::Shared;
use super::component::By;
use super::outcome::What;
use belayer_core::object::ObjectKey;
use belayer_core::slim::Slim;
use belayer_core::workqueue::Outcome;

impl<K: Slim> Shared<K> {
    /// Processes a key within a span. If spans are disabled, it only reads a flag.
    pub(super) async fn traced(&self, key: ObjectKey) -> Outcome {
        let span = tracing::debug_span!(
            "reconcile",
            k8s.resource = %self.parts.resource,
            k8s.namespace.name = key.namespace().unwrap_or_default(),
            k8s.object.name = key.name(),
            k8s.object.uid = Empty,
            belayer.controller = Empty,
            belayer.row = Empty,
            belayer.evidence = Empty,
            belayer.result = Empty,
            belayer.attempts = Empty,
            belayer.next = Empty,
        );
        let outcome = self.work_on(key).instrument(span.clone()).await;
        if !span.is_disabled() {
            span.record("belayer.next", next(&outcome));
        }
        outcome
    }
}

fn next(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Again { .. } => "requeued",
        Outcome::Retry(_) => "retry",
        Outcome::Waiting => "waits for a token",
    }
}

/// Records which rules matched.
pub(super) fn decided(attempt: u32, by: impl Iterator<Item = By>) {
    let span = Span::current();
    if span.is_disabled() {
        return;
    }
    span.record("belayer.attempts", attempt + 1);
    let (mut components, mut rows) = (Vec::new(), Vec::new());
    for By { component, row } in by {
        components.push(component);
        rows.push(row.to_string());
    }
    span.record("belayer.controller", components.join(","));
    span.record("belayer.row", rows.join(","));
}

/// Records what was done or rejected.
pub(super) fn done(by: By, uid: &str, what: &What<'_>) {
    let span = Span::current();
    if span.is_disabled() {
        return;
    }
    let (result, evidence) = match what {
        What::Held => ("held", None),
        What::Released { evidence, .. } => ("released", Some(*evidence)),
        What::Adopted { evidence, .. } => ("released adopted", Some(*evidence)),
        What::Recorded => ("recorded", None),
        What::Deleted { evidence } => ("deleted", Some(*evidence)),
        What::Denied { .. } => ("denied", None),
        What::Pretended { evidence } => ("dry run", *evidence),
    };
    span.record("k8s.object.uid", uid);
    span.record("belayer.controller", by.component);
    span.record("belayer.row", by.row.to_string());
    span.record("belayer.result", result);
    if let Some(evidence) = evidence {
        span.record("belayer.evidence", evidence);
    }
}
