//! Access reviews and reviews of users.

use serde_json::{Value, json};

use super::negotiate::content_type;
use super::respond::{self, Answer};
use super::route::ResourceRequest;
use super::{Call, Server};
use crate::access::{Access, Authorization, Decision, User, allowed, rules_for};
use crate::error::{ApiError, Cause};
use crate::kinds::protobuf;
use crate::meta;

/// Answers reviews; `None` for every other request.
pub(crate) fn serve(server: &Server, call: &Call, request: &ResourceRequest) -> Option<Answer> {
    let key = (
        &*request.gvr.group,
        &*request.gvr.version,
        &*request.gvr.resource,
    );
    let kind = match key {
        ("authorization.k8s.io", "v1", "selfsubjectaccessreviews") => "SelfSubjectAccessReview",
        ("authorization.k8s.io", "v1", "subjectaccessreviews") => "SubjectAccessReview",
        ("authorization.k8s.io", "v1", "localsubjectaccessreviews") => "LocalSubjectAccessReview",
        ("authorization.k8s.io", "v1", "selfsubjectrulesreviews") => "SelfSubjectRulesReview",
        ("authentication.k8s.io", "v1", "selfsubjectreviews") => "SelfSubjectReview",
        ("authentication.k8s.io", "v1", "tokenreviews") => "TokenReview",
        _ => return None,
    };
    if call.parts.method != http::Method::POST {
        return Some(respond::refuse(&ApiError::method_not_allowed(
            "the server does not allow this method on the requested resource",
        )));
    }
    let review = Review {
        server,
        call,
        request,
        kind,
    };
    let answered = review.answer();
    Some(answered.map_or_else(
        |error| respond::refuse(&error),
        |review| respond::json(201, &review),
    ))
}

struct Review<'a> {
    server: &'a Server,
    call: &'a Call,
    request: &'a ResourceRequest,
    kind: &'static str,
}

impl Review<'_> {
    fn answer(&self) -> Result<Value, ApiError> {
        let mut review = self.body()?;
        let spec = review.get("spec").cloned().unwrap_or_default();
        let status = match self.kind {
            "SelfSubjectReview" => json!({"userInfo": self.call.user.to_json()}),
            "TokenReview" => self.token(&spec)?,
            "SelfSubjectRulesReview" => self.rules(&spec)?,
            _ => self.access(&spec)?,
        };
        let api_version = self.request.gvr.api_version();
        review["apiVersion"] = json!(api_version);
        review["kind"] = json!(self.kind);
        review["status"] = status;
        Ok(review)
    }

    fn body(&self) -> Result<Value, ApiError> {
        if content_type(&self.call.parts.headers) == protobuf::MEDIA {
            let api_version = self.request.gvr.api_version();
            let body = protobuf::read(&self.call.body, &api_version, self.kind);
            return body.map_err(|why| ApiError::bad_request(why.to_string()));
        }
        match serde_json::from_slice(&self.call.body) {
            Ok(review @ Value::Object(_)) => Ok(review),
            _ => {
                let message = "couldn't get version/kind; json parse error";
                Err(ApiError::bad_request(message))
            }
        }
    }

    fn invalid(&self, causes: Vec<Cause>) -> ApiError {
        // The real server does not name the kind here.
        ApiError::invalid(&self.request.gvr.group, "", "", causes)
    }

    fn access(&self, spec: &Value) -> Result<Value, ApiError> {
        let own = self.kind == "SelfSubjectAccessReview";
        let causes = check(spec, own, &self.request.namespace);
        if !causes.is_empty() {
            return Err(self.invalid(causes));
        }
        let Some(access) = Access::of_review(spec) else {
            return Err(ApiError::internal("review without attributes"));
        };
        let free = !self.call.impersonates && self.server.authorization == Authorization::AllowAll;
        let decision = if own && free {
            Decision {
                allowed: true,
                reason: "the sandbox allows everything".to_owned(),
            }
        } else if own {
            allowed(&self.server.cluster, &self.call.user, &access)
        } else {
            allowed(&self.server.cluster, &subject(spec), &access)
        };
        let mut status = json!({"allowed": decision.allowed});
        if !decision.reason.is_empty() {
            status["reason"] = json!(decision.reason);
        }
        Ok(status)
    }

    fn rules(&self, spec: &Value) -> Result<Value, ApiError> {
        let namespace = meta::text(spec, &["namespace"]);
        if namespace.is_empty() {
            return Err(ApiError::bad_request("no namespace on request"));
        }
        let free = !self.call.impersonates && self.server.authorization == Authorization::AllowAll;
        let rules = if free {
            rules_for(&self.server.cluster, &User::named("admin"), namespace)
        } else {
            rules_for(&self.server.cluster, &self.call.user, namespace)
        };
        let (paths, resources): (Vec<Value>, Vec<Value>) = rules
            .into_iter()
            .partition(|rule| rule.get("nonResourceURLs").is_some());
        Ok(json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false}))
    }

    /// Tokens of the sandbox are `user:NAME`.
    fn token(&self, spec: &Value) -> Result<Value, ApiError> {
        let token = meta::text(spec, &["token"]);
        if token.is_empty() {
            return Err(ApiError::bad_request(
                "token is required for TokenReview in authentication",
            ));
        }
        Ok(
            match token.strip_prefix("user:").filter(|name| !name.is_empty()) {
                Some(name) => {
                    json!({"authenticated": true, "user": self.server.known(User::named(name)).to_json()})
                }
                None => json!({"user": {}, "error": "invalid bearer token"}),
            },
        )
    }
}

/// The user of a review of another user's permissions.
fn subject(spec: &Value) -> User {
    let groups = spec.get("groups").and_then(Value::as_array);
    let groups = groups.into_iter().flatten().filter_map(Value::as_str);
    User {
        name: meta::text(spec, &["user"]).to_owned(),
        groups: groups.map(str::to_owned).collect(),
        ..User::default()
    }
}

/// Attributes of a path as the real server prints them.
fn go_path(spec: &Value) -> String {
    let text = |name| Value::from(meta::text(spec, &["nonResourceAttributes", name]));
    format!("{{\"Path\":{},\"Verb\":{}}}", text("path"), text("verb"))
}

fn check(spec: &Value, own: bool, namespace: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let given = |name: &str| spec.get(name).is_some_and(Value::is_object);
    match (given("resourceAttributes"), given("nonResourceAttributes")) {
        (true, true) => causes.push(Cause::invalid(
            "spec.nonResourceAttributes",
            &go_path(spec),
            "cannot be specified in combination with resourceAttributes",
        )),
        (false, false) => causes.push(Cause::invalid(
            "spec.resourceAttributes",
            "null",
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    let empty = |name: &str| {
        spec.get(name)
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty)
    };
    if !own && meta::text(spec, &["user"]).is_empty() && empty("groups") {
        causes.push(Cause::invalid(
            "spec.user",
            "\"\"",
            "at least one of user or group must be specified",
        ));
    }
    let asked = meta::text(spec, &["resourceAttributes", "namespace"]);
    if !namespace.is_empty() && asked != namespace {
        let why = "must match metadata.namespace";
        causes.push(Cause::invalid(
            "spec.resourceAttributes.namespace",
            &format!("{asked:?}"),
            why,
        ));
    }
    causes
}
