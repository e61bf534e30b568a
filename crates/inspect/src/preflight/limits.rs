//! The policies that limit what Belayer's accounts write, and what others do to Belayer's objects: RBAC cannot express it.

use serde_json::Value;

use belayer_core::object::Resource;
use belayer_holds::names;

use super::Query;
use super::needs::{Limit, Named};
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
    without_effect(policy, binding, Some(("matchConditions", account)))
}

/// Likewise, for a policy that has to name something in a field of its spec.
fn without_effect(
    policy: Option<&Value>,
    binding: Option<&Value>,
    named: Option<(&str, &str)>,
) -> Option<String> {
    let Some(policy) = policy else {
        return Some("does not exist".to_owned());
    };
    if let Some((field, name)) = named
        && (name.is_empty() || !quotes(&policy["spec"][field].to_string(), name))
    {
        return Some(format!("does not name {name}"));
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

/// Those of [`names::WRITE_POLICIES`] that the parts need.
pub(super) fn of_writes(query: &Query) -> impl Iterator<Item = Limit> {
    let is_needed = |name: &&str| {
        let mut holds = query.parts.iter().flat_map(|part| &part.holds);
        holds.any(|(kind, _)| names::write_policy(kind) == *name)
    };
    let needed = names::WRITE_POLICIES.into_iter().filter(is_needed);
    needed.map(Limit::of_writes)
}

/// Whether the write policy of a kind denies the removal of this finalizer.
pub(super) async fn removal(reader: &Reader, kind: &Resource, finalizer: &str) -> Option<Finding> {
    let [policies, _] = write_policy_kinds();
    let name = names::write_policy(kind);
    match read(reader, &policies, name).await {
        Got::Found(policy) => denied_removal(&policy, kind, finalizer),
        // That it is absent or cannot be read is a finding of `of_writes`.
        Got::NotServed | Got::Unknown(_) | Got::Absent => None,
    }
}

fn denied_removal(policy: &Value, kind: &Resource, finalizer: &str) -> Option<Finding> {
    if quotes(&policy["spec"]["variables"].to_string(), finalizer) {
        return None;
    }
    let name = names::write_policy(kind);
    let plural = &kind.plural;
    let what = format!("policy {name} denies the removal of {finalizer}");
    let means =
        format!("{plural} that are being deleted keep it: each removal is answered with 403");
    let variable = if *kind == Resource::pods() {
        "adopted"
    } else {
        "holds"
    };
    let fix = format!("add '{finalizer}' to the variable `{variable}` of the policy");
    Some(Finding::missing(About::Policy, what, means).fix(fix))
}

/// Whether a policy is there, bound, and limits what it should.
pub(super) async fn check(reader: &Reader, limit: &Limit, query: &Query) -> Vec<Finding> {
    let [policies, bindings] = write_policy_kinds();
    let what = format!("policy {}", limit.name);
    let policy = match read(reader, &policies, limit.name).await {
        Got::NotServed => return Vec::new(),
        Got::Unknown(why) => return vec![unknown(what, why)],
        Got::Absent => None,
        Got::Found(policy) => Some(policy),
    };
    let binding = match read(reader, &bindings, limit.name).await {
        Got::Unknown(why) => return vec![unknown(format!("binding {}", limit.name), why)],
        Got::Absent | Got::NotServed => None,
        Got::Found(binding) => Some(binding),
    };
    findings(limit, policy.as_ref(), binding.as_ref(), query)
}

fn findings(
    limit: &Limit,
    policy: Option<&Value>,
    binding: Option<&Value>,
    query: &Query,
) -> Vec<Finding> {
    let what = format!("policy {}", limit.name);
    let named = match (limit.names, &query.subject) {
        (Named::Namespace, _) => Some(("matchConstraints", &*query.own_namespace)),
        (Named::Account { field }, Subject::User { name, .. }) => Some((field, &**name)),
        (Named::Account { .. }, Subject::Own) => None,
    };
    let mut found = Vec::new();
    if let Some(why) = without_effect(policy, binding, named) {
        // An admin may leave a policy out, and `belayer drain` removes the binding of the guard.
        let level = match policy {
            Some(_) if limit.names != Named::Namespace => Level::Missing,
            _ => Level::Note,
        };
        let what = format!("{what} {why}");
        let finding = Finding::new(level, About::Policy, what, limit.without);
        found.push(finding.fix("apply it from the manifests of this namespace"));
    }
    if let (Some(policy), Some(value)) = (policy, limit.also)
        && !quotes(&policy["spec"]["variables"].to_string(), value.name)
    {
        let what = format!("{what} denies {}", value.denied);
        let finding = Finding::missing(About::Policy, what, value.without);
        found.push(finding.fix(value.fix));
    }
    found
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

    #[rstest]
    #[case::own("belayer.dev/pod-status", None)]
    #[case::of_argo(
        "workflows.argoproj.io/status",
        Some("add 'workflows.argoproj.io/status' to the variable `adopted` of the policy")
    )]
    fn the_write_policy_allows_the_removal_of_adopted_finalizers(
        #[case] finalizer: &str,
        #[case] fix: Option<&str>,
    ) {
        let (policy, _) = manifest();
        let found = denied_removal(&policy, &Resource::pods(), finalizer);
        assert_eq!(found.and_then(|found| found.fix).as_deref(), fix);
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
