//! What must be true before the leader turns on the switch of an admission policy: objects that get a finalizer at their
//! creation must be released later.

use serde::Deserialize;
use serde_json::{Value, json};

use belayer_core::executor::{Class, Executor, Sent};
use belayer_core::http::{ErrorClass, Request, RequestError};
use belayer_core::object::{ObjectKey, Resource};
use belayer_holds::gate::Account;
use belayer_holds::permissions::Permission;
use belayer_inspect::preflight::{Authorizer, Ruling, Subject, quotes};

/// The switch of the admission policy of a running component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// Its key in the gate.
    pub key: &'static str,
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
        match executor.write(&request, Class::Write).await {
            Ok(Sent::Applied(answer)) => {
                let mut review: Value = answer.json()?;
                let user = review["status"]["userInfo"].take();
                serde_json::from_value(user)
                    .map_err(|error| RequestError::Decode(error.to_string()))
            }
            Ok(Sent::DryRun) => Ok(Self::default()),
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
    for permission in &switch.releases {
        match executor.ask(permission, &Subject::Own, namespace).await {
            Ruling::Granted => {}
            Ruling::Refused => {
                return Some(format!(
                    "no permission to {permission}: {}",
                    permission.without
                ));
            }
            Ruling::Unknown(why) => {
                return Some(format!("unknown whether it may {permission}: {why}"));
            }
        }
    }
    for name in &switch.limits {
        if let Some(why) = unnamed(executor, user, name).await {
            return Some(why);
        }
    }
    None
}

/// The problem if this policy does not limit the user's writes. A cluster without the policy has none.
async fn unnamed(executor: &Executor, user: &User, name: &str) -> Option<String> {
    let kind = Resource::new(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
    );
    let request = Request::get(kind.object_path(&ObjectKey::cluster(name)));
    let read = executor.read(&request, Class::Evidence).await;
    let policy = read.and_then(|answer| answer.json::<Value>());
    match policy {
        Ok(policy) if is_named(&policy, user) => None,
        Ok(_) => Some(format!(
            "the policy {name} does not name the account {:?}, so that it limits another one: apply it from the \
             manifests of this namespace",
            user.username
        )),
        Err(error) if matches!(error.class(), ErrorClass::NotFound | ErrorClass::NotServed) => None,
        Err(error) => Some(format!(
            "cannot read the policy {name}: {}",
            error.message()
        )),
    }
}

fn is_named(policy: &Value, user: &User) -> bool {
    let conditions = policy["spec"]["matchConditions"].to_string();
    !user.username.is_empty() && quotes(&conditions, &user.username)
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

    /// An API server that answers each access review with this status, and each other read with this one.
    fn server(review: Value, policy: (u16, Value)) -> Executor {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let is_review = request.uri().path().ends_with("/selfsubjectaccessreviews");
            let (status, body) = match is_review {
                true => (201, json!({ "status": review })),
                false => policy.clone(),
            };
            async move {
                request.into_body().collect().await.unwrap();
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

    fn policy_for(username: &str) -> (u16, Value) {
        let expression = format!("request.userInfo.username == '{username}'");
        let conditions = json!([{ "name": "by-belayer", "expression": expression }]);
        (200, json!({ "spec": { "matchConditions": conditions } }))
    }

    fn not_found() -> (u16, Value) {
        (404, failure("NotFound"))
    }

    fn failure(reason: &str) -> Value {
        json!({ "kind": "Status", "status": "Failure", "reason": reason, "message": reason })
    }

    const ALLOWED: &str = r#"{"allowed": true}"#;
    const OWN: &str = "system:serviceaccount:ops:belayer";

    /// The switch of a policy opens only if releases are permitted and the write policy names the account.
    #[rstest]
    #[case::open(ALLOWED, policy_for(OWN), None)]
    #[case::no_write_policy(ALLOWED, not_found(), None)]
    #[case::a_permission_is_missing(
        r#"{"allowed": false}"#,
        policy_for(OWN),
        Some("no permission to patch pods: nothing is released")
    )]
    #[case::a_permission_is_unknown(
        r#"{"allowed": false, "evaluationError": "webhook down"}"#,
        policy_for(OWN),
        Some("unknown whether it may patch pods: webhook down")
    )]
    #[case::another_account(
        ALLOWED,
        policy_for("system:serviceaccount:other:belayer"),
        Some(
            "the policy belayer-pod-writes does not name the account \"system:serviceaccount:ops:belayer\""
        )
    )]
    #[case::an_unreadable_policy(
        ALLOWED,
        (403, failure("Forbidden")),
        Some("cannot read the policy belayer-pod-writes: ")
    )]
    #[tokio::test]
    async fn gate_a_switch_stays_off_and_says_why(
        #[case] review: &str,
        #[case] policy: (u16, Value),
        #[case] expected: Option<&str>,
    ) {
        let switch = Switch {
            key: "hold",
            releases: vec![Permission::new("", "pods", "patch", "nothing is released")],
            limits: vec!["belayer-pod-writes"],
        };
        let executor = server(serde_json::from_str(review).unwrap(), policy);
        let found = obstacle(&executor, &user(OWN, "u"), &switch, "ops").await;
        match (found, expected) {
            (None, None) => {}
            (Some(found), Some(expected)) => assert!(found.starts_with(expected), "{found}"),
            (found, _) => panic!("{found:?}"),
        }
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

    /// H2: in an overlay with another namespace, the policy may still name the account of the default one.
    #[rstest]
    #[case::named("system:serviceaccount:ops:belayer", true)]
    #[case::of_another_namespace("system:serviceaccount:belayer-system:belayer", false)]
    #[case::a_longer_name("system:serviceaccount:ops:belayer-drain", false)]
    fn gate_h2_the_write_policy_names_the_account(#[case] named: &str, #[case] expected: bool) {
        let expression = format!("request.userInfo.username == '{named}'");
        let policy = json!({ "spec": { "matchConditions": [{ "name": "by-belayer", "expression": expression }] } });
        let own = user("system:serviceaccount:ops:belayer", "u");
        assert_eq!(is_named(&policy, &own), expected);
        assert!(!is_named(&policy, &user("", "")));
    }
}
