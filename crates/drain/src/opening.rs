//! What must be true before the leader turns on the switch of an admission policy: objects that
//! get a finalizer at their creation must be released later. The switch is one of the gate, whose
//! [status](crate::follow) every replica follows.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use belayer_core::executor::{Class, Executor};
use belayer_core::http::{ErrorClass, JSON, Request, RequestError};
use belayer_core::informer::InformerState;
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::watch;
use belayer_holds::gate::Account;
use belayer_holds::names::NAMESPACES_ANNOTATION;
use belayer_holds::permissions::Permission;
use belayer_inspect::preflight::{self, Ruling, Subject};

/// The switch of the admission policy of a running component. The switch is one of the gate, whose
/// [status](crate::follow) every replica follows.
#[derive(Debug, Clone)]
pub struct Switch {
    /// Its key in the gate.
    pub key: &'static str,
    /// The kinds that the policy holds, and the state of the informer of each.
    pub informers: Vec<(Resource, watch::Receiver<InformerState>)>,
    /// The permissions without which nothing that the policy adds is released.
    pub releases: Vec<Permission>,
    /// The policies that limit what Belayer's account writes to these kinds.
    pub limits: Vec<&'static str>,
}

/// The user of this process, as the API server sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct User {
    username: String,
    uid: String,
}

impl User {
    /// Asks the API server. An anonymous user if it does not know such reviews.
    pub(crate) async fn find(executor: &Executor) -> Result<Self, RequestError> {
        let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let request = Request::post(path, body.to_string());
        // A review changes nothing: a replica that does not lead asks as well.
        match executor.read(&request, Class::Evidence).await {
            Ok(answer) => {
                let mut review: Value = answer.json()?;
                let user = review["status"]["userInfo"].take();
                serde_json::from_value(user)
                    .map_err(|error| RequestError::Decode(error.to_string()))
            }
            Err(error) if error.class() == ErrorClass::NotServed => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Its ServiceAccount, if it is one of this namespace.
    pub(crate) fn account(&self, namespace: &str) -> Option<Account> {
        let account = self.username.strip_prefix("system:serviceaccount:")?;
        let (own, name) = account.split_once(':')?;
        (own == namespace && !self.uid.is_empty()).then(|| Account::new(name, &self.uid))
    }
}

/// Why a switch must stay off; `None` if it may be turned on.
pub(crate) async fn obstacle(
    executor: &Executor,
    user: &User,
    switch: &Switch,
    namespace: &str,
) -> Option<String> {
    let mut only = BTreeSet::new();
    for name in &switch.limits {
        match limited(executor, user, name).await {
            Ok(namespaces) => only.extend(namespaces),
            Err(not_limited) => return Some(not_limited.to_string()),
        }
    }
    for permission in &switch.releases {
        let (ruling, refused_in) =
            preflight::ask_in(executor, permission, &Subject::Own, namespace, &only).await;
        match ruling {
            Ruling::Granted => {}
            Ruling::Refused => {
                let place = refused_in.map_or_else(String::new, |there| format!(" in {there}"));
                return Some(format!(
                    "no permission to {permission}{place}: {}",
                    permission.without
                ));
            }
            Ruling::Unknown(why) => {
                return Some(format!("unknown whether it may {permission}: {why}"));
            }
        }
    }
    let mut informers = switch.informers.iter();
    informers.find_map(|(kind, state)| not_synced(kind, &state.borrow()))
}

/// Why what a policy holds would not be seen. A kind that is not served has no objects.
fn not_synced(kind: &Resource, state: &InformerState) -> Option<String> {
    let why = match state {
        InformerState::Synced | InformerState::NotServed => return None,
        InformerState::Starting | InformerState::Stopped => String::new(),
        InformerState::Failing { reason, .. } => format!(": {reason}"),
    };
    Some(format!("its informer of {kind} is not synced{why}"))
}

/// A policy that has to limit Belayer's writes does not.
#[derive(Debug, thiserror::Error)]
#[error(
    "the policy {policy}, which limits what Belayer writes, {problem}; apply it from the manifests of this namespace"
)]
struct NotLimited {
    policy: String,
    problem: String,
}

/// The only namespaces in which the policies of the installation add finalizers; empty for all. An error if this policy
/// does not limit the user's writes. A server without such policies has no problem.
async fn limited(
    executor: &Executor,
    user: &User,
    name: &str,
) -> Result<BTreeSet<Arc<str>>, NotLimited> {
    let [policies, bindings] = preflight::write_policy_kinds();
    let read = async {
        let policy = read(executor, &policies, name).await?;
        let binding = read(executor, &bindings, name).await?;
        Ok::<_, RequestError>((policy, binding))
    };
    let problem = match read.await {
        Ok((policy, binding)) => {
            match preflight::unlimited(policy.as_ref(), binding.as_ref(), &user.username) {
                None => return Ok(policy.iter().flat_map(only_namespaces).collect()),
                Some(problem) => problem,
            }
        }
        Err(error) if error.class() == ErrorClass::NotServed => return Ok(BTreeSet::new()),
        Err(error) => format!("cannot be read: {}", error.message()),
    };
    Err(NotLimited {
        policy: name.to_owned(),
        problem,
    })
}

/// As the chart writes them with `rbac.namespaces`.
fn only_namespaces(policy: &Value) -> impl Iterator<Item = Arc<str>> {
    let written = policy["metadata"]["annotations"][NAMESPACES_ANNOTATION].as_str();
    let all = written.unwrap_or_default().split(',').map(str::trim);
    all.filter(|name| !name.is_empty()).map(Arc::from)
}

async fn read(
    executor: &Executor,
    kind: &Resource,
    name: &str,
) -> Result<Option<Value>, RequestError> {
    let found = executor.find(kind, &ObjectKey::cluster(name), JSON).await?;
    found.map(|answer| answer.json()).transpose()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::convert::Infallible;

    use belayer_core::executor::{Bounds, Writes};
    use http_body_util::{BodyExt as _, Full};
    use kube::Client;
    use kube::client::Body;
    use rstest::rstest;

    use super::*;

    type Response = (u16, Value);

    /// An API server that answers each access review with this status, and reads of the policy and its binding with these.
    /// A review of a namespace in `granted` is allowed.
    fn server(
        review: Value,
        granted: &'static [&'static str],
        policy: Response,
        binding: Response,
    ) -> Executor {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let path = request.uri().path().to_owned();
            let (review, policy, binding) = (review.clone(), policy.clone(), binding.clone());
            async move {
                let sent = request.into_body().collect().await.unwrap().to_bytes();
                let (status, body) = if path.ends_with("/selfsubjectaccessreviews") {
                    let sent: Value = serde_json::from_slice(&sent).unwrap();
                    let namespace = &sent["spec"]["resourceAttributes"]["namespace"];
                    let is_granted = granted.iter().any(|granted| namespace == granted);
                    let status = if is_granted {
                        json!({ "allowed": true })
                    } else {
                        review
                    };
                    (201, json!({ "status": status }))
                } else if path.contains("/validatingadmissionpolicybindings/") {
                    binding
                } else {
                    policy
                };
                let answer = http::Response::builder()
                    .status(status)
                    .header("content-type", "application/json")
                    .body(Full::from(body.to_string()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        let client = Client::new(service, "default");
        Executor::new(client, "manager", Bounds::default(), Writes::Sent)
    }

    fn policy_for(username: &str) -> Response {
        let expression = format!("request.userInfo.username == '{username}'");
        let conditions = json!([{ "name": "by-belayer", "expression": expression }]);
        let metadata = json!({ "name": "belayer-pod-writes" });
        (
            200,
            json!({ "metadata": metadata, "spec": { "matchConditions": conditions } }),
        )
    }

    fn binding() -> Response {
        binding_of("belayer-pod-writes")
    }

    fn binding_of(policy: &str) -> Response {
        (
            200,
            json!({ "spec": { "policyName": policy, "validationActions": ["Deny"] } }),
        )
    }

    fn absent(plural: &str) -> Response {
        let details = json!({ "name": "belayer-pod-writes", "kind": plural, "group": "admissionregistration.k8s.io" });
        let mut answer = failure("NotFound");
        answer["details"] = details;
        (404, answer)
    }

    fn not_served() -> Response {
        (404, failure("NotFound"))
    }

    fn failure(reason: &str) -> Value {
        json!({ "kind": "Status", "status": "Failure", "reason": reason, "message": reason })
    }

    const ALLOWED: &str = r#"{"allowed": true}"#;
    const OWN: &str = "system:serviceaccount:ops:belayer";

    const BINDINGS: &str = "validatingadmissionpolicybindings";
    const POLICY: &str = "the policy belayer-pod-writes, which limits what Belayer writes, ";

    /// The switch of a policy opens only if releases are permitted and the write policy limits the account.
    #[rstest]
    #[case::open(ALLOWED, policy_for(OWN), binding(), None)]
    #[case::an_older_server(ALLOWED, not_served(), not_served(), None)]
    #[case::a_permission_is_missing(
        r#"{"allowed": false}"#,
        policy_for(OWN),
        binding(),
        Some("no permission to patch pods: nothing is released".to_owned())
    )]
    #[case::a_permission_is_unknown(
        r#"{"allowed": false, "evaluationError": "webhook down"}"#,
        policy_for(OWN),
        binding(),
        Some("unknown whether it may patch pods: webhook down".to_owned())
    )]
    #[case::another_account(
        ALLOWED,
        policy_for("system:serviceaccount:other:belayer"),
        binding(),
        Some(format!("{POLICY}does not name {OWN}; "))
    )]
    #[case::no_write_policy(
        ALLOWED,
        absent("validatingadmissionpolicies"),
        absent(BINDINGS),
        Some(format!("{POLICY}does not exist; "))
    )]
    #[case::not_bound(
        ALLOWED,
        policy_for(OWN),
        absent(BINDINGS),
        Some(format!("{POLICY}has no binding of the same name; "))
    )]
    #[case::bound_to_another_policy(
        ALLOWED,
        policy_for(OWN),
        binding_of("a-copy"),
        Some(format!("{POLICY}is not bound: "))
    )]
    #[case::an_unreadable_binding(
        ALLOWED,
        policy_for(OWN),
        (403, failure("Forbidden")),
        Some(format!("{POLICY}cannot be read: "))
    )]
    #[tokio::test]
    async fn gate_a_switch_stays_off_and_says_why(
        #[case] review: &str,
        #[case] policy: Response,
        #[case] binding: Response,
        #[case] expected: Option<String>,
    ) {
        let switch = Switch {
            key: "hold",
            informers: Vec::new(),
            releases: vec![Permission::new("", "pods", "patch", "nothing is released")],
            limits: vec!["belayer-pod-writes"],
        };
        let review = serde_json::from_str(review).unwrap();
        let executor = server(review, &[], policy, binding);
        let found = obstacle(&executor, &user(OWN, "u"), &switch, "ops").await;
        match (found, expected) {
            (None, None) => {}
            (Some(found), Some(expected)) => assert!(found.starts_with(&expected), "{found}"),
            (found, _) => panic!("{found:?}"),
        }
    }

    /// T2: RoleBindings suffice if the policies add finalizers in their namespaces only, as `rbac.namespaces` of the chart
    /// makes them.
    #[rstest]
    #[case::in_each_namespace("a, b", &["a", "b"], None)]
    #[case::not_in_all("a, b", &["a"], Some("no permission to patch pods in b: nothing is released"))]
    #[case::the_policies_match_all("", &["a"], Some("no permission to patch pods: nothing is released"))]
    #[tokio::test]
    async fn gate_t2_permissions_by_namespace_open_a_switch(
        #[case] only: &str,
        #[case] granted: &'static [&'static str],
        #[case] expected: Option<&str>,
    ) {
        let switch = Switch {
            key: "hold",
            informers: Vec::new(),
            releases: vec![Permission::new("", "pods", "patch", "nothing is released")],
            limits: vec!["belayer-pod-writes"],
        };
        let (code, mut policy) = policy_for(OWN);
        policy["metadata"]["annotations"] = json!({ NAMESPACES_ANNOTATION: only });
        let refused = json!({ "allowed": false });
        let executor = server(refused, granted, (code, policy), binding());
        let found = obstacle(&executor, &user(OWN, "u"), &switch, "ops").await;
        assert_eq!(found.as_deref(), expected);
    }

    fn user(username: &str, uid: &str) -> User {
        User {
            username: username.to_owned(),
            uid: uid.to_owned(),
        }
    }

    #[rstest]
    #[case::the_account("system:serviceaccount:ops:belayer", "u", true)]
    #[case::of_another_namespace("system:serviceaccount:other:belayer", "u", false)]
    #[case::without_uid("system:serviceaccount:ops:belayer", "", false)]
    #[case::an_admin("jane", "u", false)]
    fn gate_is_owned_by_an_account_of_its_namespace(
        #[case] name: &str,
        #[case] uid: &str,
        #[case] owns: bool,
    ) {
        let expected = owns.then(|| Account::new("belayer", "u"));
        assert_eq!(user(name, uid).account("ops"), expected);
    }
}
