//! The keys of the process as written: those that are also flags.

use std::collections::BTreeMap;
use std::path::PathBuf;

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
    /// Requests per second, not counting releases.
    pub qps: Option<u32>,
    /// Burst of requests after a pause, not counting releases.
    pub burst: Option<u32>,
    /// Concurrent releases.
    pub concurrent_releases: Option<u32>,
}

/// The key `endpoints`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EndpointsConfig {
    pub(super) metrics_bind_address: Option<String>,
    pub(super) health_probe_bind_address: Option<String>,
    pub(super) debug_bind_address: Option<String>,
    pub(crate) tls_cert_file: Option<PathBuf>,
    pub(crate) tls_private_key_file: Option<PathBuf>,
    pub(crate) metrics_authorization: Option<bool>,
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
