//! Webhooks that must agree to a finalizer's removal and that nobody answers.

use super::Diagnosis;
use crate::evidence::{DeadWebhook, World};
use crate::object::Terminating;
use crate::report::{Cause, Step, Verdict};

/// Taking a finalizer off is an update: a webhook with failurePolicy Fail refuses it when its
/// service has no endpoint.
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
            "webhook {name} of {singular} {configuration} has failurePolicy Fail and has to agree to updates of this kind"
        ))
        .proven(format!(
            "its service {namespace}/{service} has no ready endpoint: nobody can take a finalizer off"
        ));
    if *may_leave_out {
        found = found.missing(format!(
            "whether {configuration} applies to these objects: it has selectors or conditions, which are not evaluated here"
        ));
    }
    found.about = format!("{configuration}/{name}");
    found
        .next(Step::run(
            "Bring its service back",
            format!("kubectl -n {namespace} get service,endpointslices,pods | grep {service}"),
        ))
        .next(Step::run(
            "If it is gone for good, remove its configuration. Lost: whatever it checked is not checked any more",
            format!("kubectl delete {singular} {configuration}"),
        ))
}
