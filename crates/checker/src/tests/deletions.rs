//! ORDER and IN-USE: what the release of a workflow or a PVC waits for.

use belayer_sandbox::Gvr;
use belayer_sandbox::Verb;
use belayer_workload::{ARGO_SERVER, USER, WORKFLOWS};
use rstest::rstest;
use serde_json::{Value, json};

use super::script::{FOREIGN, Script, deleting, failed, pod, running, taken};
use crate::{POD_HOLD, PVC_HOLD, Settings, WORKFLOW_HOLD, Why};

const PVCS: Gvr = Gvr::PERSISTENTVOLUMECLAIMS;

fn with(mut object: Value, finalizers: &[&str]) -> Value {
    object["metadata"]["finalizers"] = json!(finalizers);
    object
}

/// A workflow and a pod with holds; the workflow is deleted.
fn deleted_workflow() -> Script {
    let held = with(running(), &[WORKFLOW_HOLD]);
    Script::default()
        .workflow(&running())
        .pod(&pod(&[]))
        .belayer_patches(&WORKFLOWS, &held)
        .belayer(&pod(&[POD_HOLD]))
        .deleted(&WORKFLOWS, &deleting(held))
}

fn released_state() -> Value {
    deleting(with(running(), &[]))
}

#[test]
fn releasing_a_workflow_after_its_pods_is_correct() {
    let script = deleted_workflow()
        .belayer(&pod(&[]))
        .belayer_patches(&WORKFLOWS, &released_state());
    let findings = script.check_script();
    assert_eq!(failed(&findings), [""; 0], "{:?}", findings.checks);
    assert_eq!(findings.releases[&Why::WorkflowDeleted], 2);
    assert_eq!(findings.holds_added, 2);
}

#[test]
fn order_is_violated_by_releasing_a_workflow_before_its_pods() {
    let early = deleted_workflow().belayer_patches(&WORKFLOWS, &released_state());
    assert_eq!(failed(&early.check_script()), ["ORDER"]);
}

/// A16: Argo goes on running an unfinished workflow that another program keeps.
#[rstest]
#[case::unfinished("false", &[])]
#[case::completed("true", &["ORDER"])]
fn a16_a_workflow_that_another_finalizer_keeps_is_released_before_its_pods(
    #[case] completed: &str,
    #[case] broken: &[&str],
) {
    let workflow = |finalizers: &[&str]| {
        let mut workflow = with(running(), finalizers);
        workflow["metadata"]["labels"] = json!({ "workflows.argoproj.io/completed": completed });
        workflow
    };
    let others = "workflows.argoproj.io/artifact-gc";
    let script = Script::default()
        .workflow(&workflow(&[others]))
        .pod(&pod(&[]))
        .belayer(&pod(&[POD_HOLD]))
        .belayer_patches(&WORKFLOWS, &workflow(&[others, WORKFLOW_HOLD]))
        .deleted(&WORKFLOWS, &deleting(workflow(&[others, WORKFLOW_HOLD])))
        .belayer_patches(&WORKFLOWS, &deleting(workflow(&[others])));
    assert_eq!(failed(&script.check_script()), broken);
}

#[rstest]
#[case::pending(true, "Pending", &["ORDER"])]
#[case::archived(true, "Archived", &[])]
#[case::not_configured(false, "Pending", &[])]
fn a20_order_is_violated_by_releasing_a_workflow_before_its_archive(
    #[case] until_archived: bool,
    #[case] archive: &str,
    #[case] broken: &[&str],
) {
    let workflow = |finalizers: &[&str]| {
        let mut workflow = with(taken(), finalizers);
        workflow["metadata"]["labels"] = json!({
            "workflows.argoproj.io/completed": "true",
            "workflows.argoproj.io/workflow-archiving-status": archive,
        });
        workflow
    };
    let script = Script::default()
        .with(Settings {
            until_archived,
            ..Settings::default()
        })
        .workflow(&workflow(&[]))
        .belayer_patches(&WORKFLOWS, &workflow(&[WORKFLOW_HOLD]))
        .deleted(&WORKFLOWS, &deleting(workflow(&[WORKFLOW_HOLD])))
        .belayer_patches(&WORKFLOWS, &deleting(workflow(&[])));
    assert_eq!(failed(&script.check_script()), broken);
}

#[test]
fn a_pod_that_got_its_hold_after_the_deletion_may_be_left() {
    let held = with(running(), &[WORKFLOW_HOLD]);
    let late = Script::default()
        .workflow(&running())
        .belayer_patches(&WORKFLOWS, &held)
        .deleted(&WORKFLOWS, &deleting(held))
        .pod(&pod(&[]))
        .belayer(&pod(&[POD_HOLD]))
        .belayer_patches(&WORKFLOWS, &released_state());
    assert_eq!(failed(&late.check_script()), [""; 0]);
}

#[test]
fn evidence_is_violated_by_releasing_a_workflow_that_is_not_deleted() {
    let script = Script::default()
        .workflow(&taken())
        .belayer_patches(&WORKFLOWS, &with(taken(), &[WORKFLOW_HOLD]))
        .belayer_patches(&WORKFLOWS, &with(taken(), &[]));
    assert_eq!(failed(&script.check_script()), ["EVIDENCE"]);
}

fn pvc(finalizers: &[&str]) -> Value {
    json!({
        "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "a", "name": "data", "uid": "c-1", "finalizers": finalizers},
    })
}

/// A pod that refers to the PVC.
fn user(namespace: &str, node: &str) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": "db-0", "uid": "p-2"},
        "spec": {
            "nodeName": node,
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    })
}

fn deleted_pvc() -> Script {
    Script::default()
        .write(USER, Verb::Create, &PVCS, &pvc(&[]))
        .belayer_patches(&PVCS, &pvc(&[PVC_HOLD]))
        .deleted(&PVCS, &deleting(pvc(&[PVC_HOLD])))
}

#[rstest]
#[case::on_a_node("a", "node-1", &["IN-USE"])]
#[case::not_scheduled("a", "", &[])]
#[case::of_another_namespace("b", "node-1", &[])]
fn in_use_is_violated_by_releasing_a_pvc_in_use(
    #[case] namespace: &str,
    #[case] node: &str,
    #[case] broken: &[&str],
) {
    let script = deleted_pvc()
        .write(USER, Verb::Create, &Gvr::PODS, &user(namespace, node))
        .belayer_patches(&PVCS, &deleting(pvc(&[])));
    assert_eq!(failed(&script.check_script()), broken);
}

/// A18: Argo deletes the PVCs of a workflow at its end.
#[rstest]
#[case::finished("true", "Succeeded", None, &[])]
#[case::a_pod_runs("true", "Running", None, &["IN-USE"])]
#[case::unfinished("false", "Succeeded", None, &["IN-USE"])]
#[case::retried_while_it_was_read("true", "Succeeded", Some(20), &[])]
#[case::retried_long_before("true", "Succeeded", Some(40), &["IN-USE"])]
fn a18_ended_pods_do_not_use_a_pvc_of_a_finished_workflow(
    #[case] completed: &str,
    #[case] phase: &str,
    #[case] retried: Option<i64>,
    #[case] broken: &[&str],
) {
    let state = |completed: &str| {
        let mut workflow = taken();
        workflow["metadata"]["labels"] = json!({ "workflows.argoproj.io/completed": completed });
        workflow
    };
    let workflow = state(completed);
    let owned = |finalizers: &[&str]| {
        let mut pvc = pvc(finalizers);
        pvc["metadata"]["ownerReferences"] =
            json!([{"controller": true, "uid": workflow["metadata"]["uid"]}]);
        pvc
    };
    let mut pod = user("a", "node-1");
    pod["status"] = json!({ "phase": phase });
    let script = Script::default()
        .workflow(&workflow)
        .write(USER, Verb::Create, &PVCS, &owned(&[]))
        .belayer_patches(&PVCS, &owned(&[PVC_HOLD]))
        .write(USER, Verb::Create, &Gvr::PODS, &pod)
        .deleted(&PVCS, &deleting(owned(&[PVC_HOLD])));
    let script = match retried {
        Some(seconds) => script
            .write(ARGO_SERVER, Verb::Patch, &WORKFLOWS, &state("false"))
            .later(seconds),
        None => script,
    };
    let script = script.belayer_patches(&PVCS, &deleting(owned(&[])));
    assert_eq!(failed(&script.check_script()), broken);
}

#[test]
fn releasing_a_pvc_after_its_last_user_is_correct() {
    let script = Script::default()
        .write(USER, Verb::Create, &Gvr::PODS, &user("a", "node-1"))
        .write(USER, Verb::Create, &PVCS, &pvc(&[FOREIGN]))
        .belayer_patches(&PVCS, &pvc(&[FOREIGN, PVC_HOLD]))
        .deleted(&PVCS, &deleting(pvc(&[FOREIGN, PVC_HOLD])))
        .deleted(&Gvr::PODS, &user("a", "node-1"))
        .belayer_patches(&PVCS, &deleting(pvc(&[FOREIGN])));
    let findings = script.check_script();
    assert_eq!(failed(&findings), [""; 0], "{:?}", findings.checks);
    assert_eq!(findings.releases[&Why::PvcDeleted], 1);
}

#[test]
fn evidence_is_violated_by_releasing_a_pvc_that_is_not_deleted() {
    let script = Script::default()
        .write(USER, Verb::Create, &PVCS, &pvc(&[]))
        .belayer_patches(&PVCS, &pvc(&[PVC_HOLD]))
        .belayer_patches(&PVCS, &pvc(&[]));
    assert_eq!(failed(&script.check_script()), ["EVIDENCE"]);
}
