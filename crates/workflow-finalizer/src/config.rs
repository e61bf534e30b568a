//! The key `workflowFinalizer` of the configuration file: as written, and as checked. The [crate's
//! example](crate) has the rule for Argo Workflows.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use belayer_core::object::Resource;
use belayer_core::slim::Labels;
use belayer_holds::argo;
use belayer_holds::names::SYSTEM_NAMESPACE;
use belayer_holds::selection::config::{
    ConfigError, KindConfig, NamespacesConfig, Path, SelectorConfig, duration, kind, namespaces,
    selector, workers,
};
use belayer_holds::selection::{MatchLabels, MaxUnselected, Namespaces, Selector};

/// The key of the configuration file: the root of every path in an error.
pub const KEY: &str = "workflowFinalizer";

const DEFAULT_WORKERS: usize = 16;
const DEFAULT_RESYNC: Duration = Duration::from_secs(60);

/// The checked configuration, with defaults filled in. Its rules become rules, as in the [crate's
/// example](crate).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of workflows processed concurrently, per kind.
    pub workers: usize,
    /// How many unselected workflows may be released at once.
    pub max_unselected: MaxUnselected,
    /// How often a waiting deletion is checked again without an event.
    pub resync: Duration,
    /// The kinds that are held.
    pub owners: Vec<OwnerRule>,
}

/// Which owners of one kind are held. The [crate's example](crate) has the rule for Argo
/// Workflows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerRule {
    /// The kind.
    pub kind: Resource,
    /// The pod label whose value is the owner's name, to narrow live lists; `None` if the pods have no such label.
    pub pod_label: Option<Arc<str>>,
    /// The labels of the objects that are held.
    pub selector: Selector,
    /// The namespaces of the objects that are held.
    pub namespaces: Namespaces,
    /// Until when a deleted object is held.
    pub until: Until,
}

/// Until when a deleted workflow is held. Its rules become rules, as in the [crate's
/// example](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Until {
    /// Until all its pods are released.
    #[default]
    PodsReleased,
    /// If it has completed and Argo archives it: also until it is archived (A20).
    Archived,
}

impl OwnerRule {
    /// All workflows of Argo Workflows.
    pub fn argo() -> Self {
        Self {
            kind: argo::workflow(),
            pod_label: Some(argo::WORKFLOW_LABEL.into()),
            selector: Selector::default(),
            namespaces: Namespaces::default(),
            until: Until::default(),
        }
    }

    /// Whether it selects an owner with these labels in this namespace.
    pub fn selects(&self, labels: &Labels, namespace: &str) -> bool {
        namespace != SYSTEM_NAMESPACE
            && self.namespaces.contains(namespace)
            && self.selector.matches(labels)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: DEFAULT_WORKERS,
            max_unselected: MaxUnselected::default(),
            resync: DEFAULT_RESYNC,
            owners: vec![OwnerRule::argo()],
        }
    }
}

/// The key as written in the file. Omitted keys have their defaults. Its rules become rules, as in
/// the [crate's example](crate).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkflowFinalizerConfig {
    /// See [`Settings::workers`].
    pub workers: Option<usize>,
    /// See [`Settings::max_unselected`].
    pub max_unselected: Option<MaxUnselected>,
    /// See [`Settings::resync`].
    pub resync: Option<String>,
    /// See [`Settings::owners`]; all workflows of Argo Workflows if omitted.
    pub owners: Option<Vec<OwnerRuleConfig>>,
}

/// An entry of `owners` as written in the file. Its rules become rules, as in the [crate's
/// example](crate).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OwnerRuleConfig {
    /// The kind; Argo's `Workflow` if omitted.
    owner: Option<KindConfig>,
    pod_label: Option<String>,
    selector: Option<SelectorConfig>,
    namespaces: Option<NamespacesConfig>,
    until: Option<Until>,
}

impl TryFrom<WorkflowFinalizerConfig> for Settings {
    type Error = ConfigError;

    fn try_from(config: WorkflowFinalizerConfig) -> Result<Self, ConfigError> {
        let root = Path::root(KEY);
        let default = Self::default();
        let workers = workers(&root, config.workers.unwrap_or(default.workers))?;
        let least = Duration::from_secs(1);
        let resync = duration(&root.key("resync"), config.resync.as_deref(), least)?;
        let owners = match config.owners {
            Some(owners) => all_owners(&root.key("owners"), owners)?,
            None => default.owners,
        };
        Ok(Self {
            workers,
            max_unselected: config.max_unselected.unwrap_or_default(),
            resync: resync.unwrap_or(default.resync),
            owners,
        })
    }
}

fn all_owners(path: &Path, configs: Vec<OwnerRuleConfig>) -> Result<Vec<OwnerRule>, ConfigError> {
    if configs.is_empty() {
        return Err(path.clone().error(
            "the list of owners is empty: remove the key `owners` to hold the workflows of Argo Workflows, or \
             switch the controller off: --controllers=*,-workflow-finalizer",
        ));
    }
    let mut rules: Vec<OwnerRule> = Vec::new();
    for (index, config) in configs.into_iter().enumerate() {
        let at = path.index(index);
        let rule = owner_rule(&at, config)?;
        if rules.iter().any(|have| have.kind == rule.kind) {
            return Err(at.key("owner").error(format!(
                "duplicate kind {}: write one entry for each kind",
                rule.kind
            )));
        }
        rules.push(rule);
    }
    Ok(rules)
}

fn owner_rule(path: &Path, config: OwnerRuleConfig) -> Result<OwnerRule, ConfigError> {
    let default = OwnerRule::argo();
    let (kind, default_label) = match &config.owner {
        Some(config) => {
            let kind = kind(&path.key("owner"), config)?;
            let label = default.pod_label.filter(|_| kind == default.kind);
            (kind, label)
        }
        None => (default.kind, default.pod_label),
    };
    let pod_label = match config.pod_label {
        Some(label) => {
            MatchLabels::new([(&*label, "")])
                .map_err(|error| path.key("podLabel").error(error.to_string()))?;
            Some(label.into())
        }
        None => default_label,
    };
    let until = config.until.unwrap_or_default();
    if until == Until::Archived && !argo::is_workflow(&kind) {
        return Err(path
            .key("until")
            .error("`archived` applies to the workflows of Argo Workflows only: remove this key"));
    }
    Ok(OwnerRule {
        until,
        kind,
        pod_label,
        selector: selector(&path.key("selector"), config.selector.unwrap_or_default())?,
        namespaces: namespaces(
            &path.key("namespaces"),
            config.namespaces.unwrap_or_default(),
        )?,
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn settings(config: Value) -> Result<Settings, ConfigError> {
        let config: WorkflowFinalizerConfig = serde_json::from_value(config).unwrap();
        config.try_into()
    }

    #[test]
    fn nothing_said_is_argo() {
        let settings = settings(json!({})).unwrap();
        assert_eq!(settings, Settings::default());
        let rule = &settings.owners[0];
        assert!(rule.selects(&Labels::default(), "ci"));
        assert!(!rule.selects(&Labels::default(), "kube-system"));
    }

    #[test]
    fn any_kind_can_be_held() {
        let settings = settings(json!({"owners": [
            {"selector": {"matchLabels": {"team": "a"}}},
            {"owner": {"group": "tekton.dev", "version": "v1", "kind": "PipelineRun", "resource": "pipelineruns"},
             "podLabel": "tekton.dev/pipelineRun"},
        ]}))
        .unwrap();
        assert_eq!(
            settings.owners[0].pod_label.as_deref(),
            Some(argo::WORKFLOW_LABEL)
        );
        assert_eq!(
            settings.owners[1].kind.to_string(),
            "pipelineruns.tekton.dev"
        );
        assert_eq!(
            settings.owners[1].pod_label.as_deref(),
            Some("tekton.dev/pipelineRun")
        );
    }

    #[rstest]
    #[case(json!({"workers": 0}), "workflowFinalizer.workers")]
    #[case(json!({"resync": "soon"}), "workflowFinalizer.resync")]
    #[case(json!({"owners": []}), "workflowFinalizer.owners")]
    #[case(json!({"owners": [{}, {}]}), "workflowFinalizer.owners[1].owner")]
    #[case(
        json!({"owners": [{"until": "archived", "owner": {"group": "tekton.dev", "version": "v1", "kind": "PipelineRun", "resource": "pipelineruns"}}]}),
        "workflowFinalizer.owners[0].until"
    )]
    #[case(json!({"owners": [{"podLabel": "a b"}]}), "workflowFinalizer.owners[0].podLabel")]
    #[case(json!({"owners": [{"namespaces": {"include": ["kube-system"]}}]}), "workflowFinalizer.owners[0].namespaces.include[0]")]
    fn an_invalid_value_names_its_key(#[case] config: Value, #[case] path: &str) {
        assert_eq!(settings(config).unwrap_err().path, path);
    }
}
