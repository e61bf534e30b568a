//! Configuration sections that several components share: as written, and validated.
//!
//! ```
//! use belayer_holds::selection::config::{Path, workers};
//!
//! let path = Path::root("podFinalizer");
//! assert_eq!(workers(&path, 8), Ok(8));
//! assert!(workers(&path, 0).is_err());
//! assert_eq!(path.key("profiles").index(0).error("no name").to_string(), "podFinalizer.profiles[0]: no name");
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::{
    InvalidLabel, MatchLabels, Namespaces, Operator, Requirement, Selector, is_dns_label,
    is_dns_subdomain,
};
use crate::names::SYSTEM_NAMESPACE;
use belayer_core::object::Resource;

/// An invalid key of the configuration. A [`Path`] makes it. See the [example](self).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ConfigError {
    /// The key from the root of the file, such as `podFinalizer.profiles[1].owner.kind`.
    pub path: String,
    /// The error and how to fix it.
    pub message: String,
}

/// A label selector as it is written: `matchLabels` and `matchExpressions`.
/// [`selector`] checks it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SelectorConfig {
    #[serde(default)]
    match_labels: BTreeMap<String, String>,
    #[serde(default)]
    match_expressions: Vec<ExpressionConfig>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExpressionConfig {
    key: String,
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

/// Namespaces as they are written: `include` and `exclude`.
/// [`namespaces`] checks it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespacesConfig {
    #[serde(default)]
    include: Vec<String>,
    #[serde(default)]
    exclude: Vec<String>,
}

/// A kind as it is written: `group`, `version`, `kind` and `resource`.
/// [`kind`] checks it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KindConfig {
    #[serde(default)]
    group: String,
    version: String,
    kind: String,
    resource: String,
}

/// Labels as they are written: `labels`. [`labels`] checks it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelsConfig {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The path of a key from the root of the file. The [module's example](self) makes one.
#[derive(Debug, Clone)]
pub struct Path(String);

impl Path {
    /// A key of the file itself.
    pub fn root(key: &str) -> Self {
        Self(key.to_owned())
    }

    /// A key under this one.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}.{key}", self.0))
    }

    /// An item of this list, from 0.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// An error at this path.
    pub fn error(self, message: impl Into<String>) -> ConfigError {
        ConfigError {
            path: self.0,
            message: message.into(),
        }
    }

    fn invalid(&self, error: &InvalidLabel) -> ConfigError {
        self.key(error.name()).error(error.to_string())
    }
}

/// Checks a selector.
///
/// ```
/// use belayer_holds::selection::config::{Path, SelectorConfig, selector};
///
/// let written: SelectorConfig = serde_json::from_str(r#"{"matchLabels":{"app":"web"}}"#)?;
/// let selector = selector(&Path::root("selector"), written)?;
/// assert!(selector.matches(&[("app", "web")].into_iter().collect()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The invalid key, and how to fix it.
pub fn selector(path: &Path, config: SelectorConfig) -> Result<Selector, ConfigError> {
    let mut requirements = Vec::new();
    let at = path.key("matchLabels");
    for (name, value) in config.match_labels {
        let only = Operator::In(Box::new([value.into()]));
        requirements.push(Requirement::new(name, only).map_err(|error| at.invalid(&error))?);
    }
    let at = path.key("matchExpressions");
    for (index, expression) in config.match_expressions.into_iter().enumerate() {
        requirements.push(requirement(&at.index(index), expression)?);
    }
    Ok(Selector::new(requirements))
}

fn requirement(path: &Path, expression: ExpressionConfig) -> Result<Requirement, ConfigError> {
    let values: Box<[Arc<str>]> = expression.values.into_iter().map(Arc::from).collect();
    let count = values.len();
    let (operator, takes_values) = match expression.operator.as_str() {
        "In" => (Operator::In(values), true),
        "NotIn" => (Operator::NotIn(values), true),
        "Exists" => (Operator::Exists, false),
        "DoesNotExist" => (Operator::DoesNotExist, false),
        other => {
            return Err(path.key("operator").error(format!(
                "unknown operator {other:?}: use In, NotIn, Exists or DoesNotExist"
            )));
        }
    };
    let name = &expression.operator;
    match (takes_values, count) {
        (true, 0) => {
            return Err(path
                .key("values")
                .error(format!("{name} needs at least one value")));
        }
        (false, 1..) => {
            return Err(path.key("values").error(format!(
                "{name} takes no values: remove them, or use In or NotIn"
            )));
        }
        _ => {}
    }
    Requirement::new(expression.key, operator).map_err(|error| {
        let key = match error {
            InvalidLabel::Name { .. } => "key",
            InvalidLabel::Value { .. } => "values",
        };
        path.key(key).error(error.to_string())
    })
}

/// Checks namespaces.
///
/// ```
/// use belayer_holds::selection::config::{NamespacesConfig, Path, namespaces};
///
/// let written: NamespacesConfig = serde_json::from_str(r#"{"exclude":["kube-system"]}"#)?;
/// let namespaces = namespaces(&Path::root("namespaces"), written)?;
/// assert!(namespaces.contains("shop") && !namespaces.contains("kube-system"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The invalid key, and how to fix it.
pub fn namespaces(path: &Path, config: NamespacesConfig) -> Result<Namespaces, ConfigError> {
    for (key, list) in [("include", &config.include), ("exclude", &config.exclude)] {
        for (index, name) in list.iter().enumerate() {
            let at = || path.key(key).index(index);
            if !is_dns_label(name) {
                return Err(at().error(format!(
                    "invalid namespace {name:?}: patterns are not supported, list the names"
                )));
            }
            if key == "include" && name == SYSTEM_NAMESPACE {
                return Err(at().error("Belayer always ignores kube-system: remove it"));
            }
            if key == "include" && config.exclude.contains(name) {
                return Err(at().error(format!(
                    "{name:?} is excluded as well: remove it from one of the two lists"
                )));
            }
        }
    }
    let shared = |list: Vec<String>| list.into_iter().map(Arc::from).collect();
    Ok(Namespaces {
        include: shared(config.include),
        exclude: shared(config.exclude),
    })
}

/// Checks a kind.
///
/// ```
/// use belayer_holds::selection::config::{KindConfig, Path, kind};
///
/// let written = r#"{"group":"batch","version":"v1","kind":"Job","resource":"jobs"}"#;
/// let written: KindConfig = serde_json::from_str(written)?;
/// assert_eq!(&*kind(&Path::root("owners"), &written)?.plural, "jobs");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The invalid key, and how to fix it.
pub fn kind(path: &Path, config: &KindConfig) -> Result<Resource, ConfigError> {
    if !config.group.is_empty() && !is_dns_subdomain(&config.group) {
        return Err(path.key("group").error(format!(
            "invalid API group {:?} (example: argoproj.io or batch); the version has its own key",
            config.group
        )));
    }
    if !is_dns_label(&config.version) {
        return Err(path.key("version").error(format!(
            "invalid API version {:?} (example: v1 or v1alpha1); the group has its own key",
            config.version
        )));
    }
    let camel = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    if !camel(&config.kind) {
        return Err(path.key("kind").error(format!(
            "invalid kind {:?} (example: Workflow or Job)",
            config.kind
        )));
    }
    if !is_dns_label(&config.resource) {
        return Err(path.key("resource").error(format!(
            "invalid resource {:?}: use the lower-case plural of the kind (example: workflows or jobs)",
            config.resource
        )));
    }
    Ok(Resource::new(
        &config.group,
        &config.version,
        &config.kind,
        &config.resource,
    ))
}

/// Checks labels, all of which are required.
///
/// ```
/// use belayer_holds::selection::config::{LabelsConfig, Path, labels};
///
/// let written: LabelsConfig = serde_json::from_str(r#"{"labels":{"app":"web"}}"#)?;
/// assert!(!labels(&Path::root("owners"), written)?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The invalid key, and how to fix it.
pub fn labels(path: &Path, config: LabelsConfig) -> Result<MatchLabels, ConfigError> {
    let path = path.key("labels");
    if config.labels.is_empty() {
        return Err(path.error("missing or empty: list labels, or remove the key"));
    }
    MatchLabels::new(config.labels).map_err(|error| path.invalid(&error))
}

/// Reads a duration, such as `10m`, of `least` or more. A [`Path`]
/// names the key, as in the [example](self).
///
/// # Errors
/// The invalid key, and how to fix it.
pub fn duration(
    path: &Path,
    text: Option<&str>,
    least: Duration,
) -> Result<Option<Duration>, ConfigError> {
    let Some(text) = text else { return Ok(None) };
    let duration = belayer_core::duration::parse(text)
        .map_err(|error| path.clone().error(error.to_string()))?;
    if duration < least {
        return Err(path.clone().error(format!(
            "{text:?} is too short: at least {}",
            belayer_core::duration::format(least)
        )));
    }
    Ok(Some(duration))
}

/// The key `workers` below `root`: how many objects a controller processes at once. The [module's
/// example](self) calls it.
///
/// # Errors
/// If the number is 0, or so high that they would only wait for each other.
pub fn workers(root: &Path, workers: usize) -> Result<usize, ConfigError> {
    const MAX: usize = 1_024;
    if (1..=MAX).contains(&workers) {
        return Ok(workers);
    }
    let message = format!("must be from 1 to {MAX}, not {workers}");
    Err(root.key("workers").error(message))
}
