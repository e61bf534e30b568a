//! Webhooks that intercept what has to happen for a deletion and have no ready endpoint.

use super::{Diagnosis, behind};
use crate::evidence::{DeadWebhook, Intercepts, World};
use crate::object::Terminating;
use crate::report::{Cause, Step, Verdict};

/// The removal of a finalizer is an update, and the kubelet's last step about a pod is a deletion: a webhook with
/// failurePolicy Fail rejects it if its service has no endpoint.
pub(super) fn in_the_way(object: &Terminating, world: &World) -> Vec<Diagnosis> {
    let kind = &object.object.kind;
    let rejected = if object.finalizers.is_empty() {
        DELETION
    } else {
        REMOVAL
    };
    let dead = world.webhooks.dead.iter();
    dead.filter_map(
        |webhook| match webhook.intercepts(rejected.operation, kind) {
            Intercepts::No => None,
            Intercepts::Yes => Some(diagnosis(webhook, &rejected)),
            Intercepts::InAnotherVersion => Some(of_another_version(webhook, &rejected)),
        },
    )
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
    let (namespace, service) = &webhook.service;
    let verdict = if webhook.may_leave_out {
        Verdict::Unknown
    } else {
        Verdict::WebhookDown
    };
    let found = Diagnosis::new(Cause::Webhook, verdict)
        .proven(format!(
            "webhook {} has failurePolicy Fail and intercepts {} of this kind",
            place(webhook),
            rejected.requests
        ))
        .proven(format!(
            "its service {namespace}/{service} has no ready endpoint: {}",
            rejected.so
        ));
    with_steps(found, webhook)
}

/// By default, the API server converts an object for a webhook whose rules list another version that it serves.
fn of_another_version(webhook: &DeadWebhook, rejected: &Rejected) -> Diagnosis {
    let (namespace, service) = &webhook.service;
    let found = Diagnosis::new(Cause::Webhook, Verdict::Unknown)
        .proven(format!(
            "webhook {} has failurePolicy Fail, and its service {namespace}/{service} has no ready endpoint",
            place(webhook)
        ))
        .missing(format!(
            "whether it intercepts {} of these objects: its rules list other versions of this kind, which may not be served",
            rejected.requests
        ));
    with_steps(found, webhook)
}

/// `guard.example.com of validatingwebhookconfiguration guard`.
fn place(webhook: &DeadWebhook) -> String {
    let kind = webhook.resource.trim_end_matches('s');
    format!("{} of {kind} {}", webhook.name, webhook.configuration)
}

fn with_steps(mut found: Diagnosis, webhook: &DeadWebhook) -> Diagnosis {
    let DeadWebhook {
        resource,
        configuration,
        name,
        service: (namespace, service),
        may_leave_out,
        ..
    } = webhook;
    if *may_leave_out {
        found = found.missing(format!(
            "whether {configuration} applies to these objects: its selectors and conditions are not evaluated here"
        ));
    }
    found.about = format!("{configuration}/{name}");
    let singular = resource.trim_end_matches('s');
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
