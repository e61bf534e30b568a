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
    if !headers.iter().any(|(name, _)| *name == "content-type") {
        request = request.header("content-type", "application/json");
    }
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
async fn every_requested_group_needs_the_right() {
    let sandbox = enforcing();
    sandbox
        .load_yaml(
            "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: impersonator}
rules:
- {apiGroups: [''], resources: [users], verbs: [impersonate]}
- {apiGroups: [''], resources: [groups], verbs: [impersonate], resourceNames: [readers]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: impersonator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: impersonator}
subjects: [{kind: User, name: jane}]
",
        )
        .unwrap();
    for (groups, refused) in [
        (&[][..], ""),
        (&["readers"][..], ""),
        (&["writers"][..], "writers"),
        (&["readers", "system:masters"][..], "system:masters"),
        (&["system:authenticated"][..], "system:authenticated"),
    ] {
        let mut headers = vec![("impersonate-user", "john")];
        headers.extend(groups.iter().map(|group| ("impersonate-group", *group)));
        let request = call(&sandbox, "jane", "GET", "/version", &headers, Value::Null);
        let (status, error) = request.await;
        if refused.is_empty() {
            assert_eq!(status, 200, "{groups:?}");
            continue;
        }
        let expected = format!(
            "groups {refused:?} is forbidden: User \"jane\" cannot impersonate resource \"groups\" in API group \"\" at the cluster scope"
        );
        assert_eq!((status, &error["message"]), (403, &json!(expected)));
    }
}

#[tokio::test]
async fn a_requested_uid_and_extra_value_need_the_right() {
    let sandbox = enforcing();
    let role = |rules: &str| {
        format!(
            "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: impersonator}}
rules:
- {{apiGroups: [''], resources: [users], verbs: [impersonate]}}
{rules}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: impersonator}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: impersonator}}
subjects: [{{kind: User, name: jane}}]
"
        )
    };
    sandbox.load_yaml(&role("")).unwrap();
    let uid = [("impersonate-user", "john"), ("impersonate-uid", "u")];
    let (status, error) = call(&sandbox, "jane", "GET", "/version", &uid, Value::Null).await;
    assert_eq!(status, 403);
    let expected = "uids.authentication.k8s.io \"u\" is forbidden: User \"jane\" cannot impersonate resource \"uids\" in API group \"authentication.k8s.io\" at the cluster scope";
    assert_eq!(error["message"], expected);
    let extra = [
        ("impersonate-user", "john"),
        ("impersonate-extra-scopes", "v"),
    ];
    let (status, error) = call(&sandbox, "jane", "GET", "/version", &extra, Value::Null).await;
    assert_eq!(status, 403);
    let expected = "userextras.authentication.k8s.io \"v\" is forbidden: User \"jane\" cannot impersonate resource \"userextras/scopes\" in API group \"authentication.k8s.io\" at the cluster scope";
    assert_eq!(error["message"], expected);
    let sandbox = enforcing();
    let rules = "- {apiGroups: [authentication.k8s.io], resources: [uids, userextras/scopes], verbs: [impersonate]}";
    sandbox.load_yaml(&role(rules)).unwrap();
    for headers in [uid, extra] {
        let (status, _) = call(&sandbox, "jane", "GET", "/version", &headers, Value::Null).await;
        assert_eq!(status, 200);
    }
}

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";

/// Permissions to change configmaps and leases, and with them the given verb.
fn changing(verb: &str) -> Sandbox {
    let sandbox = Sandbox::builder()
        .seed(1)
        .authorization(Authorization::Rbac)
        .build();
    let manifests = MANIFESTS.replace(
        "- {apiGroups: [''], resources: [configmaps], verbs: [get, list]}",
        &format!("- {{apiGroups: ['', coordination.k8s.io], resources: [configmaps, leases], verbs: [get, patch, update, {verb}]}}"),
    );
    sandbox.load_yaml(&manifests).unwrap();
    sandbox
}

async fn apply(sandbox: &Sandbox, body: Value) -> (u16, Value) {
    let path = format!("{CONFIGMAPS}/a?fieldManager=m");
    let media = [("content-type", "application/apply-patch+yaml")];
    call(sandbox, OPERATOR, "PATCH", &path, &media, body).await
}

#[tokio::test]
async fn a_create_by_apply_or_replace_needs_the_right_to_create() {
    let sandbox = changing("get");
    let before = sandbox.cluster().version();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let (status, error) = apply(&sandbox, map.clone()).await;
    assert_eq!(status, 403);
    let expected = "configmaps \"a\" is forbidden: User \"system:serviceaccount:default:operator\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert_eq!(error["message"], expected);
    let lease = json!({"metadata": {"name": "l"}});
    let (status, error) = call(&sandbox, OPERATOR, "PUT", LEASE, &[], lease.clone()).await;
    assert_eq!(status, 403);
    let expected = "leases.coordination.k8s.io \"l\" is forbidden: User \"system:serviceaccount:default:operator\" cannot create resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"default\"";
    assert_eq!(error["message"], expected);
    // What is invalid is refused as such.
    let invalid = json!({"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": -1}});
    let (status, _) = call(&sandbox, OPERATOR, "PUT", LEASE, &[], invalid).await;
    assert_eq!((status, sandbox.cluster().version()), (422, before));
    let (status, _) = call(&sandbox, "admin", "PUT", LEASE, &[], lease.clone()).await;
    assert_eq!(status, 201);
    let sandbox = changing("create");
    assert_eq!(apply(&sandbox, map.clone()).await.0, 201);
    assert_eq!(apply(&sandbox, map).await.0, 200);
    let (status, _) = call(&sandbox, OPERATOR, "PUT", LEASE, &[], lease).await;
    assert_eq!(status, 201);
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
