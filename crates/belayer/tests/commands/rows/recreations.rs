//! The rules of pod-recreation: pods by the decision table of the hold, records by the state machine.

use belayer_pod_recreation::{api, row};

use super::*;

/// The UID of a pod that does not exist any more.
const GONE: &str = "60e00000-0000-4000-8000-000000000000";

/// The record of that pod, which had the name `a`.
const RECORD: &str = "a-60e00000";

fn hold(row: &'static Rule, action: &'static str) -> Expected {
    Expected::of("pod-recreation", row, action, "")
}

fn releases(row: &'static Rule, evidence: &'static str) -> Expected {
    Expected::of("pod-recreation", row, "release", AT_ONCE).on(evidence)
}

/// Metadata of a pod with the annotation and the hold.
fn metadata(more: Value) -> Value {
    let mut metadata = json!({
        "annotations": { "belayer.dev/recreate": "true" },
        "finalizers": ["belayer.dev/pod-recreation"],
    });
    for (key, value) in more.as_object().unwrap() {
        metadata[key] = value.clone();
    }
    metadata
}

/// The same for the pod of an attempt of [`RECORD`].
fn attempt(record: &str, number: u32) -> Value {
    metadata(json!({ "annotations": {
        "belayer.dev/recreate": "true", "belayer.dev/recreation": RECORD, "belayer.dev/recreation-uid": record,
        "belayer.dev/recreation-attempt": number.to_string(),
    } }))
}

fn rejected() -> Option<Value> {
    Some(json!({ "phase": "Failed", "reason": "OutOfcpu", "message": "no cpu" }))
}

fn running() -> Option<Value> {
    Some(json!({ "phase": "Running" }))
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
            "spec": { "podName": "a", "firstUID": first,
                "policy": { "maxRetries": 3, "wipe": "none" },
                "pod": { "spec": { "containers": [{ "name": "m", "image": "m" }] } } },
        });
        if status["conditions"][0]["type"] == "StateWiped" {
            object["spec"]["policy"]["wipe"] = json!("required");
        }
        if !status.is_null() {
            object["status"] = status;
        }
        self.create(&records(), "yard", object)
    }
}

fn record_of(uid: &str) -> String {
    api::record_name("a", uid)
}

/// Argo Workflows retries its pods itself, so the configuration must list them.
const WORKFLOWS_TOO: &str = "podRecreation: { owners: [Workflow.argoproj.io], allowArgo: true }\n";

#[rstest]
#[case::row_01_not_belayers(hold(row::NOT_OURS, "nothing"))]
#[case::row_02_requested_by_the_admin(releases(row::ADMIN_ASKED, "AdminAsked"))]
#[case::row_03_to_be_held(hold(row::ADD_HOLD, "add-hold"))]
#[case::row_04_its_record_is_gone(releases(row::RECORD_GONE, "RecordGone"))]
#[case::row_05_its_record_has_ended(releases(row::RECORD_ENDED, "RecordEnded"))]
#[case::row_06_deleted_to_be_recreated(releases(row::RECREATING, "Recreating"))]
#[case::row_07_of_an_attempt_that_was_given_up(releases(row::LEFTOVER, "Leftover"))]
#[case::row_08_deleted_before_a_rejection(releases(row::DELETED, "DeletedFirst"))]
#[case::row_09_started(releases(row::STARTED, "Started"))]
#[case::row_10_ended(releases(row::ENDED, "Ended"))]
#[case::row_11_not_requested_any_more(releases(row::UNSELECTED, "Unselected"))]
#[case::row_12_kept(Expected::of("pod-recreation", row::KEEP, "keep", "releases the pod once it has started").without("it has not started"))]
#[case::row_13_its_owner_ends(releases(row::OWNER_ENDS, "OwnerGone"))]
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_pod_recreation(#[context] case: Context, #[case] expected: Expected) {
    expected.is_named(&case);
    let stage = Stage::new().await;
    let none = json!({});
    let mut arguments = ["pod/a", "-n", "yard"].map(str::to_owned).to_vec();
    match expected.row {
        row::NOT_OURS => drop(stage.pod("yard", none, None)),
        row::ADMIN_ASKED => {
            let annotations = json!({ "annotations": { "belayer.dev/recreate": "true", "belayer.dev/release": "true" } });
            stage.pod("yard", metadata(annotations), None);
        }
        row::ADD_HOLD => drop(stage.pod("yard", metadata(json!({ "finalizers": [] })), None)),
        row::RECORD_GONE | row::RECORD_ENDED => {
            let record = stage.record(RECORD, GONE, json!({ "phase": "Started", "attempts": 1 }));
            let uid = match expected.row {
                row::RECORD_GONE => "another",
                _ => &record,
            };
            // A pod that has not started would be deleted, because it was created after the end of the record.
            stage.pod("yard", attempt(uid, 1), running());
        }
        row::RECREATING => {
            let uid = stage.pod("yard", metadata(none), rejected());
            let status = json!({ "phase": "Deleting", "rejectedUID": uid, "attempts": 0 });
            stage.record(&record_of(&uid), &uid, status);
            stage.delete(&Gvr::PODS, Some("yard"), "a");
        }
        row::LEFTOVER => {
            let status = json!({ "phase": "Creating", "attempts": 2, "rejectedUID": GONE });
            let record = stage.record(RECORD, GONE, status);
            stage.pod("yard", attempt(&record, 1), None);
            stage.delete(&Gvr::PODS, Some("yard"), "a");
        }
        row::DELETED => {
            stage.pod("yard", metadata(none), None);
            stage.delete(&Gvr::PODS, Some("yard"), "a");
        }
        row::STARTED => drop(stage.pod("yard", metadata(none), running())),
        row::ENDED => drop(stage.pod("yard", metadata(none), Some(json!({ "phase": "Failed" })))),
        row::UNSELECTED => drop(stage.pod("yard", metadata(json!({ "annotations": {} })), None)),
        row::KEEP => drop(stage.pod("yard", metadata(none), None)),
        row::OWNER_ENDS => {
            let owners = of("another", none)["ownerReferences"].take();
            stage.pod("yard", metadata(json!({ "ownerReferences": owners })), None);
            arguments.push(stage.config(WORKFLOWS_TOO));
        }
        row => panic!("{row}"),
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    stage.explain(&arguments, &expected).await;
}

const LONG_AGO: &str = "2020-01-01T00:00:00Z";

/// Which pod has the record's name, and its reference in the record's status.
/// A configuration may select it: without --config nothing shows that.
#[rstest]
#[case::held(json!(["belayer.dev/pod-recreation"]), true)]
#[case::neither_held_nor_rejected(json!([]), false)]
#[tokio::test(flavor = "multi_thread")]
async fn an_unselected_pod_names_the_default_configuration_if_it_matters(
    #[case] finalizers: Value,
    #[case] is_named: bool,
) {
    let stage = Stage::new().await;
    let unselected = json!({ "annotations": {}, "finalizers": finalizers });
    stage.pod("yard", metadata(unselected), None);
    let answer = stage.world.run(&["explain", "pod/a", "-n", "yard"]).await;
    let named = answer.has("decided by the default configuration");
    assert_eq!(named, is_named, "{}", answer.out);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Under {
    Nothing,
    /// The first one, rejected: `$pod`.
    Rejected,
    /// The first one, which runs: `$pod`.
    Running,
    /// The pod of an attempt: `$pod`.
    Attempt(u32),
    /// The pod of an attempt, which runs.
    AttemptRunning(u32),
    /// The pod of an attempt, rejected.
    AttemptRejected(u32),
}

fn step(row: &'static Rule, action: &'static str, next: &'static str) -> Expected {
    Expected::of("pod-recreation", row, action, next)
}

fn writes(row: &'static Rule) -> Expected {
    step(row, "write-status", "writes the record's status")
}

#[rstest]
#[case::row_20_nothing(Under::Nothing, json!({ "phase": "Ended", "finishedAt": "$now" }), step(row::NOTHING, "nothing", "nothing to do"))]
#[case::row_22_to_begin(Under::Rejected, Value::Null, writes(row::BEGIN))]
#[case::row_23_restored(Under::Nothing, Value::Null, step(row::ORPHAN, "nothing", "ignored").without("restored from a backup"))]
#[case::row_24_exhausted(Under::Rejected, json!({ "phase": "Rejected", "attempts": 3, "rejectedUID": "$pod" }), writes(row::EXHAUSTED))]
#[case::row_25_waits_for_the_wipe(
    Under::Rejected,
    json!({ "phase": "Rejected", "rejectedUID": "$pod", "nodeName": "n1", "conditions": [
        { "type": "StateWiped", "status": "False", "reason": "NotComplete", "message": "/ws/m is a mount", "lastTransitionTime": "$now" },
        { "type": "PodRejected", "status": "True", "lastTransitionTime": "$now" },
    ] }),
    step(row::WIPING, "nothing", "checks whether the node still exists").without(
        "the wipe of node n1 must end: /ws/m is a mount. 120 s after the rejection Belayer re-creates the pod, but never again \
         on that node (onWipeTimeout: proceed)"
    )
)]
#[case::row_26_to_be_tried(Under::Rejected, json!({ "phase": "Rejected", "attempts": 0, "rejectedUID": "$pod" }), step(row::INTEND, "write-status", "tries the create"))]
#[case::row_27_to_be_deleted(Under::Rejected, json!({ "phase": "Deleting", "rejectedUID": "$pod" }), step(row::DELETE, "delete-pod", "deletes the pod, by its UID"))]
#[case::row_28_gone(Under::Nothing, json!({ "phase": "Deleting", "rejectedUID": GONE }), writes(row::FREE))]
#[case::row_29_the_pause_runs(Under::Nothing, json!({ "phase": "Waiting", "attempts": 2, "podDeletionTime": "$now", "rejectedUID": GONE }), step(row::BACKOFF, "nothing", "checks again in"))]
#[case::row_30_to_be_reserved(Under::Nothing, json!({ "phase": "Waiting", "podDeletionTime": LONG_AGO, "rejectedUID": GONE }), step(row::RESERVE, "write-status", "reserves an attempt"))]
#[case::row_31_to_be_created(Under::Nothing, json!({ "phase": "Creating", "attempts": 1, "rejectedUID": GONE, "conditions": [{ "type": "HoldKept", "status": "True", "lastTransitionTime": LONG_AGO }] }), step(row::CREATE, "create-pod", "creates the pod"))]
#[case::row_32_created(Under::Attempt(1), json!({ "phase": "Creating", "attempts": 1, "rejectedUID": GONE }), writes(row::RECREATED))]
#[case::row_33_started(Under::AttemptRunning(1), json!({ "phase": "Recreated", "attempts": 1, "podUID": "$pod" }), writes(row::POD_STARTED))]
#[case::row_34_rejected_again(Under::AttemptRejected(1), json!({ "phase": "Recreated", "attempts": 1, "podUID": "$pod" }), writes(row::REJECTED_AGAIN))]
#[case::row_35_deleted_by_a_user(Under::Nothing, json!({ "phase": "Rejected", "rejectedUID": GONE }), writes(row::CANCELLED))]
#[case::row_36_denied_for_too_long(
    Under::Nothing,
    json!({ "phase": "Creating", "attempts": 1, "rejectedUID": GONE, "conditions": [
        { "type": "HoldKept", "status": "True", "lastTransitionTime": LONG_AGO },
        { "type": "CreateDenied", "status": "True", "message": "quota", "lastTransitionTime": LONG_AGO },
    ] }),
    writes(row::DENIED)
)]
#[case::row_37_an_old_attempt_in_the_way(Under::Attempt(1), json!({ "phase": "Creating", "attempts": 2, "rejectedUID": GONE }), step(row::OLD_ATTEMPT, "delete-pod", "deletes the pod, by its UID"))]
#[case::row_38_to_be_annotated(Under::Rejected, json!({ "phase": "Ended", "message": "why", "rejectedUID": "$pod" }), step(row::MARK, "annotate-pod", "annotates the pod with the reason"))]
#[case::row_39_expired(Under::Nothing, json!({ "phase": "Ended", "finishedAt": LONG_AGO }), step(row::EXPIRED, "delete", "deletes the record"))]
#[case::row_40_it_runs_after_all(Under::Running, json!({ "phase": "Rejected", "rejectedUID": "$pod" }), writes(row::REPORTED))]
#[case::row_41_created_after_the_end(Under::Attempt(1), json!({ "phase": "Ended", "attempts": 1, "rejectedUID": GONE, "finishedAt": "$now" }), step(row::IN_VAIN, "delete-pod", "deletes the pod, by its UID"))]
#[case::row_42_its_hold_may_have_been_lost(
    Under::Nothing,
    json!({ "phase": "Creating", "attempts": 1, "rejectedUID": GONE }),
    writes(row::HOLD_LOST)
)]
#[tokio::test(flavor = "multi_thread")]
async fn records_of_pod_recreation(
    #[context] case: Context,
    #[case] under: Under,
    #[case] status: Value,
    #[case] expected: Expected,
) {
    expected.is_named(&case);
    let stage = Stage::new().await;
    let now = jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    let status = |pod: &str| -> Value {
        let text = status.to_string();
        serde_json::from_str(&text.replace("$pod", pod).replace("$now", &now)).unwrap()
    };
    let name = match under {
        Under::Nothing => {
            stage.record(RECORD, GONE, status(GONE));
            RECORD.to_owned()
        }
        Under::Rejected | Under::Running => {
            let status_of_pod = match under {
                Under::Running => running(),
                _ => rejected(),
            };
            let pod = stage.pod("yard", metadata(json!({})), status_of_pod);
            stage.record(&record_of(&pod), &pod, status(&pod));
            record_of(&pod)
        }
        Under::Attempt(number) | Under::AttemptRunning(number) | Under::AttemptRejected(number) => {
            let record = stage.record(RECORD, GONE, Value::Null);
            let status_of_pod = match under {
                Under::AttemptRunning(_) => running(),
                Under::AttemptRejected(_) => rejected(),
                _ => None,
            };
            let pod = stage.pod("yard", attempt(&record, number), status_of_pod);
            stage.status(&records(), "yard", RECORD, status(&pod));
            RECORD.to_owned()
        }
    };
    let name = format!("podrecreation/{name}");
    stage.explain(&[&name, "-n", "yard"], &expected).await;
}

/// The next step for a rejected pod is shown with its hold. Row 21 is about a pod without a record: there is no
/// other object to explain.
#[rstest]
#[case::row_21_without_a_record(
    false,
    "the pod was rejected and has no record yet: a running Belayer writes its record"
)]
#[case::row_22_with_a_record_without_status(
    true,
    "the record has no status yet: a running Belayer writes the record's status"
)]
#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_pod_shows_its_next_step(#[case] recorded: bool, #[case] text: &str) {
    let stage = Stage::new().await;
    let uid = stage.pod("yard", metadata(json!({})), rejected());
    if recorded {
        stage.record(&record_of(&uid), &uid, Value::Null);
    }
    let kept = Expected::of("pod-recreation", row::KEEP, "keep", "re-creates it first").without("");
    stage.explain(&["pod/a", "-n", "yard"], &kept).await;
    let answer = stage.world.run(&["explain", "pod/a", "-n", "yard"]).await;
    assert!(answer.has(text), "{}{}", answer.out, answer.err);
}

/// The hold of a pod whose rejection is recorded waits for the steps of the record, not for the record.
#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_pod_names_its_record() {
    let stage = Stage::new().await;
    let uid = stage.pod("yard", metadata(json!({})), rejected());
    let status = json!({ "phase": "Rejected", "attempts": 0, "rejectedUID": uid });
    stage.record(&record_of(&uid), &uid, status);
    let missing = format!(
        "the steps of its record must end (see PodRecreation {})",
        record_of(&uid)
    );
    let next = "Belayer deletes the rejected pod and creates it again; the hold is removed then";
    let kept = Expected::of("pod-recreation", row::KEEP, "keep", next).without(missing.leak());
    stage.explain(&["pod/a", "-n", "yard"], &kept).await;
}

/// The required change is shown for the pod, for its record, and for a pod that does not exist.
#[tokio::test(flavor = "multi_thread")]
async fn a_denied_pod_is_explained() {
    const DENIED: &str = "which it has denied for";
    let stage = Stage::new().await;
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    let denied = |phase: &str, uid: &str| {
        json!({ "phase": phase, "attempts": 0, "rejectedUID": uid, "conditions": [{
            "type": "CreateDenied", "status": "True", "reason": "Refused",
            "message": "denied by the team's policy", "lastTransitionTime": now.to_string(),
        }] })
    };
    let uid = stage.pod("yard", metadata(json!({})), rejected());
    let record = record_of(&uid);
    stage.record(&record, &uid, denied("Rejected", &uid));
    let named = format!("podrecreation/{record}");
    for object in ["pod/a", &named] {
        let answer = stage.world.run(&["explain", object, "-n", "yard"]).await;
        let text = answer.out.split_whitespace().collect::<Vec<_>>().join(" ");
        for says in [DENIED, "denied by the team's policy", "Belayer tries again"] {
            assert!(
                text.contains(says),
                "{object}: {}{}",
                answer.out,
                answer.err
            );
        }
    }
    let absent = stage.world.run(&["explain", "pod/b", "-n", "yard"]).await;
    assert_eq!(absent.code, 1);
    assert!(!absent.err.contains("podrecreation"), "{}", absent.err);
    stage.patch(
        &Gvr::PODS,
        "yard",
        "a",
        json!({ "metadata": { "finalizers": null } }),
        Subresource::None,
    );
    stage.delete(&Gvr::PODS, Some("yard"), "a");
    stage.status(&records(), "yard", &record, denied("Waiting", &uid));
    let absent = stage.world.run(&["explain", "pod/a", "-n", "yard"]).await;
    assert_eq!(absent.code, 1, "{}", absent.out);
    let says = format!(
        "pods yard/a does not exist; see the record of its re-creation: belayer explain {named} -n yard"
    );
    assert!(absent.err.contains(&says), "{}", absent.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recreation_that_waits_for_the_end_of_a_drain_is_explained() {
    const MISSING: &str = "the drain must end (belayer drain --resume)";
    let stage = Stage::new().await;
    let status = json!({ "phase": "Waiting", "podDeletionTime": LONG_AGO, "rejectedUID": GONE });
    stage.record(RECORD, GONE, status);
    let object = format!("podrecreation/{RECORD}");
    let explain = ["explain", &object, "-n", "yard", "-ojson"];
    let missing = |answer: &Value| answer["belayer"][0]["missing"].to_string();
    let before = stage.world.run(&explain).await.json();
    assert!(!missing(&before).contains(MISSING), "{before:#}");
    stage
        .world
        .gate("belayer-system", &json!({ "mode": "draining" }));
    let drained = stage.world.run(&explain).await.json();
    assert!(missing(&drained).contains(MISSING), "{drained:#}");
    let ended = json!({ "phase": "Ended", "finishedAt": LONG_AGO });
    stage.status(&records(), "yard", RECORD, ended);
    let ended = stage.world.run(&explain).await.json();
    assert!(!missing(&ended).contains(MISSING), "{ended:#}");
}
