//! `belayer check`, where everything is allowed.

use belayer_sandbox::Gvr;
use rstest::rstest;
use serde_json::{Value, json};

use crate::world::World;

fn manifests(world: &World, names: &[&str]) {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/manifests");
    for name in names {
        let text = std::fs::read_to_string(format!("{dir}/{name}.yaml")).unwrap();
        for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            let gvr = match object["kind"].as_str().unwrap() {
                "Namespace" => Gvr::NAMESPACES,
                "ConfigMap" => Gvr::CONFIGMAPS,
                "Deployment" => Gvr::new("apps", "v1", "deployments"),
                kind => panic!("{kind}"),
            };
            let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
            world.create(&gvr, namespace.as_deref(), object);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_named_with_what_follows() {
    let world = World::new().await;
    manifests(&world, &["namespace", "gate-configmap"]);
    let answer = world.run(&["check", "--service-account"]).await;
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    let expected = "\
Everything that Belayer needs is there.
Kubernetes v1.36.3+belayer-sandbox; the rights are those of
system:serviceaccount:belayer-system:belayer.

every component: 12 of 12 rights

leader election: 3 of 3 rights

pod-finalizer: 7 of 7 rights
  note     workflows.argoproj.io at v1alpha1 is not served
           the component waits for it and starts when it appears; the others work
  note     policy belayer-pod-hold is not there
           holds are added when an object is first seen: one that vanishes within that moment is
           missed
           apply it from the manifests

workflow-finalizer: 8 of 8 rights
  note     workflows.argoproj.io at v1alpha1 is not served
           the component waits for it and starts when it appears; the others work
  note     policy belayer-workflow-hold is not there
           holds are added when an object is first seen: one that vanishes within that moment is
           missed
           apply it from the manifests

pod-recreation: 16 of 16 rights
  note     podrecreations.belayer.dev at v1alpha1 is not served
           the component waits for it and starts when it appears; the others work
           belayer crds | kubectl apply -f -
  note     policy belayer-pod-recreation-hold is not there
           holds are added when an object is first seen: one that vanishes within that moment is
           missed
           apply it from the manifests

pvc-protection: 7 of 7 rights
  note     policy belayer-claim-hold is not there
           holds are added when an object is first seen: one that vanishes within that moment is
           missed
           apply it from the manifests
";
    assert_eq!(answer.out, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_and_configuration_say_what_is_checked() {
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
            "every component",
            "leader election",
            "pod-finalizer",
            "pod-finalizer capture",
            "pod-finalizer cleanup"
        ]
    );
    let capture = &report["parts"][3]["findings"][0];
    assert_eq!(capture["level"], "missing");
    assert_eq!(
        capture["what"],
        "podoutcomes.belayer.dev at v1alpha1 is not served"
    );
    assert_eq!(capture["fix"], "belayer crds | kubectl apply -f -");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_belayer_is_found() {
    let world = World::new().await;
    manifests(&world, &["namespace", "deployment"]);
    let answer = world.run(&["check"]).await;
    assert_eq!(answer.code, 0, "{}{}", answer.out, answer.err);
    let answer = world.run(&["check", "--own-namespace=ops"]).await;
    assert_eq!(answer.code, 3, "{}{}", answer.out, answer.err);
    let says = "missing  deployment belayer-system/belayer is a Belayer as well";
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
#[case::replacing_what_still_runs(
    REPLACING,
    "--controllers=*",
    3,
    "persistentvolumeclaim-protection-controller still runs in pod"
)]
#[case::replacing_what_is_off(REPLACING, OFF, 0, "pvc-protection: 7 of 7 rights")]
#[case::beside_what_runs(
    "belayer.dev/pvc-protection",
    "--controllers=*",
    0,
    "pvc-protection: 7 of 7 rights"
)]
#[case::beside_what_is_off(
    "belayer.dev/pvc-protection",
    OFF,
    3,
    "persistentvolumeclaim-protection-controller is switched off in pod"
)]
#[tokio::test(flavor = "multi_thread")]
async fn claims_are_protected_by_exactly_one(
    #[case] finalizer: &str,
    #[case] flag: &str,
    #[case] code: i32,
    #[case] says: &str,
) {
    let world = World::new().await;
    controller_manager(&world, flag);
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("belayer.yaml");
    let text = format!(
        "apiVersion: config.belayer.dev/v1alpha1\npvcProtection:\n  finalizer: {finalizer}\n"
    );
    std::fs::write(&config, text).unwrap();
    let config = format!("--config={}", config.display());
    let answer = world
        .run(&["check", "--controllers=pvc-protection", &config])
        .await;
    assert_eq!(answer.code, code, "{}{}", answer.out, answer.err);
    assert!(answer.out.contains(says), "{}", answer.out);
}
