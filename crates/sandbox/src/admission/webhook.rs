//! MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::conversation::{self, Question, Reply};
use super::matching::list;
use super::policy::{Policy, policy};
use super::validate::denied;
use super::{Admission, Attempt, meets};
use crate::error::{ApiError, Cause, Reason};
use crate::meta;

/// How long a webhook may take by default.
const SECONDS: u64 = 10;

/// A webhook of a stored configuration.
#[derive(Debug)]
pub(super) struct Webhook {
    /// Its name, constraints, conditions and failure policy.
    policy: Policy,
    url: String,
    authorities: Vec<u8>,
    seconds: u64,
    /// It may be called for a dry run.
    tries: bool,
}

/// What a webhook says to a write.
struct Verdict {
    patch: Option<Value>,
    warnings: Vec<String>,
}

impl Webhook {
    /// The webhooks of a configuration, in its order.
    pub(super) fn all(configuration: &Value) -> impl Iterator<Item = Webhook> + '_ {
        let hooks = list(configuration, &["webhooks"]);
        // Without rules it is about nothing, where a policy is about everything.
        let hooks = hooks.filter(|hook| list(hook, &["rules"]).next().is_some());
        hooks.map(Webhook::of)
    }

    fn of(hook: &Value) -> Self {
        let constraints = json!({
            "resourceRules": hook["rules"],
            "namespaceSelector": hook["namespaceSelector"],
            "objectSelector": hook["objectSelector"],
        });
        let as_policy = json!({
            "metadata": {"name": hook["name"]},
            "spec": {
                "failurePolicy": hook["failurePolicy"],
                "matchConditions": hook["matchConditions"],
                "matchConstraints": constraints,
                "reinvocationPolicy": hook["reinvocationPolicy"],
            },
        });
        let bundle = meta::text(hook, &["clientConfig", "caBundle"]);
        Webhook {
            policy: policy(&as_policy, Vec::new()),
            url: meta::text(hook, &["clientConfig", "url"]).to_owned(),
            authorities: STANDARD.decode(bundle).unwrap_or_default(),
            seconds: hook["timeoutSeconds"].as_u64().unwrap_or(SECONDS),
            tries: matches!(meta::text(hook, &["sideEffects"]), "None" | "NoneOnDryRun"),
        }
    }
}

impl Admission<'_> {
    /// The object after all mutating webhooks; `None` if none of them changes it.
    ///
    /// # Errors
    /// The first refusal, or a question that has to be asked first.
    pub(crate) fn call_mutating(
        &self,
        attempt: &Attempt<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Value>, ApiError> {
        let mut current = attempt.object.cloned();
        // The object after each webhook that is called again, in the first round.
        let mut left = Vec::new();
        for hook in &self.policies.mutating_webhooks {
            let called = self.change(hook, attempt, &mut current, warnings)?;
            if called && hook.policy.again {
                left.push((hook, current.clone()));
            }
        }
        for (hook, before) in left {
            if current != before {
                self.change(hook, attempt, &mut current, warnings)?;
            }
        }
        Ok(current.filter(|current| attempt.object != Some(current)))
    }

    /// Calls a webhook and applies its patch; returns whether it was called.
    fn change(
        &self,
        hook: &Webhook,
        attempt: &Attempt<'_>,
        object: &mut Option<Value>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, ApiError> {
        let now = Attempt {
            object: object.as_ref(),
            ..*attempt
        };
        let Some(verdict) = self.call(hook, &now, true)? else {
            return Ok(false);
        };
        warnings.extend(verdict.warnings);
        let empty = |patch: &Value| patch.as_array().is_some_and(Vec::is_empty);
        let Some(patch) = verdict.patch.filter(|patch| !empty(patch)) else {
            return Ok(true);
        };
        let Some(object) = object else {
            let name = &hook.policy.name;
            return Err(internal(&format!(
                "admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
            )));
        };
        let patched = self.state.patch(object, patch);
        patched.map_err(|why| internal(&why))?;
        Ok(true)
    }

    /// Asks all validating webhooks; returns their warnings.
    ///
    /// # Errors
    /// The first refusal, or questions that have to be asked first.
    pub(crate) fn call_validating(&self, attempt: &Attempt<'_>) -> Result<Vec<String>, ApiError> {
        let mut warnings = Vec::new();
        let mut refusal = None;
        for hook in &self.policies.validating_webhooks {
            match self.call(hook, attempt, false) {
                Ok(verdict) => warnings.extend(verdict.into_iter().flat_map(|it| it.warnings)),
                Err(error) => {
                    refusal.get_or_insert(error);
                }
            }
        }
        refusal.map_or(Ok(warnings), Err)
    }

    /// Asks a webhook about a write, unless the write is none of its business.
    fn call(
        &self,
        hook: &Webhook,
        attempt: &Attempt<'_>,
        mutating: bool,
    ) -> Result<Option<Verdict>, ApiError> {
        let policy = &hook.policy;
        let name = &policy.name;
        let namespace = self.namespace(attempt);
        let namespace = namespace.as_deref();
        if !policy.constraints.matches(attempt, namespace) {
            return Ok(None);
        }
        let params = Value::Null;
        let met = self.evaluate(policy, &params, attempt, namespace, |scope| {
            meets(policy, scope)
        });
        match met {
            Ok(true) => {}
            Err(why) if policy.fails => return Err(denied(attempt, &why)),
            _ => return Ok(None),
        }
        if attempt.dry_run && !hook.tries {
            let why = format!("admission webhook {name:?} does not support dry run");
            return Err(ApiError::bad_request(why));
        }
        let reply = match hook.url.as_str() {
            "" => Err("the sandbox does not serve Services: give the webhook a url".to_owned()),
            url => conversation::ask(Question {
                url: url.to_owned(),
                authorities: hook.authorities.clone(),
                seconds: hook.seconds,
                request: self.review(attempt).to_string(),
            })
            .ok_or_else(|| ApiError::internal("a webhook has not answered yet"))?,
        };
        match read(reply, mutating) {
            Ok(response) => verdict(name, &response).map(Some),
            Err(why) if policy.fails => {
                Err(internal(&format!("failed calling webhook {name:?}: {why}")))
            }
            Err(why) => {
                tracing::warn!(webhook = %name, %why, "ignored a webhook that failed");
                Ok(None)
            }
        }
    }

    /// `request` of the review.
    fn review(&self, attempt: &Attempt<'_>) -> Value {
        let mut request = attempt.request(&self.user);
        request["object"] = json!(attempt.object);
        request["oldObject"] = json!(attempt.old);
        let kind = match attempt.operation.as_str() {
            "CREATE" => "CreateOptions",
            "UPDATE" => "UpdateOptions",
            _ => "DeleteOptions",
        };
        request["options"] = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        request
    }
}

/// 500.
fn internal(why: &str) -> ApiError {
    let error = ApiError::internal(format!("Internal error occurred: {why}"));
    error.with_causes(vec![Cause {
        reason: String::new(),
        message: why.to_owned(),
        field: String::new(),
    }])
}

/// Checks a response.
fn read(reply: Reply, mutating: bool) -> Result<Value, String> {
    let response = reply?;
    let has = |field: &str| !meta::text(&response, &[field]).is_empty();
    let wrong = match (mutating, has("patch"), has("patchType")) {
        (false, true, _) => "validating webhook may not return response.patch",
        (false, _, true) => "validating webhook may not return response.patchType",
        (true, true, false) => "webhook returned response.patch but not response.patchType",
        (true, false, true) => "webhook returned response.patchType but not response.patch",
        _ => return Ok(response),
    };
    Err(format!("received invalid webhook response: {wrong}"))
}

/// What a response means.
fn verdict(name: &str, response: &Value) -> Result<Verdict, ApiError> {
    if response["allowed"] != json!(true) {
        return Err(refusal(name, &response["status"]));
    }
    let patch = match meta::text(response, &["patch"]) {
        "" => None,
        text => {
            let bytes = STANDARD.decode(text).ok();
            let patch = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
            let why = format!(
                "failed calling webhook {name:?}: received undecodable patch in webhook response"
            );
            Some(patch.ok_or_else(|| internal(&why))?)
        }
    };
    Ok(Verdict {
        patch,
        warnings: super::matching::texts(response, "warnings"),
    })
}

fn refusal(name: &str, status: &Value) -> ApiError {
    let denied = format!("admission webhook {name:?} denied the request");
    let reason = meta::text(status, &["reason"]);
    let message = match (meta::text(status, &["message"]), reason) {
        ("", "") => format!("{denied} without explanation"),
        ("", why) | (why, _) => format!("{denied}: {why}"),
    };
    let code = status["code"].as_u64().unwrap_or_default();
    let code = u16::try_from(code).unwrap_or(400).max(400);
    ApiError::new(code, Reason::of(reason), message)
}
