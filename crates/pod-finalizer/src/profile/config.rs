//! The key `podFinalizer` of the configuration file: as written, and as checked.
//!
//! ```
//! use belayer_pod_finalizer::Settings;
//!
//! assert!(Settings::default().profiles.iter().next().is_some());
//! ```

use std::sync::Arc;
use std::time::Duration;

use belayer_holds::selection::config::{
    KindConfig, LabelsConfig, NamespacesConfig, Path, SelectorConfig, duration, kind, labels,
    namespaces, selector, workers,
};
use belayer_holds::selection::is_dns_label;
use serde::Deserialize;

pub use belayer_holds::selection::config::ConfigError;

use crate::status::ConsumedWhen;

use super::{
    Cleanup, Consumer, DeletedWhileRunning, MatchLabels, MaxUnselected, Mode, OwnerStatus, Profile,
    Profiles, ProfilesError, argo,
};

/// The key of the configuration file: the root of every path in an error.
pub const KEY: &str = "podFinalizer";

/// Default number of concurrent workers.
pub const DEFAULT_WORKERS: usize = 64;

/// For the whole cluster; 1,000 for one namespace.
const DEFAULT_BACKLOG_THRESHOLD: usize = 4_000;
const DEFAULT_OUTCOME_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const DEFAULT_RESYNC: Duration = Duration::from_secs(10 * 60);

/// The checked configuration, with defaults filled in. The [module's
/// example](crate::profile::config) has the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of pods processed concurrently.
    pub workers: usize,
    /// Number of held pods being deleted above which Belayer adds no finalizers, until there are half as many. For one
    /// namespace a part of it.
    pub backlog_threshold: usize,
    /// How many unselected pods may be released at once.
    pub max_unselected: MaxUnselected,
    /// How often each pod is checked again without an event, on average.
    pub resync: Duration,
    /// How long a `PodOutcome` without an owner is kept.
    pub outcome_ttl: Duration,
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
            outcome_ttl: DEFAULT_OUTCOME_TTL,
            profiles: Profiles::argo(),
        }
    }
}

/// The key as written in the file. Omitted keys have their defaults. The [module's
/// example](crate::profile::config) has the default.
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
    /// See [`Settings::outcome_ttl`].
    pub outcome_ttl: Option<String>,
    /// See [`Settings::profiles`]; the built-in profile for Argo if omitted.
    pub profiles: Option<Vec<ProfileConfig>>,
}

/// A profile as written in the file. The [module's example](crate::profile::config) has the
/// default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProfileConfig {
    /// The built-in profile that this profile is based on. The other keys replace its values, except the selector, which
    /// narrows its selector.
    built_in: Option<BuiltIn>,
    name: Option<String>,
    mode: Option<Mode>,
    selector: Option<SelectorConfig>,
    namespaces: Option<NamespacesConfig>,
    owner: Option<KindConfig>,
    consumed: Option<LabelsConfig>,
    owner_finished: Option<LabelsConfig>,
    release_after: Option<String>,
    owner_status: Option<OwnerStatus>,
    consumed_when: Option<String>,
    adopt: Option<Vec<String>>,
    capture: Option<bool>,
    consumer: Option<Consumer>,
    deleted_while_running: Option<DeletedWhileRunning>,
    node_lost_delay: Option<String>,
    cleanup: Option<Cleanup>,
}

/// Built-in profiles.
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
        let workers = workers(&root, config.workers.unwrap_or(default.workers))?;
        let backlog_threshold = config
            .backlog_threshold
            .unwrap_or(default.backlog_threshold);
        if backlog_threshold == 0 {
            return Err(root.key("backlogThreshold").error(
                "must be at least 1; to hold nothing, switch the controller off: \
                 --controllers=*,-pod-finalizer",
            ));
        }
        let least = Duration::from_secs(10);
        let resync = duration(&root.key("resync"), config.resync.as_deref(), least)?;
        let least = Duration::from_secs(1);
        let outcome_ttl = duration(
            &root.key("outcomeTtl"),
            config.outcome_ttl.as_deref(),
            least,
        )?;
        let profiles = match config.profiles {
            Some(profiles) => all_profiles(&root.key("profiles"), profiles)?,
            None => default.profiles,
        };
        let max_unselected = config.max_unselected.unwrap_or_default();
        Ok(Self {
            workers,
            backlog_threshold,
            max_unselected,
            resync: resync.unwrap_or(default.resync),
            outcome_ttl: outcome_ttl.unwrap_or(default.outcome_ttl),
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
    let base = config.built_in.map(|BuiltIn::Argo| argo::profile());
    let name = match (config.name, &base) {
        (Some(name), _) => name.into(),
        (None, Some(base)) => base.name.clone(),
        (None, None) => return Err(path.key("name").error("missing: give the profile a name")),
    };
    if !is_dns_label(&name) {
        return Err(path.key("name").error(format!(
            "invalid name {name:?}: use lower-case letters, digits and '-' (at most 63)"
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
    let (release_after, least) = (config.release_after.as_deref(), Duration::from_secs(1));
    let release_after = duration(&path.key("releaseAfter"), release_after, least)?;
    let owner_status = match config.owner_status {
        Some(OwnerStatus::Argo) if owner.is_none() => {
            return Err(path.key("ownerStatus").error(
                "needs to know whose status to read: name the `owner` kind, or remove the key",
            ));
        }
        Some(status) => status,
        // The status of another kind than the built-in one is not known to look like Argo's.
        None if owner == Some(argo::workflow()) => OwnerStatus::Argo,
        None => OwnerStatus::None,
    };
    let at = path.key("consumedWhen");
    let consumed_when = match config.consumed_when {
        Some(_) if owner.is_none() => {
            return Err(at.error(
                "needs to know which object to read: name the `owner` kind, or remove the key",
            ));
        }
        Some(_) if owner_status == OwnerStatus::Argo => {
            return Err(at.error(
                "the status of Argo Workflows shows which results were read: remove the key",
            ));
        }
        Some(text) => Some(ConsumedWhen::parse(&text).map_err(|why| at.error(why.to_string()))?),
        None => None,
    };
    let adopt = adopt(&path.key("adopt"), config.adopt.unwrap_or_default())?;
    let capture = config.capture.unwrap_or_default();
    let node_lost_delay = config.node_lost_delay.as_deref();
    let node_lost_delay = duration(&path.key("nodeLostDelay"), node_lost_delay, Duration::ZERO)?;
    let mut profile = Profile {
        owner_status,
        consumed_when,
        adopt,
        capture,
        consumer: Consumer::Pod,
        deleted_while_running: config.deleted_while_running.unwrap_or_default(),
        node_lost_delay: node_lost_delay.unwrap_or_default(),
        cleanup: config.cleanup.unwrap_or_default(),
        name,
        mode: config.mode.unwrap_or_default(),
        selector,
        namespaces,
        owner,
        consumed,
        owner_finished,
        release_after,
    };
    profile.consumer = consumer(&path.key("consumer"), config.consumer, &profile)?;
    let only_of_argo = [
        (
            "deletedWhileRunning",
            config.deleted_while_running.is_some(),
        ),
        ("nodeLostDelay", config.node_lost_delay.is_some()),
    ];
    for (key, _) in only_of_argo.iter().filter(|(_, written)| *written) {
        if !profile.is_argo() {
            return Err(path.key(key).error(
                "applies only to pods of Argo Workflows: remove the key, or name Argo's `owner` kind",
            ));
        }
    }
    Ok(profile)
}

/// What the consumer reads. By default that is the record, if records are written and the profile names no other
/// way to know that a result was read: no owner, or an owner but no label that shows it.
fn consumer(
    path: &Path,
    written: Option<Consumer>,
    profile: &Profile,
) -> Result<Consumer, ConfigError> {
    let records = profile.capture;
    let unnamed = profile.owner.is_none()
        || (profile.consumed.is_empty()
            && profile.owner_finished.is_empty()
            && profile.consumed_when.is_none());
    match written {
        Some(Consumer::PodOutcome) if profile.is_argo() => Err(path.clone().error(
            "Argo Workflows reads pods, never a PodOutcome: if a pod were released because its outcome is \
             recorded, its step would fail; remove the key: then `capture: true` only writes records",
        )),
        Some(Consumer::PodOutcome) if !records => Err(path.clone().error(
            "needs `capture: true`: without it no PodOutcome is written that a consumer could read",
        )),
        Some(written) => Ok(written),
        None if records && unnamed && !profile.is_argo() => Ok(Consumer::PodOutcome),
        None => Ok(Consumer::Pod),
    }
}

/// The API server's own finalizers express deletion policies and protection, not that a consumer requires a result.
const NEVER_ADOPTED: &[&str] = &["foregroundDeletion", "orphan", "kubernetes"];

fn adopt(path: &Path, names: Vec<String>) -> Result<Box<[Arc<str>]>, ConfigError> {
    let mut adopted: Vec<Arc<str>> = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        let at = path.index(index);
        let Some((domain, _)) = name.split_once('/') else {
            let message = if NEVER_ADOPTED.contains(&&*name) {
                format!("{name:?} belongs to Kubernetes itself and is never changed: remove it")
            } else {
                format!("invalid finalizer {name:?} (example: workflows.argoproj.io/status)")
            };
            return Err(at.error(message));
        };
        if is_of(domain, "kubernetes.io") || is_of(domain, "k8s.io") {
            return Err(at.error(format!(
                "{name:?} belongs to Kubernetes itself and is never changed: remove it"
            )));
        }
        if is_of(domain, "belayer.dev") {
            return Err(at.error(format!(
                "{name:?} is Belayer's own finalizer, which needs no entry here: remove it"
            )));
        }
        MatchLabels::new([(&*name, "")]).map_err(|_| {
            let message =
                format!("invalid finalizer {name:?} (example: workflows.argoproj.io/status)");
            at.clone().error(message)
        })?;
        adopted.push(name.into());
    }
    Ok(adopted.into())
}

fn is_of(domain: &str, parent: &str) -> bool {
    domain == parent
        || domain
            .strip_suffix(parent)
            .is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests;
