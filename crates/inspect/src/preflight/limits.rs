//! The policies that limit what Belayer's account writes: RBAC cannot express it.

use serde_json::Value;

use belayer_core::object::Resource;
use belayer_holds::names;

use super::Query;
use super::permissions::Subject;
use super::policies::{GROUP, Got, quotes, read, unknown};
use super::report::{About, Finding, Level};
use crate::reader::Reader;

/// The kind of a policy that limits writes, and that of its binding, which has the same name: what [`unlimited`] judges.
#[must_use]
pub fn write_policy_kinds() -> [Resource; 2] {
    let kind = |kind, plural| Resource::new(GROUP, "v1", kind, plural);
    [
        kind("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        kind(
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
        ),
    ]
}

/// Why a policy and its binding, as the API server returns them, do not limit what `account` writes: the end of a sentence
/// that begins with the name of the policy. `None` if they limit it.
///
/// ```
/// use belayer_inspect::preflight::unlimited;
/// use serde_json::json;
///
/// let account = "system:serviceaccount:belayer-system:belayer";
/// let condition = json!({ "expression": format!("request.userInfo.username == '{account}'") });
/// let policy = json!({ "metadata": { "name": "p" }, "spec": { "matchConditions": [condition] } });
/// let binding = json!({ "spec": { "policyName": "p", "validationActions": ["Deny"] } });
///
/// assert_eq!(unlimited(Some(&policy), Some(&binding), account), None);
/// assert_eq!(unlimited(Some(&policy), None, account).unwrap(), "has no binding of the same name");
/// ```
#[must_use]
pub fn unlimited(policy: Option<&Value>, binding: Option<&Value>, account: &str) -> Option<String> {
    let Some(policy) = policy else {
        return Some("does not exist".to_owned());
    };
    let conditions = policy["spec"]["matchConditions"].to_string();
    if account.is_empty() || !quotes(&conditions, account) {
        return Some(format!("does not name {account}"));
    }
    let Some(binding) = binding else {
        return Some("has no binding of the same name".to_owned());
    };
    if binding["spec"]["policyName"] != policy["metadata"]["name"] {
        return Some("is not bound: the binding of its name binds another policy".to_owned());
    }
    let actions = binding["spec"]["validationActions"].as_array();
    let denies = actions.is_some_and(|actions| actions.iter().any(|action| action == "Deny"));
    (!denies).then(|| "does not deny: its binding has no validationAction Deny".to_owned())
}

/// The policies that do not limit what the checked account writes.
pub(super) async fn check(reader: &Reader, query: &Query) -> Vec<Finding> {
    let Subject::User { name: account, .. } = &query.subject else {
        return Vec::new();
    };
    let [policies, bindings] = write_policy_kinds();
    let mut findings = Vec::new();
    let is_needed = |name: &&str| {
        let mut holds = query.parts.iter().flat_map(|part| &part.holds);
        holds.any(|(kind, _)| names::write_policy(kind) == *name)
    };
    for name in names::WRITE_POLICIES.into_iter().filter(is_needed) {
        let what = format!("policy {name}");
        let policy = match read(reader, &policies, name).await {
            Got::NotServed => continue,
            Got::Unknown(why) => {
                findings.push(unknown(what, why));
                continue;
            }
            Got::Absent => None,
            Got::Found(policy) => Some(policy),
        };
        let binding = match read(reader, &bindings, name).await {
            Got::Unknown(why) => {
                findings.push(unknown(format!("binding {name}"), why));
                continue;
            }
            Got::Absent | Got::NotServed => None,
            Got::Found(binding) => Some(binding),
        };
        let Some(why) = unlimited(policy.as_ref(), binding.as_ref(), account) else {
            continue;
        };
        // An admin may leave it out.
        let level = match &policy {
            Some(_) => Level::Missing,
            None => Level::Note,
        };
        let effect = format!(
            "{account} may change any field of the objects that it may patch, and a switch of the gate that is off stays off"
        );
        findings.push(
            Finding::new(level, About::Policy, format!("{what} {why}"), effect)
                .fix("apply it from the manifests of this namespace"),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn manifest() -> (Value, Value) {
        let text = include_str!("../../../../deploy/manifests/pod-write-policy.yaml");
        let mut documents = serde_saphyr::from_multiple::<Value>(text).unwrap();
        let binding = documents.pop().unwrap();
        (documents.pop().unwrap(), binding)
    }

    #[rstest]
    #[case::the_account("system:serviceaccount:belayer-system:belayer", None)]
    #[case::of_another_namespace("system:serviceaccount:ops:belayer", Some("does not name"))]
    #[case::a_longer_name("system:serviceaccount:belayer-system:belayer-", Some("does not name"))]
    #[case::anonymous("", Some("does not name"))]
    fn gate_h2_the_write_policy_names_the_account(
        #[case] account: &str,
        #[case] expected: Option<&str>,
    ) {
        let (policy, binding) = manifest();
        let found = unlimited(Some(&policy), Some(&binding), account);
        match (found, expected) {
            (None, None) => {}
            (Some(found), Some(expected)) => assert!(found.starts_with(expected), "{found}"),
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn gate_a_write_policy_must_be_bound_and_deny() {
        fn why(policy: Option<&Value>, binding: Option<&Value>) -> String {
            let account = "system:serviceaccount:belayer-system:belayer";
            unlimited(policy, binding, account).unwrap()
        }
        let (policy, mut binding) = manifest();
        assert_eq!(why(None, None), "does not exist");
        assert_eq!(why(Some(&policy), None), "has no binding of the same name");
        binding["spec"]["validationActions"] = json!(["Warn", "Audit"]);
        let found = why(Some(&policy), Some(&binding));
        assert!(found.starts_with("does not deny"), "{found}");
        binding["spec"]["validationActions"] = json!(["Deny"]);
        binding["spec"]["policyName"] = json!("a-copy");
        let found = why(Some(&policy), Some(&binding));
        assert!(found.starts_with("is not bound"), "{found}");
    }
}
