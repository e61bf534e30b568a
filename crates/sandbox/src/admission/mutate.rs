//! MutatingAdmissionPolicies.

use serde_json::Value;

use super::expression::{Scope, to_json};
use super::policy::{Binding, Mutation, Policy};
use super::validate::denied;
use super::{Admission, Attempt, Misconfigured, Store, meets};
use crate::error::{ApiError, Cause, Reason};
use crate::fields::{self, Shape};

impl Admission<'_> {
    /// The object after all policies; `None` if none of them changes it.
    ///
    /// # Errors
    /// The first policy that fails and must not.
    pub(crate) fn mutate(&self, attempt: &Attempt<'_>) -> Result<Option<Value>, ApiError> {
        let Some(object) = attempt.object else {
            return Ok(None);
        };
        let mut current = object.clone();
        // The object after each policy that runs again, in the first round.
        let mut left: Vec<(usize, Value)> = Vec::new();
        for (index, policy) in self.policies.mutating.iter().enumerate() {
            current = self.run(policy, attempt, current)?;
            if policy.again {
                left.push((index, current.clone()));
            }
        }
        for (index, before) in left {
            if current != before {
                current = self.run(&self.policies.mutating[index], attempt, current)?;
            }
        }
        Ok((current != *object).then_some(current))
    }

    fn run(
        &self,
        policy: &Policy,
        attempt: &Attempt<'_>,
        mut object: Value,
    ) -> Result<Value, ApiError> {
        let own = Attempt {
            object: Some(&object),
            ..*attempt
        };
        let namespace = self.namespace(&own);
        let namespace = namespace.as_deref();
        for binding in self.bindings(policy, &own, namespace) {
            let params = match self.params(policy, binding, attempt) {
                Ok(params) => params,
                Err(Misconfigured(why)) if policy.fails => {
                    let why = format!("failed to configure binding: {why}");
                    return Err(refuse(attempt, policy, binding, &why));
                }
                Err(_) => continue,
            };
            for params in params {
                let now = Attempt {
                    object: Some(&object),
                    ..*attempt
                };
                let changed = self.evaluate(policy, &params, &now, namespace, |scope| {
                    change(self.state, policy, scope, &now)
                });
                match changed {
                    Ok(Some(changed)) => object = changed,
                    Err(why) if policy.fails => {
                        return Err(refuse(attempt, policy, binding, &why));
                    }
                    _ => {}
                }
            }
        }
        Ok(object)
    }
}

fn refuse(attempt: &Attempt<'_>, policy: &Policy, binding: &Binding, why: &str) -> ApiError {
    let message = format!(
        "policy '{}' with binding '{}' denied request: {why}",
        policy.name, binding.name
    );
    let mut error = denied(attempt, &message);
    error.message.clone_from(&message);
    error.reason = Reason::Invalid;
    error.with_causes(vec![Cause {
        reason: String::new(),
        message,
        field: String::new(),
    }])
}

/// The object after the changes of a policy; `None` if its conditions do not hold.
fn change(
    store: &dyn Store,
    policy: &Policy,
    scope: &mut Scope<'_>,
    attempt: &Attempt<'_>,
) -> Result<Option<Value>, String> {
    if !meets(policy, scope)? {
        return Ok(None);
    }
    let mut object = attempt.object.cloned();
    for mutation in &policy.mutations {
        let result = scope.value(&mutation.program)?;
        let patch = to_json(&result).ok_or("the result has no form in JSON")?;
        if let Some(object) = &mut object {
            *object = changed(store, mutation, object, patch, attempt)?;
            // Each change sees the ones before it.
            scope.set_object(object);
        }
    }
    Ok(object)
}

fn changed(
    store: &dyn Store,
    mutation: &Mutation,
    object: &Value,
    patch: Value,
    attempt: &Attempt<'_>,
) -> Result<Value, String> {
    if mutation.is_json_patch {
        let mut object = object.clone();
        store.patch(&mut object, patch)?;
        return Ok(object);
    }
    let mut config = patch;
    config["apiVersion"] = object["apiVersion"].clone();
    config["kind"] = object["kind"].clone();
    let shape = Shape::of_kind(attempt.info, attempt.gvr);
    Ok(fields::merge(shape, object, &config))
}
