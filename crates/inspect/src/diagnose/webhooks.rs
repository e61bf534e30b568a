//! Webhooks that intercept what has to happen for a deletion and have no ready endpoint.

use super::{Diagnosis, behind};
use crate::evidence::{DeadWebhook, World};
use crate::object::Terminating;
use crate::report::{Cause, Step, Verdict};

/// The removal of a finalizer is an update, and the kubelet's last step about a pod is a deletion: a webhook with
/// failurePolicy Fail rejects it if its service has no endpoint.
pub(super) fn in_the_way(object: &Terminating, world: &World) -> Vec<Diagnosis> {
    let kind = &object.object.kind.resource;
    let rejected = if object.finalizers.is_empty() {
        DELETION
    } else {
        REMOVAL
    };
    world
        .dead_webhooks
        .found()
        .into_iter()
        .flatten()
        .filter(|webhook| webhook.intercepts(rejected.operation, kind))
        .map(|webhook| diagnosis(webhook, &rejected))
        .collect()
}

/// What a webhook rejects.
struct Rejected {
    operation: &'static str,
    requests: &'static str,
    so: &'static str,
}

const REMOVAL: Rejected = Rejected {
    operation: "UPDATE",
    requests: "updates",
    so: "no finalizer can be removed",
};

const DELETION: Rejected = Rejected {
    operation: "DELETE",
    requests: "deletions",
    so: "no kubelet can delete its pods",
};

fn diagnosis(webhook: &DeadWebhook, rejected: &Rejected) -> Diagnosis {
    let DeadWebhook {
        resource,
        configuration,
        name,
        service: (namespace, service),
        may_leave_out,
        ..
    } = webhook;
    let singular = resource.trim_end_matches('s');
    let verdict = if *may_leave_out {
        Verdict::Unknown
    } else {
        Verdict::WebhookDown
    };
    let mut found = Diagnosis::new(Cause::Webhook, verdict)
        .proven(format!(
            "webhook {name} of {singular} {configuration} has failurePolicy Fail and intercepts {} of this kind",
            rejected.requests
        ))
        .proven(format!(
            "its service {namespace}/{service} has no ready endpoint: {}",
            rejected.so
        ));
    if *may_leave_out {
        found = found.missing(format!(
            "whether {configuration} applies to these objects: its selectors and conditions are not evaluated here"
        ));
    }
    found.about = format!("{configuration}/{name}");
    found
        .next(Step::run(
            "Restore its service",
            behind(namespace, service),
        ))
        .next(Step::run(
            "If it was removed permanently, delete its configuration. Lost: the checks that it made",
            format!("kubectl delete {singular} {configuration}"),
        ))
}
