//! `stuck`, `explain`, `status` and `check` on PVCs that are being deleted: the owner of each finalizer, the
//! controller that must remove it, and the next step.

use belayer::config::Source;
use belayer::controllers::Controllers;
use belayer::inspect::parts;
use belayer_core::client;
use belayer_core::executor::Bounds;
use belayer_holds::permissions::Permission;
use belayer_inspect::preflight::{Authorizer, Finding, Level, Query, Ruling, Subject, check};
use belayer_inspect::reader::Reader;
use belayer_sandbox::{Actor, Gvr};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::{Value, json};

use crate::world::World;

const PVCS: Gvr = Gvr::PERSISTENTVOLUMECLAIMS;
const BELAYERS: &str = "belayer.dev/pvc-protection";
const KUBERNETES: &str = "kubernetes.io/pvc-protection";

fn pvc(world: &World, name: &str, finalizers: &[&str]) {
    let pvc = json!({
        "metadata": { "name": name, "finalizers": finalizers },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    world.create(&PVCS, Some("default"), pvc);
}

fn deleted(world: &World, gvr: &Gvr, name: &str) {
    let (actor, options) = (Actor::new("test"), Default::default());
    let cluster = world.sandbox.cluster();
    cluster
        .delete(&actor, gvr, Some("default"), name, &options)
        .unwrap();
}

/// The pod `db-0` on a node, with these PVCs.
fn user_of(world: &World, pvcs: &[&str]) {
    let volume = |pvc: &&str| json!({ "name": pvc, "persistentVolumeClaim": { "claimName": pvc } });
    let volumes: Vec<Value> = pvcs.iter().map(volume).collect();
    let pod = json!({
        "metadata": { "name": "db-0" },
        "spec": { "nodeName": "n1", "containers": [{ "name": "m", "image": "m" }], "volumes": volumes },
    });
    world.create(&Gvr::PODS, Some("default"), pod);
}

fn own_namespace(world: &World) {
    let namespace = json!({ "metadata": { "name": "belayer-system" } });
    world.create(&Gvr::NAMESPACES, None, namespace);
}

/// A Lease that is being renewed by a process outside of the cluster.
fn leads(world: &World, namespace: &str, name: &str) {
    let leases = Gvr::new("coordination.k8s.io", "v1", "leases");
    let now = Timestamp::now();
    let lease = json!({
        "metadata": { "name": name },
        "spec": {
            "holderIdentity": "laptop_0", "leaseDurationSeconds": 3600, "renewTime": format!("{now:.6}"),
        },
    });
    world.create(&leases, Some(namespace), lease);
}

/// Belayer's Deployment, without a pod that is ready.
fn is_down(world: &World) {
    let deployments = Gvr::new("apps", "v1", "deployments");
    let deployment = json!({
        "metadata": { "name": "belayer" },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "labels": { "a": "b" } },
                "spec": { "containers": [{ "name": "b", "image": "belayer/belayer:0.1.0" }] } } },
    });
    world.create(&deployments, Some("belayer-system"), deployment);
}

/// A configuration file in a directory that is removed with the test.
fn config(keys: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("belayer.yaml");
    let text = format!("apiVersion: config.belayer.dev/v1alpha1\n{keys}");
    std::fs::write(&path, text).unwrap();
    let argument = format!("--config={}", path.display());
    (dir, argument)
}

fn in_place() -> (tempfile::TempDir, String) {
    config("pvcProtection:\n  finalizer: kubernetes.io/pvc-protection\n")
}

fn group<'a>(report: &'a Value, finalizer: &str) -> &'a Value {
    let groups = report["groups"].as_array().unwrap();
    let found = groups.iter().find(|group| group["finalizer"] == finalizer);
    found.unwrap_or_else(|| panic!("{finalizer}: {report:#}"))
}

/// A text on one line.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

const ANNOTATE: &str = "belayer.dev/release=true";

#[tokio::test(flavor = "multi_thread")]
async fn a_pvc_waits_for_its_pod_whatever_its_annotations() {
    let world = World::new().await;
    own_namespace(&world);
    leads(&world, "belayer-system", "belayer");
    pvc(&world, "data", &[BELAYERS]);
    user_of(&world, &["data"]);
    deleted(&world, &PVCS, "data");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let pvcs = group(&report, BELAYERS);
    assert_eq!(pvcs["verdict"], "held-by-belayer");
    let next = pvcs["next"].to_string();
    assert!(!next.contains(ANNOTATE), "{pvcs:#}");
    assert!(
        next.contains("as soon as the last of these pods is deleted"),
        "{pvcs:#}"
    );
    assert!(
        next.contains("kubectl -n default describe pod db-0"),
        "{pvcs:#}"
    );
}

#[rstest]
#[case::by_its_usual_name("belayer-system", "belayer", "")]
#[case::by_the_name_of_its_configuration(
    "ops",
    "rope",
    "leaderElection:\n  resourceName: rope\n  resourceNamespace: ops\n"
)]
#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_lease_proves_a_running_belayer_without_pods(
    #[case] namespace: &str,
    #[case] name: &str,
    #[case] keys: &str,
) {
    let world = World::new().await;
    own_namespace(&world);
    if namespace != "belayer-system" {
        let namespace = json!({ "metadata": { "name": namespace } });
        world.create(&Gvr::NAMESPACES, None, namespace);
    }
    pvc(&world, "data", &[BELAYERS]);
    deleted(&world, &PVCS, "data");
    let (_dir, config) = config(keys);
    let stuck = ["stuck", "-ojson", &config];
    let gone = world.run(&stuck).await.json();
    assert_eq!(group(&gone, BELAYERS)["verdict"], "controller-gone");
    let status = world.run(&["status", &config]).await;
    assert_eq!(status.code, 3, "{}{}", status.out, status.err);
    let text = flat(&status.out);
    assert!(
        text.contains("It does not run: no pod in belayer-system"),
        "{text}"
    );
    assert!(
        text.contains("1 object is held and no pod in belayer-system is ready to release it"),
        "{text}"
    );

    leads(&world, namespace, name);
    let alive = world.run(&stuck).await.json();
    let group = group(&alive, BELAYERS);
    assert_eq!(group["verdict"], "held-by-belayer", "{group:#}");
    let proof = format!("lease {namespace}/{name} was last renewed");
    assert!(group["proof"].to_string().contains(&proof), "{group:#}");
    assert!(!group["next"].to_string().contains("again"), "{group:#}");
    let explained = world
        .run(&["explain", "pvc/data", "-n", "default", &config])
        .await;
    assert!(!explained.out.contains("again"), "{}", explained.out);
    let status = world.run(&["status", &config]).await;
    assert_eq!(status.code, 0, "{}{}", status.out, status.err);
    let text = flat(&status.out);
    assert!(
        text.contains("It runs elsewhere: no pod in belayer-system is labelled"),
        "{text}"
    );
    assert!(text.contains("laptop_0 is the leader, renewed"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pvc_in_use_waits_for_belayer_and_its_pod() {
    let world = World::new().await;
    own_namespace(&world);
    is_down(&world);
    pvc(&world, "data", &[BELAYERS]);
    user_of(&world, &["data"]);
    deleted(&world, &PVCS, "data");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let next = group(&report, BELAYERS)["next"].clone();
    let says = |at: usize| next[at]["say"].as_str().unwrap_or_default().to_owned();
    assert!(
        says(0).contains("it removes its finalizer once nothing is missing"),
        "{next:#}"
    );
    assert!(
        says(1).contains("the pod that uses it, and stop it"),
        "{next:#}"
    );
    assert!(!next.to_string().contains("by itself"), "{next:#}");
}

/// If Belayer replaces Kubernetes' controller, a PVC may still have the earlier finalizer.
#[tokio::test(flavor = "multi_thread")]
async fn in_place_both_finalizers_are_belayers() {
    let world = World::new().await;
    own_namespace(&world);
    pvc(&world, "data", &[KUBERNETES, BELAYERS]);
    user_of(&world, &["data"]);
    deleted(&world, &PVCS, "data");
    let (_dir, config) = in_place();
    // No controller runs: each group proves that, and the groups are numbered from 1.
    let report = world.run(&["stuck", "-ojson", &config]).await.json();
    for finalizer in [KUBERNETES, BELAYERS] {
        let group = group(&report, finalizer);
        assert_eq!(group["cause"], "hold", "{group:#}");
        assert_eq!(
            group["known"]["owner"], "Belayer pvc-protection",
            "{group:#}"
        );
        let next = group["next"].to_string();
        assert!(next.contains("Install Belayer again"), "{group:#}");
    }
    let explain = ["explain", "pvc/data", "-n", "default", &config];
    let text = world.run(&explain).await.out;
    assert!(
        text.contains("[1] held by") && text.contains("[2] held by"),
        "{text}"
    );
    assert!(!text.contains("Kubernetes PVC protection"), "{text}");
    // A controller runs: all of it is printed above the groups.
    leads(&world, "belayer-system", "belayer");
    let text = world.run(&explain).await.out;
    assert!(
        text.contains("keeps its hold") && !text.contains("\n["),
        "{text}"
    );
    let report = world.run(&["stuck", "-ojson", &config]).await.json();
    for finalizer in [KUBERNETES, BELAYERS] {
        let next = group(&report, finalizer)["next"].to_string();
        assert!(!next.contains("kube-controller-manager"), "{next}");
        assert!(!next.contains(ANNOTATE), "{next}");
    }
}

/// Text above the groups does not take a number.
#[tokio::test(flavor = "multi_thread")]
async fn groups_of_explain_are_numbered_from_one() {
    let world = World::new().await;
    own_namespace(&world);
    leads(&world, "belayer-system", "belayer");
    pvc(
        &world,
        "data",
        &[BELAYERS, "example.com/a", "example.com/b"],
    );
    user_of(&world, &["data"]);
    deleted(&world, &PVCS, "data");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    assert_eq!(group(&report, BELAYERS)["number"], 1);
    let answer = world.run(&["explain", "pvc/data", "-n", "default"]).await;
    let text = answer.out;
    assert!(
        text.contains("\n[1] unknown: ") && text.contains("\n[2] unknown: "),
        "{text}"
    );
    assert!(!text.contains("[3]"), "{text}");
    assert!(
        text.contains("also [2]") && text.contains("also [1]"),
        "{text}"
    );
}

/// One controller of many in a process: whether or not the process is visible, the step names it.
#[rstest]
#[case::the_process_is_not_visible(false, "unknown")]
#[case::the_process_runs(true, "controller-alive")]
#[tokio::test(flavor = "multi_thread")]
async fn an_unused_pvc_names_the_responsible_controller(#[case] seen: bool, #[case] verdict: &str) {
    let world = World::new().await;
    if seen {
        leads(&world, "kube-system", "kube-controller-manager");
    }
    pvc(&world, "data", &[KUBERNETES]);
    deleted(&world, &PVCS, "data");
    let report = world.run(&["stuck", "-ojson"]).await.json();
    let group = group(&report, KUBERNETES);
    assert_eq!(group["verdict"], verdict, "{group:#}");
    let next = group["next"].to_string();
    let says = "The controller persistentvolumeclaim-protection-controller of \
                kube-controller-manager removes it";
    assert!(next.contains(says), "{group:#}");
    assert!(
        !next.contains("which controller") && !next.contains("unknown"),
        "{group:#}"
    );
}

/// Grants all permissions.
struct Anything;

impl Authorizer for Anything {
    fn ask<'a>(&'a self, _: &'a Permission, _: &'a Subject, _: &'a str) -> BoxFuture<'a, Ruling> {
        Box::pin(std::future::ready(Ruling::Granted))
    }
}

/// The findings of `check` about PVCs, at a time after now.
async fn checked(world: &World, keys: &str, later: i64) -> Vec<Finding> {
    checked_with(world, keys, "pvc-protection", later).await
}

/// The same, if these controllers run.
async fn checked_with(world: &World, keys: &str, controllers: &str, later: i64) -> Vec<Finding> {
    let (dir, _) = config(keys);
    let source = Source::load(&dir.path().join("belayer.yaml")).unwrap();
    let client = client::in_process(
        world.sandbox.service("viewer"),
        belayer_holds::names::USER_AGENT,
    );
    let query = Query {
        own_namespace: "belayer-system".to_owned(),
        subject: Subject::Own,
        parts: parts(&source, &Controllers::parse(&[controllers]).unwrap(), None).unwrap(),
        client: "test",
        now: Timestamp::now() + SignedDuration::from_secs(later),
    };
    let reader = Reader::new(client, Bounds::default());
    let report = check(&reader, &Anything, &query).await.unwrap();
    let part = report
        .parts
        .into_iter()
        .find(|part| part.name.starts_with("pvc-protection"));
    let findings = part.unwrap().findings.into_iter();
    findings
        .filter(|one| one.what.contains("PVC ") || one.what.contains("PVCs "))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn check_reports_pvcs_that_no_controller_releases() {
    let world = World::new().await;
    user_of(&world, &["used"]);
    for (name, finalizers) in [
        ("used", &[KUBERNETES][..]),
        ("unused", &[KUBERNETES]),
        // Other finalizers also keep these: that they are stuck proves nothing.
        ("ours", &[KUBERNETES, BELAYERS]),
        ("another", &[KUBERNETES, "example.com/a"]),
    ] {
        pvc(&world, name, finalizers);
        deleted(&world, &PVCS, name);
    }
    let beside = "pvcProtection:\n  finalizer: belayer.dev/pvc-protection\n";
    assert_eq!(
        checked(&world, beside, 10).await,
        [],
        "it may be on its way"
    );
    let found = checked(&world, beside, 120).await;
    let [one] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(one.level, Level::Missing);
    assert_eq!(
        one.what,
        "PVC default/unused is being deleted, no pod uses it, and no controller removes kubernetes.io/pvc-protection"
    );
    assert!(
        one.consequence
            .contains("persistentvolumeclaim-protection-controller does not seem to run")
    );
    assert!(
        one.fix
            .as_deref()
            .unwrap()
            .contains("switch it on, or set pvcProtection.finalizer")
    );
    pvc(&world, "bare", &["example.com/a"]);
    let found = checked(&world, beside, 10).await;
    assert_eq!(
        found[0].what,
        "1 PVC does not have kubernetes.io/pvc-protection"
    );
    // By default Belayer only advises: finalizers of an earlier configuration are reported as well.
    let found = checked(&world, "", 10).await;
    let told: Vec<&str> = found.iter().map(|one| one.what.as_str()).collect();
    assert_eq!(
        told,
        [
            "1 PVC does not have kubernetes.io/pvc-protection",
            "1 PVC still has belayer.dev/pvc-protection: default/ours",
        ]
    );
}

/// In place of Kubernetes' controller, Belayer removes the finalizer: unless it does not run, or is switched off.
#[rstest]
#[case::it_does_not_run("pvc-protection", "Belayer does not seem to run")]
#[case::it_is_switched_off("pod-finalizer", "pvc-protection is switched off by --controllers")]
#[tokio::test(flavor = "multi_thread")]
async fn check_reports_pvcs_that_belayer_does_not_release_in_place(
    #[case] controllers: &str,
    #[case] why: &str,
) {
    let world = World::new().await;
    user_of(&world, &["used"]);
    for name in ["used", "unused"] {
        pvc(&world, name, &[KUBERNETES]);
        deleted(&world, &PVCS, name);
    }
    pvc(&world, "bare", &["example.com/a"]);
    let in_place = "pvcProtection:\n  finalizer: kubernetes.io/pvc-protection\n";
    assert_eq!(checked_with(&world, in_place, controllers, 10).await, []);
    let found = checked_with(&world, in_place, controllers, 120).await;
    let [one] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(one.level, Level::Missing);
    assert!(
        one.what.contains("PVC default/unused is being deleted"),
        "{one:?}"
    );
    assert!(one.consequence.contains(why), "{one:?}");
    let fix = one.fix.as_deref().unwrap();
    assert!(
        fix.contains("persistentvolumeclaim-protection-controller"),
        "{fix}"
    );
}

/// No PVC is being deleted: those that are deleted after Belayer is removed would stay.
#[tokio::test(flavor = "multi_thread")]
async fn drain_hands_kubernetes_finalizer_over() {
    let world = World::new().await;
    own_namespace(&world);
    pvc(&world, "a", &[KUBERNETES]);
    pvc(&world, "b", &[KUBERNETES]);
    let (_dir, config) = in_place();
    let says = "2 PVCs keep kubernetes.io/pvc-protection, which Belayer managed in place of Kubernetes' own \
                controller: enable persistentvolumeclaim-protection-controller of kube-controller-manager before you \
                remove Belayer";
    let drain = ["drain", "--dry-run", "--yes", &config];
    let text = flat(&world.run(&drain).await.out);
    assert!(text.contains(says), "{text}");
    let report = world.run(&[&drain[..], &["-ojson"]].concat()).await.json();
    assert_eq!(report["notes"], json!([says]));
    assert_eq!(report["kubernetesFinalizers"], 2);
    let flag = "--pvc-protection-finalizer=kubernetes.io/pvc-protection";
    let text = flat(&world.run(&["drain", "--dry-run", "--yes", flag]).await.out);
    assert!(text.contains(says), "{text}");
    for arguments in [
        &["drain", "--dry-run", "--yes"][..],
        &["drain", "--dry-run", "--yes", "--unselected", &config],
    ] {
        let text = flat(&world.run(arguments).await.out);
        assert!(!text.contains("enable"), "{text}");
    }
}

/// The flag of `belayer run` decides the mode for the other commands as well.
#[rstest]
#[case::check(&["check", "--controllers=pvc-protection"], "persistentvolumeclaim-protection-controller is switched off")]
#[case::explain(&["explain", "pvc/data", "-n", "default"], "keeps its hold")]
#[case::stuck(&["stuck"], "Belayer pvc-protection")]
#[case::status(&["status"], "pvc-protection 1 1")]
#[tokio::test(flavor = "multi_thread")]
async fn the_flag_of_the_mode_is_read_by_every_command(
    #[case] command: &[&str],
    #[case] says: &str,
) {
    let world = World::new().await;
    own_namespace(&world);
    leads(&world, "belayer-system", "belayer");
    pvc(&world, "data", &[KUBERNETES]);
    user_of(&world, &["data"]);
    deleted(&world, &PVCS, "data");
    let without = flat(&world.run(command).await.out);
    assert!(!without.contains(says), "{without}");
    let flag = ["--pvc-protection-finalizer=kubernetes.io/pvc-protection"];
    let with = flat(&world.run(&[command, &flag[..]].concat()).await.out);
    assert!(with.contains(says), "{with}");
}
