//! Everything that admission asks, compiled from stored objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::conversation;
use super::policy::{Binding, Policy, binding, policy};
use super::webhook::Webhook;
use crate::meta;

/// All policies and webhooks, by name.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    pub(super) validating: Vec<Policy>,
    pub(super) mutating: Vec<Policy>,
    pub(super) validating_webhooks: Vec<Webhook>,
    pub(super) mutating_webhooks: Vec<Webhook>,
}

impl Policies {
    /// Compiles stored objects. Tables are ordered by name, and so are policies.
    pub(crate) fn new<'a>(objects: impl Fn(&str) -> Vec<&'a Arc<Value>>) -> Self {
        let of = |policies: &str, bindings: &str| -> Vec<Policy> {
            let mut bound: BTreeMap<&str, Vec<Binding>> = BTreeMap::new();
            for object in objects(bindings) {
                let policy = meta::text(object, &["spec", "policyName"]);
                bound.entry(policy).or_default().push(binding(object));
            }
            let policy = |object: &'a Arc<Value>| {
                let bindings = bound.remove(meta::name(object))?;
                Some(policy(object, bindings))
            };
            objects(policies).into_iter().filter_map(policy).collect()
        };
        let hooks = |resource: &str| -> Vec<Webhook> {
            let all = objects(resource).into_iter();
            all.flat_map(|object| Webhook::all(object)).collect()
        };
        Policies {
            validating_webhooks: hooks("validatingwebhookconfigurations"),
            mutating_webhooks: hooks("mutatingwebhookconfigurations"),
            validating: of(
                "validatingadmissionpolicies",
                "validatingadmissionpolicybindings",
            ),
            mutating: of(
                "mutatingadmissionpolicies",
                "mutatingadmissionpolicybindings",
            ),
        }
    }

    pub(crate) fn has_validating(&self) -> bool {
        !self.validating.is_empty()
            || (!self.validating_webhooks.is_empty() && conversation::is_open())
    }

    pub(crate) fn has_mutating(&self) -> bool {
        !self.mutating.is_empty() || (!self.mutating_webhooks.is_empty() && conversation::is_open())
    }
}
