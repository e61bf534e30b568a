//! The keys of the process itself, as written: everything about it that is also a flag.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The key `leaderElection`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElectionConfig {
    /// Whether replicas elect a leader.
    pub enabled: Option<bool>,
    pub(super) lease_duration: Option<String>,
    pub(super) renew_deadline: Option<String>,
    pub(super) retry_period: Option<String>,
    /// Name of the Lease.
    pub resource_name: Option<String>,
    /// Namespace of the Lease.
    pub resource_namespace: Option<String>,
}

/// The key `limits`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Requests a second, releases apart.
    pub qps: Option<u32>,
    /// Requests at once after a pause, releases apart.
    pub burst: Option<u32>,
    /// Releases under way at once.
    pub concurrent_releases: Option<u32>,
}

/// The key `endpoints`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EndpointsConfig {
    pub(super) metrics_bind_address: Option<String>,
    pub(super) debug_bind_address: Option<String>,
}

/// The key `logging`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LoggingConfig {
    pub(super) format: Option<String>,
    pub(super) level: Option<String>,
}

/// The key `featureGates`.
pub type FeatureGatesConfig = BTreeMap<String, bool>;
