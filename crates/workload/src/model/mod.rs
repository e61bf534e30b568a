//! What Argo Workflows does with one workflow: given the workflow, its pods and the time, the writes that its
//! controller would send. Nothing here does I/O or reads a clock.
//!
//! The rules are those of the controller's source, version 4.1, with the differences of older versions in
//! [`Version`]. Recordings of a real controller check them: with these rules every recorded workflow ends as it was
//! recorded (`crates/belayer/tests/operator/traces`).
//!
//! Not included: DAGs, artifacts, outputs, locks, memoization, hooks other than `onExit`, deadlines, back-off and
//! expressions of retries, artifact GC, archiving, and Argo's own pod finalizer.
//!
//! ```
//! use belayer_workload::model::Rules;
//!
//! // How long the controller takes to process a workflow, and which version it is.
//! let rules = Rules::default();
//! println!("{rules:?}");
//! ```

mod assess;
mod execute;
mod finish;
mod node;
mod pods;
mod result;
mod results;
mod retry;
mod spec;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use belayer_sandbox::simulated::object;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::node::Nodes;
pub use self::node::{Kind, Node, Phase};
pub use self::result::{NodeResult, WorkflowResult};
pub use self::results::TaskResults;
use self::spec::Spec;
use crate::names;

/// Versions of Argo Workflows that treat a lost node differently. Part of the [`Rules`]. The
/// [example](crate::model) has the default rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Version {
    /// Up to 3.6.4: a node whose `wait` container never ended stays Running while its pod exists.
    UpTo3_6_4,
    /// 3.6.5 to 3.7.0: it fails, and the workflow finishes when the pod is gone for two minutes.
    UpTo3_7_0,
    /// 3.7.1 to 3.7.18: it fails, and the workflow finishes at the next look: the ten minutes for its outputs count from
    /// an end that the node does not have.
    UpTo3_7_18,
    /// 4.0 to 4.1.2: it fails, and the workflow waits for the node's outputs without a limit.
    #[default]
    From4_0,
}

/// Settings of the controller. The [module's example](crate::model) has the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Its version.
    pub version: Version,
    /// From an event of a workflow or of its pods to the next look at it, and from a node's start until its pod must
    /// have been seen: `DEFAULT_REQUEUE_TIME` and `RECENTLY_STARTED_POD_DURATION`, which have the same default.
    pub requeue: Duration,
    /// Whether it archives completed workflows: the write that completes one says that its archive is pending. Nothing here
    /// archives it.
    pub archives: bool,
}

impl Default for Rules {
    /// The default settings of 4.1.
    fn default() -> Self {
        Self {
            version: Version::default(),
            requeue: Duration::from_secs(10),
            archives: false,
        }
    }
}

/// What the controller knows about one workflow when it looks at it. An argument of
/// [`look`], beside the [rules](crate::model).
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// The workflow.
    pub workflow: &'a Value,
    /// Its pods. Those that are labelled as completed are ignored: the controller does not watch them.
    pub pods: &'a [Arc<Value>],
    /// Which outputs its pods have reported.
    pub results: &'a TaskResults,
    /// The time.
    pub now: Timestamp,
}

/// What follows from a look at a workflow. The writes are sent in the order of the fields, and
/// those to existing pods only after the patch was accepted. Returned by
/// [`look`], by the [rules](crate::model).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// Pods to create. One that exists already is as good.
    pub pods: Vec<Value>,
    /// A merge patch for the workflow.
    pub patch: Option<Value>,
    /// Writes to existing pods.
    pub cleanup: Vec<Cleanup>,
    /// Whether the workflow is to be deleted.
    pub delete: bool,
    /// How long to wait before the next look, if nothing happens before.
    pub again: Option<Duration>,
}

impl Look {
    fn again_in(&mut self, time: Duration) {
        self.again = Some(self.again.map_or(time, |again| again.min(time)));
    }
}

/// A write to an existing pod. Part of [`Look`], by the [rules](crate::model).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cleanup {
    /// The pod's name.
    pub pod: String,
    /// The pod's UID.
    pub uid: String,
    /// The write.
    pub action: Action,
    /// How long to wait before it.
    pub after: Duration,
}

/// A type of write to an existing pod. Part of a [`Cleanup`], by the
/// [rules](crate::model).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Label it as completed.
    Label,
    /// Delete it.
    Delete,
    /// Ask its containers to stop, without deleting it.
    Signal,
}

/// Looks at a workflow. The [`Rules`] are those of one version. The [example](crate::model) has
/// the default rules.
#[must_use]
pub fn look(rules: &Rules, observed: &Observed<'_>) -> Look {
    let mut operation = Operation::new(rules, observed);
    if object::label(observed.workflow, names::COMPLETED) == Some("true") {
        operation.expire();
        return operation.look;
    }
    operation.reconcile_results(observed.results);
    if operation.phase.is_none() {
        operation.phase = Some(Phase::Running);
        operation.started = Some(operation.now);
        operation.run();
    } else if operation.reconcile_pods() {
        operation.fail_nodes_without_pods();
        operation.run();
    } else {
        operation.look.again_in(rules.requeue);
    }
    operation.persist();
    operation.look
}

/// Where a template is called.
#[derive(Debug, Clone, Copy)]
struct Caller<'c> {
    /// The key of the node of steps; empty for the entrypoint.
    boundary: &'c str,
    is_on_exit: bool,
}

/// One look at a workflow, while it is worked out.
struct Operation<'a> {
    rules: &'a Rules,
    workflow: &'a Value,
    name: &'a str,
    /// The time, and the same in whole seconds as the status has it.
    precise: Timestamp,
    now: Timestamp,
    spec: Spec,
    phase: Option<Phase>,
    message: String,
    started: Option<Timestamp>,
    finished: Option<Timestamp>,
    nodes: Nodes,
    /// The pods that the controller watches, by the key of their node.
    pods: BTreeMap<String, &'a Value>,
    agent: Option<&'a Value>,
    /// A finished node has a pod that is being deleted: its pods are cleaned up without a change of the workflow.
    has_leaving_pod: bool,
    look: Look,
}

impl<'a> Operation<'a> {
    fn new(rules: &'a Rules, observed: &Observed<'a>) -> Self {
        let workflow = observed.workflow;
        let time = |pointer| object::text(workflow, pointer).and_then(|text| text.parse().ok());
        let spec = Spec::of(workflow);
        let watched = observed.pods.iter().map(|pod| &**pod);
        let watched = watched.filter(|pod| object::label(pod, names::COMPLETED) != Some("true"));
        let (agents, pods): (Vec<&Value>, Vec<&Value>) =
            watched.partition(|pod| object::label(pod, names::COMPONENT) == Some(AGENT));
        let by_node =
            |pod: &'a Value| Some((object::annotation(pod, names::NODE_ID)?.to_owned(), pod));
        let mut operation = Self {
            rules,
            workflow,
            name: object::name(workflow),
            precise: observed.now,
            now: Timestamp::from_second(observed.now.as_second()).unwrap_or(observed.now),
            spec,
            phase: Phase::read(object::text(workflow, "/status/phase")),
            message: object::text(workflow, "/status/message")
                .unwrap_or_default()
                .to_owned(),
            started: time("/status/startedAt"),
            finished: time("/status/finishedAt"),
            nodes: node::read(workflow),
            pods: pods.into_iter().filter_map(by_node).collect(),
            agent: agents.first().copied(),
            has_leaving_pod: false,
            look: Look::default(),
        };
        operation.adopt();
        operation
    }

    /// A workflow without templates has pods that others create: each gets a node.
    fn adopt(&mut self) {
        if self.spec.is_run() {
            return;
        }
        for (id, pod) in self.pods.clone() {
            let name = object::annotation(pod, names::NODE_NAME)
                .unwrap_or(&id)
                .to_owned();
            self.nodes.entry(id.clone()).or_insert_with(|| Node {
                display_name: name.clone(),
                task_result_synced: Some(true),
                ..Node::new(id, name, Kind::Pod, self.now)
            });
        }
    }

    /// Runs its templates as far as they go.
    fn run(&mut self) {
        if self.spec.is_run() {
            self.execute_all();
        }
    }

    /// Prepares the patch of the workflow, and the writes to its pods that may follow it.
    fn persist(&mut self) {
        let mut status = Map::new();
        let mut set = |field: &str, value: Option<Value>| {
            let old = self.workflow.pointer(&format!("/status/{field}"));
            if old != value.as_ref() {
                status.insert(field.to_owned(), value.unwrap_or(Value::Null));
            }
        };
        set("phase", self.phase.map(|phase| json!(phase)));
        set("message", some_text(&self.message));
        set("startedAt", self.started.map(|time| json!(time)));
        set("finishedAt", self.finished.map(|time| json!(time)));
        set("progress", Some(json!(self.progress())));
        for (field, value) in node::changes(self.workflow, &self.nodes, self.rules.version) {
            status.insert(field.to_owned(), value);
        }
        if status.is_empty() && !self.has_leaving_pod {
            return;
        }
        if !status.is_empty() {
            let mut patch = json!({ "status": status });
            if let Some(phase) = self.phase {
                let completed = if phase.is_completed() {
                    "true"
                } else {
                    "false"
                };
                patch["metadata"] =
                    json!({ "labels": { names::PHASE: phase, names::COMPLETED: completed } });
                if self.rules.archives && phase.is_completed() {
                    patch["metadata"]["labels"][names::ARCHIVING] = json!("Pending");
                }
            }
            self.look.patch = Some(patch);
        }
        self.clean_up();
    }

    /// Finished pods of all that are to run, as far as they are known.
    fn progress(&self) -> String {
        let pods = self.nodes.values().filter(|node| node.kind == Kind::Pod);
        let done = pods
            .clone()
            .filter(|node| node.phase.is_completed())
            .count();
        format!("{done}/{}", self.spec.pods().max(pods.count()))
    }

    fn clean(&mut self, pod: &Value, action: Action, after: Duration) {
        self.look.cleanup.push(Cleanup {
            pod: object::name(pod).to_owned(),
            uid: object::uid(pod).to_owned(),
            action,
            after,
        });
    }
}

fn some_text(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| json!(text))
}

/// The value of the component label of a pod that answers HTTP templates.
const AGENT: &str = "agent";
