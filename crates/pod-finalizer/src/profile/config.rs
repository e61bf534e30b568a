//! The key `podFinalizer` of the configuration file: as written, and as checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use belayer_core::names::SYSTEM_NAMESPACE;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::labels::{is_dns_label, is_dns_subdomain};
use super::{
    InvalidLabel, MatchLabels, MaxUnselected, Mode, Namespaces, Operator, OwnerKind, Profile,
    Profiles, ProfilesError, Requirement, Selector, argo,
};

/// The key of the configuration file: the root of every path in an error.
pub const KEY: &str = "podFinalizer";

/// Keys worked on at once, unless told otherwise.
pub const DEFAULT_WORKERS: usize = 32;

/// More workers than this would only wait for each other.
const MAX_WORKERS: usize = 1_024;

const DEFAULT_BACKLOG_THRESHOLD: usize = 1_000;
const DEFAULT_RESYNC: Duration = Duration::from_secs(10 * 60);

/// What is checked and complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Keys worked on at once.
    pub workers: usize,
    /// Pods ended or being deleted and still held, above which no holds are added until there
    /// are half as many.
    pub backlog_threshold: usize,
    /// How many holds may be released at once because nothing selects their pods any more.
    pub max_unselected: MaxUnselected,
    /// How often each pod is looked at without a reason, on average.
    pub resync: Duration,
    /// The profiles, in order.
    pub profiles: Profiles,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: DEFAULT_WORKERS,
            backlog_threshold: DEFAULT_BACKLOG_THRESHOLD,
            max_unselected: MaxUnselected::default(),
            resync: DEFAULT_RESYNC,
            profiles: Profiles::argo(),
        }
    }
}

/// What is wrong with a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ConfigError {
    /// The key from the root of the file, such as `podFinalizer.profiles[1].owner.kind`.
    pub path: String,
    /// What is wrong and what to do about it.
    pub message: String,
}

/// The key as it is written. What is left out has its default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodFinalizerConfig {
    /// See [`Settings::workers`].
    pub workers: Option<usize>,
    /// See [`Settings::backlog_threshold`].
    pub backlog_threshold: Option<usize>,
    /// See [`Settings::max_unselected`].
    pub max_unselected: Option<MaxUnselected>,
    /// See [`Settings::resync`].
    pub resync: Option<String>,
    /// See [`Settings::profiles`]; the built-in profile for Argo if left out.
    pub profiles: Option<Vec<ProfileConfig>>,
}

/// A profile as it is written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProfileConfig {
    /// The built-in profile that this one starts from. The other keys replace its own, save the
    /// selector, which narrows it.
    built_in: Option<BuiltIn>,
    name: Option<String>,
    mode: Option<Mode>,
    selector: Option<SelectorConfig>,
    namespaces: Option<NamespacesConfig>,
    owner: Option<OwnerConfig>,
    consumed: Option<LabelsConfig>,
    owner_finished: Option<LabelsConfig>,
    release_after: Option<String>,
    adopt: Option<IgnoredAny>,
    capture: Option<IgnoredAny>,
    cleanup: Option<IgnoredAny>,
}

/// Profiles that Belayer brings along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum BuiltIn {
    Argo,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SelectorConfig {
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

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NamespacesConfig {
    #[serde(default)]
    include: Vec<String>,
    #[serde(default)]
    exclude: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OwnerConfig {
    #[serde(default)]
    group: String,
    version: String,
    kind: String,
    resource: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LabelsConfig {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Where in the file we are.
#[derive(Clone)]
struct Path(String);

impl Path {
    fn key(&self, key: &str) -> Self {
        Self(format!("{}.{key}", self.0))
    }

    fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    fn error(self, message: impl Into<String>) -> ConfigError {
        ConfigError {
            path: self.0,
            message: message.into(),
        }
    }

    fn invalid(&self, error: &InvalidLabel) -> ConfigError {
        self.key(error.name()).error(error.to_string())
    }
}

impl TryFrom<PodFinalizerConfig> for Settings {
    type Error = ConfigError;

    fn try_from(config: PodFinalizerConfig) -> Result<Self, ConfigError> {
        let root = Path(KEY.to_owned());
        let default = Self::default();
        let workers = config.workers.unwrap_or(default.workers);
        if !(1..=MAX_WORKERS).contains(&workers) {
            return Err(root
                .key("workers")
                .error(format!("must be from 1 to {MAX_WORKERS}")));
        }
        let backlog_threshold = config
            .backlog_threshold
            .unwrap_or(default.backlog_threshold);
        if backlog_threshold == 0 {
            return Err(root.key("backlogThreshold").error(
                "must be at least 1; to hold nothing, switch the controller off: \
                 --controllers=*,-pod-finalizer",
            ));
        }
        let resync = match &config.resync {
            Some(text) => duration(&root.key("resync"), text, Duration::from_secs(10))?,
            None => default.resync,
        };
        let profiles = match config.profiles {
            Some(profiles) => all_profiles(&root.key("profiles"), profiles)?,
            None => default.profiles,
        };
        let max_unselected = config.max_unselected.unwrap_or_default();
        Ok(Self {
            workers,
            backlog_threshold,
            max_unselected,
            resync,
            profiles,
        })
    }
}

fn all_profiles(path: &Path, profiles: Vec<ProfileConfig>) -> Result<Profiles, ConfigError> {
    let profiles = profiles
        .into_iter()
        .enumerate()
        .map(|(index, config)| profile(&path.index(index), config))
        .collect::<Result<Vec<_>, _>>()?;
    Profiles::new(profiles).map_err(|error| {
        let at = match &error {
            ProfilesError::Empty => path.clone(),
            ProfilesError::DuplicateName { index, .. } => path.index(*index).key("name"),
            ProfilesError::NothingReleases { index, .. } => path.index(*index),
            ProfilesError::AlwaysConsumed { index, .. } => path.index(*index).key("consumed"),
        };
        at.error(error.to_string())
    })
}

fn profile(path: &Path, config: ProfileConfig) -> Result<Profile, ConfigError> {
    let later = [
        ("adopt", &config.adopt),
        ("capture", &config.capture),
        ("cleanup", &config.cleanup),
    ];
    for (key, given) in later {
        if given.is_some() {
            return Err(path
                .key(key)
                .error("not available in this version: remove the key"));
        }
    }
    let base = config.built_in.map(|BuiltIn::Argo| argo::profile());
    let name = match (config.name, &base) {
        (Some(name), _) => name.into(),
        (None, Some(base)) => base.name.clone(),
        (None, None) => return Err(path.key("name").error("missing: give the profile a name")),
    };
    if !is_dns_label(&name) {
        return Err(path.key("name").error(format!(
            "{name:?} is no name: it takes lower-case letters, digits and '-' (at most 63)"
        )));
    }
    let namespaces = namespaces(
        &path.key("namespaces"),
        config.namespaces.unwrap_or_default(),
    )?;
    let given = selector(&path.key("selector"), config.selector.unwrap_or_default())?;
    let selector = match &base {
        Some(base) => base.selector.clone().and(given),
        None => given,
    };
    if selector.is_empty() && namespaces.include.is_empty() {
        return Err(path.key("selector").error(
            "missing or empty, which would hold every pod of the cluster: \
             name a label, or the namespaces in `namespaces.include`",
        ));
    }
    let owner = match config.owner {
        Some(config) => Some(owner(&path.key("owner"), &config)?),
        None => base.as_ref().and_then(|base| base.owner.clone()),
    };
    let consumed = match config.consumed {
        Some(config) => labels(&path.key("consumed"), config)?,
        None => base
            .as_ref()
            .map(|base| base.consumed.clone())
            .unwrap_or_default(),
    };
    let owner_finished = match config.owner_finished {
        Some(_) if owner.is_none() => {
            return Err(path.key("ownerFinished").error(
                "needs to know whose labels to read: name the `owner` kind, or remove the key",
            ));
        }
        Some(config) => labels(&path.key("ownerFinished"), config)?,
        None => base
            .as_ref()
            .map(|base| base.owner_finished.clone())
            .unwrap_or_default(),
    };
    let release_after = config
        .release_after
        .map(|text| duration(&path.key("releaseAfter"), &text, Duration::from_secs(1)))
        .transpose()?;
    Ok(Profile {
        name,
        mode: config.mode.unwrap_or_default(),
        selector,
        namespaces,
        owner,
        consumed,
        owner_finished,
        release_after,
    })
}

fn selector(path: &Path, config: SelectorConfig) -> Result<Selector, ConfigError> {
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
                "{other:?} is no operator: use In, NotIn, Exists or DoesNotExist"
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

fn namespaces(path: &Path, config: NamespacesConfig) -> Result<Namespaces, ConfigError> {
    for (key, list) in [("include", &config.include), ("exclude", &config.exclude)] {
        for (index, name) in list.iter().enumerate() {
            let at = || path.key(key).index(index);
            if !is_dns_label(name) {
                return Err(at().error(format!(
                    "{name:?} is no namespace: patterns are not supported, list the names"
                )));
            }
            if key == "include" && name == SYSTEM_NAMESPACE {
                return Err(at().error("kube-system is never touched: remove it"));
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

fn owner(path: &Path, config: &OwnerConfig) -> Result<OwnerKind, ConfigError> {
    if !config.group.is_empty() && !is_dns_subdomain(&config.group) {
        return Err(path.key("group").error(format!(
            "{:?} is no API group, such as argoproj.io or batch; the version has its own key",
            config.group
        )));
    }
    if !is_dns_label(&config.version) {
        return Err(path.key("version").error(format!(
            "{:?} is no API version, such as v1 or v1alpha1; the group has its own key",
            config.version
        )));
    }
    let camel = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    if !camel(&config.kind) {
        return Err(path.key("kind").error(format!(
            "{:?} is no kind, such as Workflow or Job",
            config.kind
        )));
    }
    if !is_dns_label(&config.resource) {
        return Err(path.key("resource").error(format!(
            "{:?} is no resource: the lower-case plural of the kind, such as workflows or jobs",
            config.resource
        )));
    }
    Ok(OwnerKind::new(
        &config.group,
        &config.version,
        &config.kind,
        &config.resource,
    ))
}

fn labels(path: &Path, config: LabelsConfig) -> Result<MatchLabels, ConfigError> {
    let path = path.key("labels");
    if config.labels.is_empty() {
        return Err(path.error("missing or empty: name the labels that say so, or remove the key"));
    }
    MatchLabels::new(config.labels).map_err(|error| path.invalid(&error))
}

fn duration(path: &Path, text: &str, least: Duration) -> Result<Duration, ConfigError> {
    let parsed: Result<jiff::SignedDuration, _> = text.parse();
    let duration = parsed
        .ok()
        .and_then(|signed| Duration::try_from(signed).ok())
        .ok_or_else(|| {
            path.clone().error(format!(
                "{text:?} is no duration, such as 30s, 10m or 1h30m"
            ))
        })?;
    if duration < least {
        return Err(path.clone().error(format!(
            "{text:?} is too short: at least {}s",
            least.as_secs()
        )));
    }
    Ok(duration)
}

#[cfg(test)]
mod tests;
