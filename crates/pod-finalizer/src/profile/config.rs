//! The key `podFinalizer` of the configuration file: as written, and as checked.

use std::time::Duration;

use belayer_core::selection::config::{
    KindConfig, LabelsConfig, NamespacesConfig, Path, SelectorConfig, duration, kind, labels,
    namespaces, selector,
};
use belayer_core::selection::is_dns_label;
use serde::Deserialize;
use serde::de::IgnoredAny;

pub use belayer_core::selection::config::ConfigError;

use super::{MaxUnselected, Mode, Profile, Profiles, ProfilesError, argo};

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
    owner: Option<KindConfig>,
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

impl TryFrom<PodFinalizerConfig> for Settings {
    type Error = ConfigError;

    fn try_from(config: PodFinalizerConfig) -> Result<Self, ConfigError> {
        let root = Path::root(KEY);
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
        Some(config) => Some(kind(&path.key("owner"), &config)?),
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

#[cfg(test)]
mod tests;
