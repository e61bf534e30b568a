//! `belayer config`: every setting as `run` would use it, and its source.

use std::fmt::Write as _;
use std::path::Path;

use belayer_core::duration;
use serde_json::Value;

use crate::config::Source;
use crate::config::keys::{self, Key};
use crate::exit::Failure;
use crate::kubeconfig::Sources;
use crate::logging::LogArguments;
use crate::options::Settings;
use crate::options::arguments::RunArguments;
use crate::screen::print_data;

/// Checks everything that `run` checks before it contacts the cluster, and prints the settings.
///
/// # Errors
/// Wrong usage or configuration, with the messages of `run`.
pub fn print(arguments: &RunArguments, logging: &LogArguments) -> Result<(), Failure> {
    let source = arguments.source()?;
    source.logging(logging).map_err(Failure::configuration)?;
    let settings = Settings::resolve(arguments, &source, &Sources::from_env())?;
    print_data(table(arguments, logging, &source, &settings).as_bytes())
}

fn table(
    arguments: &RunArguments,
    logging: &LogArguments,
    source: &Source,
    settings: &Settings,
) -> String {
    let rows: Vec<[String; 3]> = keys::all()
        .filter(|key| !key.path.contains("[]") && !matches!(key.path, "apiVersion" | "kind"))
        .map(|key| row(key, arguments, logging, source, settings))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    // A long list of profiles must not push the last column off the screen.
    let (keys, values) = (width(0), width(1).min(25));
    let mut text = format!("{:keys$}  {:values$}  FROM\n", "KEY", "VALUE");
    for [key, value, from] in rows {
        let _ = writeln!(text, "{key:keys$}  {value:values$}  {from}");
    }
    text
}

fn row(
    key: &Key,
    arguments: &RunArguments,
    logging: &LogArguments,
    source: &Source,
    settings: &Settings,
) -> [String; 3] {
    let path = key.path.to_owned();
    if let Some(value) = by_flag(key.path, arguments, logging) {
        return [
            path,
            value,
            format!("{} or its environment variable", key.flag),
        ];
    }
    let mut place = source.value();
    for part in key.path.split('.') {
        place = &place[part];
    }
    if !place.is_null() {
        return [path, written(place), source.origin(key.path)];
    }
    // The deprecated key sets the same.
    let seconds = &source.value()["podRecreation"]["backoffSeconds"];
    if key.path == "podRecreation.backoff.initial" && !seconds.is_null() {
        let from = source.origin("podRecreation.backoffSeconds");
        return [path, format!("{}s", written(seconds)), from];
    }
    let value = match key.path {
        "leaderElection.resourceNamespace" => settings.namespace.clone(),
        _ => key.default.to_owned(),
    };
    [path, value, "default".to_owned()]
}

fn written(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The value that a flag or its environment variable sets for a key.
fn by_flag(path: &str, arguments: &RunArguments, logging: &LogArguments) -> Option<String> {
    let election = &arguments.election;
    let text = |value: &dyn ToString| value.to_string();
    let file = |path: &Path| path.display().to_string();
    match path {
        "controllers" => arguments.controllers.as_ref().map(|list| list.join(",")),
        "dryRun" => arguments.dry_run.map(|on| text(&on)),
        "featureGates" => {
            let gates = arguments.feature_gates.join(",");
            (!gates.is_empty()).then_some(gates)
        }
        "leaderElection.enabled" => election.leader_elect.map(|on| text(&on)),
        "leaderElection.leaseDuration" => {
            election.leader_elect_lease_duration.map(duration::format)
        }
        "leaderElection.renewDeadline" => {
            election.leader_elect_renew_deadline.map(duration::format)
        }
        "leaderElection.retryPeriod" => election.leader_elect_retry_period.map(duration::format),
        "leaderElection.resourceName" => election.leader_elect_resource_name.clone(),
        "leaderElection.resourceNamespace" => election.leader_elect_resource_namespace.clone(),
        "limits.qps" => arguments.kube_api_qps.map(|n| text(&n)),
        "limits.burst" => arguments.kube_api_burst.map(|n| text(&n)),
        "limits.concurrentReleases" => arguments.concurrent_releases.map(|n| text(&n)),
        "endpoints.metricsBindAddress" => arguments.metrics_bind_address.as_ref().map(|a| text(a)),
        "endpoints.healthProbeBindAddress" => arguments
            .health_probe_bind_address
            .as_ref()
            .map(|a| text(a)),
        "endpoints.tlsCertFile" => arguments.protection.tls_cert_file.as_deref().map(file),
        "endpoints.tlsPrivateKeyFile" => arguments
            .protection
            .tls_private_key_file
            .as_deref()
            .map(file),
        "endpoints.metricsAuthorization" => arguments
            .protection
            .metrics_authorization
            .map(|on| text(&on)),
        "endpoints.debugBindAddress" => arguments.debug_bind_address.as_ref().map(|a| text(a)),
        "logging.format" => {
            let format = logging.log_format.as_ref();
            format.map(|format| format!("{format:?}").to_lowercase())
        }
        "logging.level" => logging.log_level.as_ref().map(|levels| text(levels)),
        #[cfg(feature = "pvc-protection")]
        "pvcProtection.finalizer" => arguments
            .pvc
            .pvc_protection_finalizer
            .map(|mode| text(&mode)),
        path if path.ends_with(".workers") && !path.starts_with("nodeAgent.") => {
            arguments.workers.map(|n| text(&n))
        }
        _ => None,
    }
}
