//! `explain` on an object at each row of every decision table: the rule, what is done, the
//! evidence or what is missing, and what comes next.

use belayer_sandbox::{Actor, Gvr, Patch, Subresource};
use rstest::rstest;
use serde_json::{Value, json};

use crate::world::World;

const WORKFLOW: &str = "workflows.argoproj.io/workflow";

/// What is expected of the component's word.
struct Expected {
    component: &'static str,
    row: u64,
    action: &'static str,
    evidence: Option<&'static str>,
    /// Words in what is missing; `None` if nothing is.
    missing: Option<&'static str>,
    /// Words in what comes next.
    next: &'static str,
}

struct Stage {
    world: World,
    dir: tempfile::TempDir,
}

impl Stage {
    async fn new() -> Self {
        let stage = Self {
            world: World::new().await,
            dir: tempfile::tempdir().unwrap(),
        };
        for definition in [
            "e2e/manifests/workflow-crd.yaml",
            "deploy/manifests/podoutcome-crd.yaml",
            "deploy/manifests/crd-pod-recreation.yaml",
        ] {
            let path = format!("{}/../../{definition}", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
                if object["kind"] == "CustomResourceDefinition" {
                    stage
                        .world
                        .create(&Gvr::CUSTOMRESOURCEDEFINITIONS, None, object);
                }
            }
        }
        for (name, labels) in [
            ("yard", json!({})),
            ("ignored", json!({ "belayer.dev/ignore": "true" })),
            ("doomed", json!({})),
        ] {
            let namespace = json!({ "metadata": { "name": name, "labels": labels } });
            stage.world.create(&Gvr::NAMESPACES, None, namespace);
        }
        stage
    }

    fn create(&self, gvr: &Gvr, namespace: &str, object: Value) -> String {
        let status = object.get("status").cloned();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.world.create(gvr, Some(namespace), object);
        if let Some(status) = status {
            self.patch(
                gvr,
                namespace,
                &name,
                json!({ "status": status }),
                Subresource::Status,
            );
        }
        let found = self
            .world
            .sandbox
            .cluster()
            .get(gvr, Some(namespace), &name)
            .unwrap();
        found["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    fn patch(&self, gvr: &Gvr, namespace: &str, name: &str, patch: Value, part: Subresource) {
        let cluster = self.world.sandbox.cluster();
        let (actor, options) = (Actor::new("test"), Default::default());
        cluster
            .patch(
                &actor,
                gvr,
                Some(namespace),
                name,
                Patch::Merge(patch),
                part,
                &options,
            )
            .unwrap();
    }

    fn delete(&self, gvr: &Gvr, namespace: Option<&str>, name: &str) {
        let cluster = self.world.sandbox.cluster();
        let (actor, options) = (Actor::new("test"), Default::default());
        cluster
            .delete(&actor, gvr, namespace, name, &options)
            .unwrap();
    }

    fn workflow(&self, namespace: &str, mut metadata: Value) -> String {
        metadata["name"] = json!("build");
        let object = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": {},
        });
        self.create(&workflows(), namespace, object)
    }

    /// A pod `a`, unless named otherwise.
    fn pod(&self, namespace: &str, mut metadata: Value, status: Option<Value>) -> String {
        if metadata["name"].is_null() {
            metadata["name"] = json!("a");
        }
        let mut object = json!({
            "metadata": metadata,
            "spec": { "nodeName": "n1", "containers": [{ "name": "m", "image": "m" }] },
        });
        if let Some(status) = status {
            object["status"] = status;
        }
        self.create(&Gvr::PODS, namespace, object)
    }

    fn config(&self, keys: &str) -> String {
        let path = self.dir.path().join("belayer.yaml");
        std::fs::write(
            &path,
            format!("apiVersion: config.belayer.dev/v1alpha1\n{keys}"),
        )
        .unwrap();
        format!("--config={}", path.display())
    }

    async fn explain(&self, arguments: &[&str], expected: &Expected) {
        let mut all = vec!["explain"];
        all.extend(arguments);
        all.push("-ojson");
        let answer = self.world.run(&all).await;
        assert!(
            [0, 3].contains(&answer.code),
            "{}{}",
            answer.out,
            answer.err
        );
        let explanation = answer.json();
        let said = explanation["belayer"].as_array().unwrap();
        let said = said
            .iter()
            .find(|said| said["component"] == expected.component)
            .unwrap_or_else(|| panic!("{} says nothing: {explanation:#}", expected.component));
        assert_eq!(said["row"]["number"], expected.row, "{said:#}");
        assert_eq!(said["action"], expected.action, "{said:#}");
        assert_eq!(said["evidence"].as_str(), expected.evidence, "{said:#}");
        assert_ne!(said["row"]["says"], "see the decision table", "{said:#}");
        let missing = said["missing"]
            .as_array()
            .map(|missing| json!(missing).to_string());
        match (expected.missing, missing) {
            (None, None) => {}
            (Some(words), Some(missing)) if missing.contains(words) => {}
            other => panic!("missing: {other:?} in {said:#}"),
        }
        let next = said["next"].as_str().unwrap();
        assert!(next.contains(expected.next), "{said:#}");
    }
}

fn workflows() -> Gvr {
    Gvr::new("argoproj.io", "v1alpha1", "workflows")
}

const AT_ONCE: &str = "a running Belayer takes the hold off at once";

fn pod_finalizer(row: u64, action: &'static str) -> Expected {
    Expected {
        component: "pod-finalizer",
        row,
        action,
        evidence: None,
        missing: None,
        next: match action {
            "release" => AT_ONCE,
            "add-hold" => "adds the hold at once",
            "record" | "delete" => "does so at once",
            "keep" => "lets go when what is missing is there",
            _ => "nothing",
        },
    }
}

fn releases(row: u64, evidence: &'static str) -> Expected {
    Expected {
        evidence: Some(evidence),
        ..pod_finalizer(row, "release")
    }
}

fn keeps(row: u64, missing: &'static str) -> Expected {
    Expected {
        missing: Some(missing),
        ..pod_finalizer(row, "keep")
    }
}

/// Metadata of a pod of the workflow with this UID.
fn of(workflow: &str, more: Value) -> Value {
    let mut metadata = json!({
        "labels": { WORKFLOW: "build" },
        "finalizers": ["belayer.dev/pod-status"],
        "ownerReferences": [{
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "build",
            "uid": workflow, "controller": true,
        }],
    });
    for (key, value) in more.as_object().unwrap() {
        metadata[key] = value.clone();
    }
    metadata
}

fn ended() -> Option<Value> {
    Some(json!({
        "phase": "Succeeded",
        "containerStatuses": [{
            "name": "m", "image": "m", "imageID": "m", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": 0, "reason": "Completed",
                "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:00Z" } },
        }],
    }))
}

const CAPTURE: &str = "podFinalizer:\n  profiles:\n  - builtIn: argo\n    capture: true\n";
const CLEANUP: &str = "podFinalizer:\n  profiles:\n  - builtIn: argo\n    cleanup: argo\n";

#[rstest]
#[case::row_01_not_ours(1, pod_finalizer(1, "nothing"))]
#[case::row_02_the_admin_asks(2, releases(2, "AdminAsked"))]
#[case::row_03_its_namespace_goes(3, releases(3, "NamespaceTerminating"))]
#[case::row_04_not_selected_any_more(4, releases(4, "Unselected"))]
#[case::row_05_its_owner_is_gone(5, releases(5, "OwnerGone"))]
#[case::row_06_its_owner_is_being_deleted(6, releases(6, "OwnerDeleting"))]
#[case::row_07_its_outcome_is_not_recorded(7, pod_finalizer(7, "record"))]
#[case::row_08_no_owner(8, releases(8, "NoOwner"))]
#[case::row_09_its_consumer_took_the_result(9, releases(9, "Consumed"))]
#[case::row_10_its_node_is_fulfilled(10, releases(10, "Consumed"))]
#[case::row_12_kept(12, keeps(12, "its consumer to take the result"))]
#[case::row_13_to_be_held(13, pod_finalizer(13, "add-hold"))]
#[case::row_14_too_late(14, pod_finalizer(14, "nothing"))]
#[case::row_15_to_be_cleaned_up(15, pod_finalizer(15, "delete"))]
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_pod_finalizer(#[case] row: u8, #[case] expected: Expected) {
    let stage = Stage::new().await;
    let finishing = json!({ "finalizers": ["example.com/keep"] });
    let uid = stage.workflow(if row == 3 { "doomed" } else { "yard" }, finishing);
    let none = json!({});
    let mut arguments = vec!["pod/a".to_owned(), "-n".to_owned(), "yard".to_owned()];
    match row {
        1 => drop(stage.pod("yard", none, None)),
        2 => {
            let asks = json!({ "annotations": { "belayer.dev/release": "true" } });
            stage.pod("yard", of(&uid, asks), None);
        }
        3 => {
            stage.pod("doomed", of(&uid, none), None);
            stage.delete(&Gvr::NAMESPACES, None, "doomed");
            arguments[2] = "doomed".to_owned();
        }
        4 => drop(stage.pod("yard", of(&uid, json!({ "labels": {} })), None)),
        5 => drop(stage.pod("yard", of("another", none), None)),
        6 => {
            stage.pod("yard", of(&uid, none), None);
            stage.delete(&workflows(), Some("yard"), "build");
        }
        7 => {
            stage.pod("yard", of(&uid, none), ended());
            arguments.push(stage.config(CAPTURE));
        }
        8 => drop(stage.pod("yard", of(&uid, json!({ "ownerReferences": [] })), None)),
        9 => {
            let taken = json!({ "labels": { WORKFLOW: "build", "workflows.argoproj.io/completed": "true" } });
            stage.pod("yard", of(&uid, taken), None);
        }
        10 => {
            let node = json!({ "annotations": { "workflows.argoproj.io/node-id": "build-1" } });
            stage.pod("yard", of(&uid, node), ended());
            let nodes = json!({ "status": { "nodes": { "build-1": { "phase": "Succeeded" } } } });
            stage.patch(&workflows(), "yard", "build", nodes, Subresource::None);
        }
        12 => drop(stage.pod("yard", of(&uid, none), None)),
        13 => drop(stage.pod("yard", of(&uid, json!({ "finalizers": [] })), None)),
        14 => {
            stage.pod(
                "yard",
                of(&uid, json!({ "finalizers": ["example.com/keep"] })),
                None,
            );
            stage.delete(&Gvr::PODS, Some("yard"), "a");
        }
        15 => {
            let due = json!({
                "finalizers": [],
                "labels": { WORKFLOW: "build", "workflows.argoproj.io/completed": "true" },
                "annotations": { "workflows.argoproj.io/pod-gc-strategy": "OnPodCompletion/0s" },
            });
            stage.pod("yard", of(&uid, due), ended());
            arguments.push(stage.config(CLEANUP));
        }
        row => panic!("row {row}"),
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    stage.explain(&arguments, &expected).await;
}

/// Twenty at once may be let go, twenty-one look like a mistake.
#[rstest]
#[case::few(20, releases(4, "Unselected"))]
#[case::many(21, keeps(4, "mistyped selector"))]
#[tokio::test(flavor = "multi_thread")]
async fn row_04_so_many_at_once_are_kept(#[case] pods: usize, #[case] expected: Expected) {
    let stage = Stage::new().await;
    for index in 0..pods {
        let held = json!({ "name": format!("p{index}"), "finalizers": ["belayer.dev/pod-status"] });
        stage.pod("yard", held, None);
    }
    stage.explain(&["pod/p0", "-n", "yard"], &expected).await;
}

fn workflow_finalizer(row: u64, action: &'static str, next: &'static str) -> Expected {
    Expected {
        component: "workflow-finalizer",
        next,
        ..pod_finalizer(row, action)
    }
}

#[rstest]
#[case::row_01_not_selected_any_more(1, workflow_finalizer(1, "release", AT_ONCE))]
#[case::row_02_to_be_held(2, workflow_finalizer(2, "add-hold", "adds the hold at once"))]
#[case::row_03_deleted_without_a_hold(3, workflow_finalizer(3, "nothing", "nothing"))]
#[case::row_04_pods_are_still_held(4, Expected { missing: Some("pods"), ..workflow_finalizer(4, "keep", "releases its pods first") })]
#[case::row_05_no_pod_is_held(5, workflow_finalizer(5, "release", AT_ONCE))]
#[case::row_06_with_its_namespace(6, workflow_finalizer(6, "release", AT_ONCE))]
#[case::row_07_as_it_should_be(7, workflow_finalizer(7, "keep", "nothing, until it is deleted"))]
#[tokio::test(flavor = "multi_thread")]
async fn workflows_of_workflow_finalizer(#[case] row: u8, #[case] mut expected: Expected) {
    let stage = Stage::new().await;
    let held = json!({ "finalizers": ["belayer.dev/workflow-cleanup"] });
    let place = match row {
        1 => "ignored",
        6 => "doomed",
        _ => "yard",
    };
    let uid = match row {
        2 => stage.workflow(place, json!({})),
        3 => stage.workflow(place, json!({ "finalizers": ["example.com/keep"] })),
        _ => stage.workflow(place, held),
    };
    if row == 4 {
        stage.pod(place, of(&uid, json!({})), None);
    }
    if [3, 4, 5, 6].contains(&row) {
        stage.delete(&workflows(), Some(place), "build");
    }
    if row == 6 {
        stage.delete(&Gvr::NAMESPACES, None, "doomed");
    }
    expected.evidence = match row {
        1 => Some("Unselected"),
        5 | 6 => Some("NoPodHeld"),
        _ => None,
    };
    stage
        .explain(&["workflow/build", "-n", place], &expected)
        .await;
}

fn pvc_protection(row: u64, action: &'static str, next: &'static str) -> Expected {
    Expected {
        component: "pvc-protection",
        next,
        ..pod_finalizer(row, action)
    }
}

#[rstest]
#[case::row_02_to_be_held(2, pvc_protection(2, "add-hold", "adds the hold at once"))]
#[case::row_03_in_use(3, Expected { missing: Some("db-0"), ..pvc_protection(3, "keep", "when the last of these pods is gone") })]
#[case::row_04_not_in_use(4, Expected { evidence: Some("Unused"), ..pvc_protection(4, "release", AT_ONCE) })]
#[case::row_05_as_it_should_be(5, pvc_protection(5, "keep", "nothing, until it is deleted"))]
#[tokio::test(flavor = "multi_thread")]
async fn claims_of_pvc_protection(#[case] row: u8, #[case] expected: Expected) {
    let stage = Stage::new().await;
    let finalizers = if row == 2 {
        json!([])
    } else {
        json!(["belayer.dev/pvc-protection"])
    };
    let claims = Gvr::new("", "v1", "persistentvolumeclaims");
    let claim = json!({
        "metadata": { "name": "data", "finalizers": finalizers },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    stage.create(&claims, "yard", claim);
    if row == 3 {
        stage.world.create(
            &Gvr::PODS,
            Some("yard"),
            json!({
                "metadata": { "name": "db-0" },
                "spec": {
                    "nodeName": "n1", "containers": [{ "name": "m", "image": "m" }],
                    "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
                },
            }),
        );
    }
    if [3, 4].contains(&row) {
        stage.delete(&claims, Some("yard"), "data");
    }
    stage.explain(&["pvc/data", "-n", "yard"], &expected).await;
}

/// Row 1 is about a claim that is not there: there is nothing to explain.
#[tokio::test(flavor = "multi_thread")]
async fn row_01_a_claim_that_is_not_there_is_an_error() {
    let stage = Stage::new().await;
    let answer = stage
        .world
        .run(&["explain", "pvc/data", "-n", "yard"])
        .await;
    assert_eq!(answer.code, 1);
}

fn pod_recreation(row: u64, action: &'static str, evidence: Option<&'static str>) -> Expected {
    Expected {
        component: "pod-recreation",
        evidence,
        next: match action {
            "keep" => "lets go once it has started",
            _ => "",
        },
        missing: (action == "keep").then_some(""),
        ..pod_finalizer(row, action)
    }
}

/// Metadata of a pod that asks for re-creation and is held.
fn asks(more: Value) -> Value {
    let mut metadata = json!({
        "annotations": { "belayer.dev/recreate": "true" },
        "finalizers": ["belayer.dev/pod-recreation"],
    });
    for (key, value) in more.as_object().unwrap() {
        metadata[key] = value.clone();
    }
    metadata
}

fn rejected() -> Option<Value> {
    Some(json!({ "phase": "Failed", "reason": "OutOfcpu", "message": "no cpu" }))
}

fn records() -> Gvr {
    Gvr::new("belayer.dev", "v1alpha1", "podrecreations")
}

impl Stage {
    /// A record of the pod `a` with this first UID.
    fn record(&self, name: &str, first: &str, status: Value) -> String {
        let mut object = json!({
            "apiVersion": "belayer.dev/v1alpha1", "kind": "PodRecreation",
            "metadata": { "name": name },
            "spec": { "podName": "a", "firstUID": first, "policy": { "maxRetries": 3 },
                "pod": { "spec": { "containers": [{ "name": "m", "image": "m" }] } } },
        });
        if !status.is_null() {
            object["status"] = status;
        }
        self.create(&records(), "yard", object)
    }
}

fn record_of(uid: &str) -> String {
    belayer_pod_recreation::api::record_name("a", uid)
}

#[rstest]
#[case::row_01_not_ours(1, pod_recreation(1, "nothing", None))]
#[case::row_02_the_admin_asks(2, pod_recreation(2, "release", Some("AdminAsked")))]
#[case::row_03_to_be_held(3, pod_recreation(3, "add-hold", None))]
#[case::row_04_its_record_is_gone(4, pod_recreation(4, "release", Some("RecordGone")))]
#[case::row_05_its_record_has_ended(5, pod_recreation(5, "release", Some("RecordEnded")))]
#[case::row_06_deleted_to_be_recreated(6, pod_recreation(6, "release", Some("Recreating")))]
#[case::row_08_deleted_before_a_rejection(8, pod_recreation(8, "release", Some("DeletedFirst")))]
#[case::row_09_started(9, pod_recreation(9, "release", Some("Started")))]
#[case::row_10_ended(10, pod_recreation(10, "release", Some("Ended")))]
#[case::row_11_nobody_asks_any_more(11, pod_recreation(11, "release", Some("Unselected")))]
#[case::row_12_kept(12, pod_recreation(12, "keep", None))]
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_pod_recreation(#[case] row: u8, #[case] expected: Expected) {
    let stage = Stage::new().await;
    let none = json!({});
    match row {
        1 => drop(stage.pod("yard", none, None)),
        2 => {
            let lets = json!({ "annotations": { "belayer.dev/recreate": "true", "belayer.dev/release": "true" } });
            stage.pod("yard", asks(lets), None);
        }
        3 => drop(stage.pod("yard", asks(json!({ "finalizers": [] })), None)),
        4 | 5 => {
            let record = stage.record("a-1", "first", json!({ "phase": "Started", "attempts": 1 }));
            let uid = if row == 4 { "another" } else { &record };
            let mark = json!({ "annotations": {
                "belayer.dev/recreation": "a-1", "belayer.dev/recreation-uid": uid,
                "belayer.dev/recreation-attempt": "1",
            } });
            // One that has not started would be deleted: it came after the end.
            stage.pod("yard", asks(mark), Some(json!({ "phase": "Running" })));
        }
        6 => {
            let uid = stage.pod("yard", asks(none), rejected());
            let status = json!({ "phase": "Deleting", "rejectedUID": uid, "attempts": 0 });
            stage.record(&record_of(&uid), &uid, status);
            stage.delete(&Gvr::PODS, Some("yard"), "a");
        }
        8 => {
            stage.pod("yard", asks(none), None);
            stage.delete(&Gvr::PODS, Some("yard"), "a");
        }
        9 => drop(stage.pod("yard", asks(none), Some(json!({ "phase": "Running" })))),
        10 => drop(stage.pod("yard", asks(none), Some(json!({ "phase": "Failed" })))),
        11 => drop(stage.pod("yard", asks(json!({ "annotations": {} })), None)),
        12 => drop(stage.pod("yard", asks(none), None)),
        row => panic!("row {row}"),
    }
    stage.explain(&["pod/a", "-n", "yard"], &expected).await;
}

const LONG_AGO: &str = "2020-01-01T00:00:00Z";

fn machine(row: u64, action: &'static str, next: &'static str) -> Expected {
    Expected {
        component: "pod-recreation",
        next,
        ..pod_finalizer(row, action)
    }
}

#[rstest]
#[case::row_24_exhausted(json!({ "phase": "Rejected", "attempts": 3, "rejectedUID": "$uid" }), machine(24, "record", "writes the record's status"))]
#[case::row_26_tried(json!({ "phase": "Rejected", "attempts": 0, "rejectedUID": "$uid" }), machine(26, "record", "tries the create"))]
#[case::row_27_to_be_deleted(json!({ "phase": "Deleting", "rejectedUID": "$uid" }), machine(27, "record", "deletes the pod, by its UID"))]
#[case::row_28_gone(json!({ "phase": "Deleting", "rejectedUID": "gone" }), machine(28, "record", "writes the record's status"))]
#[case::row_30_to_be_reserved(json!({ "phase": "Waiting", "podDeletionTime": LONG_AGO, "rejectedUID": "gone" }), machine(30, "record", "reserves an attempt"))]
#[case::row_31_to_be_created(json!({ "phase": "Creating", "attempts": 1, "rejectedUID": "gone" }), machine(31, "record", "creates the pod"))]
#[case::row_39_expired(json!({ "phase": "Ended", "finishedAt": LONG_AGO }), machine(39, "delete", "deletes the record"))]
#[case::row_20_nothing(json!({ "phase": "Ended", "finishedAt": "$now" }), machine(20, "nothing", "nothing to do"))]
#[tokio::test(flavor = "multi_thread")]
async fn records_of_pod_recreation(#[case] status: Value, #[case] expected: Expected) {
    let stage = Stage::new().await;
    let text = status.to_string();
    let uid = if text.contains("$uid") {
        stage.pod("yard", asks(json!({})), rejected())
    } else {
        "gone".to_owned()
    };
    let now = jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    let status: Value =
        serde_json::from_str(&text.replace("$uid", &uid).replace("$now", &now)).unwrap();
    stage.record(&record_of(&uid), &uid, status);
    let name = format!("podrecreation/{}", record_of(&uid));
    stage.explain(&[&name, "-n", "yard"], &expected).await;
}

/// A record without its pod says nothing to anybody.
#[tokio::test(flavor = "multi_thread")]
async fn row_23_a_restored_record_is_told_as_such() {
    let stage = Stage::new().await;
    stage.record("a-1", "first", Value::Null);
    let expected = Expected {
        missing: Some("restored or made by hand"),
        ..machine(23, "nothing", "ignored")
    };
    stage
        .explain(&["podrecreation/a-1", "-n", "yard"], &expected)
        .await;
}

/// What happens to a rejected pod besides its hold is said with it.
#[rstest]
#[case::row_21_without_a_record(
    false,
    "it was rejected and has no record yet: a running Belayer writes its record"
)]
#[case::row_22_with_one_that_says_nothing(
    true,
    "its record says nothing yet: a running Belayer writes the record's status"
)]
#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_pod_is_told_its_next_step(#[case] recorded: bool, #[case] says: &str) {
    let stage = Stage::new().await;
    let uid = stage.pod("yard", asks(json!({})), rejected());
    if recorded {
        stage.record(&record_of(&uid), &uid, Value::Null);
    }
    let answer = stage.world.run(&["explain", "pod/a", "-n", "yard"]).await;
    assert!(answer.out.contains(says), "{}{}", answer.out, answer.err);
}

/// The rule is the same whether anybody is there to follow it; what keeps the object is not.
#[rstest]
#[case::down(0, "controller-down", "pods ready")]
#[case::up(1, "held-by-belayer", "row 5 (owner-gone)")]
#[tokio::test(flavor = "multi_thread")]
async fn controllers_up_or_down(#[case] ready: u32, #[case] verdict: &str, #[case] proof: &str) {
    let stage = Stage::new().await;
    let namespace = json!({ "metadata": { "name": "belayer-system" } });
    stage.world.create(&Gvr::NAMESPACES, None, namespace);
    stage.create(
        &Gvr::new("apps", "v1", "deployments"),
        "belayer-system",
        json!({
            "metadata": { "name": "belayer" },
            "spec": { "replicas": 1, "selector": { "matchLabels": { "a": "b" } },
                "template": { "metadata": { "labels": { "a": "b" } },
                    "spec": { "containers": [{ "name": "b", "image": "belayer/belayer:0.1.0" }] } } },
            "status": { "replicas": 1, "readyReplicas": ready },
        }),
    );
    // On no node, so that it has no grace.
    let mut metadata = of("another", json!({}));
    metadata["name"] = json!("a");
    let pod = json!({
        "metadata": metadata, "spec": { "containers": [{ "name": "m", "image": "m" }] },
    });
    stage.create(&Gvr::PODS, "yard", pod);
    stage.delete(&Gvr::PODS, Some("yard"), "a");
    let arguments = ["pod/a", "-n", "yard"];
    stage.explain(&arguments, &releases(5, "OwnerGone")).await;
    let answer = stage
        .world
        .run(&["explain", "pod/a", "-n", "yard", "-ojson"])
        .await;
    let group = &answer.json()["groups"][0];
    assert_eq!(group["verdict"], verdict, "{group:#}");
    assert!(group["proof"].to_string().contains(proof), "{group:#}");
}
