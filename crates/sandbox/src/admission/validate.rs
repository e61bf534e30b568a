//! ValidatingAdmissionPolicies.

use kube_cel::cel::Value as Cel;

use super::expression::Scope;
use super::policy::{Binding, Policy, Validation};
use super::{Admission, Attempt, Misconfigured, meets};
use crate::error::{ApiError, Cause, Reason};

/// The longest computed message.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// A rule that does not hold.
struct Failed {
    message: String,
    reason: String,
}

impl Failed {
    fn because(message: String) -> Self {
        Failed {
            message,
            reason: String::new(),
        }
    }
}

impl Admission<'_> {
    /// Asks all policies; returns their warnings.
    ///
    /// # Errors
    /// The first refusal.
    pub(crate) fn validate(&self, attempt: &Attempt<'_>) -> Result<Vec<String>, ApiError> {
        let mut warnings = Vec::new();
        let namespace = self.namespace(attempt);
        let namespace = namespace.as_deref();
        let mut refusal = None;
        for policy in &self.policies.validating {
            for binding in self.bindings(policy, attempt, namespace) {
                let failed = match self.params(policy, binding, attempt) {
                    Ok(params) => {
                        let each = params.iter().flat_map(|params| {
                            self.evaluate(policy, params, attempt, namespace, |scope| {
                                decide(policy, scope)
                            })
                        });
                        each.collect()
                    }
                    Err(Misconfigured(why)) if policy.fails => {
                        let why = format!("failed to configure binding: {why}");
                        refusal.get_or_insert_with(|| {
                            refuse(attempt, policy, binding, Failed::because(why))
                        });
                        Vec::new()
                    }
                    Err(_) => Vec::new(),
                };
                for failed in failed {
                    if binding.actions.iter().any(|action| action == "Warn") {
                        warnings.push(format!(
                            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                            policy.name, binding.name, failed.message
                        ));
                    }
                    if binding.actions.iter().any(|action| action == "Deny") {
                        refusal.get_or_insert_with(|| refuse(attempt, policy, binding, failed));
                    }
                }
            }
        }
        match refusal {
            Some(refusal) => Err(refusal),
            None => Ok(warnings),
        }
    }
}

fn refuse(attempt: &Attempt<'_>, policy: &Policy, binding: &Binding, failed: Failed) -> ApiError {
    let message = format!(
        "ValidatingAdmissionPolicy '{}' with binding '{}' denied request: {}",
        policy.name, binding.name, failed.message
    );
    let (code, reason) = match failed.reason.as_str() {
        "Forbidden" => (403, Reason::Forbidden),
        "Unauthorized" => (401, Reason::Unauthorized),
        "RequestEntityTooLarge" => (413, Reason::RequestEntityTooLarge),
        _ => (422, Reason::Invalid),
    };
    let mut error = denied(attempt, &message).with_causes(vec![Cause {
        reason: String::new(),
        message,
        field: String::new(),
    }]);
    error.code = code;
    error.reason = reason;
    error
}

/// 403 that names the object.
pub(super) fn denied(attempt: &Attempt<'_>, why: &str) -> ApiError {
    let (group, resource) = (&attempt.gvr.group, &attempt.gvr.resource);
    ApiError::forbidden(group, resource, attempt.name, why)
}

/// The rules of a policy that do not hold.
fn decide(policy: &Policy, scope: &mut Scope<'_>) -> Vec<Failed> {
    match meets(policy, scope) {
        Ok(true) => {}
        Err(why) if policy.fails => return vec![Failed::because(why)],
        _ => return Vec::new(),
    }
    let each = policy.validations.iter();
    each.filter_map(|validation| match scope.value(&validation.program) {
        Ok(Cel::Bool(true)) => None,
        Ok(_) => Some(Failed {
            message: message(validation, scope),
            reason: validation.reason.clone(),
        }),
        Err(why) => policy.fails.then(|| Failed::because(why)),
    })
    .collect()
}

fn message(validation: &Validation, scope: &mut Scope<'_>) -> String {
    let computed = validation.message_program.as_ref();
    if let Some(Ok(Cel::String(text))) = computed.map(|program| scope.value(program)) {
        let text = text.trim();
        if !text.is_empty() && !text.contains('\n') && text.len() <= LONGEST_MESSAGE {
            return text.to_owned();
        }
    }
    match validation.message.as_str() {
        "" => format!("failed expression: {}", validation.program.text),
        message => message.to_owned(),
    }
}
