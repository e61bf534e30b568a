//! What Belayer's configuration permits or requires.

use std::time::Duration;

use belayer_holds::names::{IGNORE_LABEL, RELEASE_ANNOTATION};
use belayer_sandbox::{Gvr, Verb};
use belayer_workload::{ARGO, ARGO_SERVER, USER, WORKFLOWS, names};
use rstest::rstest;
use serde_json::{Value, json};

use super::script::{
    FOREIGN, Script, deleting, exited, failed, held, lost, pod, running, taken, workflow,
};
use crate::{BELAYER, POD_HOLD, Settings};

/// A pod that was deleted before it began.
#[rstest]
#[case::released(false, &[])]
#[case::held(true, &["EVIDENCE"])]
fn pods_that_their_deletion_ended_are_held_if_so_configured(
    #[case] holds_deleted: bool,
    #[case] broken: &[&str],
) {
    let settings = Settings {
        holds_deleted,
        ..Settings::default()
    };
    let script = held()
        .with(settings)
        .deleted(&Gvr::PODS, &deleting(pod(&[POD_HOLD])))
        .belayer(&deleting(pod(&[])))
        .workflow(&taken());
    assert_eq!(failed(&script.check_script()), broken);
}

fn deleted_at(mut pod: Value, second: u32) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!(format!("1970-01-01T00:00:{second:02}Z"));
    pod
}

/// The pod failed by itself. The deletion timestamp is the end of the grace period.
#[rstest]
#[case::over(Some(20), 30, &[])]
#[case::in_the_grace_period(Some(20), 21, &["EVIDENCE"])]
#[case::not_configured(None, 30, &["EVIDENCE"])]
fn release_after_begins_at_the_deletion_timestamp(
    #[case] release_after: Option<u64>,
    #[case] released: i64,
    #[case] broken: &[&str],
) {
    let settings = Settings {
        release_after: release_after.map(Duration::from_secs),
        ..Settings::default()
    };
    let ended = |finalizers| deleted_at(exited(pod(finalizers)), 10);
    let script = held()
        .with(settings)
        .pod(&exited(pod(&[POD_HOLD])))
        .deleted(&Gvr::PODS, &ended(&[POD_HOLD]))
        .later(released)
        .belayer(&ended(&[]))
        .workflow(&taken());
    assert_eq!(failed(&script.check_script()), broken);
}

fn adopts() -> Settings {
    Settings {
        adopts: Some(FOREIGN),
        ..Settings::default()
    }
}

/// A finalizer of another controller, which Belayer removes together with its own.
#[rstest]
#[case::its_result_was_read(adopts(), taken(), &[])]
#[case::it_was_not(adopts(), running(), &["EVIDENCE", "FOREIGN"])]
#[case::not_configured(Settings::default(), taken(), &["FOREIGN"])]
fn an_adopted_finalizer_is_removed_once_the_result_was_read(
    #[case] settings: Settings,
    #[case] workflow: Value,
    #[case] broken: &[&str],
) {
    let script = Script::default()
        .with(settings)
        .workflow(&workflow)
        .pod(&exited(pod(&[FOREIGN, POD_HOLD])))
        .belayer(&exited(pod(&[])))
        .workflow(&taken());
    let mut failed = failed(&script.check_script());
    failed.sort_unstable();
    assert_eq!(failed, broken);
}

/// Only that finalizer is left, of a pod whose deletion ended it.
#[rstest]
#[case::its_workflow_goes_on("false", 20, &["FOREIGN"])]
#[case::its_workflow_has_completed("true", 20, &[])]
#[case::release_after_is_over("false", 30, &[])]
fn an_adopted_finalizer_of_a_pod_without_a_result(
    #[case] completed: &str,
    #[case] released: i64,
    #[case] broken: &[&str],
) {
    let settings = Settings {
        release_after: Some(Duration::from_secs(20)),
        ..adopts()
    };
    let mut workflow = running();
    workflow["metadata"]["labels"] = json!({ (names::COMPLETED): completed });
    let gone = |finalizers| deleted_at(pod(finalizers), 10);
    let script = Script::default()
        .with(settings)
        .workflow(&workflow)
        .pod(&pod(&[FOREIGN]))
        .deleted(&Gvr::PODS, &gone(&[FOREIGN]))
        .later(released)
        .belayer(&gone(&[]))
        .workflow(&taken());
    assert_eq!(failed(&script.check_script()), broken);
}

/// A tenant who may label a pod as read may have its finalizers removed too (seed 54,044,124).
#[test]
fn an_adopted_finalizer_of_a_pod_that_a_tenant_labelled() {
    let labelled = |finalizers: &[&str]| {
        let mut pod = pod(finalizers);
        pod["metadata"]["labels"] = json!({ (names::COMPLETED): "true" });
        pod
    };
    let script = Script::default()
        .with(adopts())
        .workflow(&running())
        .pod(&pod(&[FOREIGN, POD_HOLD]))
        .write(
            "tenant",
            Verb::Patch,
            &Gvr::PODS,
            &labelled(&[FOREIGN, POD_HOLD]),
        )
        .belayer(&labelled(&[]))
        .workflow(&taken());
    assert_eq!(failed(&script.check_script()), [""; 0]);
}

/// Only that finalizer is left, of a pod whose workflow is retried (seed 54,052,013).
#[rstest]
#[case::its_result_was_read_before(taken(), &[])]
#[case::it_was_not(running(), &["FOREIGN"])]
fn an_adopted_finalizer_of_a_pod_of_an_earlier_run(#[case] before: Value, #[case] broken: &[&str]) {
    let gone = |finalizers: &[&str]| deleting(exited(pod(finalizers)));
    let mut without_nodes = running();
    without_nodes["status"]["nodes"] = json!({});
    let script = Script::default()
        .with(adopts())
        .pod(&exited(pod(&[FOREIGN])))
        .workflow(&before)
        .write(ARGO_SERVER, Verb::Delete, &Gvr::PODS, &gone(&[FOREIGN]))
        .write(ARGO_SERVER, Verb::Patch, &WORKFLOWS, &without_nodes)
        .belayer(&gone(&[]))
        .workflow(&taken());
    assert_eq!(failed(&script.check_script()), broken);
}

/// Argo has read how the pod ended and labelled it, and writes later that it was deleted, as its outputs are incomplete.
#[rstest]
#[case::argo_labelled_it(ARGO, &[])]
#[case::another_did("kubectl", &["EVIDENCE"])]
fn the_label_of_argo_shows_that_a_result_was_read(#[case] actor: &str, #[case] broken: &[&str]) {
    let settings = Settings {
        holds_deleted: true,
        ..Settings::default()
    };
    let labelled = |finalizers| {
        let mut pod = exited(pod(finalizers));
        pod["metadata"]["labels"] = json!({ (names::COMPLETED): "true" });
        pod
    };
    let script = held()
        .with(settings)
        .write(actor, Verb::Patch, &Gvr::PODS, &labelled(&[POD_HOLD]))
        .workflow(&lost())
        .belayer(&labelled(&[]));
    let findings = script.check_script();
    let is_excused = findings.by_hand > 0;
    assert_eq!(
        failed(&findings).is_empty(),
        broken.is_empty() || is_excused
    );
    assert_eq!(is_excused, !broken.is_empty());
}

/// Argo waits for ever for the outputs of a pod: then so does what is held for Argo.
#[rstest]
#[case::held(true, &[])]
#[case::released(false, &["LIVENESS"])]
fn a_pod_whose_outputs_argo_awaits_is_not_stuck(
    #[case] holds_deleted: bool,
    #[case] broken: &[&str],
) {
    let settings = Settings {
        holds_deleted,
        ..Settings::default()
    };
    let gone = deleting(exited(pod(&[POD_HOLD])));
    let awaited = json!({"phase": "Failed", "taskResultSynced": false});
    let mut waiting = workflow(&awaited);
    waiting["status"]["finishedAt"] = Value::Null;
    let script = held()
        .with(settings)
        .pod(&exited(pod(&[POD_HOLD])))
        .deleted(&Gvr::PODS, &gone)
        .workflow(&waiting);
    let findings = script.check_with(&[gone], Duration::from_secs(1), &[]);
    assert_eq!(failed(&findings), broken);
}

/// A pod that has succeeded, with this annotation.
fn with_strategy(strategy: &str) -> Value {
    let mut pod = pod(&[]);
    pod["status"] = json!({"phase": "Succeeded"});
    pod["metadata"]["annotations"][names::POD_GC_STRATEGY] = json!(format!("{strategy}/0s"));
    pod
}

fn completed(phase: &str) -> Value {
    let mut workflow = taken();
    workflow["metadata"]["labels"] = json!({names::COMPLETED: "true", names::PHASE: phase});
    workflow
}

#[rstest]
#[case::of_the_pod("OnPodCompletion", taken(), true)]
#[case::of_a_successful_pod("OnPodSuccess", taken(), true)]
#[case::its_result_was_not_read("OnPodCompletion", running(), false)]
#[case::of_the_workflow("OnWorkflowCompletion", completed("Failed"), true)]
#[case::the_workflow_goes_on("OnWorkflowCompletion", taken(), false)]
#[case::of_a_successful_workflow("OnWorkflowSuccess", completed("Succeeded"), true)]
#[case::of_a_failed_workflow("OnWorkflowSuccess", completed("Failed"), false)]
#[case::no_strategy("Never", completed("Succeeded"), false)]
fn a_pod_is_deleted_as_its_annotation_requires(
    #[case] strategy: &str,
    #[case] workflow: Value,
    #[case] is_due: bool,
) {
    let settings = Settings {
        cleans_up: true,
        ..Settings::default()
    };
    let pod = with_strategy(strategy);
    let before = Script::default()
        .with(settings)
        .workflow(&workflow)
        .pod(&pod);
    let second = Duration::from_secs(1);
    let kept = before.check_with(std::slice::from_ref(&pod), second, &[]);
    assert_eq!(failed(&kept).contains(&"LIVENESS"), is_due);
    let deleted = before
        .write(BELAYER, Verb::Delete, &Gvr::PODS, &deleting(pod))
        .body(json!({"preconditions": {"uid": "p-1"}}));
    let expected: &[&str] = if is_due { &[] } else { &["FOREIGN", "NO-LOSS"] };
    assert_eq!(failed(&deleted.check_script()), expected);
}

/// Seed 40,201,034: a tenant labels a pod as read, and Belayer deletes it as its annotation requires.
#[test]
fn a_pod_that_a_tenant_labelled_is_not_belayers_responsibility() {
    let mut labelled = with_strategy("OnPodCompletion");
    labelled["metadata"]["labels"] = json!({ (names::COMPLETED): "true" });
    let script = Script::default()
        .with(Settings {
            cleans_up: true,
            ..Settings::default()
        })
        .workflow(&running())
        .pod(&with_strategy("OnPodCompletion"))
        .write("tenant", Verb::Patch, &Gvr::PODS, &labelled)
        .write(BELAYER, Verb::Delete, &Gvr::PODS, &deleting(labelled))
        .body(json!({"preconditions": {"uid": "p-1"}}))
        .workflow(&taken());
    let findings = script.check_script();
    assert_eq!(failed(&findings), [""; 0]);
    assert!(findings.by_hand > 0);
}

#[test]
fn a_pod_is_not_deleted_unless_so_configured() {
    let pod = with_strategy("OnPodCompletion");
    let script = Script::default()
        .workflow(&taken())
        .pod(&pod)
        .write(BELAYER, Verb::Delete, &Gvr::PODS, &deleting(pod))
        .body(json!({"preconditions": {"uid": "p-1"}}));
    assert_eq!(failed(&script.check_script()), ["FOREIGN", "NO-LOSS"]);
}

/// A pod without an owner, whose consumer reads the record of its outcome.
#[rstest]
#[case::no_record(None, &["EVIDENCE"])]
#[case::before_its_end(Some(json!({"belayer.dev/not-final": "true"})), &["EVIDENCE"])]
#[case::recorded(Some(Value::Null), &[])]
fn a_pod_that_is_read_by_its_record_is_held_until_it_is_written(
    #[case] labels: Option<Value>,
    #[case] broken: &[&str],
) {
    let report = |finalizers| {
        let mut pod = exited(pod(finalizers));
        pod["metadata"]["ownerReferences"] = Value::Null;
        pod["metadata"]["labels"] = json!({"app": "reports"});
        pod
    };
    let mut script = Script::default()
        .with(Settings {
            recorded_app: Some("reports"),
            ..Settings::default()
        })
        .write(USER, Verb::Create, &Gvr::PODS, &report(&[]))
        .belayer(&report(&[POD_HOLD]));
    if let Some(labels) = labels {
        let record = json!({
            "kind": "PodOutcome",
            "metadata": {"namespace": "a", "name": "pod-p-1", "uid": "o-1", "labels": labels},
            "spec": {"podUID": "p-1", "phase": "Failed", "complete": true},
        });
        let outcomes = Gvr::new("belayer.dev", "v1alpha1", "podoutcomes");
        script = script.write(BELAYER, Verb::Create, &outcomes, &record);
    }
    let script = script.belayer(&report(&[]));
    assert_eq!(failed(&script.check_script()), broken);
}

/// An admin labels the namespace as ignored, and removes the label after ten seconds if `until` is later than that.
#[rstest]
#[case::never(None, 1, &["EVIDENCE"])]
#[case::ignored(Some(IGNORE_LABEL), 1, &[])]
#[case::label_just_removed(Some(IGNORE_LABEL), 29, &[])]
#[case::label_removed_before(Some(IGNORE_LABEL), 50, &["EVIDENCE"])]
#[case::another_label(Some("example.com/ignore"), 1, &["EVIDENCE"])]
fn pods_of_an_ignored_namespace_are_released(
    #[case] label: Option<&str>,
    #[case] until: i64,
    #[case] broken: &[&str],
) {
    let namespace = |labels: Value| {
        json!({
            "kind": "Namespace",
            "metadata": { "uid": "n-1", "name": "a", "labels": labels },
        })
    };
    let mut script = held();
    if let Some(label) = label {
        let namespace = namespace(json!({ label: "true" }));
        script = script.write(USER, Verb::Patch, &Gvr::NAMESPACES, &namespace);
    }
    if until > 10 {
        let namespace = namespace(json!({}));
        script = script
            .later(10)
            .write(USER, Verb::Patch, &Gvr::NAMESPACES, &namespace);
    }
    let script = script.later(until).belayer(&pod(&[])).workflow(&taken());
    assert_eq!(failed(&script.check_script()), broken);
}

/// Seed 61,008,537: the label was removed a few seconds before the last write.
#[rstest]
#[case::at_once(1, &["LIVENESS"])]
#[case::in_the_end(60, &[])]
fn a_pod_stays_held_once_its_namespace_is_not_ignored(#[case] quiet: u64, #[case] broken: &[&str]) {
    let namespace = |labels: Value| {
        json!({
            "kind": "Namespace",
            "metadata": { "uid": "n-1", "name": "a", "labels": labels },
        })
    };
    let ignored = namespace(json!({ IGNORE_LABEL: "true" }));
    let script = held()
        .write(USER, Verb::Patch, &Gvr::NAMESPACES, &ignored)
        .later(10)
        .write(USER, Verb::Patch, &Gvr::NAMESPACES, &namespace(json!({})))
        .later(5)
        .workflow(&running());
    let left = [pod(&[POD_HOLD])];
    let findings = script.check_with(&left, Duration::from_secs(quiet), &[]);
    assert_eq!(failed(&findings), broken);
}

/// Seed 52,022,149: a user requested the release of the pod.
#[rstest]
#[case::requested(true, &[])]
#[case::not_requested(false, &["LIVENESS"])]
fn a_pod_whose_release_was_requested_need_not_be_deleted(
    #[case] is_requested: bool,
    #[case] broken: &[&str],
) {
    let mut pod = with_strategy("OnPodCompletion");
    if is_requested {
        pod["metadata"]["annotations"][RELEASE_ANNOTATION] = json!("true");
    }
    let settings = Settings {
        cleans_up: true,
        ..Settings::default()
    };
    let script = Script::default()
        .with(settings)
        .workflow(&completed("Succeeded"))
        .pod(&pod);
    let second = Duration::from_secs(1);
    let findings = script.check_with(std::slice::from_ref(&pod), second, &[]);
    assert_eq!(failed(&findings), broken);
}
