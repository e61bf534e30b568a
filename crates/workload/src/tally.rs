//! Counts of the workload's events.

use std::time::Duration;

use super::WorkloadEvent;

/// The number of events of each type. The [crate's example](crate) counts events with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Workflows created by the user.
    pub workflows_created: usize,
    /// Workflows that have finished.
    pub workflows_finished: usize,
    /// Workflows that were removed.
    pub workflows_gone: usize,
    /// Pods created by the simulated workflow controller.
    pub pods_created: usize,
    /// Pods that ended.
    pub pods_ended: usize,
    /// Results that were consumed.
    pub results_taken: usize,
    /// Pods that were removed before their result was consumed.
    pub results_lost: usize,
    /// The longest time that a result waited to be consumed.
    pub longest_wait: Duration,
}

impl Tally {
    /// Counts one event.
    pub fn add(&mut self, event: &WorkloadEvent) {
        match event {
            WorkloadEvent::WorkflowCreated { .. } => self.workflows_created += 1,
            WorkloadEvent::PodCreated { .. } => self.pods_created += 1,
            WorkloadEvent::PodEnded { .. } => self.pods_ended += 1,
            WorkloadEvent::ResultTaken { waited, .. } => {
                self.results_taken += 1;
                self.longest_wait = self.longest_wait.max(*waited);
            }
            WorkloadEvent::ResultLost { .. } => self.results_lost += 1,
            WorkloadEvent::WorkflowFinished { .. } => self.workflows_finished += 1,
            WorkloadEvent::WorkflowGone { .. } => self.workflows_gone += 1,
        }
    }
}
