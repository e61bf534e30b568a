//! A pod past its grace period that its kubelet has not terminated, or that Argo's own finalizer keeps.

use jiff::Timestamp;

use belayer_holds::argo::COMPLETED_LABEL;

use super::why;
use super::{Diagnosis, others};
use crate::argo::{OWN_FINALIZER, STATUS_FINALIZER, WorkflowController};
use crate::evidence::World;
use crate::object::Terminating;
use crate::reader::{ReadResult, one_line};
use crate::report::{Cause, Step, Verdict};

pub(super) fn without_finalizers(object: &Terminating, world: &World) -> Diagnosis {
    let key = &object.object.key;
    let list = world.pods.get(key.namespace().unwrap_or_default());
    let Some(pods) = list.and_then(ReadResult::found) else {
        return Diagnosis::possible(Cause::Node)
            .missing(format!("which node the pod is on: pods: {}", why(list)))
            .next(describe(object, ""));
    };
    let Some(pod) = pods.iter().find(|pod| pod.name == key.name()) else {
        return Diagnosis::new(Cause::Nothing, Verdict::Unknown)
            .missing("what blocked the deletion: the pod was deleted during this check");
    };
    if pod.node.is_empty() {
        return Diagnosis::new(Cause::Nothing, Verdict::Unknown)
            .missing(
                "what blocks the deletion: the pod is not bound to a node and has no finalizer",
            )
            .next(describe(object, ""));
    }
    on_node(object, &pod.node, world)
}

/// A pod with finalizers whose kubelet cannot terminate it: their controllers may wait for the pod's end.
pub(super) fn on_lost_node(object: &Terminating, world: &World) -> Option<Diagnosis> {
    let key = &object.object.key;
    let pods = world.pods.get(key.namespace()?)?.found()?;
    let pod = pods.iter().find(|pod| pod.name == key.name())?;
    let is_terminated = matches!(&*pod.phase, "Succeeded" | "Failed");
    if pod.node.is_empty() || is_terminated {
        return None;
    }
    let found = on_node(object, &pod.node, world);
    let is_lost = matches!(found.verdict, Verdict::NodeGone | Verdict::NodeDown);
    is_lost.then_some(found)
}

/// A pod with the finalizer of Argo's workflow controller, which does not remove it any more: it ignores a pod that
/// it has read, and without its switch it removes it from no pod.
pub(super) fn left_by_argo(
    object: &Terminating,
    world: &World,
    now: Timestamp,
) -> Option<Diagnosis> {
    let is_read = object.labels.get(COMPLETED_LABEL) == Some("true");
    let controllers = world.argo.found().filter(|all| !all.is_empty());
    let is_off = controllers.is_some_and(|all| {
        let may_remove = |one: &WorkflowController| one.own_finalizer || one.may_have_own_finalizer;
        !all.iter().any(may_remove)
    });
    let why = match (is_read, is_off) {
        (true, _) => format!(
            "the pod is labelled {COMPLETED_LABEL}=true: the workflow controller has read its result, and does not remove \
             the finalizer any more"
        ),
        (false, true) => format!(
            "{OWN_FINALIZER} is not true on any workflow controller: it does not remove the finalizer any more"
        ),
        (false, false) => return None,
    };
    let mut found = others::controller(object, STATUS_FINALIZER, world, now).proven(why);
    let remove = if is_read {
        "Or remove it yourself: the result was read"
    } else {
        "Or remove it yourself, if its workflow has the result of the pod; otherwise the step fails as \"pod deleted\""
    };
    found.next = vec![
        Step::say(format!(
            "Let Belayer remove it: set `adopt: [{STATUS_FINALIZER}]` in the profile that selects the pod and, if \
             pod-write-policy.yaml is applied, add the name to its variable `adopted`"
        )),
        Step::run(remove, others::removal(object, STATUS_FINALIZER)),
    ];
    Some(found)
}

fn on_node(object: &Terminating, node: &str, world: &World) -> Diagnosis {
    let mut found = match world.nodes.get(node) {
        Some(ReadResult::Absent) => gone(object, node),
        Some(ReadResult::Found(state)) => match &state.ready {
            Some(ready) if ready.status == "True" => running(object, node),
            Some(ready) => Diagnosis::new(Cause::Node, Verdict::NodeDown)
                .proven(format!(
                    "node {node} is not ready: {}: {}",
                    ready.reason,
                    one_line(&ready.message)
                ))
                .next(Step::run("Restore the node: its kubelet then terminates the pod", format!("kubectl describe node {node}")))
                .next(Step::run(
                    "If its machine is proven to be off, set the out-of-service taint: its pods and volumes are then moved. \
                     Risk if it still runs: two pods may use one volume",
                    format!("kubectl taint nodes {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"),
                )),
            None => Diagnosis::new(Cause::Node, Verdict::Unknown)
                .missing(format!("whether the kubelet of node {node} runs: the node has no Ready condition"))
                .next(describe(object, ""))
                .next(Step::run("Check the node", format!("kubectl describe node {node}"))),
        },
        other => Diagnosis::new(Cause::Node, Verdict::Unknown)
            .missing(format!("whether node {node} exists: {}", why(other)))
            .next(describe(
                object,
                "; with the ClusterRole belayer-viewer this command also reads nodes",
            )),
    };
    node.clone_into(&mut found.about);
    found
}

/// Shows what Kubernetes itself reports about the pod.
fn describe(object: &Terminating, more: &str) -> Step {
    Step::run(
        format!("Check the pod's status and Events{more}"),
        object.object.kubectl("describe"),
    )
}

fn gone(object: &Terminating, node: &str) -> Diagnosis {
    let key = &object.object.key;
    let found = Diagnosis::new(Cause::Node, Verdict::NodeGone).proven(format!(
        "node {node} does not exist: no kubelet will terminate the pod"
    ));
    if !object.finalizers.is_empty() {
        return found.next(Step::say(
            "The pod garbage collector of kube-controller-manager sets the phase of such pods to Failed within a minute or two",
        ));
    }
    found
        .proven("it has no finalizer")
        .next(Step::say(
            "The pod garbage collector of kube-controller-manager deletes pods of missing nodes within a minute or two",
        ))
        .next(Step::run(
            "If it does not, delete the Pod object. Risk if the machine still runs: its containers keep running without a Pod",
            format!(
                "kubectl -n {} delete pod {} --grace-period=0 --force",
                key.namespace().unwrap_or_default(),
                key.name()
            ),
        ))
}

fn running(object: &Terminating, node: &str) -> Diagnosis {
    Diagnosis::new(Cause::Node, Verdict::Unknown)
        .proven(format!(
            "node {node} is ready, and the pod has no finalizer"
        ))
        .missing("what its kubelet waits for: only its log and the pod's Events show it")
        .next(Step::run(
            "Check its Events for volumes that cannot be unmounted and containers that do not stop",
            object.object.kubectl("describe"),
        ))
}
