//! The simulated controller's state of one workflow, and the next action.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use belayer_sandbox::simulated::object;
use serde_json::Value;
use tokio::time::Instant;

use super::objects::number_of;
use super::script::{PodGc, WorkflowScript};

pub(crate) type Uid = Arc<str>;

/// Writes per unit of work, so that other tasks can run in between.
const AT_ONCE: usize = 32;

/// The state of a pod's node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its pod exists, or has been created and not been seen yet.
    Running,
    /// Its pod has ended; the result is not consumed yet.
    Ended { phase: String, at: Instant },
    /// Its pod was removed before that.
    Lost { at: Instant },
    /// Its phase is in the workflow's status.
    Taken { phase: String },
}

/// What remains to be done for a pod whose result is consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settle {
    Label,
    Delete,
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) pod: Option<Arc<Value>>,
    pub(crate) fate: Fate,
    /// Whether the workflow's status contains the node.
    recorded: bool,
}

/// The stage of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not begun: its status is empty.
    New,
    Running,
    /// Its status has a final phase.
    Finished,
    /// Being deleted: ignored.
    Deleting,
}

/// The next action for a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// Set its phase to `Running`.
    Begin,
    /// Create the pods of these numbers.
    Create(Vec<usize>),
    /// Write these nodes into its status.
    Record(Vec<usize>),
    /// Label or delete the pods of these numbers.
    Settle(Vec<(usize, Settle)>),
    /// Set its final phase.
    Finish(&'static str),
    /// Nothing before this time.
    Wait(Option<Instant>),
}

/// One workflow.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) object: Arc<Value>,
    pub(crate) script: WorkflowScript,
    pub(crate) stage: Stage,
    pub(crate) nodes: BTreeMap<usize, Node>,
    /// Numbers of nodes whose state has to be recorded.
    unrecorded: BTreeSet<usize>,
    /// Numbers of nodes whose result is consumed and whose pod has to be labelled or deleted.
    unsettled: BTreeMap<usize, Settle>,
    taken: usize,
    failed: usize,
    /// The time and the pod number from which the rate of creations counts.
    pace: (Instant, usize),
    looked_for_lost: Looked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    NotYet,
    Done,
}

impl Flow {
    pub(crate) fn new(object: Arc<Value>, now: Instant) -> Self {
        let mut flow = Self {
            script: WorkflowScript::read(&object),
            object,
            stage: Stage::New,
            nodes: BTreeMap::new(),
            unrecorded: BTreeSet::new(),
            unsettled: BTreeMap::new(),
            taken: 0,
            failed: 0,
            pace: (now, 0),
            looked_for_lost: Looked::NotYet,
        };
        flow.read_nodes();
        flow.resume(now);
        flow.read_stage();
        flow
    }

    /// Updates the workflow's object.
    pub(crate) fn update(&mut self, object: Arc<Value>) {
        self.object = object;
        self.read_stage();
    }

    /// The controller has started again: the creations missed meanwhile are not caught up at once.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.pace = (now, self.next_number());
    }

    fn read_stage(&mut self) {
        self.stage = if object::is_deleting(&self.object) {
            Stage::Deleting
        } else {
            match object::text(&self.object, "/status/phase") {
                None => Stage::New,
                Some("Succeeded" | "Failed" | "Error") => Stage::Finished,
                Some(_) => Stage::Running,
            }
        };
    }

    /// Reads what an earlier controller has recorded.
    fn read_nodes(&mut self) {
        let object = Arc::clone(&self.object);
        let nodes = object.pointer("/status/nodes").and_then(Value::as_object);
        for (id, node) in nodes.into_iter().flatten() {
            let Some(number) = number_of(id) else {
                continue;
            };
            let fate = match object::text(node, "/phase") {
                Some(phase @ ("Succeeded" | "Failed" | "Error")) => {
                    self.count(phase);
                    Fate::Taken {
                        phase: phase.to_owned(),
                    }
                }
                _ => Fate::Running,
            };
            self.nodes.insert(
                number,
                Node {
                    pod: None,
                    fate,
                    recorded: true,
                },
            );
        }
    }

    fn next_number(&self) -> usize {
        self.nodes
            .last_key_value()
            .map_or(0, |(number, _)| number + 1)
    }

    /// A pod of this workflow exists. Returns its phase if its result now waits to be consumed.
    pub(crate) fn pod_seen(&mut self, pod: &Arc<Value>, id: &str, now: Instant) -> Option<String> {
        let number = number_of(id)?;
        let node = self.nodes.entry(number).or_insert_with(|| Node {
            pod: None,
            fate: Fate::Running,
            recorded: false,
        });
        if node
            .pod
            .as_ref()
            .is_some_and(|known| object::uid(known) != object::uid(pod))
        {
            return None;
        }
        let first_seen = node.pod.is_none();
        node.pod = Some(Arc::clone(pod));
        match &node.fate {
            Fate::Running if object::is_ended(pod) => {
                let phase = object::text(pod, "/status/phase")
                    .unwrap_or_default()
                    .to_owned();
                node.fate = Fate::Ended {
                    phase: phase.clone(),
                    at: now,
                };
                self.unrecorded.insert(number);
                Some(phase)
            }
            Fate::Running if !node.recorded => {
                self.unrecorded.insert(number);
                None
            }
            // Consumed by an earlier controller that may have stopped before labelling it.
            Fate::Taken { .. } if first_seen => {
                self.want_settled(number);
                None
            }
            _ => None,
        }
    }

    /// A pod of this workflow was removed. Returns whether its result is lost.
    pub(crate) fn pod_gone(&mut self, uid: &str, id: &str, now: Instant) -> bool {
        let Some(number) = number_of(id) else {
            return false;
        };
        let Some(node) = self.nodes.get_mut(&number) else {
            return false;
        };
        if node.pod.as_ref().is_none_or(|pod| object::uid(pod) != uid) {
            return false;
        }
        node.pod = None;
        self.unsettled.remove(&number);
        let lost = matches!(node.fate, Fate::Running | Fate::Ended { .. });
        if lost {
            node.fate = Fate::Lost { at: now };
            self.unrecorded.insert(number);
        }
        lost
    }

    /// Finds nodes that were recorded as running and have no pod: it was removed before this controller
    /// started.
    fn find_lost(&mut self, now: Instant) {
        if self.looked_for_lost == Looked::Done {
            return;
        }
        self.looked_for_lost = Looked::Done;
        for (number, node) in &mut self.nodes {
            if node.pod.is_none() && node.fate == Fate::Running {
                node.fate = Fate::Lost { at: now };
                self.unrecorded.insert(*number);
            }
        }
    }

    /// A pod was created.
    pub(crate) fn created(&mut self, number: usize, pod: Arc<Value>) {
        let node = Node {
            pod: Some(pod),
            fate: Fate::Running,
            recorded: false,
        };
        self.nodes.insert(number, node);
        self.unrecorded.insert(number);
    }

    /// These nodes are now in the workflow's status.
    pub(crate) fn recorded(&mut self, numbers: &[usize]) {
        for number in numbers {
            self.unrecorded.remove(number);
            let Some(node) = self.nodes.get_mut(number) else {
                continue;
            };
            node.recorded = true;
            let phase = match &node.fate {
                Fate::Running | Fate::Taken { .. } => continue,
                Fate::Ended { phase, .. } => phase.clone(),
                Fate::Lost { .. } => "Error".to_owned(),
            };
            node.fate = Fate::Taken {
                phase: phase.clone(),
            };
            self.count(&phase);
            self.want_settled(*number);
        }
    }

    fn count(&mut self, phase: &str) {
        self.taken += 1;
        if phase != "Succeeded" {
            self.failed += 1;
        }
    }

    fn want_settled(&mut self, number: usize) {
        let Some(Node {
            pod: Some(pod),
            fate: Fate::Taken { phase },
            ..
        }) = self.nodes.get(&number)
        else {
            return;
        };
        let settle = match self.script.pod_gc {
            PodGc::OnPodCompletion => Settle::Delete,
            PodGc::OnPodSuccess if phase == "Succeeded" => Settle::Delete,
            _ if object::label(pod, super::names::COMPLETED) == Some("true") => return,
            _ => Settle::Label,
        };
        self.unsettled.insert(number, settle);
    }

    /// This pod is labelled or deleted.
    pub(crate) fn settled(&mut self, number: usize) {
        self.unsettled.remove(&number);
    }

    /// The workflow has finished: its pods may have to be deleted.
    pub(crate) fn finished(&mut self, phase: &str) {
        let all = match self.script.pod_gc {
            PodGc::OnWorkflowCompletion => true,
            PodGc::OnWorkflowSuccess => phase == "Succeeded",
            PodGc::Never | PodGc::OnPodCompletion | PodGc::OnPodSuccess => false,
        };
        if all {
            let there = self.nodes.iter().filter(|(_, node)| node.pod.is_some());
            self.unsettled
                .extend(there.map(|(number, _)| (*number, Settle::Delete)));
        }
    }

    /// `taken/all`, as `status.progress` has it.
    pub(crate) fn progress(&self) -> String {
        format!("{}/{}", self.taken, self.script.pods)
    }

    /// The next action.
    pub(crate) fn next(&mut self, now: Instant, persist_delay: Duration) -> Act {
        match self.stage {
            Stage::Deleting => return Act::Wait(None),
            Stage::New => return Act::Begin,
            Stage::Running => {}
            Stage::Finished => {
                return match self.to_settle() {
                    settle if settle.is_empty() => Act::Wait(None),
                    settle => Act::Settle(settle),
                };
            }
        }
        self.find_lost(now);
        let (due, next_creation) = self.creations(now);
        if !due.is_empty() {
            return Act::Create(due);
        }
        let next_record = self.next_record(persist_delay);
        if next_record.is_some_and(|when| when <= now) {
            return Act::Record(self.unrecorded.iter().copied().collect());
        }
        let settle = self.to_settle();
        if !settle.is_empty() {
            return Act::Settle(settle);
        }
        if self.taken >= self.script.pods {
            return Act::Finish(if self.failed == 0 {
                "Succeeded"
            } else {
                "Failed"
            });
        }
        Act::Wait([next_creation, next_record].into_iter().flatten().min())
    }

    fn to_settle(&self) -> Vec<(usize, Settle)> {
        self.unsettled
            .iter()
            .take(AT_ONCE)
            .map(|(number, settle)| (*number, *settle))
            .collect()
    }

    /// The numbers of pods that are due, and when the next one is.
    fn creations(&self, now: Instant) -> (Vec<usize>, Option<Instant>) {
        let (since, first) = self.pace;
        let mut due = vec![];
        for number in self.next_number()..self.script.pods {
            let after = self.script.created_after(number.saturating_sub(first));
            let Some(when) = since.checked_add(after) else {
                break;
            };
            if when > now {
                return (due, Some(when));
            }
            due.push(number);
            if due.len() == AT_ONCE {
                break;
            }
        }
        (due, None)
    }

    /// When the status is written next. Running nodes alone cause no write: they are written together
    /// with ended ones.
    fn next_record(&self, persist_delay: Duration) -> Option<Instant> {
        let fates = self
            .unrecorded
            .iter()
            .filter_map(|number| self.nodes.get(number));
        fates
            .filter_map(|node| match &node.fate {
                Fate::Ended { at, .. } => Some(*at + persist_delay),
                Fate::Lost { at } => Some(*at),
                Fate::Running | Fate::Taken { .. } => None,
            })
            .min()
    }
}
