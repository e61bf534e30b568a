//! Webhooks that intercept what has to happen for a deletion and have no ready endpoint.

use std::sync::Arc;

use belayer_core::object::Resource;

use super::{
    CRD_CLEANUP, Diagnosis, FOREGROUND, behind, is_definition, waits_for_namespace_controller,
};
use crate::evidence::{DeadWebhook, Intercepts, World};
use crate::kinds::Kind;
use crate::object::Terminating;
use crate::report::{Cause, Step, Verdict};

/// A webhook with failurePolicy Fail rejects what has to happen for a deletion, if it intercepts that and its service has no
/// endpoint.
pub(super) fn in_the_way(object: &Terminating, world: &World) -> Vec<Diagnosis> {
    let dead = &world.webhooks.dead;
    if dead.is_empty() {
        return Vec::new();
    }
    let needed = needed(object, world);
    dead.iter()
        .filter_map(|webhook| {
            let found = needed
                .iter()
                .map(|request| (request.meets(webhook), request));
            match found.max_by_key(|(intercepts, _)| *intercepts)? {
                (Intercepts::No, _) => None,
                (Intercepts::Yes, request) => Some(diagnosis(webhook, request)),
                (Intercepts::InAnotherVersion, request) => {
                    Some(of_another_version(webhook, request))
                }
            }
        })
        .collect()
}

/// Whether a webhook rejects the deletion of dependents of this object.
pub(super) fn reject_dependents(object: &Terminating, world: &World) -> bool {
    let dead = &world.webhooks.dead;
    let is_rejected = |request: Needed| {
        let mut dead = dead.iter();
        dead.any(|webhook| request.meets(webhook) == Intercepts::Yes)
    };
    !dead.is_empty() && dependents(object, world).any(is_rejected)
}

/// A request that the deletion of an object needs.
struct Needed {
    operation: &'static str,
    kind: Arc<Kind>,
    subresource: &'static str,
    /// Such requests, as in "intercepts ...".
    requests: String,
    /// The words of the headline; if they are empty, those of the cause.
    headline: &'static str,
    /// What follows if they are rejected.
    so: &'static str,
}

impl Needed {
    fn meets(&self, webhook: &DeadWebhook) -> Intercepts {
        webhook.intercepts(self.operation, &self.kind, self.subresource)
    }
}

/// The removal of a finalizer is an update, the kubelet's last step about a pod is a deletion, and so is the garbage
/// collector's about a dependent. The namespace controller completes the deletion of a namespace by its finalizers in the
/// spec.
fn needed(object: &Terminating, world: &World) -> Vec<Needed> {
    let kind = &object.object.kind;
    let of_kind = |operation, requests: &str, so| Needed {
        operation,
        kind: Arc::clone(kind),
        subresource: "",
        requests: requests.to_owned(),
        headline: "",
        so,
    };
    let mut needed = Vec::new();
    let (by_status, others): (Vec<&String>, Vec<_>) = object
        .finalizers
        .iter()
        .partition(|finalizer| is_removed_by_status(finalizer, &kind.resource));
    if !others.is_empty() {
        let so = "no finalizer can be removed";
        needed.push(of_kind("UPDATE", "updates of this kind", so));
    }
    if let Some(finalizer) = by_status.first() {
        needed.push(Needed {
            subresource: "status",
            headline: "a webhook without a ready endpoint rejects the removal of the finalizer",
            ..of_kind(
                "UPDATE",
                &format!(
                    "updates of {}/status, which remove {finalizer}",
                    kind.name()
                ),
                "that finalizer cannot be removed",
            )
        });
    }
    if object.finalizers.is_empty() && kind.resource.is_same_kind(&Resource::pods()) {
        let so = "no kubelet can delete its pods";
        needed.push(of_kind("DELETE", "deletions of this kind", so));
    }
    if waits_for_namespace_controller(object, world) {
        let so = "the namespace controller cannot complete the deletion";
        needed.push(Needed {
            subresource: "finalize",
            headline: "a webhook without a ready endpoint rejects the end of the deletion",
            ..of_kind("UPDATE", "updates of namespaces/finalize", so)
        });
    }
    needed.extend(dependents(object, world));
    needed
}

/// Whether the controller of a finalizer removes it by an update of the subresource `status`: the API server does so in
/// CustomResourceDefinitions, and the controllers of cloud providers in Services.
fn is_removed_by_status(finalizer: &str, kind: &Resource) -> bool {
    let is_service = || kind.group.is_empty() && *kind.plural == *"services";
    match finalizer {
        CRD_CLEANUP => is_definition(kind),
        "service.kubernetes.io/load-balancer-cleanup" => is_service(),
        _ => false,
    }
}

/// The deletions of dependents that block a foreground deletion and have not begun.
fn dependents(object: &Terminating, world: &World) -> impl Iterator<Item = Needed> {
    let foreground = object.finalizers.iter().any(|name| name == FOREGROUND);
    let all = world.scan.dependents.get(object.object.uid.as_str());
    let remaining = all
        .into_iter()
        .flatten()
        .filter(move |one| foreground && world.scan.terminating_with(one.uid.as_str()).is_none());
    remaining.map(|one| Needed {
        operation: "DELETE",
        kind: Arc::clone(&one.kind),
        subresource: "",
        requests: format!(
            "deletions of {}, of which it has dependents",
            one.kind.name()
        ),
        headline: "a webhook without a ready endpoint rejects the deletion of dependents",
        so: "the garbage collector cannot delete these dependents",
    })
}

fn diagnosis(webhook: &DeadWebhook, needed: &Needed) -> Diagnosis {
    let (namespace, service) = &webhook.service;
    let verdict = if webhook.may_leave_out {
        Verdict::Unknown
    } else {
        Verdict::WebhookDown
    };
    let found = Diagnosis::new(Cause::Webhook, verdict)
        .proven(format!(
            "webhook {} has failurePolicy Fail and intercepts {}",
            place(webhook),
            needed.requests
        ))
        .proven(format!(
            "its service {namespace}/{service} has no ready endpoint: {}",
            needed.so
        ));
    with_steps(found, webhook, needed)
}

/// By default, the API server converts an object for a webhook whose rules list another version that it serves.
fn of_another_version(webhook: &DeadWebhook, needed: &Needed) -> Diagnosis {
    let (namespace, service) = &webhook.service;
    let found = Diagnosis::new(Cause::Webhook, Verdict::Unknown)
        .proven(format!(
            "webhook {} has failurePolicy Fail, and its service {namespace}/{service} has no ready endpoint",
            place(webhook)
        ))
        .missing(format!(
            "whether it intercepts {}: its rules list other versions of this kind, which may not be served",
            needed.requests
        ));
    with_steps(found, webhook, needed)
}

/// `guard.example.com of validatingwebhookconfiguration guard`.
fn place(webhook: &DeadWebhook) -> String {
    let kind = webhook.resource.trim_end_matches('s');
    format!("{} of {kind} {}", webhook.name, webhook.configuration)
}

fn with_steps(mut found: Diagnosis, webhook: &DeadWebhook, needed: &Needed) -> Diagnosis {
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
    needed.headline.clone_into(&mut found.headline);
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
