//! Permissions: enforced by a builder option, and always for requests in another user's name.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{CONFIGMAPS, PODS};
use crate::{Authorization, Sandbox};

const OPERATOR: &str = "system:serviceaccount:default:operator";
const SELF_REVIEW: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

const MANIFESTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: operator, namespace: default}
rules:
- {apiGroups: [''], resources: [configmaps], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: operator, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: operator}
subjects: [{kind: ServiceAccount, name: operator}]
";

fn enforcing() -> Sandbox {
    let sandbox = Sandbox::builder()
        .seed(1)
        .authorization(Authorization::Rbac)
        .build();
    sandbox.load_yaml(MANIFESTS).unwrap();
    sandbox
}

async fn call(
    sandbox: &Sandbox,
    user: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Value,
) -> (u16, Value) {
    let mut request = Request::builder().method(method).uri(path);
    request = request.header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() {
        Bytes::new()
    } else {
        body.to_string().into()
    };
    let request = request.body(Full::new(body)).unwrap();
    let response = sandbox.service(user).oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

async fn get(sandbox: &Sandbox, user: &str, path: &str) -> (u16, Value) {
    call(sandbox, user, "GET", path, &[], Value::Null).await
}

#[tokio::test]
async fn a_missing_right_is_found_in_a_unit_test() {
    let sandbox = enforcing();
    assert_eq!(get(&sandbox, OPERATOR, CONFIGMAPS).await.0, 200);
    let (status, error) = get(&sandbox, OPERATOR, PODS).await;
    assert_eq!(status, 403);
    let expected = "pods is forbidden: User \"system:serviceaccount:default:operator\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"";
    assert_eq!(error["message"], expected);
}

#[tokio::test]
async fn only_the_administrator_needs_no_rules() {
    let sandbox = enforcing();
    assert_eq!(get(&sandbox, "admin", PODS).await.0, 200);
    assert_eq!(get(&sandbox, "client", PODS).await.0, 403);
    assert_eq!(get(&sandbox, "client", "/apis").await.0, 200);
    let free = Sandbox::builder().seed(1).build();
    assert_eq!(get(&free, "client", PODS).await.0, 200);
}

#[tokio::test]
async fn a_refused_write_changes_nothing() {
    let sandbox = enforcing();
    let before = sandbox.cluster().version();
    let map = json!({"metadata": {"name": "a"}});
    let (status, _) = call(&sandbox, OPERATOR, "POST", CONFIGMAPS, &[], map).await;
    assert_eq!((status, sandbox.cluster().version()), (403, before));
}

#[tokio::test]
async fn an_impersonator_needs_the_right() {
    let sandbox = enforcing();
    let other = [("impersonate-user", OPERATOR)];
    let (status, error) = call(&sandbox, "jane", "GET", CONFIGMAPS, &other, Value::Null).await;
    assert_eq!(status, 403);
    let expected = "serviceaccounts \"operator\" is forbidden: User \"jane\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the namespace \"default\"";
    assert_eq!(error["message"], expected);
    let (status, _) = call(&sandbox, "admin", "GET", CONFIGMAPS, &other, Value::Null).await;
    assert_eq!(status, 200);
    let (status, _) = call(&sandbox, "admin", "GET", PODS, &other, Value::Null).await;
    assert_eq!(status, 403);
}

#[tokio::test]
async fn a_review_of_the_own_rights_follows_the_rules() {
    let sandbox = enforcing();
    for (verb, allowed) in [("get", true), ("delete", false)] {
        let attributes = json!({"namespace": "default", "verb": verb, "resource": "configmaps"});
        let review = json!({"spec": {"resourceAttributes": attributes}});
        let (status, review) = call(&sandbox, OPERATOR, "POST", SELF_REVIEW, &[], review).await;
        assert_eq!(
            (status, &review["status"]["allowed"]),
            (201, &json!(allowed)),
            "{verb}"
        );
    }
}

#[tokio::test]
async fn an_aggregated_role_has_the_rules_of_the_chosen_ones() {
    let sandbox = enforcing();
    sandbox
        .load_yaml(
            "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: part, labels: {to: whole}}
rules: [{apiGroups: [''], resources: [pods], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: whole}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {to: whole}}]}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: whole}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: whole}
subjects: [{kind: User, name: jane}]
",
        )
        .unwrap();
    assert_eq!(get(&sandbox, "jane", PODS).await.0, 200);
    assert_eq!(get(&sandbox, "jane", CONFIGMAPS).await.0, 403);
}

/// Row "the rest of the list": the user of a service account has the account's UID.
#[tokio::test]
async fn crates_a_service_account_is_known_by_its_uid() {
    let sandbox = enforcing();
    let account =
        "{apiVersion: v1, kind: ServiceAccount, metadata: {name: operator, namespace: default}}";
    sandbox.load_yaml(account).unwrap();
    let path = "/api/v1/namespaces/default/serviceaccounts/operator";
    let (_, account) = call(&sandbox, "admin", "GET", path, &[], Value::Null).await;
    let uid = &account["metadata"]["uid"];
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (_, review) = call(&sandbox, OPERATOR, "POST", path, &[], json!({})).await;
    assert_eq!(review["status"]["userInfo"]["uid"], *uid, "{review}");
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let token = json!({"spec": {"token": format!("user:{OPERATOR}")}});
    let (_, review) = call(&sandbox, "admin", "POST", path, &[], token).await;
    assert_eq!(review["status"]["user"]["uid"], *uid, "{review}");
}
