//! ONE-POD, NO-LOSS and RAN-ONCE: the invariants of re-creating a pod.

use belayer_holds::names::IGNORE_LABEL;
use belayer_sandbox::{Gvr, Verb};
use belayer_workload::USER;
use rstest::rstest;
use serde_json::{Value, json};

use super::script::{Script, deleting, failed};
use crate::{BELAYER, RECREATION_HOLD, Why};

const NODE: &str = "kubelet/node-1";

fn records() -> Gvr {
    Gvr::new("belayer.dev", "v1alpha1", "podrecreations")
}

/// A bare pod that requests re-creation.
fn pod(uid: &str, finalizers: &[&str]) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {
            "namespace": "a", "name": "train-0", "uid": uid, "finalizers": finalizers,
            "annotations": {"belayer.dev/recreate": "true", "note": "mine"},
        },
        "spec": {"containers": [{"name": "main", "image": "trainer:7"}]},
    })
}

fn in_phase(mut pod: Value, phase: &str) -> Value {
    pod["status"] = json!({"phase": phase});
    pod
}

fn rejected(mut pod: Value) -> Value {
    pod["spec"]["nodeName"] = json!("node-1");
    pod["status"] = json!({
        "phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: no room",
    });
    pod
}

fn record(phase: &str, attempts: u32) -> Value {
    json!({
        "kind": "PodRecreation",
        "metadata": {"namespace": "a", "name": "train-0-p", "uid": "r-1"},
        "spec": {
            "podName": "train-0", "firstUID": "p-1", "policy": {"maxRetries": 3},
            "pod": {
                "metadata": {"annotations": {"belayer.dev/recreate": "true", "note": "mine"}},
                "spec": {"containers": [{"name": "main", "image": "trainer:7"}]},
            },
        },
        "status": {"phase": phase, "attempts": attempts, "rejectedUID": "p-1"},
    })
}

/// The pod of an attempt.
fn successor(uid: &str, attempt: u32) -> Value {
    let mut pod = pod(uid, &[RECREATION_HOLD]);
    let marks = &mut pod["metadata"]["annotations"];
    marks["belayer.dev/recreation-uid"] = json!("r-1");
    marks["belayer.dev/recreation-attempt"] = json!(attempt.to_string());
    pod
}

impl Script {
    fn user_creates(self, pod: &Value) -> Self {
        self.write(USER, Verb::Create, &Gvr::PODS, pod)
    }

    fn node_says(self, pod: &Value) -> Self {
        self.write(NODE, Verb::Patch, &Gvr::PODS, pod)
    }

    fn recorded(self, verb: Verb, record: &Value) -> Self {
        let uid = record["metadata"]["uid"].clone();
        let body = json!({
            "metadata": {"uid": uid, "resourceVersion": "1"}, "preconditions": {"uid": uid},
        });
        self.write(BELAYER, verb, &records(), record).body(body)
    }

    /// Belayer deletes a pod of this UID.
    fn deletes(self, pod: &Value) -> Self {
        let uid = pod["metadata"]["uid"].clone();
        self.write(BELAYER, Verb::Delete, &Gvr::PODS, pod)
            .body(json!({"preconditions": {"uid": uid}}))
    }

    fn creates(self, pod: &Value) -> Self {
        self.write(BELAYER, Verb::Create, &Gvr::PODS, pod)
    }

    /// The rejected pod is deleted after its spec is in a record.
    fn replaced(self) -> Self {
        let going = deleting(rejected(pod("p-1", &[RECREATION_HOLD])));
        let gone = deleting(rejected(pod("p-1", &[])));
        self.recorded(Verb::Create, &record("Rejected", 0))
            .recorded(Verb::Patch, &record("Deleting", 0))
            .deletes(&going)
            .belayer(&gone)
    }

    /// Reserves the next attempt.
    fn reserved(self, attempts: u32) -> Self {
        self.recorded(Verb::Patch, &record("Creating", attempts))
    }
}

/// A pod with a hold that its node rejects.
fn rejected_script() -> Script {
    Script::default()
        .user_creates(&pod("p-1", &[]))
        .belayer(&pod("p-1", &[RECREATION_HOLD]))
        .node_says(&rejected(pod("p-1", &[RECREATION_HOLD])))
}

#[test]
fn re_creating_a_rejected_pod_is_correct() {
    let mut running = in_phase(successor("p-2", 1), "Running");
    let script = rejected_script()
        .replaced()
        .reserved(1)
        .creates(&successor("p-2", 1))
        .node_says(&running);
    running["metadata"]["finalizers"] = json!([]);
    let script = script
        .belayer(&running)
        .recorded(Verb::Patch, &record("Started", 1))
        .recorded(Verb::Delete, &record("Started", 1));
    let findings = script.check_script();
    assert_eq!(failed(&findings), [""; 0], "{:?}", findings.checks);
    assert_eq!(findings.releases[&Why::PodDeleted], 1);
    assert_eq!(findings.releases[&Why::Started], 1);
}

#[rstest]
#[case::nothing_is_reserved(rejected_script().replaced().creates(&successor("p-2", 1)))]
#[case::another_attempt_is_reserved(
    rejected_script().replaced().reserved(2).creates(&successor("p-2", 1))
)]
#[case::an_attempt_is_made_twice(
    rejected_script().replaced().reserved(1)
        .creates(&successor("p-2", 1))
        .deletes(&deleting(successor("p-2", 1)))
        .belayer(&successor_gone("p-2", 1))
        .creates(&successor("p-3", 1))
)]
#[case::another_is_there(
    rejected_script().replaced().reserved(1)
        .creates(&successor("p-2", 1))
        .reserved(2)
        .creates(&successor("p-3", 2))
)]
#[case::the_budget_is_used_up(
    rejected_script().replaced().reserved(4).creates(&successor("p-2", 4))
)]
#[case::another_client_had_deleted_the_rejected_pod(deleted_before(21))]
fn one_pod_is_violated_when(#[case] script: Script) {
    assert_eq!(failed(&script.check_script()), ["ONE-POD"]);
}

impl Script {
    /// Its client had given up the last request when the server handled it.
    fn late(mut self) -> Self {
        let last = self.writes.last_mut().unwrap();
        last.actor = last.actor.clone().late();
        self
    }
}

/// A request that creates a pod arrives after another pod of its record has run. Belayer deletes that pod.
#[rstest]
#[case::long_after_it_was_given_up(Script::late, &[])]
#[case::at_once(|script| script, &["ONE-POD", "RAN-ONCE"])]
fn a_request_that_creates_a_pod_cannot_be_recalled(
    #[case] arrives: fn(Script) -> Script,
    #[case] broken: &[&str],
) {
    let script = rejected_script()
        .replaced()
        .reserved(1)
        .creates(&successor("p-2", 1))
        .node_says(&in_phase(successor("p-2", 1), "Running"))
        .deleted(&Gvr::PODS, &deleting(successor("p-2", 1)))
        .belayer(&successor_gone("p-2", 1))
        .creates(&successor("p-3", 1));
    let script = arrives(script)
        .deletes(&deleting(successor("p-3", 1)))
        .belayer(&successor_gone("p-3", 1));
    assert_eq!(failed(&script.check_script()), broken);
}

/// The same after the record was deleted. Belayer may also leave that pod to its user: then it removes only its finalizer.
#[rstest]
#[case::deleted(true)]
#[case::left(false)]
fn a_pod_that_is_created_late_may_have_no_record(#[case] is_deleted: bool) {
    let mut released = successor("p-2", 1);
    released["metadata"]["finalizers"] = json!([]);
    let script = rejected_script()
        .replaced()
        .recorded(Verb::Patch, &record("Ended", 0))
        .recorded(Verb::Delete, &record("Ended", 0))
        .creates(&successor("p-2", 1))
        .late();
    let script = if is_deleted {
        let gone = successor_gone("p-2", 1);
        script
            .deletes(&deleting(successor("p-2", 1)))
            .belayer(&gone)
    } else {
        script.belayer(&released)
    };
    let mut failed = failed(&script.check_script());
    failed.retain(|name| *name != "NO-LOSS" || is_deleted);
    assert_eq!(failed, [""; 0]);
}

/// The API server has denied the next pod since the first second.
#[rstest]
#[case::for_an_hour("01:00:00", &[])]
#[case::for_less("00:59:59", &["EVIDENCE"])]
fn a_rejected_pod_may_be_released_if_the_next_one_is_denied_for_long(
    #[case] until: &str,
    #[case] broken: &[&str],
) {
    let mut ended = record("Ended", 0);
    ended["status"]["finishedAt"] = json!(format!("1970-01-01T{until}Z"));
    ended["status"]["conditions"] = json!([{
        "type": "CreateDenied", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z",
    }]);
    let script = rejected_script()
        .recorded(Verb::Create, &record("Rejected", 0))
        .recorded(Verb::Patch, &ended)
        .belayer(&rejected(pod("p-1", &[])));
    assert_eq!(failed(&script.check_script()), broken);
}

/// Seed 10,006,766: a tenant removed the hold of a pod that was deleted, before its creation could be recorded.
#[test]
fn an_attempt_may_be_repeated_if_another_client_removed_the_hold_of_its_pod() {
    let made = rejected_script()
        .replaced()
        .reserved(1)
        .creates(&successor("p-2", 1));
    let stripped = made
        .deleted(&Gvr::PODS, &deleting(successor("p-2", 1)))
        .write("tenant", Verb::Patch, &Gvr::PODS, &successor_gone("p-2", 1))
        .creates(&successor("p-3", 1));
    assert_eq!(failed(&stripped.check_script()), [""; 0]);
}

/// Seed 45,023,969: a tenant removed the hold of a pod that had run and was deleted, while no replica of Belayer ran. The record
/// still says that the pod is to be created.
#[rstest]
#[case::tenant("tenant", &[])]
#[case::belayer(BELAYER, &["IDENTITY", "ONE-POD", "RAN-ONCE"])]
fn a_pod_that_ran_may_be_created_again_if_another_client_released_it_before_it_was_recorded(
    #[case] actor: &str,
    #[case] broken: &[&str],
) {
    let script = rejected_script()
        .replaced()
        .reserved(1)
        .creates(&successor("p-2", 1))
        .node_says(&in_phase(successor("p-2", 1), "Running"))
        .deleted(&Gvr::PODS, &deleting(successor("p-2", 1)))
        .write(actor, Verb::Patch, &Gvr::PODS, &successor_gone("p-2", 1))
        .creates(&successor("p-3", 1));
    assert_eq!(failed(&script.check_script()), broken);
}

/// Seed 1,005,057: the release was refused until the time to live of the record was over.
#[rstest]
#[case::of_the_last_attempt(3, &[])]
#[case::of_an_earlier_attempt(2, &["EVIDENCE"])]
fn the_last_rejected_pod_may_be_released_after_its_record_is_gone(
    #[case] attempt: u32,
    #[case] broken: &[&str],
) {
    let mut released = rejected(successor("p-2", attempt));
    let script = rejected_script()
        .replaced()
        .reserved(attempt)
        .creates(&successor("p-2", attempt))
        .node_says(&released)
        .recorded(Verb::Patch, &record("Exhausted", attempt))
        .recorded(Verb::Delete, &record("Exhausted", attempt));
    released["metadata"]["finalizers"] = json!([]);
    let findings = script.belayer(&released).check_script();
    let mut failed = failed(&findings);
    failed.retain(|name| *name == "EVIDENCE");
    assert_eq!(failed, broken, "{:?}", findings.checks);
}

/// The same of the first pod, which may not be re-created at all (seed 54,047,187).
#[rstest]
#[case::none_is_permitted(0, &[])]
#[case::one_is(1, &["EVIDENCE"])]
fn the_first_pod_may_be_released_after_its_record_is_gone(
    #[case] permitted: u32,
    #[case] broken: &[&str],
) {
    let mut record = record("Exhausted", 0);
    record["spec"]["policy"]["maxRetries"] = json!(permitted);
    let script = rejected_script()
        .recorded(Verb::Create, &record)
        .recorded(Verb::Delete, &record);
    let findings = script.belayer(&rejected(pod("p-1", &[]))).check_script();
    let mut failed = failed(&findings);
    failed.retain(|name| *name == "EVIDENCE");
    assert_eq!(failed, broken, "{:?}", findings.checks);
}

/// The kubelet had accepted the pod so many seconds before it rejected it, and may have run it (seed 55,054,911).
#[rstest]
#[case::at_its_admission(5, &["EVIDENCE"])]
#[case::much_later(20, &[])]
fn a_pod_that_is_rejected_late_may_be_released(#[case] seconds: i64, #[case] broken: &[&str]) {
    let late = |finalizers: &[&str]| {
        let mut pod = rejected(pod("p-1", finalizers));
        pod["status"]["startTime"] = json!("1970-01-01T00:00:00Z");
        pod
    };
    let script = Script::default()
        .user_creates(&pod("p-1", &[]))
        .belayer(&pod("p-1", &[RECREATION_HOLD]))
        .later(seconds)
        .node_says(&late(&[RECREATION_HOLD]))
        .belayer(&late(&[]));
    assert_eq!(failed(&script.check_script()), broken);
}

/// Its record ended while its namespace was ignored, but the release was refused until long after that (seed 55,134,452).
#[rstest]
#[case::ignored(IGNORE_LABEL, &[])]
#[case::another_label("example.com/ignore", &["EVIDENCE"])]
fn a_rejected_pod_of_a_namespace_that_was_ignored(#[case] label: &str, #[case] broken: &[&str]) {
    let namespace = |labels: Value| {
        json!({
            "kind": "Namespace",
            "metadata": { "uid": "n-1", "name": "a", "labels": labels },
        })
    };
    let script = rejected_script()
        .recorded(Verb::Create, &record("Rejected", 0))
        .write(
            USER,
            Verb::Patch,
            &Gvr::NAMESPACES,
            &namespace(json!({ label: "true" })),
        )
        .recorded(Verb::Patch, &record("Ended", 0))
        .write(USER, Verb::Patch, &Gvr::NAMESPACES, &namespace(json!({})))
        .later(60)
        .belayer(&rejected(pod("p-1", &[])));
    assert_eq!(failed(&script.check_script()), broken);
}

/// A rejected pod whose user deletes it this many seconds before Belayer writes the intent to replace it.
fn deleted_before(seconds: i64) -> Script {
    let going = deleting(rejected(pod("p-1", &[RECREATION_HOLD])));
    rejected_script()
        .recorded(Verb::Create, &record("Rejected", 0))
        .deleted(&Gvr::PODS, &going)
        .later(seconds)
        .recorded(Verb::Patch, &record("Deleting", 0))
}

/// The pod was deleted after Belayer had read it for the last time.
#[test]
fn a_deletion_right_before_the_intent_is_no_violation() {
    assert_eq!(failed(&deleted_before(20).check_script()), [""; 0]);
}

/// Its last state.
fn successor_gone(uid: &str, attempt: u32) -> Value {
    let mut pod = successor(uid, attempt);
    pod["metadata"]["finalizers"] = json!([]);
    deleting(pod)
}

#[test]
fn belayer_must_not_create_or_delete_a_pod_without_a_record() {
    let going = deleting(rejected(pod("p-1", &[RECREATION_HOLD])));
    let deleted = rejected_script().deletes(&going);
    assert_eq!(failed(&deleted.check_script()), ["FOREIGN", "NO-LOSS"]);
    let created = Script::default().creates(&pod("p-2", &[]));
    let failed = failed(&created.check_script());
    assert_eq!(failed, ["FOREIGN", "ONE-POD", "NO-LOSS"]);
}

#[test]
fn no_loss_is_violated_by_a_record_of_another_pod() {
    let mut other = record("Rejected", 0);
    other["spec"]["pod"]["spec"]["containers"][0]["image"] = json!("miner:1");
    let going = deleting(rejected(pod("p-1", &[RECREATION_HOLD])));
    let script = rejected_script()
        .recorded(Verb::Create, &other)
        .deletes(&going);
    assert_eq!(failed(&script.check_script()), ["NO-LOSS"]);
}

/// The user of the last pod must still see why it was rejected.
#[rstest]
#[case::of_the_last_attempt(3, &["NO-LOSS"])]
#[case::of_an_earlier_attempt(2, &[])]
fn no_loss_is_violated_by_deleting_the_pod_of_the_last_attempt(
    #[case] attempt: u32,
    #[case] broken: &[&str],
) {
    let last = rejected(successor("p-2", attempt));
    let script = rejected_script()
        .replaced()
        .reserved(attempt)
        .creates(&successor("p-2", attempt))
        .node_says(&last)
        .recorded(Verb::Patch, &record("Deleting", attempt))
        .deletes(&deleting(last))
        .belayer(&successor_gone("p-2", attempt));
    let mut failed = failed(&script.check_script());
    failed.retain(|name| *name == "NO-LOSS");
    assert_eq!(failed, broken);
}

#[test]
fn no_loss_is_violated_by_a_pod_that_differs_from_its_users() {
    let mut other = successor("p-2", 1);
    other["spec"]["containers"][0]["image"] = json!("miner:1");
    let script = rejected_script().replaced().reserved(1).creates(&other);
    assert_eq!(failed(&script.check_script()), ["NO-LOSS"]);
}

/// R2: what others wrote into a pod's annotations later describes that pod alone.
#[rstest]
#[case::left_out("mine", &[])]
#[case::its_users_are_lost("other", &["NO-LOSS"])]
fn no_loss_is_about_the_annotations_of_the_user(#[case] recorded: &str, #[case] expected: &[&str]) {
    let mut going = deleting(rejected(pod("p-1", &[RECREATION_HOLD])));
    going["metadata"]["annotations"]["later"] = json!("by a network plugin");
    let mut kept = record("Rejected", 0);
    kept["spec"]["pod"]["metadata"]["annotations"]["note"] = json!(recorded);
    let script = rejected_script()
        .node_says(&{
            let mut noted = going.clone();
            noted["metadata"]["deletionTimestamp"].take();
            noted
        })
        .recorded(Verb::Create, &kept)
        .deletes(&going);
    let mut failed = failed(&script.check_script());
    failed.retain(|name| *name == "NO-LOSS");
    assert_eq!(failed, expected);
}

/// Seed 40,102,252: a tenant labels the rejected pod once its record is written. The re-created pod has the label, and is rejected as well.
#[rstest]
#[case::in_the_status(json!({"labels": {"a": "b"}, "annotations": {"note": "mine"}}), &[])]
#[case::nowhere(Value::Null, &["NO-LOSS"])]
fn no_loss_reads_the_newer_metadata_of_the_status(#[case] newer: Value, #[case] expected: &[&str]) {
    let mut again = pod("p-1", &[RECREATION_HOLD]);
    again["metadata"]["labels"] = json!({"a": "b"});
    let again = rejected(again);
    let mut kept = record("Rejected", 0);
    if !newer.is_null() {
        kept["status"]["podMetadata"] = newer;
    }
    let script = Script::default()
        .user_creates(&again)
        .node_says(&again)
        .recorded(Verb::Create, &kept)
        .deletes(&deleting(again.clone()));
    let mut failed = failed(&script.check_script());
    failed.retain(|name| *name == "NO-LOSS");
    assert_eq!(failed, expected);
}

#[test]
fn no_loss_is_violated_by_deleting_a_record_before_its_final_phase() {
    let script = rejected_script().recorded(Verb::Create, &record("Rejected", 0));
    let script = script.recorded(Verb::Delete, &record("Rejected", 0));
    assert_eq!(failed(&script.check_script()), ["NO-LOSS"]);
}

/// A record without a phase states only that its pod was rejected.
#[rstest]
#[case::its_pod_exists(false, &["NO-LOSS"])]
#[case::its_user_has_deleted_the_pod(true, &[])]
fn no_loss_is_violated_by_deleting_the_record_of_a_pod_that_exists(
    #[case] is_gone: bool,
    #[case] expected: &[&str],
) {
    let mut unused = record("Rejected", 0);
    unused["status"].take();
    let mut script = rejected_script();
    if is_gone {
        let going = deleting(rejected(pod("p-1", &[RECREATION_HOLD])));
        let released = deleting(rejected(pod("p-1", &[])));
        script = script.deleted(&Gvr::PODS, &going).belayer(&released);
    }
    let script = script
        .recorded(Verb::Create, &unused)
        .recorded(Verb::Delete, &unused);
    assert_eq!(failed(&script.check_script()), expected);
}

#[test]
fn no_loss_is_violated_by_a_rejected_pod_that_is_not_re_created() {
    assert_eq!(
        failed(&rejected_script().replaced().check_script()),
        ["NO-LOSS"]
    );
}

/// Seed 21,006,257: the namespace was deleted while the pod existed in its record alone, and a user created another one of that name.
#[rstest]
#[case::after_the_pod_was_created(rejected_script().replaced(), &[])]
#[case::before(Script::default(), &["NO-LOSS"])]
fn no_loss_is_not_violated_if_the_namespace_is_deleted(
    #[case] script: Script,
    #[case] broken: &[&str],
) {
    let namespace = json!({"kind": "Namespace", "metadata": {"name": "a", "uid": "n-1"}});
    let mut script = script.deleted(&Gvr::NAMESPACES, &namespace).write(
        USER,
        Verb::Create,
        &Gvr::NAMESPACES,
        &namespace,
    );
    if !broken.is_empty() {
        script.writes.extend(rejected_script().replaced().writes);
        for (index, write) in script.writes.iter_mut().enumerate() {
            write.index = index;
        }
    }
    assert_eq!(failed(&script.check_script()), broken);
}

#[test]
fn ran_once_is_violated_by_a_pod_that_ran_before() {
    let held = pod("p-1", &[RECREATION_HOLD]);
    let script = Script::default()
        .user_creates(&held)
        .node_says(&in_phase(held.clone(), "Running"))
        .node_says(&rejected(held))
        .replaced()
        .reserved(1)
        .creates(&successor("p-2", 1));
    assert_eq!(failed(&script.check_script()), ["RAN-ONCE"]);
}

/// The record was created at 0 s. Seed 50,106,153: the node was wiped after the end of the re-creation.
#[rstest]
#[case::overdue("fail", None, 10, &[])]
#[case::wiped_after_the_end("fail", Some(12), 10, &[])]
#[case::wiped_in_time("fail", Some(8), 10, &["EVIDENCE"])]
#[case::before_the_timeout("fail", None, 9, &["EVIDENCE"])]
#[case::the_pod_is_created_on_another_node("proceed", None, 10, &["EVIDENCE"])]
fn a_pod_may_be_released_if_its_node_is_not_wiped_in_time(
    #[case] on_timeout: &str,
    #[case] wiped: Option<u32>,
    #[case] released: i64,
    #[case] broken: &[&str],
) {
    let time = |second: u32| json!(format!("1970-01-01T00:00:{second:02}Z"));
    let mut ended = record("Ended", 0);
    ended["metadata"]["creationTimestamp"] = time(0);
    ended["spec"]["policy"] =
        json!({"maxRetries": 3, "onWipeTimeout": on_timeout, "wipeTimeoutSeconds": 10});
    ended["status"]["finishedAt"] = time(10);
    if let Some(wiped) = wiped {
        let wiped = json!({
            "type": "StateWiped", "status": "True", "lastTransitionTime": time(wiped),
        });
        ended["status"]["conditions"] = json!([wiped]);
    }
    let script = rejected_script()
        .recorded(Verb::Create, &ended)
        .later(released)
        .belayer(&rejected(pod("p-1", &[])));
    let mut failed = failed(&script.check_script());
    failed.retain(|name| *name == "EVIDENCE");
    assert_eq!(failed, broken);
}

#[test]
fn evidence_is_violated_by_releasing_a_pod_before_it_has_started() {
    let script = Script::default()
        .user_creates(&pod("p-1", &[]))
        .belayer(&pod("p-1", &[RECREATION_HOLD]))
        .belayer(&pod("p-1", &[]));
    assert_eq!(failed(&script.check_script()), ["EVIDENCE"]);
}

#[test]
fn identity_is_violated_by_a_delete_without_a_uid() {
    let script = rejected_script()
        .recorded(Verb::Create, &record("Rejected", 0))
        .write(
            BELAYER,
            Verb::Delete,
            &Gvr::PODS,
            &deleting(rejected(pod("p-1", &[RECREATION_HOLD]))),
        );
    assert_eq!(failed(&script.check_script()), ["IDENTITY"]);
}
