//! The key `podRecreation` of the configuration file, as parsed and as validated.

use std::collections::BTreeMap;
use std::time::Duration;

use belayer_holds::selection::config::Path;
use serde::Deserialize;

pub use belayer_holds::selection::config::ConfigError;

use crate::api::{OnWipeTimeout, Policy};
use crate::eligible::{Eligibility, OwnerKind, REPLACE_THEIR_OWN, replaces_its_own};
use crate::rate_limit::{CircuitBreaker, Rate, RateLimits};
use crate::reason::{Class, Classes};

/// The key in the configuration file: the root of every path in an error.
pub const KEY: &str = "podRecreation";

/// Default of `workers`.
pub const DEFAULT_WORKERS: usize = 32;

/// Upper limit of `workers`: more would only wait for each other.
const MAX_WORKERS: usize = 1_024;

/// Upper limit of `maxRetries`: more would be an endless loop.
const MAX_RETRIES: u32 = 100;

/// Default of `recordTtlSeconds`.
const RECORD_TTL: Duration = Duration::from_secs(3_600);

/// Belayer gives up a create that the API server has denied for this time.
pub const DENIED_FOR: Duration = Duration::from_secs(3_600);

/// The validated settings, with defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Maximum number of records, and of pods, processed concurrently.
    pub workers: usize,
    /// Which pods are re-created.
    pub eligibility: Eligibility,
    /// The policy of new records.
    pub policy: Policy,
    /// Whether `owners` lists workflows of Argo Workflows, which are ignored.
    pub argo_ignored: bool,
    /// Kinds in `owners` that match no owner: they have no group, and the core group has no such kind.
    pub without_group: Vec<String>,
    /// Classes of reasons.
    pub classes: Classes,
    /// How long a record is kept after its end.
    pub record_ttl: Duration,
    /// Rate limits and circuit breakers; the key `storm`.
    pub rate_limits: RateLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: DEFAULT_WORKERS,
            eligibility: Eligibility::default(),
            policy: Policy::default(),
            argo_ignored: false,
            without_group: Vec::new(),
            classes: Classes::default(),
            record_ttl: RECORD_TTL,
            rate_limits: RateLimits::default(),
        }
    }
}

/// The key as it is written. Missing keys have their defaults.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodRecreationConfig {
    /// See [`Settings::workers`].
    pub workers: Option<usize>,
    /// Labels that select pods in addition to those that request re-creation by annotation.
    #[serde(default)]
    pub selectors: Vec<SelectorConfig>,
    /// Kinds of controllers whose pods are re-created, too, as `Kind` or `Kind.group`.
    #[serde(default)]
    pub owners: Vec<String>,
    /// Whether `owners` may list workflows of Argo Workflows, which retries its pods itself.
    #[serde(default)]
    pub allow_argo: bool,
    /// See [`Policy::max_retries`].
    pub max_retries: Option<u32>,
    /// See [`Policy::backoff_seconds`].
    pub backoff_seconds: Option<u32>,
    /// See [`Policy::wipe_timeout_seconds`].
    pub wipe_timeout_seconds: Option<u32>,
    /// See [`Policy::on_wipe_timeout`].
    pub on_wipe_timeout: Option<OnWipeTimeout>,
    /// See [`Policy::avoid_rejected_node`].
    pub avoid_rejected_node: Option<bool>,
    /// Classes of single reasons, which override the built-in table.
    #[serde(default)]
    pub classes: BTreeMap<String, Class>,
    /// See [`Settings::record_ttl`], in seconds.
    pub record_ttl_seconds: Option<u32>,
    /// See [`Settings::rate_limits`].
    #[serde(default)]
    pub storm: RateLimitsConfig,
}

/// A selector of pods.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SelectorConfig {
    /// The pod must have all of them.
    #[serde(default)]
    pub match_labels: BTreeMap<String, String>,
}

/// The key `storm`: rate limits and circuit breakers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RateLimitsConfig {
    /// Re-creations of pods of one owner.
    pub per_owner: Option<Rate>,
    /// Re-creations of pods that one node rejected.
    pub per_node: Option<Rate>,
    /// Re-creations in the whole cluster.
    pub cluster: Option<Rate>,
    /// The circuit breaker of each node.
    pub breaker: Option<CircuitBreaker>,
}

fn error(key: &str, message: impl Into<String>) -> ConfigError {
    Path::root(KEY).key(key).error(message)
}

impl TryFrom<PodRecreationConfig> for Settings {
    type Error = ConfigError;

    fn try_from(config: PodRecreationConfig) -> Result<Self, ConfigError> {
        let default = Policy::default();
        let workers = config.workers.unwrap_or(DEFAULT_WORKERS);
        if !(1..=MAX_WORKERS).contains(&workers) {
            let message = format!("{workers} is out of range: from 1 to {MAX_WORKERS}");
            return Err(error("workers", message));
        }
        let max_retries = config.max_retries.unwrap_or(default.max_retries);
        if max_retries > MAX_RETRIES {
            let message = format!("{max_retries} is out of range: from 0 to {MAX_RETRIES}");
            return Err(error("maxRetries", message));
        }
        if config.selectors.iter().any(|s| s.match_labels.is_empty()) {
            return Err(error(
                "selectors",
                "a selector without matchLabels would select every pod; name at least one label",
            ));
        }
        let owners = config.owners.iter().map(|name| owner(name));
        let mut owners = owners.collect::<Result<Vec<OwnerKind>, ConfigError>>()?;
        let all = owners.len();
        // Earlier versions accepted them: an error here would break an upgrade.
        owners.retain(|kind| config.allow_argo || !is_argo(kind));
        let argo_ignored = owners.len() < all;
        let without_group = owners.iter().filter(|kind| is_in_no_group(kind));
        let without_group = without_group.map(|kind| kind.kind.clone()).collect();
        let rate_limits = rate_limits(&config.storm)?;
        Ok(Self {
            workers,
            eligibility: Eligibility {
                selectors: config
                    .selectors
                    .into_iter()
                    .map(|selector| selector.match_labels)
                    .collect(),
                owners,
            },
            policy: Policy {
                max_retries,
                backoff_seconds: config.backoff_seconds.unwrap_or(default.backoff_seconds),
                wipe: default.wipe,
                wipe_timeout_seconds: config
                    .wipe_timeout_seconds
                    .unwrap_or(default.wipe_timeout_seconds),
                on_wipe_timeout: config.on_wipe_timeout.unwrap_or(default.on_wipe_timeout),
                avoid_rejected_node: config
                    .avoid_rejected_node
                    .unwrap_or(default.avoid_rejected_node),
            },
            argo_ignored,
            without_group,
            classes: Classes::with(config.classes),
            record_ttl: config
                .record_ttl_seconds
                .map_or(RECORD_TTL, |seconds| Duration::from_secs(seconds.into())),
            rate_limits,
        })
    }
}

/// The warning that listed workflows of Argo Workflows are ignored.
const ARGO_IGNORED: &str = "podRecreation.owners lists Workflow.argoproj.io, which is ignored: Argo Workflows \
    retries its pods itself, and a pod re-created under its name would interfere. Remove the entry, or set \
    podRecreation.allowArgo: true";

impl Settings {
    /// Warnings about the settings, logged at the start and printed by `belayer check`.
    pub fn advice(&self) -> Vec<String> {
        let argo = self.argo_ignored.then(|| ARGO_IGNORED.to_owned());
        let without_group = self.without_group.iter().map(|kind| {
            let group = if kind == "Workflow" {
                "argoproj.io"
            } else {
                "example.com"
            };
            format!(
                "podRecreation.owners lists {kind} without a group, which means the core group. That group has no \
                 {kind}, so the entry matches no owner. Write the group, such as {kind}.{group}"
            )
        });
        argo.into_iter().chain(without_group).collect()
    }
}

/// The kinds of the core group that may be listed as owners.
const CORE_KINDS: &[&str] = &[
    "ConfigMap",
    "Endpoints",
    "Event",
    "LimitRange",
    "Namespace",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodTemplate",
    "ResourceQuota",
    "Secret",
    "Service",
    "ServiceAccount",
];

fn is_in_no_group(kind: &OwnerKind) -> bool {
    kind.group.is_empty() && !CORE_KINDS.contains(&kind.kind.as_str())
}

fn is_argo(kind: &OwnerKind) -> bool {
    (kind.group.as_str(), kind.kind.as_str()) == ("argoproj.io", "Workflow")
}

fn owner(name: &str) -> Result<OwnerKind, ConfigError> {
    let (kind, group) = name.split_once('.').unwrap_or((name, ""));
    // Without a group the built-in kind is meant.
    let well_known = REPLACE_THEIR_OWN.iter().any(|(_, known)| *known == kind);
    if replaces_its_own(group, kind) || (group.is_empty() && well_known) {
        let message = format!("a {kind} replaces its own pods and cannot be listed here");
        return Err(error("owners", message));
    }
    if kind.is_empty() || !kind.starts_with(|c: char| c.is_ascii_uppercase()) {
        let message = format!("invalid kind {name:?}: write Kind or Kind.group");
        return Err(error("owners", message));
    }
    Ok(OwnerKind {
        group: group.to_owned(),
        kind: kind.to_owned(),
    })
}

fn rate_limits(config: &RateLimitsConfig) -> Result<RateLimits, ConfigError> {
    let default = RateLimits::default();
    let limits = RateLimits {
        per_owner: config.per_owner.unwrap_or(default.per_owner),
        per_node: config.per_node.unwrap_or(default.per_node),
        cluster: config.cluster.unwrap_or(default.cluster),
        breaker: config.breaker.unwrap_or(default.breaker),
    };
    for (key, rate) in [
        ("storm.perOwner", limits.per_owner),
        ("storm.perNode", limits.per_node),
        ("storm.cluster", limits.cluster),
    ] {
        if !(rate.per_second.is_finite() && rate.per_second > 0.0) || rate.burst == 0 {
            return Err(error(key, "perSecond and burst must be greater than 0"));
        }
    }
    if limits.breaker.rejections == 0 {
        return Err(error("storm.breaker", "rejections must be greater than 0"));
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn settings(yaml: &str) -> Result<Settings, ConfigError> {
        let config: PodRecreationConfig = serde_saphyr::from_str(yaml).unwrap();
        config.try_into()
    }

    #[test]
    fn the_defaults_are_those_of_the_documentation() {
        let settings = settings("{}").unwrap();
        assert_eq!(settings, Settings::default());
        assert_eq!(settings.policy.max_retries, 3);
        assert_eq!(settings.policy.backoff_seconds, 15);
        assert_eq!(settings.policy.wipe_timeout_seconds, 120);
        assert_eq!(settings.record_ttl, Duration::from_secs(3_600));
    }

    #[test]
    fn every_key_is_read() {
        let settings = settings(
            "workers: 4\nselectors: [{matchLabels: {app: web}}]\nowners: [Workspace.example.com]\n\
             maxRetries: 5\nbackoffSeconds: 1\nwipeTimeoutSeconds: 9\nonWipeTimeout: fail\n\
             avoidRejectedNode: true\nclasses: {Custom: race}\nrecordTtlSeconds: 60\n\
             storm: {perNode: {perSecond: 2, burst: 3}, breaker: {rejections: 7, withinSeconds: 8, openSeconds: 9}}\n",
        )
        .unwrap();
        assert_eq!(settings.workers, 4);
        assert_eq!(settings.eligibility.owners[0].group, "example.com");
        assert_eq!(settings.policy.max_retries, 5);
        assert_eq!(settings.policy.on_wipe_timeout, OnWipeTimeout::Fail);
        assert!(settings.policy.avoid_rejected_node);
        assert_eq!(settings.classes.of("Custom", ""), Class::Race);
        assert_eq!(settings.rate_limits.per_node.burst, 3);
        assert_eq!(settings.rate_limits.breaker.open_seconds, 9);
    }

    /// A7: a warning and no error, which would break an upgrade.
    #[rstest]
    #[case("owners: [Workflow.argoproj.io, Workspace.example.com]", &["Workspace"], true)]
    #[case("owners: [Workflow.argoproj.io]\nallowArgo: true", &["Workflow"], false)]
    #[case("owners: [Workspace.example.com]", &["Workspace"], false)]
    #[case("owners: [Workflow.example.com]", &["Workflow"], false)]
    fn a7_workflows_of_argo_are_ignored_unless_allowed(
        #[case] yaml: &str,
        #[case] kinds: &[&str],
        #[case] ignored: bool,
    ) {
        let settings = settings(yaml).unwrap();
        let owners = &settings.eligibility.owners;
        let named: Vec<&str> = owners.iter().map(|owner| &*owner.kind).collect();
        assert_eq!((&named[..], settings.argo_ignored), (kinds, ignored));
    }

    #[rstest]
    #[case("owners: [Workflow]", Some("Workflow.argoproj.io"))]
    #[case("owners: [Workspace]", Some("Workspace.example.com"))]
    #[case("owners: [Service, Workspace.example.com]", None)]
    fn a7_an_owner_that_matches_nothing_causes_a_warning(
        #[case] yaml: &str,
        #[case] write: Option<&str>,
    ) {
        let advice = settings(yaml).unwrap().advice();
        assert_eq!(advice.len(), write.iter().len(), "{advice:?}");
        for (advice, write) in advice.iter().zip(write) {
            assert!(advice.ends_with(write), "{advice}");
        }
    }

    #[rstest]
    #[case("workers: 0", "podRecreation.workers")]
    #[case("maxRetries: 1000", "podRecreation.maxRetries")]
    #[case("selectors: [{}]", "podRecreation.selectors")]
    #[case("owners: [ReplicaSet.apps]", "podRecreation.owners")]
    #[case("owners: [Job]", "podRecreation.owners")]
    #[case("owners: [Job.batch]", "podRecreation.owners")]
    #[case("owners: [Node]", "podRecreation.owners")]
    #[case("owners: [thing]", "podRecreation.owners")]
    #[case(
        "storm: {cluster: {perSecond: 0, burst: 1}}",
        "podRecreation.storm.cluster"
    )]
    #[case(
        "storm: {breaker: {rejections: 0, withinSeconds: 1, openSeconds: 1}}",
        "podRecreation.storm.breaker"
    )]
    fn an_invalid_value_names_its_key(#[case] yaml: &str, #[case] path: &str) {
        assert_eq!(settings(yaml).unwrap_err().path, path);
    }
}
