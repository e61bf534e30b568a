//! Admission policies: present, bound, switched by the gate, and consistent with the configuration.

use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;

use crate::reader::{ReadResult, Reader, explain};
use belayer_core::http::{ErrorClass, Request};
use belayer_core::object::{ObjectKey, Resource};
use belayer_holds::gate::GateObject;
use belayer_holds::names;
use belayer_holds::selection::config::{self, Path, SelectorConfig};

use super::Query;
use super::needs::Policy;
use super::report::{About, Finding};

pub(super) const GROUP: &str = "admissionregistration.k8s.io";

/// A Lease that was not renewed for this time has no leader, whatever its settings are.
const NO_LEADER_SECONDS: i64 = 120;

const NO_POLICY: &str = "a hold is added only after the creation of an object: an object that is deleted before that is missed";

/// All findings about one policy.
pub(crate) async fn check(reader: &Reader, policy: &Policy, query: &Query) -> Vec<Finding> {
    let own = &*query.own_namespace;
    let name = policy.name;
    let note = |what: String, consequence: &str| Finding::note(About::Policy, what, consequence);
    let kind = |kind: &str, plural: &str| Resource::new(GROUP, "v1", kind, plural);
    let policies = kind("MutatingAdmissionPolicy", "mutatingadmissionpolicies");
    let bindings = kind(
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
    );
    let found = match read(reader, &policies, name).await {
        Got::Found(found) => found,
        Got::Absent => {
            return vec![
                note(format!("policy {name} does not exist"), NO_POLICY)
                    .fix("apply it from the manifests"),
            ];
        }
        Got::NotServed => {
            return vec![note(
                format!(
                    "policy {name}: this server has no MutatingAdmissionPolicy (requires Kubernetes 1.36)"
                ),
                NO_POLICY,
            )];
        }
        Got::Unknown(why) => return vec![unknown(format!("policy {name}"), why)],
    };
    let mut findings = drift(policy, &found);
    match read(reader, &bindings, name).await {
        Got::Found(binding) => findings.extend(binding_findings(policy, &binding, own)),
        Got::Absent | Got::NotServed => findings.push(
            note(
                format!("policy {name} has no binding of the same name"),
                NO_POLICY,
            )
            .fix("apply it from the manifests"),
        ),
        Got::Unknown(why) => findings.push(unknown(format!("binding {name}"), why)),
    }
    findings.extend(gate(reader, policy, query).await);
    findings
}

pub(super) fn unknown(what: String, why: String) -> Finding {
    Finding::unknown(About::Policy, what, why)
}

/// What the API server says of one object.
pub(super) enum Got {
    Found(Value),
    Absent,
    NotServed,
    Unknown(String),
}

/// Reads a policy or a binding.
pub(super) async fn read(reader: &Reader, kind: &Resource, name: &str) -> Got {
    get(reader, kind, &ObjectKey::cluster(name)).await
}

async fn get(reader: &Reader, kind: &Resource, key: &ObjectKey) -> Got {
    let request = Request::get(kind.object_path(key));
    match reader.json::<Value>(&request).await {
        Ok(found) => Got::Found(found),
        Err(error) if error.class() == ErrorClass::NotServed => Got::NotServed,
        Err(error) if error.is_gone(kind, key) => Got::Absent,
        Err(error) => Got::Unknown(explain(&error)),
    }
}

/// Differences from the configuration of this command.
fn drift(policy: &Policy, found: &Value) -> Vec<Finding> {
    const AGAIN: &str = "apply it from the manifests again";
    let name = policy.name;
    let missing = |what: String, consequence: &str, fix: &str| {
        Finding::missing(About::Policy, what, consequence).fix(fix)
    };
    let mut findings = Vec::new();
    if found["spec"]["failurePolicy"] != "Ignore" {
        findings.push(missing(
            format!("policy {name}: failurePolicy is not Ignore"),
            "an error in the policy rejects objects that have nothing to do with Belayer",
            AGAIN,
        ));
    }
    let resources = found["spec"]["matchConstraints"]["resourceRules"].to_string();
    if !resources.contains(&format!("{:?}", &*policy.resource.plural)) {
        findings.push(missing(
            format!(
                "policy {name} does not match the creation of {}",
                policy.resource
            ),
            NO_POLICY,
            AGAIN,
        ));
    }
    let mutations = found["spec"]["mutations"].to_string();
    if !mutations.contains(&policy.finalizer) {
        findings.push(missing(
            format!("policy {name} does not add {}", policy.finalizer),
            NO_POLICY,
            AGAIN,
        ));
    }
    let text = found["spec"].to_string();
    let is_missing = |label: &&String| !quotes(&text, label);
    for label in policy.labels.iter().filter(is_missing) {
        findings.push(missing(
            format!(
                "policy {name} does not refer to label {label}, by which the configuration selects"
            ),
            "it adds holds to objects that the configuration does not select",
            "make its selector match the configuration",
        ));
    }
    findings.extend(later(policy, &text));
    let conditions = found["spec"]["matchConditions"].to_string();
    let reads_gate = conditions.contains(names::GATE_CLOSED_PREFIX);
    if policy.finalizer == names::POD_STATUS_HOLD && !reads_gate {
        findings.push(
            Finding::note(
                About::Policy,
                format!("policy {name} ignores closed namespaces"),
                "it adds holds even in a namespace with too many held pods that are being deleted",
            )
            .fix(AGAIN),
        );
    }
    if let Some(namespace) = elsewhere(policy, &found["spec"]["matchConstraints"]) {
        findings.push(missing(
            format!(
                "policy {name} adds holds in {namespace}, where the configuration selects nothing"
            ),
            "objects created there are held, and not released if too many are unselected",
            "make its namespaceSelector match `namespaces` of the configuration",
        ));
    }
    findings
}

/// Labels of objects that the policy of the manifests does not select, nor the installed one.
fn later(policy: &Policy, text: &str) -> Vec<Finding> {
    const FIX: &str = "change the policy's selector and its condition `owned-by-a-workflow`";
    let name = policy.name;
    let absent: Vec<&String> = policy
        .later
        .iter()
        .filter(|label| !quotes(text, label))
        .collect();
    let selects_nothing = policy.labels.is_empty() && absent.len() == policy.later.len();
    if selects_nothing && !absent.is_empty() {
        let what = format!("policy {name} refers to no label by which the configuration selects");
        let effect = "it adds holds to objects that the configuration does not select, and to none that it selects";
        let finding = Finding::missing(About::Policy, what, effect);
        return vec![finding.fix(format!("{FIX}, or delete it"))];
    }
    let note = |label: &String| {
        let what = format!("policy {name} does not refer to label {label}");
        let effect = format!(
            "objects that the configuration selects by label {label} get their hold when Belayer first sees them, not at \
             creation"
        );
        Finding::note(About::Policy, what, effect).fix(FIX)
    };
    absent.into_iter().map(note).collect()
}

/// Whether a policy, as JSON, refers to a label or a user: as a value, or in quotes in an expression.
pub(super) fn quotes(policy: &str, label: &str) -> bool {
    let around = |at: usize| {
        let before = policy[..at].chars().next_back();
        let after = policy[at + label.len()..].chars().next();
        matches!(before, Some('"' | '\'')) && matches!(after, Some('"' | '\'' | '\\'))
    };
    policy.match_indices(label).any(|(at, _)| around(at))
}

/// A namespace in which the policy matches and no rule of the configuration selects.
fn elsewhere(policy: &Policy, constraints: &Value) -> Option<String> {
    const ANY: &str = "namespaces-that-no-rule-names";
    let written = &constraints["namespaceSelector"];
    let config = match written {
        Value::Null => Some(SelectorConfig::default()),
        written => SelectorConfig::deserialize(written).ok(),
    };
    // An invalid selector is rejected by the API server.
    let selector = config::selector(&Path::root("namespaceSelector"), config?).ok()?;
    let matches = |namespace: &str| {
        let labels = [("kubernetes.io/metadata.name", namespace)];
        selector.matches(&labels.into_iter().collect())
    };
    let excluded = policy
        .namespaces
        .iter()
        .flat_map(|rule| rule.exclude.iter());
    let tried = excluded.map(|name| &**name).chain([ANY]);
    let selected = |name: &str| {
        policy.namespaces.is_empty() || policy.namespaces.iter().any(|rule| rule.contains(name))
    };
    let found = tried
        .into_iter()
        .find(|name| matches(name) && !selected(name))?;
    Some(match found {
        ANY => "all namespaces".to_owned(),
        name => format!("namespace {name}"),
    })
}

fn binding_findings(policy: &Policy, binding: &Value, own: &str) -> Vec<Finding> {
    let name = policy.name;
    let mut findings = Vec::new();
    let mut wrong = |what: String, consequence: &str| {
        findings.push(
            Finding::missing(About::Policy, what, consequence)
                .fix("apply it from the manifests again"),
        );
    };
    let spec = &binding["spec"];
    if spec["policyName"] != name {
        wrong(format!("binding {name} binds another policy"), NO_POLICY);
    }
    let parameter = &spec["paramRef"];
    if parameter["name"] != names::GATE || parameter["namespace"] != own {
        wrong(
            format!("binding {name}: its parameter is not {own}/{}", names::GATE),
            "the gate does not switch the policy: it may add holds while Belayer drains",
        );
    }
    if parameter["parameterNotFoundAction"] != "Allow" {
        wrong(
            format!("binding {name}: parameterNotFoundAction is not Allow"),
            "without the gate the creation of every such object is rejected",
        );
    }
    findings
}

async fn gate(reader: &Reader, policy: &Policy, query: &Query) -> Option<Finding> {
    let key = GateObject::key(&query.own_namespace);
    let place = format!("gate {key}");
    let note = |what: String, effect: String| Finding::note(About::Policy, what, effect);
    let off = || format!("policy {} is switched off: {NO_POLICY}", policy.name);
    let gate = match get(reader, &belayer_holds::gate::resource(), &key).await {
        Got::Found(gate) => GateObject::deserialize(gate).unwrap_or_default(),
        // A finding about its kind says so.
        Got::NotServed => return None,
        Got::Absent => {
            let absent = note(format!("{place} does not exist"), off());
            return Some(absent.fix("the first leader creates it: see its log"));
        }
        Got::Unknown(why) => return Some(unknown(place, why)),
    };
    if gate.is_draining() {
        let effect = "no hold is added, at creation or later, until it is normal again";
        return Some(note(
            format!("{place}: mode is draining"),
            effect.to_owned(),
        ));
    }
    if !gate.is_on(policy.switch) {
        let what = format!("{place}: {} is not \"on\"", policy.switch);
        return Some(note(what, off()));
    }
    let lease = gate.lease_of(policy.switch)?;
    lapsed(reader, policy, lease, query.now).await
}

/// A gate stays open while no Belayer runs. A leader renews its Lease within seconds.
async fn lapsed(reader: &Reader, policy: &Policy, lease: &str, now: Timestamp) -> Option<Finding> {
    let (namespace, name) = lease.split_once('/')?;
    let key = ObjectKey::new(namespace, name);
    let read: ReadResult<Value> = reader.object(&Resource::leases(), &key).await;
    let since = match &read {
        ReadResult::Found(lease) => {
            let renewed = lease["spec"]["renewTime"].as_str()?.parse::<Timestamp>();
            let seconds = now.duration_since(renewed.ok()?).as_secs();
            if seconds < NO_LEADER_SECONDS {
                return None;
            }
            format!("was not renewed for {seconds} s")
        }
        ReadResult::Absent => "does not exist".to_owned(),
        ReadResult::Unknown(why) => return Some(unknown(format!("lease {key}"), why.to_string())),
    };
    let effect = format!(
        "policy {} adds holds that nothing releases until a Belayer runs again",
        policy.name
    );
    let what = format!("the gate is open, but the leader's lease {key} {since}");
    let finding = Finding::missing(About::Policy, what, effect);
    Some(finding.fix("start Belayer, or run belayer drain"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use belayer_holds::selection::Namespaces;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::preflight::report::Level;

    fn policy() -> Policy {
        Policy {
            name: "belayer-pod-hold",
            resource: Resource::pods(),
            finalizer: names::POD_STATUS_HOLD.to_owned(),
            labels: vec!["workflows.argoproj.io/workflow".to_owned()],
            later: Vec::new(),
            namespaces: Vec::new(),
            switch: "hold",
        }
    }

    fn rule(include: &[&str], exclude: &[&str]) -> Namespaces {
        let list = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect();
        Namespaces {
            include: list(include),
            exclude: list(exclude),
        }
    }

    #[rstest]
    #[case::everywhere(vec![rule(&[], &[])], json!(null), None)]
    #[case::only_there(vec![rule(&["ci"], &[])], json!(null), Some("in all namespaces"))]
    #[case::it_follows(vec![rule(&["ci"], &[])], json!([{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["ci"]}]), None)]
    #[case::another_rule_selects_everywhere(vec![rule(&["ci"], &[]), rule(&[], &[])], json!(null), None)]
    #[case::not_there(vec![rule(&[], &["dev"])], json!(null), Some("in namespace dev"))]
    #[case::it_leaves_it_out(vec![rule(&[], &["dev"])], json!([{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["dev"]}]), None)]
    #[case::by_another_label(vec![rule(&["ci"], &[])], json!([{"key": "team", "operator": "In", "values": ["ci"]}]), None)]
    fn a_policy_that_matches_more_than_the_configuration_is_reported(
        #[case] namespaces: Vec<Namespaces>,
        #[case] selector: Value,
        #[case] says: Option<&str>,
    ) {
        let (mut found, _) = manifest();
        if !selector.is_null() {
            found["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"] = selector;
        }
        let policy = Policy {
            namespaces,
            ..policy()
        };
        let findings = drift(&policy, &found);
        assert_eq!(findings.len(), usize::from(says.is_some()), "{findings:?}");
        if let Some(says) = says {
            assert!(findings[0].what.contains(says), "{findings:?}");
        }
    }

    #[test]
    fn a_label_is_not_found_in_a_longer_name() {
        let (found, _) = manifest();
        let policy = Policy {
            labels: vec!["workflow".to_owned(), "app".to_owned()],
            ..policy()
        };
        assert_eq!(drift(&policy, &found).len(), 2);
    }

    #[rstest]
    #[case::beside_argo(&["workflows.argoproj.io/workflow"], &["app"], Some((Level::Note, "does not refer to label app")))]
    #[case::alone(&[], &["app"], Some((Level::Missing, "refers to no label by which")))]
    #[case::as_an_admin_changed_it(&[], &["workflows.argoproj.io/component"], None)]
    #[case::without_labels(&[], &[], None)]
    fn objects_that_the_policy_leaves_out_get_their_hold_later(
        #[case] labels: &[&str],
        #[case] later: &[&str],
        #[case] expected: Option<(Level, &str)>,
    ) {
        let (found, _) = manifest();
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let policy = Policy {
            labels: list(labels),
            later: list(later),
            ..policy()
        };
        let findings = drift(&policy, &found);
        let found: Vec<_> = findings.iter().map(|one| (one.level, &*one.what)).collect();
        match (expected, found.as_slice()) {
            (None, []) => {}
            (Some((level, says)), [(found, what)]) if level == *found && what.contains(says) => {}
            other => panic!("{other:?}"),
        }
    }

    fn manifest() -> (Value, Value) {
        let text = include_str!("../../../../deploy/manifests/pod-hold-policy.yaml");
        let mut documents = serde_saphyr::from_multiple::<Value>(text).unwrap();
        let binding = documents.pop().unwrap();
        (documents.pop().unwrap(), binding)
    }

    #[test]
    fn the_manifest_itself_has_no_findings() {
        let (found, binding) = manifest();
        assert_eq!(drift(&policy(), &found), []);
        assert_eq!(binding_findings(&policy(), &binding, "belayer-system"), []);
    }

    #[rstest]
    #[case::fails_closed("/spec/failurePolicy", json!("Fail"), "failurePolicy is not Ignore", "apply it from the manifests again")]
    #[case::another_kind("/spec/matchConstraints/resourceRules/0/resources", json!(["jobs"]), "does not match the creation of pods", "apply it from the manifests again")]
    #[case::another_label("/spec/matchConstraints/objectSelector", json!({}), "does not refer to label workflows.argoproj.io/workflow", "make its selector match the configuration")]
    #[case::another_hold("/spec/mutations", json!([]), "does not add belayer.dev/pod-status", "apply it from the manifests again")]
    fn drift_is_reported(
        #[case] path: &str,
        #[case] value: Value,
        #[case] says: &str,
        #[case] fix: &str,
    ) {
        let (mut found, _) = manifest();
        *found.pointer_mut(path).unwrap() = value;
        let findings = drift(&policy(), &found);
        let mut of_it = findings.iter().filter(|f| f.what.contains(says));
        let finding = of_it.next().unwrap_or_else(|| panic!("{findings:?}"));
        assert_eq!(finding.fix.as_deref(), Some(fix));
    }

    #[rstest]
    #[case::another_policy("/spec/policyName", "binds another policy")]
    #[case::another_map(
        "/spec/paramRef/name",
        "its parameter is not belayer-system/belayer-gate"
    )]
    #[case::another_place("/spec/paramRef/namespace", "its parameter is not")]
    #[case::fails_closed_without_it("/spec/paramRef/parameterNotFoundAction", "is not Allow")]
    fn a_wrong_binding_is_reported(#[case] path: &str, #[case] says: &str) {
        let (_, mut binding) = manifest();
        *binding.pointer_mut(path).unwrap() = json!("x");
        let findings = binding_findings(&policy(), &binding, "belayer-system");
        assert_eq!(findings.len(), 1);
        assert!(findings[0].what.contains(says), "{findings:?}");
    }
}
