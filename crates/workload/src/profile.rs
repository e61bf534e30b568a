//! The settings of a workload.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::script::{PodGc, WorkflowScript, at_pace};

/// A workload: the number of workflows and pods, their rate, and their results. The [crate's
/// example](crate) has one workflow with three pods.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Namespaces that the workflows are spread over in turn; those missing are created.
    pub namespaces: Vec<String>,
    /// Prefix of the workflow names: `flow` gives `flow-0`, `flow-1` and so on.
    pub name: String,
    /// How many workflows.
    pub workflows: usize,
    /// How many pods each has.
    pub pods_per_workflow: usize,
    /// How many pods are created per second, in all workflows together.
    pub pods_per_second: f64,
    /// Whether workflows run at the same time or one after the other.
    pub arrival: Arrival,
    /// How long pods run.
    pub life: RangeInclusive<Duration>,
    /// The ratio of pods that fail, from 0 to 1.
    pub failure_ratio: f64,
    /// The ratio of pods that their node rejects, from 0 to 1.
    pub rejection_ratio: f64,
    /// Time from a pod's end until its result is in the workflow.
    pub persist_delay: Duration,
    /// When the simulated workflow controller deletes pods.
    pub pod_gc: PodGc,
    /// Whether it marks completed workflows as to be archived.
    pub archives: bool,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for Profile {
    /// Four workflows of 25 pods in one namespace, ten pods a second, each running for two to
    /// eight seconds; one in ten fails.
    fn default() -> Self {
        Self {
            namespaces: vec!["argo".to_owned()],
            name: "flow".to_owned(),
            workflows: 4,
            pods_per_workflow: 25,
            pods_per_second: 10.0,
            arrival: Arrival::Together,
            life: Duration::from_secs(2)..=Duration::from_secs(8),
            failure_ratio: 0.1,
            rejection_ratio: 0.0,
            persist_delay: Duration::from_secs(1),
            pod_gc: PodGc::Never,
            archives: false,
            seed: 0,
        }
    }
}

/// Whether workflows run at the same time or one after the other. Part of a
/// [`Profile`](crate::Profile). The [crate's example](crate) has the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// All are created at the start and share the rate.
    Together,
    /// Each is created when the one before has created its pods.
    InTurn,
}

impl Profile {
    /// Namespace and name of a workflow, by its number.
    #[must_use]
    pub fn workflow_name(&self, number: usize) -> (&str, String) {
        let namespace = match self.namespaces.len() {
            0 => "default",
            all => self
                .namespaces
                .get(number % all)
                .map_or("default", String::as_str),
        };
        (namespace, format!("{}-{number}", self.name))
    }

    /// The script of each workflow.
    #[must_use]
    pub fn workflow_script(&self) -> WorkflowScript {
        let beside = match self.arrival {
            Arrival::Together => self.workflows.max(1),
            Arrival::InTurn => 1,
        };
        WorkflowScript {
            pods: self.pods_per_workflow,
            pods_per_second: self.pods_per_second / beside as f64,
            life: self.life.clone(),
            failure_ratio: self.failure_ratio,
            rejection_ratio: self.rejection_ratio,
            pod_gc: self.pod_gc,
            seed: self.seed,
        }
    }

    /// When a workflow is created, from the start.
    #[must_use]
    pub fn arrives_after(&self, number: usize) -> Duration {
        match self.arrival {
            Arrival::Together => Duration::ZERO,
            Arrival::InTurn => {
                let before = number.saturating_mul(self.pods_per_workflow);
                at_pace(before, self.pods_per_second)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_applies_to_all_workflows_together() {
        let profile = Profile {
            workflows: 5,
            pods_per_second: 10.0,
            ..Profile::default()
        };
        let script = profile.workflow_script();
        assert_eq!(script.created_after(4), Duration::from_secs(2));
        assert_eq!(profile.arrives_after(3), Duration::ZERO);

        let profile = Profile {
            arrival: Arrival::InTurn,
            ..profile
        };
        assert_eq!(
            profile.workflow_script().created_after(20),
            Duration::from_secs(2)
        );
        assert_eq!(profile.arrives_after(2), Duration::from_secs(5));
    }
}
