use std::sync::Arc;
use std::time::Duration;

use belayer_sandbox::simulated::object;
use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Action, Look, Observed, Phase, Rules, TaskResults, Version, WorkflowResult, look};

/// One workflow with one step, whose pod a test changes by hand.
struct Flow {
    rules: Rules,
    workflow: Value,
    pods: Vec<Arc<Value>>,
    results: TaskResults,
    now: Timestamp,
}

impl Flow {
    fn new(template: Value) -> Self {
        let mut step = json!({ "name": "step" });
        merge(&mut step, &template);
        let main = json!({ "name": "main", "steps": [[{ "name": "s0", "template": "step" }]] });
        let spec = json!({ "entrypoint": "main", "templates": [main, step] });
        let mut flow = Self {
            rules: Rules::default(),
            workflow: json!({ "metadata": { "name": "flow", "namespace": "ci", "uid": "u" }, "spec": spec }),
            pods: vec![],
            results: TaskResults::default(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
        };
        flow.look();
        flow
    }

    /// Looks at the workflow ten seconds later, and applies what follows.
    fn look(&mut self) -> Look {
        self.pass(10);
        let observed = Observed {
            workflow: &self.workflow,
            pods: &self.pods,
            results: &self.results,
            now: self.now,
        };
        let look = look(&self.rules, &observed);
        self.pods.extend(look.pods.iter().cloned().map(Arc::new));
        if let Some(patch) = &look.patch {
            merge(&mut self.workflow, patch);
        }
        look
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// The pod's status: its phase, and the states of main and wait.
    fn pod(&mut self, phase: &str, main: Value, wait: Value) {
        let status =
            |name: &str, state: &Value| json!({ "name": name, "state": state, "ready": true });
        let pod = Arc::make_mut(self.pods.last_mut().unwrap());
        pod["status"] = json!({
            "phase": phase, "containerStatuses": [status("wait", &wait), status("main", &main)],
        });
        self.results.observe(pod);
    }

    fn runs(&mut self) {
        self.pod("Running", running(), running());
        self.look();
    }

    fn ends(&mut self, phase: &str, main: i32, wait: i32) -> Look {
        self.pod(phase, ended(main), ended(wait));
        self.look()
    }

    fn vanish(&mut self) {
        let pod = self.pods.pop().unwrap();
        self.results.removed(&pod);
    }

    /// Phase and message of the step.
    fn step(&self) -> (Phase, String) {
        let result = WorkflowResult::of(&self.workflow);
        let step = result
            .nodes
            .into_iter()
            .find(|node| node.display_name == "s0")
            .unwrap();
        (step.phase, step.message)
    }

    fn phase(&self) -> Phase {
        WorkflowResult::of(&self.workflow).phase.unwrap()
    }
}

fn merge(object: &mut Value, patch: &Value) {
    let (Some(fields), Value::Object(patch)) = (object.as_object_mut(), patch) else {
        *object = patch.clone();
        return;
    };
    for (field, value) in patch {
        if value.is_null() {
            fields.remove(field);
        } else if value.is_object() {
            merge(fields.entry(field).or_insert_with(|| json!({})), value);
        } else {
            fields.insert(field.clone(), value.clone());
        }
    }
}

const STARTED: &str = "2026-01-01T00:00:12Z";

fn running() -> Value {
    json!({ "running": { "startedAt": STARTED } })
}

fn ended(code: i32) -> Value {
    json!({ "terminated": { "exitCode": code, "reason": "Error", "startedAt": STARTED } })
}

#[test]
fn a_pod_that_vanishes_while_its_node_is_pending_is_created_again() {
    let mut flow = Flow::new(json!({}));
    let first = flow.pods[0].clone();
    flow.pod("Running", running(), running());
    flow.vanish();
    let look = flow.look();
    assert_eq!(
        look.pods.iter().map(object::name).collect::<Vec<_>>(),
        [object::name(&first)]
    );
    assert_eq!(flow.step(), (Phase::Pending, String::new()));
}

#[test]
fn a_pod_that_vanishes_while_its_node_is_running_is_an_error() {
    let mut flow = Flow::new(json!({}));
    flow.runs();
    flow.vanish();
    let look = flow.look();
    assert!(look.pods.is_empty());
    assert_eq!(flow.step(), (Phase::Error, "pod deleted".to_owned()));
    assert_eq!(flow.phase(), Phase::Failed);
}

#[rstest]
#[case::it_succeeds("Succeeded", 0, 0, Phase::Succeeded, "")]
#[case::a_killed_pod_fails("Failed", 143, 64, Phase::Failed, "main: Error (exit code 143)")]
#[case::main_takes_precedence_over_wait("Failed", 1, 1, Phase::Failed, "main: Error (exit code 1)")]
#[case::wait_alone_is_an_error("Failed", 0, 1, Phase::Error, "wait: Error (exit code 1)")]
#[case::a_killed_sidecar_does_not_count("Failed", 0, 0, Phase::Succeeded, "")]
fn ends(
    #[case] pod: &str,
    #[case] main: i32,
    #[case] wait: i32,
    #[case] phase: Phase,
    #[case] message: &str,
) {
    let mut flow = Flow::new(json!({}));
    flow.ends(pod, main, wait);
    assert_eq!(flow.step(), (phase, message.to_owned()));
}

/// Rule A2 by version: the pod of a lost node, held. At which time does the workflow finish?
#[rstest]
#[case::the_node_stays_running(Version::UpTo3_6_4, Phase::Running, None)]
#[case::it_waits_for_the_pod(Version::UpTo3_7_0, Phase::Failed, None)]
#[case::it_gives_up_at_once(Version::UpTo3_7_18, Phase::Failed, Some(0))]
#[case::never(Version::From4_0, Phase::Failed, None)]
fn a2_a_lost_node_by_version(
    #[case] version: Version,
    #[case] step: Phase,
    #[case] frees_itself: Option<u64>,
) {
    let mut flow = Flow::new(json!({}));
    flow.rules.version = version;
    flow.runs();
    flow.pod("Failed", running(), running());
    flow.look();
    assert_eq!((flow.step().0, flow.phase()), (step, Phase::Running));
    let mut finished: Option<u64> = None;
    for second in (0..2_400).step_by(10) {
        flow.look();
        if flow.phase() != Phase::Running {
            finished = finished.or(Some(second));
        }
    }
    let near = |limit: u64| finished.is_some_and(|at| at.abs_diff(limit) <= 20);
    assert!(
        frees_itself.map_or(finished.is_none(), near),
        "finished after {finished:?}"
    );
    let stays = version == Version::UpTo3_7_0;
    if stays {
        // Gone without a report: two minutes later it is given up.
        flow.pods.clear();
        for _ in 0..15 {
            flow.look();
        }
        assert_eq!(flow.phase(), Phase::Failed);
    }
}

#[rstest]
#[case::after_a_failure("OnFailure", 1, true)]
#[case::not_after_an_error("OnFailure", 0, false)]
#[case::after_an_error("OnError", 0, true)]
#[case::not_after_a_failure("OnError", 1, false)]
#[case::always("Always", 1, true)]
#[case::always_after_errors_too("Always", 0, true)]
#[case::only_errors_that_pass("OnTransientError", 1, false)]
fn retries_by_policy(#[case] policy: &str, #[case] main: i32, #[case] again: bool) {
    let retry = json!({ "retryStrategy": { "limit": 1, "retryPolicy": policy } });
    let mut flow = Flow::new(retry);
    flow.runs();
    let look = flow.ends("Failed", main, 1);
    assert_eq!(look.pods.len(), usize::from(again));
    flow.ends("Failed", main, 1);
    assert!(flow.phase().is_failed(), "{:?}", flow.phase());
}

#[rstest]
#[case::without_a_strategy(None, 0, Action::Label)]
#[case::on_pod_completion(Some("OnPodCompletion"), 1, Action::Delete)]
#[case::on_pod_success(Some("OnPodSuccess"), 0, Action::Delete)]
#[case::on_pod_success_of_a_failed_pod(Some("OnPodSuccess"), 1, Action::Label)]
#[case::on_workflow_completion(Some("OnWorkflowCompletion"), 1, Action::Delete)]
#[case::on_workflow_success(Some("OnWorkflowSuccess"), 0, Action::Delete)]
#[case::on_workflow_success_of_a_failed_one(Some("OnWorkflowSuccess"), 1, Action::Label)]
fn pod_gc(#[case] strategy: Option<&str>, #[case] main: i32, #[case] expected: Action) {
    let mut flow = Flow::new(json!({}));
    flow.workflow["spec"]["podGC"] = json!({ "strategy": strategy, "deleteDelayDuration": "2s" });
    let phase = if main == 0 { "Succeeded" } else { "Failed" };
    let look = flow.ends(phase, main, 0);
    let delay = if expected == Action::Delete { 2 } else { 0 };
    let actions: Vec<_> = look
        .cleanup
        .iter()
        .map(|cleanup| (cleanup.action, cleanup.after))
        .collect();
    assert_eq!(actions, [(expected, Duration::from_secs(delay))]);
}

#[test]
fn a_result_waits_for_its_outputs() {
    let mut flow = Flow::new(json!({}));
    flow.runs();
    let results = flow.results.clone();
    flow.pod("Succeeded", ended(0), ended(0));
    flow.results = results;
    let look = flow.look();
    assert_eq!(
        (flow.step().0, look.again),
        (Phase::Running, Some(flow.rules.requeue))
    );
    flow.ends("Succeeded", 0, 0);
    assert_eq!(
        (flow.step().0, flow.phase()),
        (Phase::Succeeded, Phase::Succeeded)
    );
}

#[test]
fn a_finished_workflow_expires() {
    let mut flow = Flow::new(json!({}));
    flow.workflow["spec"]["ttlStrategy"] = json!({ "secondsAfterCompletion": 15 });
    flow.ends("Succeeded", 0, 0);
    let look = flow.look();
    assert_eq!(
        (look.delete, look.again),
        (false, Some(Duration::from_secs(5)))
    );
    assert!(flow.look().delete);
}
