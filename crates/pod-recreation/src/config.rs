//! The key `podRecreation` of the configuration file, as parsed and as validated.
//!
//! ```
//! use belayer_pod_recreation::Settings;
//!
//! assert!(Settings::default().advice().is_empty());
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use belayer_core::duration;
use belayer_holds::selection::config::{NamespacesConfig, Path, namespaces, workers};
use belayer_holds::selection::{Operator, Requirement, is_dns_subdomain};
use serde::Deserialize;

pub use belayer_holds::selection::config::ConfigError;

use crate::api::{Growth, OnWipeTimeout, Policy};
use crate::eligible::{Eligibility, OwnerKind, REPLACE_THEIR_OWN, replaces_its_own};
use crate::rate_limit::{CircuitBreaker, Rate, RateLimits};
use crate::reason::{Class, Classes};
use crate::replacement_pod::ReplacementMetadata;

/// The key in the configuration file: the root of every path in an error.
pub const KEY: &str = "podRecreation";

/// Default of `workers`.
pub const DEFAULT_WORKERS: usize = 64;

/// Upper limit of `maxRetries`: more would be an endless loop.
const MAX_RETRIES: u32 = 100;

/// The longest time that a record can contain.
const MAX_SECONDS: u32 = i32::MAX as u32;

/// Default of `recordTtlSeconds`.
const RECORD_TTL: Duration = Duration::from_secs(3_600);

/// Belayer gives up a create that the API server has denied for this time.
pub const DENIED_FOR: Duration = Duration::from_secs(3_600);

/// The validated settings, with defaults. The [module's example](self) has the default.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Maximum number of records, and of pods, processed concurrently.
    pub workers: usize,
    /// Which pods are re-created.
    pub eligibility: Eligibility,
    /// The policy of new records.
    pub policy: Policy,
    /// What is carried to re-created pods.
    pub carry: ReplacementMetadata,
    /// Whether `owners` lists workflows of Argo Workflows, which are ignored.
    pub argo_ignored: bool,
    /// Kinds in `owners` that match no owner: they have no group, and the core group has no such kind.
    pub without_group: Vec<String>,
    /// Whether the configuration has the deprecated key `backoffSeconds`.
    pub backoff_deprecated: bool,
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
            carry: ReplacementMetadata::default(),
            argo_ignored: false,
            without_group: Vec::new(),
            backoff_deprecated: false,
            classes: Classes::default(),
            record_ttl: RECORD_TTL,
            rate_limits: RateLimits::default(),
        }
    }
}

/// The key as it is written. Missing keys have their defaults. The [module's example](self) has
/// the default.
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
    /// The namespaces of the pods.
    pub namespaces: Option<NamespacesConfig>,
    /// Whether `owners` may list workflows of Argo Workflows, which retries its pods itself.
    #[serde(default)]
    pub allow_argo: bool,
    /// See [`Policy::max_retries`].
    pub max_retries: Option<u32>,
    /// The deprecated form of `backoff.initial`, in seconds.
    pub backoff_seconds: Option<u32>,
    /// The pause before a re-creation.
    #[serde(default)]
    pub backoff: BackoffConfig,
    /// What is carried to re-created pods.
    #[serde(default)]
    pub carry: ReplacementMetadataConfig,
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

/// The key `backoff`: the pause before a re-creation. The [module's example](self) has the
/// default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackoffConfig {
    /// See [`Policy::backoff_seconds`].
    pub initial: Option<String>,
    /// See [`Growth::factor`].
    pub factor: Option<f64>,
    /// See [`Growth::max_seconds`].
    pub max: Option<String>,
    /// See [`Growth::jitter`].
    pub jitter: Option<f64>,
}

/// The key `carry`: which annotations and labels a replacement pod gets. The [module's example](self) has the default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplacementMetadataConfig {
    /// Field managers whose annotations are carried over, in addition to the creator and `kubectl`.
    #[serde(default)]
    pub managers: Vec<String>,
    /// Annotations that are carried over, whoever wrote them.
    #[serde(default)]
    pub keep: Vec<String>,
    /// Labels and annotations that are not carried over.
    #[serde(default)]
    pub drop: Vec<String>,
}

/// A selector of pods. The [module's example](self) has the default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SelectorConfig {
    /// The pod must have all of them.
    #[serde(default)]
    pub match_labels: BTreeMap<String, String>,
}

/// The key `storm`: rate limits and circuit breakers. The [module's example](self) has the
/// default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RateLimitsConfig {
    /// Re-creations of pods of one owner.
    pub per_owner: Option<RateConfig>,
    /// Re-creations of pods in one namespace.
    pub per_namespace: Option<RateConfig>,
    /// Re-creations of pods of one namespace that one node rejected.
    pub per_node: Option<RateConfig>,
    /// Re-creations in the whole cluster.
    pub cluster: Option<RateConfig>,
    /// The circuit breakers.
    pub breaker: Option<BreakerConfig>,
}

/// A [`Rate`] as in the file. The [module's example](self) has the default.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RateConfig {
    /// See [`Rate::per_second`].
    pub per_second: Option<f64>,
    /// See [`Rate::burst`].
    pub burst: Option<u32>,
}

/// A [`CircuitBreaker`] as in the file. The [module's example](self) has the default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BreakerConfig {
    /// See [`CircuitBreaker::rejections`].
    pub rejections: Option<u32>,
    /// See [`CircuitBreaker::within_seconds`].
    pub within_seconds: Option<u32>,
    /// See [`CircuitBreaker::open_seconds`].
    pub open_seconds: Option<u32>,
    /// See [`CircuitBreaker::namespaces`].
    pub namespaces: Option<Vec<String>>,
}

fn error(key: &str, message: impl Into<String>) -> ConfigError {
    Path::root(KEY).key(key).error(message)
}

impl TryFrom<PodRecreationConfig> for Settings {
    type Error = ConfigError;

    fn try_from(config: PodRecreationConfig) -> Result<Self, ConfigError> {
        let default = Policy::default();
        let workers = workers(&Path::root(KEY), config.workers.unwrap_or(DEFAULT_WORKERS))?;
        for (key, seconds) in [
            ("wipeTimeoutSeconds", config.wipe_timeout_seconds),
            ("backoffSeconds", config.backoff_seconds),
        ] {
            check_seconds(key, seconds)?;
        }
        let max_retries = config.max_retries.unwrap_or(default.max_retries);
        if max_retries > MAX_RETRIES {
            let message = format!("must be from 0 to {MAX_RETRIES}, not {max_retries}");
            return Err(error("maxRetries", message));
        }
        if config.selectors.iter().any(|s| s.match_labels.is_empty()) {
            return Err(error(
                "selectors",
                "a selector without matchLabels would select every pod; name at least one label",
            ));
        }
        for (index, selector) in config.selectors.iter().enumerate() {
            for (name, value) in &selector.match_labels {
                let only = Operator::In(Box::new([value.as_str().into()]));
                Requirement::new(name.as_str(), only).map_err(|wrong| {
                    let key = format!("selectors[{index}].matchLabels.{name}");
                    error(&key, wrong.to_string())
                })?;
            }
        }
        if config.classes.contains_key("") {
            return Err(error("classes", "the name of a reason is empty"));
        }
        let owners = config.owners.iter().map(|name| owner(name));
        let mut owners = owners.collect::<Result<Vec<OwnerKind>, ConfigError>>()?;
        let all = owners.len();
        // Earlier versions accepted them: an error here would break an upgrade.
        owners.retain(|kind| config.allow_argo || !is_argo(kind));
        let argo_ignored = owners.len() < all;
        let without_group = owners.iter().filter(|kind| is_in_no_group(kind));
        let without_group = without_group.map(|kind| kind.kind.clone()).collect();
        for (list, names) in [("keep", &config.carry.keep), ("drop", &config.carry.drop)] {
            for (index, name) in names.iter().enumerate() {
                if name.trim_end_matches('*').contains('*') {
                    let key = format!("carry.{list}[{index}]");
                    return Err(error(&key, "a * stands at the end only, after a prefix"));
                }
            }
        }
        let rate_limits = rate_limits(config.storm)?;
        let (backoff_seconds, growth) = backoff(&config.backoff, config.backoff_seconds)?;
        Ok(Self {
            workers,
            eligibility: Eligibility {
                selectors: config
                    .selectors
                    .into_iter()
                    .map(|selector| selector.match_labels)
                    .collect(),
                owners,
                namespaces: namespaces(
                    &Path::root(KEY).key("namespaces"),
                    config.namespaces.unwrap_or_default(),
                )?,
            },
            policy: Policy {
                max_retries,
                backoff_seconds,
                backoff: growth,
                wipe: default.wipe,
                wipe_timeout_seconds: config
                    .wipe_timeout_seconds
                    .unwrap_or(default.wipe_timeout_seconds),
                on_wipe_timeout: config.on_wipe_timeout.unwrap_or(default.on_wipe_timeout),
                avoid_rejected_node: config
                    .avoid_rejected_node
                    .unwrap_or(default.avoid_rejected_node),
            },
            carry: ReplacementMetadata {
                managers: config.carry.managers,
                keep: config.carry.keep,
                drop: config.carry.drop,
            },
            argo_ignored,
            without_group,
            backoff_deprecated: config.backoff_seconds.is_some(),
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

/// The warning about a deprecated key.
const BACKOFF_DEPRECATED: &str = "podRecreation.backoffSeconds is deprecated and will be removed: write \
    podRecreation.backoff.initial with a unit, such as 15s";

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
        let deprecated = self
            .backoff_deprecated
            .then(|| BACKOFF_DEPRECATED.to_owned());
        argo.into_iter()
            .chain(without_group)
            .chain(deprecated)
            .collect()
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
    let is_kind = kind.starts_with(|c: char| c.is_ascii_uppercase())
        && kind.chars().all(|c| c.is_ascii_alphanumeric());
    let is_group = !name.contains('.') || is_dns_subdomain(group);
    if !is_kind || !is_group {
        let message = format!("invalid kind {name:?}: write Kind or Kind.group");
        return Err(error("owners", message));
    }
    Ok(OwnerKind {
        group: group.to_owned(),
        kind: kind.to_owned(),
    })
}

/// Refuses a number that the CRD refuses in each record: its integers have 32 bits, with a sign.
fn check_seconds(key: &str, seconds: Option<u32>) -> Result<(), ConfigError> {
    if seconds.is_some_and(|seconds| seconds > MAX_SECONDS) {
        let message = format!("must be at most {MAX_SECONDS} seconds (68 years)");
        return Err(error(key, message));
    }
    Ok(())
}

/// The first pause in seconds, and how it grows if that is configured.
fn backoff(
    config: &BackoffConfig,
    deprecated: Option<u32>,
) -> Result<(u32, Option<Growth>), ConfigError> {
    let seconds = |key: &str, text: &Option<String>| {
        let Some(text) = text else {
            return Ok(None);
        };
        let parsed = duration::parse(text).map_err(|wrong| error(key, wrong.to_string()))?;
        if parsed.subsec_nanos() != 0 {
            return Err(error(key, format!("must be whole seconds, not {text}")));
        }
        let seconds = u32::try_from(parsed.as_secs()).unwrap_or(u32::MAX);
        check_seconds(key, Some(seconds))?;
        Ok(Some(seconds))
    };
    let initial = seconds("backoff.initial", &config.initial)?;
    if initial.is_some() && deprecated.is_some() {
        let message = "backoffSeconds is the deprecated form of this key: remove backoffSeconds";
        return Err(error("backoff.initial", message));
    }
    let first = initial.or(deprecated);
    let first = first.unwrap_or(Policy::default().backoff_seconds);
    let max = seconds("backoff.max", &config.max)?;
    let default = Growth::default();
    let growth = Growth {
        factor: config.factor.unwrap_or(default.factor),
        max_seconds: max.unwrap_or(default.max_seconds),
        jitter: config.jitter.unwrap_or(default.jitter),
    };
    if !(1.0..=10.0).contains(&growth.factor) {
        let message = format!("must be from 1 to 10, not {}", growth.factor);
        return Err(error("backoff.factor", message));
    }
    if !(0.0..=1.0).contains(&growth.jitter) {
        let message = format!("must be from 0 to 1, not {}", growth.jitter);
        return Err(error("backoff.jitter", message));
    }
    // The deprecated key had no such limit.
    if initial.is_some() && growth.max_seconds < first {
        let message = format!("the longest pause is shorter than the first one, {first} s");
        return Err(error("backoff.max", message));
    }
    Ok((first, (growth != default).then_some(growth)))
}

fn rate_limits(config: RateLimitsConfig) -> Result<RateLimits, ConfigError> {
    let default = RateLimits::default();
    let rate = |written: Option<RateConfig>, default: Rate| {
        let written = written.unwrap_or_default();
        Rate {
            per_second: written.per_second.unwrap_or(default.per_second),
            burst: written.burst.unwrap_or(default.burst),
        }
    };
    let breaker = config.breaker.unwrap_or_default();
    let limits = RateLimits {
        per_owner: rate(config.per_owner, default.per_owner),
        per_namespace: rate(config.per_namespace, default.per_namespace),
        per_node: rate(config.per_node, default.per_node),
        cluster: rate(config.cluster, default.cluster),
        breaker: CircuitBreaker {
            rejections: breaker.rejections.unwrap_or(default.breaker.rejections),
            within_seconds: breaker
                .within_seconds
                .unwrap_or(default.breaker.within_seconds),
            open_seconds: breaker.open_seconds.unwrap_or(default.breaker.open_seconds),
            namespaces: breaker.namespaces.unwrap_or(default.breaker.namespaces),
        },
    };
    for (key, rate) in [
        ("storm.perOwner", limits.per_owner),
        ("storm.perNamespace", limits.per_namespace),
        ("storm.perNode", limits.per_node),
        ("storm.cluster", limits.cluster),
    ] {
        if !(rate.per_second.is_finite() && rate.per_second > 0.0) || rate.burst == 0 {
            return Err(error(key, "perSecond and burst must be greater than 0"));
        }
    }
    if limits.breaker.rejections == 0 || limits.breaker.within_seconds == 0 {
        let message = "rejections and withinSeconds must be greater than 0";
        return Err(error("storm.breaker", message));
    }
    Ok(limits)
}

#[cfg(test)]
mod tests;
