//! One workflow in the stand-in's memory, and what to do about it next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use belayer_sandbox::companions::object;
use serde_json::Value;
use tokio::time::Instant;

use super::objects::number_of;
use super::script::{PodGc, WorkflowScript};

pub(crate) type Uid = Arc<str>;

/// Writes in one go, so that others get their turn.
const AT_ONCE: usize = 32;

/// How a pod's node stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its pod is there, or is about to be seen.
    Running,
    /// Its pod has ended; the result is not taken yet.
    Ended { phase: String, at: Instant },
    /// Its pod vanished before.
    Lost { at: Instant },
    /// Its phase is in the workflow's status.
    Taken { phase: String },
}

/// What is left to do about a pod whose result is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settle {
    Label,
    Delete,
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) pod: Option<Arc<Value>>,
    pub(crate) fate: Fate,
    /// Whether the workflow's status names the node at all.
    recorded: bool,
}

/// Where a workflow is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not begun: its status says nothing.
    New,
    Running,
    /// Its status says that it is over.
    Finished,
    /// Somebody deletes it: left alone.
    Deleting,
}

/// The next thing to do about a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// Say that it runs.
    Begin,
    /// Create the pods of these numbers.
    Create(Vec<usize>),
    /// Write these nodes into its status.
    Record(Vec<usize>),
    /// Label or delete the pods of these numbers.
    Settle(Vec<(usize, Settle)>),
    /// Say that it is over.
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
    /// Numbers of nodes whose fate is to be recorded.
    unrecorded: BTreeSet<usize>,
    /// Numbers of nodes whose result is taken and whose pod is to be labelled or deleted.
    unsettled: BTreeMap<usize, Settle>,
    taken: usize,
    failed: usize,
    /// From when, and from which number on, the pace counts.
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

    /// Takes in the workflow as it is now.
    pub(crate) fn update(&mut self, object: Arc<Value>) {
        self.object = object;
        self.read_stage();
    }

    /// The stand-in is up again: what was not created meanwhile is not caught up with at once.
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

    /// What an earlier stand-in has recorded.
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

    /// A pod of this workflow is there. Answers its phase if its result now waits to be taken.
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
            // Taken by an earlier stand-in that may not have come to label it.
            Fate::Taken { .. } if first_seen => {
                self.want_settled(number);
                None
            }
            _ => None,
        }
    }

    /// A pod of this workflow is gone. Answers whether its result is lost.
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

    /// Nodes that were recorded as running and have no pod: it vanished before this stand-in
    /// looked.
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

    /// These nodes are in the workflow's status now.
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

    /// The workflow is over: its pods may have to go.
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

    /// What to do next.
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

    /// When the status is to be written next. What still runs is no reason to write: it is told
    /// along with what has ended.
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
