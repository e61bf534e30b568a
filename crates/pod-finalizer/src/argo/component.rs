//! Agent and artifact garbage collection pods of Argo, which are not steps of a workflow.

use std::fmt;

use belayer_core::slim::Labels;

use crate::profile::argo::COMPONENT_LABEL as LABEL;

/// The pods that are never held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Component {
    Agent,
    ArtifactGc,
}

/// The pod is an agent or collects artifacts: it has no result, and Argo waits until it is gone before it
/// starts the next one.
///
/// Proven by the pod's own label at the version that a release names. The release of such a pod that an older Belayer
/// holds is not subject to the mass-release limit, which counts *unselected* pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeverHeld(Component);

impl NeverHeld {
    /// Returns the proof if a pod of a Workflow with these labels is such a pod.
    pub fn prove(labels: &Labels) -> Option<Self> {
        match labels.get(LABEL)? {
            "agent" => Some(Self(Component::Agent)),
            "artifact-gc" => Some(Self(Component::ArtifactGc)),
            _ => None,
        }
    }
}

impl fmt::Display for NeverHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Component::Agent => "an agent of Argo",
            Component::ArtifactGc => "artifact garbage collection of Argo",
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::an_agent(&[(LABEL, "agent")], true)]
    #[case::artifact_gc(&[(LABEL, "artifact-gc")], true)]
    #[case::a_step(&[("workflows.argoproj.io/workflow", "etl")], false)]
    #[case::what_argo_may_add_one_day(&[(LABEL, "step")], false)]
    fn a3_pods_that_argo_runs_for_itself_are_never_held(
        #[case] labels: &[(&str, &str)],
        #[case] never: bool,
    ) {
        let labels = labels.iter().copied().collect();
        assert_eq!(NeverHeld::prove(&labels).is_some(), never);
    }
}
