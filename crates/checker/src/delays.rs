//! How long pods keep their hold after a reason to release them, while nothing fails.

use std::collections::HashMap;

use belayer_sandbox::Write;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::history::History;
use super::objects::{Kind, describe, holds, is_deleting, uid, workflow_of};
use super::reasons::Why;
use crate::POD_HOLD;

/// Longer than a batch of reads and a backoff, shorter than the interval at which everything is checked again.
const LIMIT: SignedDuration = SignedDuration::from_secs(30);

/// The pods that wait although they may be released.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    since: HashMap<String, Timestamp>,
    /// The pods that waited for too long.
    pub(crate) late: Vec<String>,
}

impl Delays {
    /// Looks at the pods that this write, which is part of the history, concerns.
    pub(crate) fn follow(&mut self, history: &History, write: &Write) {
        match Kind::of(&write.resource) {
            Kind::Pod => {
                if let Some(pod) = history.object(&write.uid) {
                    self.look(history, pod, write.at);
                }
            }
            Kind::Workflow => {
                let pods = history.live_pods();
                for pod in pods.filter(|pod| workflow_of(pod) == Some(&*write.uid)) {
                    self.look(history, pod, write.at);
                }
            }
            Kind::Pvc | Kind::Record | Kind::Other => {}
        }
    }

    fn look(&mut self, history: &History, pod: &Value, now: Timestamp) {
        if holds(pod).any(|hold| hold == POD_HOLD) {
            // With the other reasons the end of a container may have to be waited for. The deletion of a workflow waits for
            // its pods, and not they for theirs.
            let is_due = match history.release_reason(pod, POD_HOLD) {
                Some(Why::WorkflowDeleted) => true,
                Some(Why::Requested | Why::ResultConsumed | Why::OutcomeRecorded) => {
                    is_deleting(pod)
                }
                _ => false,
            };
            if is_due {
                self.since.entry(uid(pod).to_owned()).or_insert(now);
            }
        } else if let Some(since) = self.since.remove(uid(pod)) {
            let waited = now.duration_since(since);
            if waited > LIMIT && !history.is_by_hand(pod) {
                self.late.push(format!(
                    "{} was released {} s after a reason for it",
                    describe(pod),
                    waited.as_secs()
                ));
            }
        }
    }
}
