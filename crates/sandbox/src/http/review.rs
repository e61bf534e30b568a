//! Who may do what: everyone may do everything here.

use serde_json::{Value, json};

use super::Call;
use super::respond::{self, Answer};
use super::route::ResourceRequest;
use crate::error::ApiError;

/// Answers access reviews; `None` for every other request.
pub(crate) fn serve(call: &Call, request: &ResourceRequest) -> Option<Answer> {
    let key = (
        &*request.gvr.group,
        &*request.gvr.version,
        &*request.gvr.resource,
    );
    let status = match key {
        ("authorization.k8s.io", "v1", "selfsubjectaccessreviews" | "subjectaccessreviews") => {
            json!({"allowed": true, "reason": "the sandbox allows everything"})
        }
        ("authorization.k8s.io", "v1", "selfsubjectrulesreviews") => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        ("authentication.k8s.io", "v1", "selfsubjectreviews") => json!({
            "userInfo": {"username": call.actor.as_str(), "groups": ["system:authenticated"]},
        }),
        _ => return None,
    };
    if call.parts.method != http::Method::POST {
        return Some(respond::refuse(&ApiError::method_not_allowed(
            "the server does not allow this method on the requested resource",
        )));
    }
    let body: Result<Value, _> = serde_json::from_slice(&call.body);
    Some(match body {
        Ok(mut review @ Value::Object(_)) => {
            review["status"] = status;
            respond::json(201, &review)
        }
        _ => respond::refuse(&ApiError::bad_request(
            "couldn't get version/kind; json parse error",
        )),
    })
}
