//! The parts of a workflow's spec that decide how it runs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::script::{PodGc, WorkflowScript};

/// The spec. Parts of the wrong type count as absent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    pub(super) entrypoint: String,
    pub(super) templates: Vec<Template>,
    pub(super) on_exit: Option<String>,
    pub(super) shutdown: Option<Shutdown>,
    #[serde(rename = "podGC")]
    pub(super) pod_gc: PodGcSpec,
    pub(super) ttl_strategy: Ttl,
    /// A workflow with a script has numbered pods in place of templates.
    #[serde(skip)]
    pub(super) script: Option<WorkflowScript>,
}

/// How a workflow is to be ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Shutdown {
    Stop,
    Terminate,
}

impl Shutdown {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stop => "Stop",
            Self::Terminate => "Terminate",
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodGcSpec {
    strategy: Option<String>,
    delete_delay_duration: Option<String>,
}

impl PodGcSpec {
    pub(super) fn strategy(&self) -> PodGc {
        PodGc::read(self.strategy.as_deref())
    }

    /// How long a pod stays: 5 seconds by default.
    pub(super) fn delay(&self) -> Duration {
        let given = self.delete_delay_duration.as_deref().and_then(seconds);
        given.unwrap_or(Duration::from_secs(5))
    }
}

/// After how many seconds a finished workflow is deleted.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Ttl {
    pub(super) seconds_after_completion: Option<i64>,
    pub(super) seconds_after_success: Option<i64>,
    pub(super) seconds_after_failure: Option<i64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Template {
    pub(super) name: String,
    pub(super) steps: Option<Vec<Vec<TemplateStep>>>,
    pub(super) suspend: Option<Suspend>,
    pub(super) http: Option<Value>,
    pub(super) container_set: Option<ContainerSet>,
    pub(super) init_containers: Vec<Named>,
    pub(super) sidecars: Vec<Named>,
    pub(super) daemon: bool,
    pub(super) retry_strategy: Option<Retry>,
    pub(super) metadata: Metadata,
    pub(super) node_selector: BTreeMap<String, String>,
}

impl Template {
    /// Whether the node is judged by this container.
    pub(super) fn is_main(&self, container: &str) -> bool {
        match &self.container_set {
            Some(set) => set.containers.iter().any(|own| own.name == container),
            None => container == "main",
        }
    }

    pub(super) fn main_containers(&self) -> Vec<&str> {
        match &self.container_set {
            Some(set) => set.containers.iter().map(|own| &*own.name).collect(),
            None => vec!["main"],
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TemplateStep {
    pub(super) name: String,
    pub(super) template: String,
    pub(super) with_sequence: Option<Sequence>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Sequence {
    pub(super) count: usize,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Suspend {
    duration: Option<String>,
}

impl Suspend {
    /// For how long; without a limit, if there is none.
    pub(super) fn duration(&self) -> Option<Duration> {
        self.duration.as_deref().and_then(seconds)
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerSet {
    pub(super) containers: Vec<Named>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    pub(super) name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Retry {
    /// How many attempts may follow the first; without a limit, if there is none.
    pub(super) limit: Option<usize>,
    pub(super) retry_policy: Policy,
}

/// Which ends of an attempt are followed by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub(super) enum Policy {
    Always,
    #[default]
    OnFailure,
    OnError,
    OnTransientError,
}

impl Spec {
    pub(super) fn of(workflow: &Value) -> Self {
        let spec = workflow.get("spec").cloned().unwrap_or_default();
        let is_scripted = spec.get("sandbox").is_some();
        let mut read: Self = serde_json::from_value(spec).unwrap_or_default();
        read.script = is_scripted.then(|| WorkflowScript::read(workflow));
        read
    }

    /// Whether it says what to run.
    pub(super) fn is_run(&self) -> bool {
        self.script.is_some() || !self.templates.is_empty()
    }

    /// How many pods its script has.
    pub(super) fn pods(&self) -> usize {
        self.script.as_ref().map_or(0, |script| script.pods)
    }

    pub(super) fn template(&self, name: &str) -> Template {
        let found = self.templates.iter().find(|template| template.name == name);
        found.cloned().unwrap_or_default()
    }
}

/// A duration as `2s`, `1m`, `0.5h` or a number of seconds.
fn seconds(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let factor = match unit {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
    Duration::try_from_secs_f64(number * factor).ok()
}
