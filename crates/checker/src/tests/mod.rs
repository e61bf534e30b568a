//! Every check must be able to fail: scripted records that violate one invariant.

mod deletions;
mod recreations;
mod script;
mod settings;

use std::collections::BTreeMap;
use std::time::Duration;

use belayer_sandbox::{Gvr, Verb};
use belayer_workload::{ARGO_SERVER, USER, WORKFLOWS, names};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{BELAYER, POD_HOLD, Settings, Why};
use script::{FOREIGN, Script, deleting, exited, failed, held, lost, pod, running, taken};

#[test]
fn a_correct_lifecycle_violates_nothing() {
    let script = held()
        .pod(&pod(&[FOREIGN, POD_HOLD, "b"]))
        .deleted(&Gvr::PODS, &deleting(pod(&[FOREIGN, POD_HOLD, "b"])))
        .workflow(&taken())
        .belayer(&deleting(pod(&[FOREIGN, "b"])))
        .pod(&deleting(pod(&[])));
    let findings = script.check_script();
    assert_eq!(failed(&findings), [""; 0], "{:?}", findings.checks);
    assert_eq!(
        (findings.pods, findings.holds_added, findings.taken),
        (1, 1, 1)
    );
    assert_eq!(
        findings.releases,
        BTreeMap::from([(Why::ResultConsumed, 1)])
    );
    assert!(findings.all_kept());
}

#[rstest]
#[case::a_foreign_finalizer_went(pod(&[POD_HOLD, "b"]))]
#[case::foreign_ones_changed_places(pod(&[POD_HOLD, "b", FOREIGN]))]
#[case::a_foreign_one_came(pod(&[POD_HOLD, FOREIGN, "b", "c"]))]
#[case::a_label_came({
    let mut pod = pod(&[POD_HOLD, FOREIGN, "b"]);
    pod["metadata"]["labels"] = json!({"a": "b"});
    pod
})]
#[case::the_spec_changed({
    let mut pod = pod(&[POD_HOLD, FOREIGN, "b"]);
    pod["spec"] = json!({"nodeName": "n"});
    pod
})]
fn foreign_is_violated_by_changing_other_fields(#[case] after: Value) {
    let script = Script::default()
        .workflow(&taken())
        .pod(&pod(&[FOREIGN, "b"]))
        .belayer(&after);
    assert_eq!(failed(&script.check_script()), ["FOREIGN"]);
}

#[test]
fn foreign_is_violated_by_requests_that_belayer_must_not_make() {
    let delete =
        held()
            .workflow(&taken())
            .write(BELAYER, Verb::Delete, &Gvr::PODS, &pod(&[POD_HOLD]));
    assert_eq!(
        failed(&delete.check_script()),
        ["FOREIGN", "IDENTITY", "NO-LOSS"]
    );
    let other = Script::default().belayer_patches(&WORKFLOWS, &taken());
    assert_eq!(failed(&other.check_script()), ["FOREIGN"]);
    let event = json!({"kind": "Event", "metadata": {"namespace": "a", "name": "e", "uid": "e-1"}});
    let own = Script::default().write(BELAYER, Verb::Create, &Gvr::EVENTS, &event);
    assert_eq!(failed(&own.check_script()), [""; 0]);
}

#[test]
fn no_late_hold_is_violated_by_adding_a_hold_to_a_terminating_object() {
    let done = Script::default()
        .workflow(&taken())
        .pod(&deleting(pod(&[FOREIGN])))
        .belayer(&deleting(pod(&[FOREIGN, POD_HOLD])));
    assert_eq!(failed(&done.check_script()), ["NO-LATE-HOLD"]);
    let tried = Script::default().belayer(&pod(&[POD_HOLD])).refused(422);
    assert_eq!(failed(&tried.check_script()), ["NO-LATE-HOLD"]);
    let overtaken = Script::default().belayer(&pod(&[POD_HOLD])).refused(409);
    assert_eq!(failed(&overtaken.check_script()), [""; 0]);
}

#[rstest]
#[case::no_uid(json!({"metadata": {"resourceVersion": "1"}}))]
#[case::no_version(json!({"metadata": {"uid": "p-1"}}))]
#[case::another_uid(json!({"metadata": {"uid": "p-2", "resourceVersion": "1"}}))]
fn identity_is_violated_by_a_patch_without_uid_or_version(#[case] body: Value) {
    let script = Script::default()
        .workflow(&taken())
        .pod(&pod(&[]))
        .belayer(&pod(&[POD_HOLD]))
        .body(body);
    assert_eq!(failed(&script.check_script()), ["IDENTITY"]);
}

#[test]
fn evidence_is_violated_by_a_release_before_the_result_is_consumed() {
    let early = held().belayer(&pod(&[])).workflow(&taken());
    assert_eq!(failed(&early.check_script()), ["EVIDENCE"]);
}

#[test]
fn a_deleted_owner_of_the_same_name_is_no_evidence() {
    let mut other = running();
    other["metadata"]["uid"] = json!("w-0");
    let script = held()
        .workflow(&other)
        .deleted(&WORKFLOWS, &other)
        .belayer(&pod(&[]))
        .workflow(&taken());
    assert_eq!(failed(&script.check_script()), ["EVIDENCE"]);
}

#[test]
fn a_node_that_is_lost_before_the_pod_is_bound_to_it_is_no_evidence() {
    let mut bound = pod(&[POD_HOLD]);
    bound["spec"]["nodeName"] = json!("node-1");
    let node = json!({"kind": "Node", "metadata": {"name": "node-1", "uid": "node-1",
        "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let mut released = bound.clone();
    released["metadata"]["finalizers"] = json!([]);
    let script = held()
        .deleted(&Gvr::NODES, &node)
        .pod(&bound)
        .belayer(&released)
        .workflow(&taken());
    assert_eq!(failed(&script.check_script()), ["EVIDENCE"]);
}

/// A retry that keeps the pod's node, or that came before the pod, is no evidence.
#[test]
fn a_retry_of_other_nodes_is_no_evidence() {
    let gone = |holds: &[&str]| deleting(exited(pod(holds)));
    let kept = held()
        .pod(&exited(pod(&[POD_HOLD])))
        .write(ARGO_SERVER, Verb::Patch, &WORKFLOWS, &running())
        .deleted(&Gvr::PODS, &gone(&[POD_HOLD]))
        .belayer(&gone(&[]))
        .workflow(&taken());
    assert_eq!(failed(&kept.check_script()), ["EVIDENCE"]);
    let later = |mut pod: Value| {
        pod["metadata"]["uid"] = json!("p-2");
        pod
    };
    let next = held()
        .retried()
        .belayer(&gone(&[]))
        .workflow(&running())
        .pod(&later(exited(pod(&[POD_HOLD]))))
        .deleted(&Gvr::PODS, &later(gone(&[POD_HOLD])))
        .belayer(&later(gone(&[])))
        .workflow(&taken());
    assert_eq!(failed(&next.check_script()), ["EVIDENCE"]);
}

#[test]
fn the_writes_of_a_replica_are_checked() {
    let script = held().write("belayer/1", Verb::Patch, &Gvr::PODS, &pod(&[]));
    let script = script.workflow(&taken());
    assert_eq!(failed(&script.check_script()), ["IDENTITY", "EVIDENCE"]);
    let other = held().write("belayer-election/1", Verb::Patch, &Gvr::PODS, &pod(&[]));
    assert_eq!(failed(&other.workflow(&taken()).check_script()), [""; 0]);
}

#[rstest]
#[case::soon(Script::healthy, 20, &[])]
#[case::late(Script::healthy, 40, &["PROMPT"])]
#[case::late_while_something_fails(|script| script, 40, &[])]
fn prompt_is_violated_by_a_pod_that_waits_for_nothing(
    #[case] from_now_on: fn(Script) -> Script,
    #[case] seconds: i64,
    #[case] broken: &[&str],
) {
    let script = from_now_on(held())
        .workflow(&taken())
        // It may be released only from now on.
        .later(40)
        .deleted(&Gvr::PODS, &deleting(pod(&[POD_HOLD])))
        .later(seconds)
        .belayer(&deleting(pod(&[])));
    assert_eq!(failed(&script.check_script()), broken);
}

/// The delay begins when both the node is lost and the pod is deleted.
#[rstest]
#[case::after_the_delay(60, 30, &[])]
#[case::the_pod_was_deleted_just_now(60, 10, &["EVIDENCE"])]
#[case::the_node_was_lost_just_now(0, 10, &["EVIDENCE"])]
fn a_lost_node_is_evidence_only_after_its_delay(
    #[case] until_deleted: i64,
    #[case] until_released: i64,
    #[case] broken: &[&str],
) {
    let mut bound = pod(&[POD_HOLD]);
    bound["spec"]["nodeName"] = json!("node-1");
    bound["status"]["containerStatuses"] = json!([{"name": "main", "state": {"running": {}}}]);
    let node = json!({"kind": "Node", "metadata": {"name": "node-1", "uid": "node-1",
        "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let gone = deleting(bound.clone());
    let mut released = gone.clone();
    released["metadata"]["finalizers"] = json!([]);
    let script = held()
        .with(Settings {
            node_lost_delay: Duration::from_secs(20),
            ..Settings::default()
        })
        .pod(&bound)
        .deleted(&Gvr::NODES, &node)
        .later(until_deleted)
        .deleted(&Gvr::PODS, &gone)
        .later(until_released)
        .belayer(&released)
        .workflow(&taken());
    assert_eq!(failed(&script.check_script()), broken);
}

#[test]
fn every_reason_is_recognised() {
    let orphan = {
        let mut pod = pod(&[POD_HOLD]);
        pod["metadata"]["ownerReferences"] = json!([]);
        pod
    };
    let released_state = |mut pod: Value| {
        pod["metadata"]["finalizers"] = json!([]);
        pod
    };
    let namespace = json!({"kind": "Namespace", "metadata": {"name": "a", "uid": "n-1"}});
    let requested = {
        let mut pod = pod(&[POD_HOLD]);
        pod["metadata"]["annotations"]["belayer.dev/release"] = json!("true");
        pod
    };
    let bound = {
        let mut pod = deleting(pod(&[POD_HOLD]));
        pod["spec"]["nodeName"] = json!("node-1");
        pod["status"]["containerStatuses"] = json!([{"name": "main", "state": {"running": {}}}]);
        pod
    };
    let node = json!({"kind": "Node", "metadata": {"name": "node-1", "uid": "node-1",
        "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    for (script, why) in [
        (
            held()
                .pod(&requested)
                .belayer(&released_state(requested.clone()))
                .workflow(&taken()),
            Why::Requested,
        ),
        (
            held()
                .pod(&bound)
                .deleted(&Gvr::NODES, &node)
                .belayer(&released_state(bound.clone()))
                .workflow(&taken()),
            Why::NodeLost,
        ),
        (
            held()
                .retried()
                .belayer(&deleting(exited(pod(&[]))))
                .workflow(&taken()),
            Why::EarlierRun,
        ),
        (
            held().workflow(&taken()).belayer(&pod(&[])),
            Why::ResultConsumed,
        ),
        (
            held().deleted(&WORKFLOWS, &running()).belayer(&pod(&[])),
            Why::WorkflowDeleted,
        ),
        (
            held()
                .deleted(&Gvr::NAMESPACES, &namespace)
                .belayer(&pod(&[])),
            Why::NamespaceDeleted,
        ),
        (
            held().pod(&orphan).belayer(&released_state(orphan.clone())),
            Why::NoWorkflow,
        ),
    ] {
        let findings = script.check_script();
        assert_eq!(failed(&findings), [""; 0], "{why:?}: {:?}", findings.checks);
        assert_eq!(findings.releases, BTreeMap::from([(why, 1)]));
    }
}

#[test]
fn changes_by_hand_are_counted_separately() {
    let asked = held()
        .write("kubectl", Verb::Patch, &Gvr::PODS, &pod(&[POD_HOLD]))
        .belayer(&pod(&[]));
    let findings = asked.check_script();
    assert_eq!(
        (failed(&findings).len(), findings.by_hand),
        (0, 1),
        "{:?}",
        findings.checks
    );
}

#[test]
fn results_is_violated_by_losing_the_result_of_a_pod_with_a_hold() {
    assert_eq!(
        failed(&held().workflow(&lost()).check_script()),
        ["RESULTS"]
    );
}

/// Seed 64,643,388: the kubelet was cut off from the API server, and reported a result after the release.
#[rstest]
#[case::deleted_before_it_started(false, &[])]
#[case::deleted_while_it_ran(true, &["EVIDENCE", "RESULTS"])]
fn a_pod_that_was_deleted_before_it_started_may_report_a_result_later(
    #[case] runs: bool,
    #[case] broken: &[&str],
) {
    let status = |pod: Value| {
        let mut pod = deleting(pod);
        if runs {
            let state = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
            pod["status"] = json!({"phase": "Running", "containerStatuses": [{"name": "main", "state": state}]});
        }
        pod
    };
    let mut late = deleting(pod(&[]));
    let state = json!({"terminated": {"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z"}});
    late["status"] =
        json!({"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": state}]});
    let script = held()
        .deleted(&Gvr::PODS, &status(pod(&[POD_HOLD])))
        .belayer(&status(pod(&[])))
        .pod(&late)
        .workflow(&lost());
    assert_eq!(failed(&script.check_script()), broken);
}

#[test]
fn losing_the_result_of_a_pod_without_a_hold_is_only_counted() {
    let findings = Script::default()
        .workflow(&running())
        .pod(&pod(&[]))
        .workflow(&lost())
        .check_script();
    assert_eq!((failed(&findings).len(), findings.never_held), (0, 1));
}

#[test]
fn results_of_a_deleted_workflow_are_not_needed() {
    let findings = held()
        .deleted(&WORKFLOWS, &running())
        .workflow(&lost())
        .check_script();
    assert_eq!(
        (failed(&findings).len(), findings.never_held),
        (0, 0),
        "{:?}",
        findings.checks
    );
}

/// Seed 10,007,138: a user copied a pod whose result was consumed, with its labels, before its workflow was run again.
#[rstest]
#[case::without_pods(None, &["RESULTS"])]
#[case::with_a_pod(Some("false"), &["RESULTS"])]
#[case::with_a_pod_that_argo_does_not_read(Some("true"), &[])]
fn results_is_violated_by_a_workflow_that_never_finishes(
    #[case] completed: Option<&str>,
    #[case] broken: &[&str],
) {
    let mut stuck = running();
    stuck["status"]["finishedAt"] = json!(null);
    let mut script = Script::default().workflow(&stuck);
    if let Some(completed) = completed {
        let mut copy = pod(&[]);
        copy["metadata"]["labels"] = json!({ (names::COMPLETED): completed });
        script = script.write(USER, Verb::Create, &Gvr::PODS, &copy);
    }
    assert_eq!(failed(&script.check_script()), broken);
}

#[rstest]
#[case::terminating(deleting(pod(&[FOREIGN])), true)]
#[case::held_though_it_may_go(pod(&[POD_HOLD]), true)]
#[case::not_held(pod(&[FOREIGN]), false)]
fn liveness_is_violated_by_a_stuck_object(#[case] left: Value, #[case] broken: bool) {
    let script = held().workflow(&taken());
    let findings = script.check_with(&[left], Duration::from_secs(1), &[]);
    assert_eq!(
        failed(&findings),
        if broken { vec!["LIVENESS"] } else { vec![] }
    );
}

#[rstest]
#[case::of_a_pod_that_had_not_ended(json!({"belayer.dev/not-final": "true"}), &[])]
#[case::of_another(json!({}), &["FOREIGN"])]
fn foreign_is_violated_by_deleting_a_final_outcome(#[case] labels: Value, #[case] broken: &[&str]) {
    let outcomes = Gvr::new("belayer.dev", "v1alpha1", "podoutcomes");
    let record = json!({
        "kind": "PodOutcome",
        "metadata": {"namespace": "a", "name": "pod-p-1", "uid": "o-1", "labels": labels},
    });
    let script = Script::default()
        .write(BELAYER, Verb::Create, &outcomes, &record)
        .write(BELAYER, Verb::Delete, &outcomes, &record)
        .body(json!({"preconditions": {"uid": "o-1"}}));
    assert_eq!(failed(&script.check_script()), broken);
}

/// The record of a held pod that has ended and whose result was consumed.
#[rstest]
#[case::none(None, &["OUTCOMES"])]
#[case::another_phase(Some("Succeeded"), &["OUTCOMES"])]
#[case::its_phase(Some("Failed"), &[])]
fn outcomes_is_violated_by_a_pod_without_its_record(
    #[case] recorded: Option<&str>,
    #[case] broken: &[&str],
) {
    let mut script = Script::default()
        .with(Settings {
            captures: true,
            ..Settings::default()
        })
        .healthy()
        .workflow(&running())
        .write(USER, Verb::Create, &Gvr::PODS, &pod(&[]))
        .belayer(&pod(&[POD_HOLD]))
        .pod(&exited(pod(&[POD_HOLD])));
    if let Some(phase) = recorded {
        let record = json!({
            "kind": "PodOutcome",
            "metadata": {"namespace": "a", "name": "pod-p-1", "uid": "o-1"},
            "spec": {"podUID": "p-1", "phase": phase, "complete": true},
        });
        let outcomes = Gvr::new("belayer.dev", "v1alpha1", "podoutcomes");
        script = script.write(BELAYER, Verb::Create, &outcomes, &record);
    }
    let script = script.workflow(&taken()).belayer(&exited(pod(&[])));
    let findings = script.check_script();
    let mut failed = failed(&findings);
    failed.retain(|name| *name != "HELD");
    assert_eq!(failed, broken, "{:?}", findings.checks);
}

#[test]
fn a_hold_without_evidence_is_not_stuck() {
    let findings = held().check_with(&[pod(&[POD_HOLD])], Duration::from_secs(1), &[]);
    assert_eq!(failed(&findings), [""; 0]);
}

#[test]
fn quiet_is_violated_by_belayer_alone_and_requires_a_quiet_period() {
    let second = Duration::from_secs(1);
    let belayers = Script::default().belayer(&pod(&[])).refused(409);
    assert_eq!(
        failed(&Script::default().check_with(&[], second, &belayers.writes)),
        ["QUIET"]
    );
    let others = Script::default().pod(&pod(&[]));
    assert_eq!(
        failed(&Script::default().check_with(&[], second, &others.writes)),
        [""; 0]
    );
    assert_eq!(
        failed(&Script::default().check_with(&[], Duration::ZERO, &[])),
        ["QUIET"]
    );
}
