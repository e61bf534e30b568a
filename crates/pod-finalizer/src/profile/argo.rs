//! The built-in profile for Argo Workflows. The [crate's example](crate) has it.

use std::time::Duration;

pub use belayer_holds::argo::{
    COMPLETED_LABEL, WORKFLOW_LABEL, is_workflow, is_workflow_reference, workflow,
};

use super::{
    Cleanup, Consumer, DeletedWhileRunning, MatchLabels, Mode, Namespaces, Operator, OwnerStatus,
    Profile, Requirement, Selector,
};

/// Its name.
pub const NAME: &str = "argo";

/// Label on pods and workflows: which of several workflow controllers they belong to.
pub const INSTANCE_LABEL: &str = "workflows.argoproj.io/controller-instanceid";

/// Label on agent and artifact garbage collection pods: `agent` or `artifact-gc`. Steps do not have it.
pub const COMPONENT_LABEL: &str = "workflows.argoproj.io/component";

/// Label on workflows: their phase.
pub const PHASE_LABEL: &str = "workflows.argoproj.io/phase";

/// The finalizer by which Argo itself can hold its pods.
pub const STATUS_FINALIZER: &str = "workflows.argoproj.io/status";

/// Holds the pods of all workflows until the workflow controller has labelled the pod or the
/// workflow completed.
///
/// An installation with several workflow controllers narrows it by [`INSTANCE_LABEL`].
///
/// The [crate's example](crate) has it.
pub fn profile() -> Profile {
    let completed = || labels(COMPLETED_LABEL, "true");
    Profile {
        name: NAME.into(),
        mode: Mode::Enforce,
        selector: Selector::new(requirement(WORKFLOW_LABEL, Operator::Exists)),
        namespaces: Namespaces::default(),
        owner: Some(workflow()),
        consumed: completed(),
        owner_finished: completed(),
        release_after: None,
        owner_status: OwnerStatus::Argo,
        consumed_when: None,
        adopt: Box::default(),
        capture: false,
        consumer: Consumer::Pod,
        deleted_while_running: DeletedWhileRunning::Release,
        node_lost_delay: Duration::ZERO,
        cleanup: Cleanup::None,
    }
}

// The constants above are valid; the tests below would fail otherwise.
fn requirement(name: &str, operator: Operator) -> Option<Requirement> {
    Requirement::new(name, operator).ok()
}

fn labels(name: &str, value: &str) -> MatchLabels {
    MatchLabels::new([(name, value)]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use belayer_core::slim::Labels;
    use rstest::rstest;

    fn pod(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().copied().collect()
    }

    #[rstest]
    #[case::a_pod_of_a_workflow(&[(WORKFLOW_LABEL, "etl")], true)]
    #[case::a_pod_of_no_workflow(&[("app", "web")], false)]
    #[case::of_another_controller(&[(WORKFLOW_LABEL, "etl"), (INSTANCE_LABEL, "b")], true)]
    fn it_selects_pods_of_workflows(#[case] labels: &[(&str, &str)], #[case] selected: bool) {
        assert_eq!(profile().selects(&pod(labels), "any"), selected);
    }

    #[rstest]
    #[case("true", true)]
    #[case("false", false)]
    fn only_completed_true_counts(#[case] value: &str, #[case] counts: bool) {
        let labels = pod(&[(WORKFLOW_LABEL, "etl"), (COMPLETED_LABEL, value)]);
        assert_eq!(profile().is_consumed(&labels), counts);
        assert_eq!(profile().is_owner_finished(&labels), counts);
    }

    #[test]
    fn time_alone_releases_nothing() {
        assert_eq!(profile().release_after, None);
    }
}
