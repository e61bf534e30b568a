//! The requirements of each controller under a configuration: its permissions, kinds and policies.

use belayer_holds::permissions;
use belayer_inspect::preflight::Part;

use crate::config::Source;
use crate::controllers::Controllers;
use crate::election;
use crate::exit::Failure;

/// Everything that the running controllers require under this configuration, with the election by this Lease.
///
/// # Errors
///
/// If the configuration is invalid.
pub fn parts(
    source: &Source,
    controllers: &Controllers,
    lease: Option<&str>,
) -> Result<Vec<Part>, Failure> {
    let by_file = source.config.leader_election.resource_name.as_deref();
    let lease = lease.or(by_file).unwrap_or(election::DEFAULT_NAME);
    let mut parts = vec![
        Part::new(
            "every component",
            "ClusterRole belayer-core and Role belayer-gate",
            permissions::common(),
        ),
        Part::new(
            "leader election",
            "Role belayer-leader-election",
            permissions::election(lease),
        ),
    ];
    if source.config.endpoints.metrics_authorization == Some(true) {
        parts.push(Part::new(
            "metrics authorization",
            "ClusterRole belayer-metrics-authorization",
            permissions::metrics_authorization(),
        ));
    }
    let configured = source.configured().map_err(Failure::configuration)?;
    let running = configured
        .iter()
        .filter(|one| controllers.contains(one.controller().name));
    parts.extend(running.flat_map(|one| one.requires()));
    Ok(parts)
}
