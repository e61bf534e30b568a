//! Webhooks that intercept the removal of a finalizer and have no ready endpoint.

use super::Diagnosis;
use crate::evidence::{DeadWebhook, World};
use crate::object::Terminating;
use crate::report::{Cause, Step, Verdict};

/// The removal of a finalizer is an update: a webhook with failurePolicy Fail rejects it if its service has no
/// endpoint.
pub(super) fn in_the_way(object: &Terminating, world: &World) -> Vec<Diagnosis> {
    let kind = &object.object.kind.resource;
    world
        .dead_webhooks
        .found()
        .into_iter()
        .flatten()
        .filter(|webhook| webhook.intercepts_updates_of(kind))
        .map(diagnosis)
        .collect()
}

fn diagnosis(webhook: &DeadWebhook) -> Diagnosis {
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
            "webhook {name} of {singular} {configuration} has failurePolicy Fail and intercepts updates of this kind"
        ))
        .proven(format!(
            "its service {namespace}/{service} has no ready endpoint: no finalizer can be removed"
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
            format!("kubectl -n {namespace} get service,endpointslices,pods | grep {service}"),
        ))
        .next(Step::run(
            "If it was removed permanently, delete its configuration. Lost: the checks that it made",
            format!("kubectl delete {singular} {configuration}"),
        ))
}
