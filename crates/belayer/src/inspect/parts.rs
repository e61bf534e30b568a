//! What each controller needs, as the configuration has it: each one's own list of permissions, and the kinds and
//! policies around it.

use belayer_holds::rights;
use belayer_inspect::preflight::Part;

use crate::config::Source;
use crate::controllers::Controllers;
use crate::exit::Failure;

/// Everything that the controllers that run need, by this configuration.
///
/// # Errors
///
/// When the configuration makes no sense.
pub fn parts(source: &Source, controllers: &Controllers) -> Result<Vec<Part>, Failure> {
    let mut parts = vec![
        Part::new(
            "every component",
            "ClusterRole belayer-core and Role belayer-gate",
            rights::ground(),
        ),
        Part::new(
            "leader election",
            "Role belayer-leader-election",
            rights::election(),
        ),
    ];
    let configured = source.configured().map_err(Failure::configuration)?;
    let running = configured
        .iter()
        .filter(|one| controllers.contains(one.controller().name));
    parts.extend(running.flat_map(|one| one.requires()));
    Ok(parts)
}
