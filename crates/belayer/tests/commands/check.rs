//! `belayer check` with all permissions.

use belayer::controllers::CONTROLLERS;
use belayer_sandbox::{Answer, Fault, Gvr, Match, Verb};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use kube::Api;
use kube::api::DeleteParams;
use rstest::rstest;
use serde_json::{Value, json};

use crate::world::World;

pub(crate) fn admission(resource: &'static str) -> Gvr {
    Gvr::new("admissionregistration.k8s.io", "v1", resource)
}

/// The accounts and their permissions.
pub(crate) const RBAC: &[&str] = &[
    "namespace",
    "service-account",
    "crd-gate",
    "rbac-core",
    "rbac-pod-finalizer",
    "rbac-workflow-finalizer",
    "rbac-pvc-protection",
    "rbac-pod-recreation",
    "pod-recreation-deployment",
];

pub(crate) fn manifests(world: &World, names: &[&str]) {
    let rbac = |resource| Gvr::new("rbac.authorization.k8s.io", "v1", resource);
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/manifests");
    for name in names {
        let text = std::fs::read_to_string(format!("{dir}/{name}.yaml")).unwrap();
        for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            let gvr = match object["kind"].as_str().unwrap() {
                "Namespace" => Gvr::NAMESPACES,
                "ServiceAccount" => Gvr::new("", "v1", "serviceaccounts"),
                "ClusterRole" => rbac("clusterroles"),
                "ClusterRoleBinding" => rbac("clusterrolebindings"),
                "Role" => rbac("roles"),
                "RoleBinding" => rbac("rolebindings"),
                "CustomResourceDefinition" => Gvr::CUSTOMRESOURCEDEFINITIONS,
                "PodDisruptionBudget" => Gvr::new("policy", "v1", "poddisruptionbudgets"),
                "Deployment" => Gvr::new("apps", "v1", "deployments"),
                "ValidatingAdmissionPolicy" => admission("validatingadmissionpolicies"),
                "ValidatingAdmissionPolicyBinding" => {
                    admission("validatingadmissionpolicybindings")
                }
                "MutatingAdmissionPolicy" => admission("mutatingadmissionpolicies"),
                "MutatingAdmissionPolicyBinding" => admission("mutatingadmissionpolicybindings"),
                kind => panic!("{kind}"),
            };
            let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
            world.create(&gvr, namespace.as_deref(), object);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_objects_are_reported_with_their_effect() {
    let world = World::new().await;
    manifests(&world, RBAC);
    let answer = world.run(&["check", "--service-account"]).await;
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    let expected = "\
All requirements are met.
Kubernetes v1.36.3+belayer-sandbox; permissions of
system:serviceaccount:belayer-system:belayer.

every controller: 14 of 14 permissions
  note     policy belayer-namespace-guard does not exist
           Belayer's namespace and CRDs can be deleted before a drain: held
           objects then stay held, and records of pods that are still to be
           re-created are lost
           apply it from the manifests of this namespace
  note     policy belayer-pod-writes does not exist
           Belayer's account may change any field of the objects that it may
           patch, and a switch of the gate that is off stays off
           apply it from the manifests of this namespace
  note     policy belayer-owner-writes does not exist
           Belayer's account may change any field of the objects that it may
           patch, and a switch of the gate that is off stays off
           apply it from the manifests of this namespace

leader election: 4 of 4 permissions

pod-finalizer: 8 of 8 permissions
  note     workflows.argoproj.io in version v1alpha1 is not served
           objects of this kind are handled once it is served; everything else
           works
  note     policy belayer-pod-hold does not exist
           a hold is added only after the creation of an object: an object that
           is deleted before that is missed
           apply it from the manifests

workflow-finalizer: 8 of 8 permissions
  note     workflows.argoproj.io in version v1alpha1 is not served
           objects of this kind are handled once it is served; everything else
           works
  note     policy belayer-workflow-hold does not exist
           a hold is added only after the creation of an object: an object that
           is deleted before that is missed
           apply it from the manifests

pvc-protection: 8 of 8 permissions
";
    assert_eq!(answer.out, expected);
    let account = "--service-account=belayer-system/belayer-pod-recreation";
    let lease = "--leader-elect-resource-name=belayer-pod-recreation";
    let alone = ["check", "--controllers=pod-recreation", account, lease];
    let answer = world.run(&alone).await;
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    let expected = "\
pod-recreation: 22 of 22 permissions
  note     podrecreations.belayer.dev in version v1alpha1 is not served
           objects of this kind are handled once it is served; everything else
           works
           belayer crds | kubectl apply -f -
  note     nodewipes.belayer.dev in version v1alpha1 is not served
           objects of this kind are handled once it is served; everything else
           works
           belayer crds | kubectl apply -f -
  note     policy belayer-pod-recreation-hold does not exist
           a hold is added only after the creation of an object: an object that
           is deleted before that is missed
           apply it from the manifests
  note     policy belayer-pod-deletes does not exist
           Belayer's account may delete every pod that its permissions allow,
           and create any pod
           apply it from the manifests of this namespace
  note     policy belayer-pod-recreation-records does not exist
           whoever may write PodRecreations and NodeWipes by RBAC can have
           Belayer create any pod, and have its node agent remove directories
           apply it from the manifests of this namespace
";
    assert!(answer.out.ends_with(expected), "{}", answer.out);
}

/// Without the kind, the leader cannot create the gate that the policies and a drain need.
#[rstest]
#[case::with_policies(&["pod-hold-policy"])]
#[case::without_policies(&[])]
#[tokio::test(flavor = "multi_thread")]
async fn the_kind_of_the_gate_is_required(#[case] policies: &[&str]) {
    let world = World::new().await;
    manifests(&world, RBAC);
    manifests(&world, policies);
    let is_required = "gates.belayer.dev in version v1alpha1 is not served";
    let answer = world.run(&["check", "--service-account"]).await;
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    assert!(!answer.has(is_required), "{}", answer.out);
    world.delete(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, "gates.belayer.dev");
    let answer = world.run(&["check", "--service-account"]).await;
    assert_eq!(answer.code, 3, "{}{}", answer.out, answer.err);
    let says = "missing gates.belayer.dev in version v1alpha1 is not served the admission policies add no hold, and \
                belayer drain cannot stop a running Belayer belayer crds | kubectl apply -f -";
    assert!(answer.has(says), "{}", answer.out);
    assert!(!answer.has("the first leader creates it"), "{}", answer.out);
}

/// A7: `check` reports the warnings that `belayer run` logs at its start. An owner without a group means a kind of the
/// core group: `Workflow` selects nothing.
#[rstest]
#[case::ignored("Workflow.argoproj.io", "lists Workflow.argoproj.io")]
#[case::select_nothing("Workflow", "lists Workflow without a group")]
#[tokio::test(flavor = "multi_thread")]
async fn a7_owners_without_effect_are_reported(#[case] owner: &str, #[case] says: &str) {
    let world = World::new().await;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("belayer.yaml");
    let head = "apiVersion: config.belayer.dev/v1alpha1";
    let text = format!("{head}\npodRecreation:\n  owners: [{owner}]\n");
    std::fs::write(&config, text).unwrap();
    let config = format!("--config={}", config.display());
    let answer = world
        .run(&["check", "--controllers=pod-recreation", &config, "-ojson"])
        .await;
    let findings = answer.json()["parts"][2]["findings"].to_string();
    let says = format!("podRecreation.owners {says}");
    assert!(findings.contains(&says), "{findings}");
}

/// `belayer run` and `belayer check` take the controllers from the same sources.
#[rstest]
#[case::of_the_file(&[], &["pod-finalizer", "workflow-finalizer", "pod-recreation"])]
#[case::of_the_flag(&["--controllers=pvc-protection"], &["pvc-protection"])]
#[tokio::test(flavor = "multi_thread")]
async fn the_controllers_of_the_configuration_are_checked(
    #[case] flags: &[&str],
    #[case] expected: &[&str],
) {
    let world = World::new().await;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("belayer.yaml");
    std::fs::write(
        &config,
        "apiVersion: config.belayer.dev/v1alpha1\ncontrollers: ['*', pod-recreation, '-pvc-protection']\n",
    )
    .unwrap();
    let config = format!("--config={}", config.display());
    let answer = world
        .run(&[&["check", &config, "-ojson"], flags].concat())
        .await;
    let report = answer.json();
    let parts = report["parts"].as_array().unwrap();
    let names = parts.iter().map(|part| part["name"].as_str().unwrap());
    let names: Vec<_> = names.collect();
    let controllers: Vec<_> = CONTROLLERS.iter().map(|one| one.name).collect();
    let checked: Vec<_> = names
        .into_iter()
        .filter(|name| controllers.contains(name))
        .collect();
    assert_eq!(checked, expected, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_and_configuration_select_the_checks() {
    let world = World::new().await;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("belayer.yaml");
    std::fs::write(
        &config,
        "apiVersion: config.belayer.dev/v1alpha1\npodFinalizer:\n  profiles:\n  - builtIn: argo\n    capture: true\n    cleanup: argo\n",
    )
    .unwrap();
    let config = format!("--config={}", config.display());
    let answer = world
        .run(&["check", "--controllers=pod-finalizer", &config, "-ojson"])
        .await;
    assert_eq!(answer.code, 3, "{}{}", answer.out, answer.err);
    let report = answer.json();
    let names: Vec<&str> = report["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "every controller",
            "leader election",
            "pod-finalizer",
            "pod-finalizer capture",
            "pod-finalizer cleanup"
        ]
    );
    let advice = report["parts"][2]["findings"].to_string();
    assert!(
        advice.contains("Argo Workflows reads pods, never a PodOutcome"),
        "{advice}"
    );
    let capture = &report["parts"][3]["findings"][0];
    assert_eq!(capture["level"], "missing");
    assert_eq!(
        capture["what"],
        "podoutcomes.belayer.dev in version v1alpha1 is not served"
    );
    assert_eq!(capture["fix"], "belayer crds | kubectl apply -f -");
}

/// The Lease may be in another namespace, or there may be none.
#[tokio::test(flavor = "multi_thread")]
async fn the_permissions_of_the_election_follow_the_configuration() {
    let world = World::new().await;
    manifests(&world, RBAC);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("belayer.yaml");
    let config = format!("--config={}", path.display());
    let check = async |keys: &str| {
        let text = format!("apiVersion: config.belayer.dev/v1alpha1\nleaderElection:\n{keys}");
        std::fs::write(&path, text).unwrap();
        let controllers = "--controllers=pvc-protection";
        world
            .run(&["check", "--service-account", controllers, &config])
            .await
    };
    let elsewhere = check("  resourceNamespace: ops\n").await;
    assert_eq!(elsewhere.code, 3, "{}{}", elsewhere.out, elsewhere.err);
    for says in [
        "leader election: 0 of 4 permissions",
        "missing get leases.coordination.k8s.io belayer in ops",
    ] {
        assert!(elsewhere.has(says), "{says}: {}", elsewhere.out);
    }
    let off = check("  enabled: false\n").await;
    assert_eq!(off.code, 0, "{}{}", off.out, off.err);
    assert!(!off.has("leader election"), "{}", off.out);
}

/// A node agent on a server whose tokens do not contain the node. The sandbox reports a newer version, so a proxy
/// replaces it.
#[tokio::test(flavor = "multi_thread")]
async fn t1_the_node_agent_is_refused_before_kubernetes_1_32() {
    let world = World::new().await;
    world.gate_kind();
    let agent = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {
            "name": "belayer-node-agent",
            "labels": { "app.kubernetes.io/name": "belayer-node-agent" },
        },
        "spec": {},
    });
    let daemonsets = Gvr::new("apps", "v1", "daemonsets");
    world.create(&daemonsets, Some("default"), agent);
    let answer = world.run(&["check", "--controllers=pvc-protection"]).await;
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    let old = json!({ "major": "1", "minor": "31", "gitVersion": "v1.31.9" });
    let old = Answer::raw(200, "application/json", old.to_string());
    let old = Fault::on(Match::any().path_prefix("/version")).answer(old);
    world.sandbox.faults().inject(old);
    let answer = world.run(&["check", "--controllers=pvc-protection"]).await;
    assert_eq!(answer.code, 3, "{}{}", answer.out, answer.err);
    let says =
        "daemonset default/belayer-node-agent is the node agent, and this API server is v1.31.9";
    assert!(answer.has(says), "{}", answer.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_belayer_is_found() {
    let world = World::new().await;
    world.gate_kind();
    manifests(&world, &["namespace", "deployment"]);
    let answer = world.run(&["check"]).await;
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    // The label alone proves nothing: a user of one namespace can set it, and make this command fail.
    let answer = world.run(&["check", "--own-namespace=ops"]).await;
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    let says =
        "note deployment belayer-system/belayer has the label app.kubernetes.io/name=belayer";
    assert!(answer.has(says), "{}", answer.out);
    let why = "it is not another Belayer that works: its account belayer may not watch all pods";
    assert!(answer.has(why), "{}", answer.out);
    manifests(&world, &["rbac-core", "rbac-pod-finalizer"]);
    let answer = world.run(&["check", "--own-namespace=ops"]).await;
    assert_eq!(answer.code, 3, "{}{}", answer.out, answer.err);
    let says = "missing  deployment belayer-system/belayer is another Belayer";
    assert!(answer.out.contains(says), "{}", answer.out);
}

/// kube-controller-manager as kubeadm runs it.
fn controller_manager(world: &World, flag: &str) {
    world.create(
        &Gvr::PODS,
        Some("kube-system"),
        json!({
            "metadata": { "name": "kube-controller-manager-n1", "labels": { "component": "kube-controller-manager" } },
            "spec": { "containers": [{ "name": "m", "image": "m", "command": ["kube-controller-manager", flag] }] },
        }),
    );
}

const REPLACING: &str = "kubernetes.io/pvc-protection";
const OFF: &str = "--controllers=*,-persistentvolumeclaim-protection-controller";

#[rstest]
#[case::replacing_a_running_controller(
    REPLACING,
    "--controllers=*",
    3,
    "persistentvolumeclaim-protection-controller still runs in pod"
)]
#[case::replacing_a_disabled_controller(REPLACING, OFF, 0, "pvc-protection: 8 of 8 permissions")]
#[case::beside_a_running_controller(
    "belayer.dev/pvc-protection",
    "--controllers=*",
    0,
    "pvc-protection: 8 of 8 permissions"
)]
#[case::a18_advising_beside_what_runs(
    "",
    "--controllers=*",
    0,
    "pvc-protection: 8 of 8 permissions"
)]
#[case::a18_advising_beside_a_running_controller(
    "",
    "--controllers=*",
    0,
    "pvc-protection: 8 of 8 permissions"
)]
#[case::a18_advising_beside_a_disabled_controller(
    "",
    OFF,
    3,
    "persistentvolumeclaim-protection-controller is switched off in pod"
)]
#[case::beside_a_disabled_controller(
    "belayer.dev/pvc-protection",
    OFF,
    3,
    "persistentvolumeclaim-protection-controller is switched off in pod"
)]
#[tokio::test(flavor = "multi_thread")]
async fn exactly_one_controller_must_protect_pvcs(
    #[case] finalizer: &str,
    #[case] flag: &str,
    #[case] code: i32,
    #[case] says: &str,
) {
    let world = World::new().await;
    world.gate_kind();
    controller_manager(&world, flag);
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("belayer.yaml");
    let key = match finalizer {
        "" => String::new(),
        finalizer => format!("  finalizer: {finalizer}\n"),
    };
    let text =
        format!("apiVersion: config.belayer.dev/v1alpha1\npvcProtection:\n  workers: 4\n{key}");
    std::fs::write(&config, text).unwrap();
    let config = format!("--config={}", config.display());
    let answer = world
        .run(&["check", "--controllers=pvc-protection", &config])
        .await;
    assert_eq!(answer.code, code, "{}{}", answer.out, answer.err);
    assert!(answer.out.contains(says), "{}", answer.out);
}

/// The level and text of the findings about the policies of pod-finalizer.
async fn about_policies(world: &World) -> Vec<(String, String)> {
    let answer = world
        .run(&["check", "--controllers=pod-finalizer", "-ojson"])
        .await;
    let report = answer.json();
    let findings = report["parts"][2]["findings"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let about = findings.iter().filter(|one| one["about"] == "policy");
    about
        .map(|one| (text(&one["level"]), text(&one["what"])))
        .collect()
}

#[rstest]
#[case::as_it_should_be(json!({ "mode": "normal", "hold": "on" }), None)]
#[case::switched_off(json!({ "mode": "normal", "hold": "off" }), Some("hold is not \"on\""))]
#[case::not_switched(json!({ "mode": "normal" }), Some("hold is not \"on\""))]
#[case::drained(json!({ "mode": "draining", "hold": "draining" }), Some("mode is draining"))]
#[case::h5_as_it_is_installed(json!({}), Some("hold is not \"on\""))]
#[case::drained_with_its_switch_on(json!({ "mode": "draining", "hold": "on" }), Some("mode is draining"))]
#[case::without_a_gate(Value::Null, Some("does not exist"))]
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_is_switched_off_is_reported(
    #[case] data: Value,
    #[case] expected: Option<&'static str>,
) {
    let world = World::new().await;
    manifests(&world, &["namespace", "crd-gate", "pod-hold-policy"]);
    if !data.is_null() {
        world.gate("belayer-system", &data);
    }
    let found = about_policies(&world).await;
    match (expected, found.as_slice()) {
        (None, []) => {}
        (Some(words), [(level, what)]) if level == "note" && what.contains(words) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_without_its_binding_is_reported() {
    let world = World::new().await;
    manifests(&world, &["namespace", "pod-hold-policy"]);
    world.gate("belayer-system", &json!({ "hold": "on" }));
    assert_eq!(about_policies(&world).await, []);
    let cluster = world.sandbox.cluster();
    let (actor, options) = (belayer_sandbox::Actor::new("test"), Default::default());
    let bindings = admission("mutatingadmissionpolicybindings");
    cluster
        .delete(&actor, &bindings, None, "belayer-pod-hold", &options)
        .unwrap();
    let what = "policy belayer-pod-hold has no binding of the same name";
    let expected = [("note".to_owned(), what.to_owned())];
    assert_eq!(about_policies(&world).await, expected);
}

/// The gate stays open while no Belayer runs: the Lease that it names shows it.
#[rstest]
#[case::renewed("2999-01-01T00:00:00.000000Z", None)]
#[case::not_renewed("2020-01-01T00:00:00.000000Z", Some("was not renewed for"))]
#[case::none("", Some("does not exist"))]
#[tokio::test(flavor = "multi_thread")]
async fn gate_an_open_gate_without_a_leader_is_reported(
    #[case] renewed: &str,
    #[case] expected: Option<&'static str>,
) {
    let world = World::new().await;
    manifests(&world, &["namespace", "pod-hold-policy"]);
    let data = json!({ "hold": "on", "lease.hold": "belayer-system/belayer" });
    world.gate("belayer-system", &data);
    if !renewed.is_empty() {
        let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "belayer" }, "spec": { "renewTime": renewed } });
        world.create(&Gvr::LEASES, Some("belayer-system"), lease);
    }
    match (expected, about_policies(&world).await.as_slice()) {
        (None, []) => {}
        (Some(words), [(level, what)]) if level == "missing" && what.contains(words) => {}
        other => panic!("{other:?}"),
    }
}

/// H2: a policy that names the account of another namespace limits nobody.
#[rstest]
#[case::named("belayer-system", true)]
#[case::of_another_namespace("ops", false)]
#[tokio::test(flavor = "multi_thread")]
async fn gate_h2_a_write_policy_that_names_another_account_is_missing(
    #[case] namespace: &str,
    #[case] named: bool,
) {
    let world = World::new().await;
    manifests(&world, RBAC);
    manifests(&world, &["pod-write-policy"]);
    let own = format!("--own-namespace={namespace}");
    let answer = world.run(&["check", "--service-account", &own]).await;
    let words = "policy belayer-pod-writes does not name system:serviceaccount:ops:belayer";
    assert_eq!(answer.has(words), !named, "{}", answer.out);
    assert_eq!(answer.code, if named { 0 } else { 3 }, "{}", answer.out);
}

/// A policy without a binding has no effect.
#[tokio::test(flavor = "multi_thread")]
async fn gate_a_write_policy_that_is_not_bound_is_missing() {
    let world = World::new().await;
    manifests(&world, RBAC);
    manifests(&world, &["pod-write-policy"]);
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(world.sandbox.client());
    let options = DeleteParams::default();
    bindings
        .delete("belayer-pod-writes", &options)
        .await
        .unwrap();
    let answer = world.run(&["check", "--service-account"]).await;
    assert_eq!(answer.code, 3, "{}", answer.out);
    let words = "policy belayer-pod-writes has no binding of the same name";
    assert!(answer.has(words), "{}", answer.out);
}

/// An access review without a result does not count as granted.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_access_review_does_not_count_as_granted() {
    let world = World::new().await;
    world.gate_kind();
    let reviews = Match::verb(Verb::Create).resource("subjectaccessreviews");
    let fault = Fault::on(reviews).answer(Answer::forbidden("not you"));
    let _fault = world.sandbox.faults().inject(fault);
    let arguments = ["check", "--controllers=pvc-protection", "--service-account"];
    let answer = world.run(&arguments).await;
    assert_eq!(answer.code, 4, "{}{}", answer.out, answer.err);
    for says in [
        "Nothing is known to be missing; 26 things could not be checked.",
        "unknown  26 permissions",
        "pvc-protection: 0 of 8 permissions",
        "checking other users requires permission to create",
    ] {
        assert!(answer.out.contains(says), "{}", answer.out);
    }
    assert_eq!(answer.out.matches("unknown  ").count(), 1, "{}", answer.out);
}
