//! Belayer's own policies, as they are shipped, and the parts that the conformance cases do not reach.

use serde_json::{Value, json};

use crate::cluster::{DeleteOptions, Patch, WriteOptions};
use crate::{Actor, ApiError, Cluster, Gvr, Sandbox, Subresource};

const BELAYER: &str = "system:serviceaccount:belayer-system:belayer";

macro_rules! shipped {
    ($name:literal) => {
        include_str!(concat!("../../../../deploy/manifests/", $name, ".yaml"))
    };
}

fn sandbox(policies: &[&str]) -> Sandbox {
    let sandbox = Sandbox::builder().seed(1).build();
    let namespace =
        |name: &str| format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}");
    sandbox.load_yaml(&namespace("belayer-system")).unwrap();
    sandbox.load_yaml(shipped!("crd-gate")).unwrap();
    for policy in policies {
        sandbox.load_yaml(policy).unwrap();
    }
    sandbox
}

fn gate(cluster: &Cluster, data: Value) {
    let gvr = Gvr::new("belayer.dev", "v1alpha1", "gates");
    let object = json!({"apiVersion": "belayer.dev/v1alpha1", "kind": "Gate",
        "metadata": {"name": "belayer-gate"}, "data": data});
    let options = WriteOptions::default();
    let admin = Actor::new("admin");
    let made = cluster.create(&admin, &gvr, Some("belayer-system"), object, &options);
    made.unwrap();
}

fn pod(name: &str, metadata: Value) -> Value {
    let mut pod =
        json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    json_patch::merge(&mut pod["metadata"], &metadata);
    pod
}

fn create(cluster: &Cluster, who: &str, pod: Value) -> Result<Value, ApiError> {
    let options = WriteOptions::default();
    let made = cluster.create(&Actor::new(who), &Gvr::PODS, Some("default"), pod, &options);
    made.map(|pod| Value::clone(&pod))
}

fn patch(cluster: &Cluster, who: &str, name: &str, body: Value) -> Result<Value, ApiError> {
    let patched = cluster.patch(
        &Actor::new(who),
        &Gvr::PODS,
        Some("default"),
        name,
        Patch::Merge(body),
        Subresource::None,
        &WriteOptions::default(),
    );
    patched.map(|pod| Value::clone(&pod))
}

/// Row "the rest of the list": the hold of a workflow's pod is added at creation, and the gate switches it.
#[test]
fn crates_our_mutating_policy_adds_the_hold_at_creation() {
    let of_workflow = json!({"labels": {"workflows.argoproj.io/workflow": "w"},
        "finalizers": ["a.b/c"], "ownerReferences": [{"apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow", "name": "w", "uid": "u", "controller": true}]});
    let sandbox = sandbox(&[shipped!("pod-hold-policy")]);
    let cluster = sandbox.cluster();
    let free = create(cluster, "user", pod("before", of_workflow.clone())).unwrap();
    assert_eq!(free["metadata"]["finalizers"], json!(["a.b/c"]), "no gate");
    gate(cluster, json!({"hold": "on"}));
    let held = create(cluster, "user", pod("held", of_workflow)).unwrap();
    assert_eq!(
        held["metadata"]["finalizers"],
        json!(["a.b/c", "belayer.dev/pod-status"])
    );
    let plain = create(cluster, "user", pod("plain", json!({}))).unwrap();
    assert_eq!(plain["metadata"].get("finalizers"), None);
}

/// Without the chart an admin adds the finalizers of the key `adopt` to a variable of the policy.
#[test]
fn a_finalizer_in_the_variable_adopted_can_be_removed() {
    let names = "\"['']\"";
    let policy = shipped!("pod-write-policy");
    assert_eq!(policy.matches(names).count(), 1);
    for (adopted, allowed) in [(names, false), ("\"['a.b/c']\"", true)] {
        let sandbox = sandbox(&[&policy.replace(names, adopted)]);
        let cluster = sandbox.cluster();
        let pod = pod("p", json!({"finalizers": ["a.b/c", "d.e/f"]}));
        create(cluster, "user", pod).unwrap();
        let remove = |left: &[&str]| {
            let body = json!({"metadata": {"finalizers": left}});
            patch(cluster, BELAYER, "p", body).is_ok()
        };
        assert!(!remove(&["a.b/c"]), "of another one");
        assert_eq!(remove(&["d.e/f"]), allowed);
        if allowed {
            assert!(!remove(&["a.b/c", "d.e/f"]), "added again");
        }
    }
}

/// Row "the rest of the list": Belayer's account can change its finalizers only, and delete only pods that failed.
#[test]
fn crates_our_validating_policies_limit_our_own_account() {
    let policies = [shipped!("pod-write-policy"), shipped!("pod-delete-policy")];
    let sandbox = sandbox(&policies);
    let cluster = sandbox.cluster();
    let held = json!({"finalizers": ["belayer.dev/pod-status", "a.b/c"]});
    create(cluster, "user", pod("p", held)).unwrap();
    let refused = patch(
        cluster,
        BELAYER,
        "p",
        json!({"metadata": {"labels": {"a": "b"}}}),
    );
    let refused = refused.unwrap_err();
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.message,
        "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'belayer-pod-writes' with binding 'belayer-pod-writes' denied request: Belayer may not change the spec, the labels or the owners of a pod. If another policy or webhook changes them on update, exempt Belayer's accounts from it"
    );
    let others = json!({"metadata": {"finalizers": ["belayer.dev/pod-status"]}});
    assert_eq!(
        patch(cluster, BELAYER, "p", others.clone())
            .unwrap_err()
            .code,
        403
    );
    patch(
        cluster,
        BELAYER,
        "p",
        json!({"metadata": {"finalizers": ["a.b/c"]}}),
    )
    .unwrap();
    patch(cluster, "user", "p", others).unwrap();
    let delete = |who: &str| {
        let options = DeleteOptions::default();
        cluster.delete(&Actor::new(who), &Gvr::PODS, Some("default"), "p", &options)
    };
    assert_eq!(delete(BELAYER).unwrap_err().code, 403);
    delete("user").unwrap();
    assert_eq!(
        create(cluster, BELAYER, pod("q", json!({})))
            .unwrap_err()
            .code,
        403
    );
}

/// A mutation runs before the policy, which takes its change for Belayer's; the message says what to do.
#[test]
fn crates_our_validating_policy_names_the_mutation_of_another_as_a_cause() {
    let sandbox = sandbox(&[shipped!("pod-write-policy")]);
    let cluster = sandbox.cluster();
    let held = json!({"finalizers": ["belayer.dev/pod-status"]});
    create(cluster, "user", pod("p", held)).unwrap();
    let group = "admissionregistration.k8s.io/v1";
    let labels = |conditions: Value| {
        json!({"apiVersion": group, "kind": "MutatingAdmissionPolicy", "metadata": {"name": "team"}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"],
                "resources": ["pods"]}]},
            "matchConditions": conditions,
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {
                "expression": "Object{metadata: Object.metadata{labels: {'team': 'x'}}}"}}]}})
    };
    let binding = json!({"apiVersion": group, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": "team"},
        "spec": {"policyName": "team"}});
    for object in [labels(json!([])), binding] {
        sandbox.load_yaml(&object.to_string()).unwrap();
    }
    let release = || {
        let body = json!({"metadata": {"finalizers": null}});
        patch(cluster, BELAYER, "p", body)
    };
    let refused = release().unwrap_err();
    assert_eq!(refused.code, 403);
    let says =
        "If another policy or webhook changes them on update, exempt Belayer's accounts from it";
    assert!(refused.message.ends_with(says), "{refused}");
    let others = json!([{"name": "others",
        "expression": "!request.userInfo.username.startsWith('system:serviceaccount:belayer-system:belayer')"}]);
    let policies = Gvr::new(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingadmissionpolicies",
    );
    let change = Patch::Merge(json!({"spec": labels(others)["spec"]}));
    let (admin, options) = (Actor::new("admin"), WriteOptions::default());
    let changed = cluster.patch(
        &admin,
        &policies,
        None,
        "team",
        change,
        Subresource::None,
        &options,
    );
    changed.unwrap();
    release().unwrap();
}

/// Row "the rest of the list": the namespace of Belayer can be deleted after a drain only.
#[test]
fn crates_our_guard_keeps_the_namespace_until_it_is_drained() {
    let sandbox = sandbox(&[shipped!("namespace-guard-policy")]);
    let cluster = sandbox.cluster();
    let delete = || {
        let (who, options) = (Actor::new("admin"), DeleteOptions::default());
        cluster.delete(&who, &Gvr::NAMESPACES, None, "belayer-system", &options)
    };
    let refused = delete().unwrap_err();
    assert!(refused.message.contains("no params found"), "{refused}");
    gate(cluster, json!({"mode": "draining"}));
    let refused = delete().unwrap_err();
    assert!(
        refused.message.contains("run `belayer drain` first"),
        "{refused}"
    );
    let gvr = Gvr::new("belayer.dev", "v1alpha1", "gates");
    let drained = Patch::Merge(json!({"data": {"drained": "true"}}));
    let admin = Actor::new("admin");
    let options = WriteOptions::default();
    let place = (Some("belayer-system"), "belayer-gate");
    cluster
        .patch(
            &admin,
            &gvr,
            place.0,
            place.1,
            drained,
            Subresource::None,
            &options,
        )
        .unwrap();
    delete().unwrap();
}

/// The token of a node agent names its node: it reports the wipes of that node only.
#[test]
fn crates_our_node_agent_reports_its_own_node() {
    let sandbox = sandbox(&[shipped!("crd-node-wipe"), shipped!("node-agent/policy")]);
    let cluster = sandbox.cluster();
    let gvr = Gvr::new("belayer.dev", "v1alpha1", "nodewipes");
    let options = WriteOptions::default();
    let wipe = json!({"apiVersion": "belayer.dev/v1alpha1", "kind": "NodeWipe", "metadata": {"name": "n"}});
    let made = cluster.create(&Actor::new("admin"), &gvr, None, wipe, &options);
    made.unwrap();
    let report = |account: &str| {
        let patch = Patch::Merge(json!({"status": {}}));
        let status = Subresource::Status;
        let who = Actor::of_token(account);
        cluster.patch(&who, &gvr, None, "n", patch, status, &options)
    };
    let agent = "system:serviceaccount:belayer-node-agent:belayer-node-agent";
    report(&format!("{agent}@n")).unwrap();
    let refused = report(&format!("{agent}@other")).unwrap_err();
    assert!(
        refused.message.contains("reports of its own node"),
        "{refused}"
    );
    assert_eq!(report(agent).unwrap_err().code, 422);
}

/// Every shipped policy compiles: what the library cannot read would be refused or ignored silently.
#[test]
fn crates_every_shipped_policy_is_understood() {
    let shipped = [
        shipped!("claim-hold-policy"),
        shipped!("namespace-guard-policy"),
        shipped!("owner-write-policy"),
        shipped!("pod-delete-policy"),
        shipped!("pod-hold-policy"),
        shipped!("pod-recreation-hold-policy"),
        shipped!("pod-recreation-records-policy"),
        shipped!("pod-write-policy"),
        shipped!("workflow-hold-policy"),
        shipped!("node-agent/policy"),
    ];
    let sandbox = sandbox(&shipped);
    let policies = sandbox.cluster().inner.state.lock().compiled();
    let all: Vec<_> = policies
        .validating
        .iter()
        .chain(&policies.mutating)
        .collect();
    assert_eq!(all.len(), shipped.len());
    for policy in all {
        assert_eq!(policy.problems(), Vec::<String>::new(), "{}", policy.name);
    }
}

/// A policy about ConfigMaps with this specification beside its constraints, and its binding.
fn config_maps(spec: &Value, binding: &Value) -> Sandbox {
    let sandbox = Sandbox::builder().seed(1).build();
    let group = "admissionregistration.k8s.io/v1";
    let mut policy = json!({"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
        "spec": {"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["configmaps"]}]}}});
    json_patch::merge(&mut policy["spec"], spec);
    let mut bound = json!({"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    json_patch::merge(&mut bound["spec"], binding);
    for object in [policy, bound] {
        sandbox.load_yaml(&object.to_string()).unwrap();
    }
    sandbox
}

/// Creates a ConfigMap; the error is the server's message.
fn create_config_map(sandbox: &Sandbox, name: &str) -> Result<(), String> {
    let (who, options) = (Actor::new("user"), WriteOptions::default());
    let map = json!({"metadata": {"name": name}});
    let made = sandbox
        .cluster()
        .create(&who, &Gvr::CONFIGMAPS, Some("default"), map, &options);
    made.map(drop).map_err(|error| error.message)
}

/// Row "the rest of the list": an expression that fails refuses, unless `failurePolicy` says `Ignore`.
#[test]
fn crates_an_error_counts_by_the_failure_policy() {
    let fails = json!({"validations": [{"expression": "object.data.missing == 'x'"}]});
    let why = create_config_map(&config_maps(&fails, &json!({})), "a").unwrap_err();
    assert!(
        why.ends_with("resulted in error: no such key: data"),
        "{why}"
    );
    let ignored = json!({"failurePolicy": "Ignore", "validations": [
        {"expression": "object.data.missing == 'x'"}, {"expression": "object.metadata.name != 'b'"}]});
    let sandbox = config_maps(&ignored, &json!({}));
    assert_eq!(create_config_map(&sandbox, "a"), Ok(()));
    assert!(
        create_config_map(&sandbox, "b").is_err(),
        "the other rule still counts"
    );
}

/// Row "the rest of the list": all conditions must hold; one that does not hold takes precedence over the errors of others.
#[test]
fn crates_all_match_conditions_must_hold() {
    let spec = |failure: &str| {
        json!({"failurePolicy": failure, "validations": [{"expression": "false"}], "matchConditions": [
            {"name": "error", "expression": "object.metadata.name != 'a' || object.data.missing == 'x'"},
            {"name": "name", "expression": "object.metadata.name != 'other'"}]})
    };
    let sandbox = config_maps(&spec("Fail"), &json!({}));
    assert_eq!(create_config_map(&sandbox, "other"), Ok(()));
    let why = create_config_map(&sandbox, "b").unwrap_err();
    assert!(why.ends_with("failed expression: false"), "{why}");
    let why = create_config_map(&sandbox, "a").unwrap_err();
    assert!(
        why.ends_with("resulted in error: no such key: data"),
        "{why}"
    );
    let sandbox = config_maps(&spec("Ignore"), &json!({}));
    assert_eq!(create_config_map(&sandbox, "a"), Ok(()));
    assert!(create_config_map(&sandbox, "b").is_err());
}

/// Row "the rest of the list": without a parameter, `parameterNotFoundAction` decides.
#[test]
fn crates_a_missing_parameter_counts_by_its_action() {
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "Secret"},
        "validations": [{"expression": "params == null"}]});
    let bound = |action: &str| {
        let params =
            json!({"name": "missing", "namespace": "default", "parameterNotFoundAction": action});
        config_maps(&spec, &json!({"paramRef": params}))
    };
    assert_eq!(create_config_map(&bound("Allow"), "a"), Ok(()));
    let why = create_config_map(&bound("Deny"), "a").unwrap_err();
    assert!(why.contains("no params found"), "{why}");
}

/// Row "the rest of the list": subresources are admitted as objects of their own type.
#[test]
fn crates_bindings_evictions_and_scales_are_admitted() {
    let expression = "request.kind.kind == 'Binding' ? object.target.name != 'bad' : \
         request.kind.kind == 'Scale' ? object.spec.replicas < 5 : request.name != 'kept'";
    let rules = json!([{"apiGroups": ["", "apps"], "apiVersions": ["v1"], "operations": ["*"],
        "resources": ["pods/binding", "pods/eviction", "deployments/scale"]}]);
    let spec = json!({"validations": [{"expression": expression}], "matchConstraints": {"resourceRules": rules}});
    let sandbox = config_maps(&spec, &json!({}));
    let (cluster, who) = (sandbox.cluster(), Actor::new("user"));
    let write = WriteOptions::default();
    for name in ["kept", "gone"] {
        create(cluster, "user", pod(name, json!({}))).unwrap();
    }
    let bind = |node: &str| cluster.bind(&who, "default", "kept", node, &write);
    assert_eq!(bind("bad").unwrap_err().code, 422);
    bind("good").unwrap();
    let evict = |name: &str| cluster.evict(&who, "default", name, &DeleteOptions::default());
    assert_eq!(evict("kept").unwrap_err().code, 422);
    evict("gone").unwrap();
    let deployments = Gvr::new("apps", "v1", "deployments");
    let spec = json!({"metadata": {"name": "d"}, "spec": {"replicas": 9, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let namespace = Some("default");
    cluster
        .create(&who, &deployments, namespace, spec, &write)
        .unwrap();
    let scale = |replicas: u64| {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        cluster.patch(
            &who,
            &deployments,
            namespace,
            "d",
            patch,
            Subresource::Scale,
            &write,
        )
    };
    assert_eq!(scale(7).unwrap_err().code, 422);
    assert_eq!(scale(3).unwrap()["spec"]["replicas"], 3);
}
