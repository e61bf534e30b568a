//! What the run does next about a pod that it sees.

use super::judge::{Phase, Seen};
use super::nodes::Nodes;
use super::plan::{Plan, Rejector};

/// A request about one pod, by its UID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LoadStep {
    /// Bind it to this node.
    Bind(String),
    /// Write the status of a rejection.
    Reject,
    /// Delete it: it has started.
    Delete,
}

/// The next request; `before` is how many other pods had its name.
pub(super) fn next(plan: &Plan, nodes: &Nodes, seen: &Seen, before: usize) -> Option<LoadStep> {
    if seen.is_deleting {
        return None;
    }
    let (is_belayers, is_rejected) = (
        plan.is_rejected(&seen.name, 0),
        plan.is_rejected(&seen.name, before),
    );
    let index = plan.index(&seen.name)?;
    match (seen.phase, &seen.node) {
        (Phase::Started, _) => Some(LoadStep::Delete),
        (Phase::Rejected, _) => None,
        (Phase::Waiting, None) if !is_belayers => None,
        (Phase::Waiting, None) if is_rejected => {
            Some(LoadStep::Bind(nodes.rejecting(index).to_owned()))
        }
        (Phase::Waiting, None) => Some(LoadStep::Bind(nodes.home(index).to_owned())),
        (Phase::Waiting, Some(node)) => {
            let rejects = plan.rejector == Rejector::Status && nodes.is_belayers(node);
            rejects.then_some(LoadStep::Reject)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;

    fn plan(rejected: f64, rejector: Rejector) -> Plan {
        Plan {
            pods: 1,
            rate: 1.0,
            at_once: None,
            namespaces: vec!["ns".into()],
            rejected,
            rejector,
            kill_leader: None,
            disruptions: None,
            max_retries: 3,
            image: "pause".into(),
            seed: 1,
            patience: Duration::ZERO,
            settle: Duration::ZERO,
        }
    }

    fn seen(phase: Phase, node: Option<&str>) -> Seen {
        Seen {
            namespace: "ns".into(),
            name: "load-1-0".into(),
            uid: "a".into(),
            node: node.map(String::from),
            phase,
            is_deleting: false,
        }
    }

    fn bind(node: &str) -> Option<LoadStep> {
        Some(LoadStep::Bind(node.into()))
    }

    #[rstest]
    #[case::r13_another_scheduler_binds_the_others(0.0, Phase::Waiting, None, None)]
    #[case::r13_a_pod_to_be_rejected_is_bound_to_a_node_without_a_kubelet(
        1.0,
        Phase::Waiting,
        None,
        bind("r")
    )]
    #[case::r13_a_bound_pod_is_rejected(1.0, Phase::Waiting, Some("r"), Some(LoadStep::Reject))]
    #[case::r13_a_pod_on_a_node_with_a_kubelet_is_not(1.0, Phase::Waiting, Some("a"), None)]
    #[case::r13_a_rejected_pod_is_left_alone(1.0, Phase::Rejected, Some("r"), None)]
    #[case::r13_a_started_pod_makes_room(0.0, Phase::Started, Some("a"), Some(LoadStep::Delete))]
    fn with_the_status(
        #[case] rejected: f64,
        #[case] phase: Phase,
        #[case] node: Option<&str>,
        #[case] expected: Option<LoadStep>,
    ) {
        let plan = plan(rejected, Rejector::Status);
        let nodes = Nodes::test(&["a", "b"], &["r"]);
        assert_eq!(next(&plan, &nodes, &seen(phase, node), 0), expected);
    }

    #[rstest]
    #[case::r13_it_is_bound_to_a_node_that_it_does_not_select(None, bind("b"))]
    #[case::r13_its_kubelet_rejects_it(Some("b"), None)]
    fn with_kubelets(#[case] node: Option<&str>, #[case] expected: Option<LoadStep>) {
        let plan = plan(1.0, Rejector::Kubelet);
        let nodes = Nodes::test(&["a", "b"], &[]);
        assert_eq!(
            next(&plan, &nodes, &seen(Phase::Waiting, node), 0),
            expected
        );
    }

    #[test]
    fn r13_the_share_holds_for_the_first_pods_and_for_those_that_are_recreated() {
        let plan = plan(0.3, Rejector::Status);
        for before in 0..3 {
            let names = (0..10_000).map(|index| plan.name(index));
            let rejected = names.filter(|name| plan.is_rejected(name, before)).count();
            assert!((2_800..3_200).contains(&rejected), "{before}: {rejected}");
        }
        let twice = (0..10_000).map(|index| plan.name(index));
        let twice = twice.filter(|name| plan.is_rejected(name, 0) && plan.is_rejected(name, 1));
        assert!((700..1_100).contains(&twice.count()));
    }
}
