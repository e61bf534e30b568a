//! Decides what pod GC does about one pod.

use serde_json::{Value, json};

use crate::simulated::object;

/// Where a pod is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binding {
    /// To no node.
    Unbound,
    /// To a node that exists, or has not been missing for long.
    Node,
    /// To a node that has been missing for the quarantine period.
    NodeGone,
}

/// The next write about a pod, if any.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PodGcStep {
    Nothing,
    /// Set phase `Failed`, with this condition.
    Fail(Option<Value>),
    /// Delete it without grace.
    Remove,
}

/// Decides about a pod.
pub(super) fn decide(pod: &Value, binding: Binding) -> PodGcStep {
    let deleting = object::is_deleting(pod);
    let condition = match binding {
        Binding::Node => return PodGcStep::Nothing,
        Binding::Unbound if !deleting => return PodGcStep::Nothing,
        Binding::Unbound => None,
        Binding::NodeGone => Some(json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists",
        })),
    };
    if !object::is_ended(pod) {
        return PodGcStep::Fail(condition);
    }
    let grace = pod
        .pointer("/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_i64);
    if deleting && grace == Some(0) {
        // Already deleted; another controller's finalizer blocks the removal.
        return PodGcStep::Nothing;
    }
    PodGcStep::Remove
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[derive(Debug)]
    enum Outcome {
        Nothing,
        Fail,
        FailAsDisrupted,
        Remove,
    }
    use Outcome::{Fail, FailAsDisrupted, Nothing, Remove};

    #[rstest]
    #[case::a_pod_with_a_node_is_the_kubelets("Running", Some(30), Binding::Node, Nothing)]
    #[case::a_pod_whose_node_is_gone_has_failed(
        "Running",
        None,
        Binding::NodeGone,
        FailAsDisrupted
    )]
    #[case::deleted_or_not("Pending", Some(30), Binding::NodeGone, FailAsDisrupted)]
    #[case::then_it_goes("Failed", Some(30), Binding::NodeGone, Remove)]
    #[case::an_end_before_counts_too("Succeeded", None, Binding::NodeGone, Remove)]
    #[case::a_finalizer_may_keep_it("Failed", Some(0), Binding::NodeGone, Nothing)]
    #[case::an_unbound_pod_may_wait("Pending", None, Binding::Unbound, Nothing)]
    #[case::unless_it_is_to_go("Pending", Some(0), Binding::Unbound, Fail)]
    #[case::and_is_not_removed_twice("Failed", Some(0), Binding::Unbound, Nothing)]
    fn steps(
        #[case] phase: &str,
        #[case] deleted_with_grace: Option<i64>,
        #[case] binding: Binding,
        #[case] expected: Outcome,
    ) {
        let mut pod = json!({"metadata": {"name": "a"}, "status": {"phase": phase}});
        if let Some(grace) = deleted_with_grace {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
        let step = decide(&pod, binding);
        let as_expected = match (&step, &expected) {
            (PodGcStep::Nothing, Nothing)
            | (PodGcStep::Fail(None), Fail)
            | (PodGcStep::Remove, Remove) => true,
            (PodGcStep::Fail(Some(condition)), FailAsDisrupted) => {
                condition["reason"] == "DeletionByPodGC"
            }
            _ => false,
        };
        assert!(as_expected, "{step:?} instead of {expected:?}");
    }
}
