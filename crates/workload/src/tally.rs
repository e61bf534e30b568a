//! The workload's story in figures.

use std::time::Duration;

use super::WorkloadEvent;

/// How many of everything there have been.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Workflows created by the user.
    pub workflows_created: usize,
    /// Workflows that are over.
    pub workflows_finished: usize,
    /// Workflows that are gone.
    pub workflows_gone: usize,
    /// Pods created by the stand-in.
    pub pods_created: usize,
    /// Pods that ended.
    pub pods_ended: usize,
    /// Results that the stand-in has taken.
    pub results_taken: usize,
    /// Pods that vanished before their result was taken.
    pub results_lost: usize,
    /// The longest time that a result waited to be taken.
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
