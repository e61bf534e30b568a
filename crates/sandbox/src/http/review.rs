//! Access reviews: every request is allowed.

use serde_json::{Value, json};

use super::Call;
use super::negotiate::content_type;
use super::respond::{self, Answer};
use super::route::ResourceRequest;
use crate::error::ApiError;

fn allowed() -> Value {
    json!({"allowed": true, "reason": "the sandbox allows everything"})
}

/// Answers access reviews; `None` for every other request.
pub(crate) fn serve(call: &Call, request: &ResourceRequest) -> Option<Answer> {
    let key = (
        &*request.gvr.group,
        &*request.gvr.version,
        &*request.gvr.resource,
    );
    let (kind, status) = match key {
        ("authorization.k8s.io", "v1", "selfsubjectaccessreviews") => {
            ("SelfSubjectAccessReview", allowed())
        }
        ("authorization.k8s.io", "v1", "subjectaccessreviews") => {
            ("SubjectAccessReview", allowed())
        }
        ("authorization.k8s.io", "v1", "selfsubjectrulesreviews") => {
            let rules = json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            });
            ("SelfSubjectRulesReview", rules)
        }
        ("authentication.k8s.io", "v1", "selfsubjectreviews") => {
            let groups = ["system:authenticated"];
            let user = json!({"userInfo": {"username": call.actor.as_str(), "groups": groups}});
            ("SelfSubjectReview", user)
        }
        _ => return None,
    };
    if call.parts.method != http::Method::POST {
        return Some(respond::refuse(&ApiError::method_not_allowed(
            "the server does not allow this method on the requested resource",
        )));
    }
    // kubectl sends protobuf. The response does not depend on the request, so it need not be decoded.
    let mut review = match serde_json::from_slice(&call.body) {
        Ok(review @ Value::Object(_)) => review,
        _ if content_type(&call.parts.headers).ends_with("protobuf") => json!({"metadata": {}}),
        _ => {
            let message = "couldn't get version/kind; json parse error";
            return Some(respond::refuse(&ApiError::bad_request(message)));
        }
    };
    review["apiVersion"] = json!(request.gvr.api_version());
    review["kind"] = json!(kind);
    review["status"] = status;
    Some(respond::json(201, &review))
}
