//! The requirements of each controller under a configuration: its permissions, kinds and policies.

use belayer_holds::{gate, permissions};
use belayer_inspect::preflight::{Kind, Limit, Part, PvcMode};

use crate::config::Source;
use crate::controllers::Controllers;
use crate::drain::replaces_kubernetes;
use crate::election::Election;
use crate::exit::Failure;

/// Everything that the running controllers require under this configuration, with this leader election, if there is
/// one.
///
/// # Errors
///
/// If the configuration is invalid.
pub fn parts(
    source: &Source,
    controllers: &Controllers,
    election: Option<&Election>,
) -> Result<Vec<Part>, Failure> {
    let mut parts = vec![Part {
        limits: vec![Limit::GUARD],
        kinds: vec![Kind {
            resource: gate::resource(),
            without: "the admission policies add no hold, and belayer drain cannot stop a running Belayer",
            fix: "belayer crds | kubectl apply -f -",
            optional: false,
        }],
        ..Part::new(
            "every controller",
            "ClusterRole belayer-core and Role belayer-gate",
            permissions::common(),
        )
    }];
    parts.extend(election.map(|election| Part {
        role_namespace: election.lease.namespace().map(str::to_owned),
        ..Part::new(
            "leader election",
            "Role belayer-leader-election",
            permissions::election(election.lease.name()),
        )
    }));
    if source.config.endpoints.metrics_authorization == Some(true) {
        parts.push(Part::new(
            "metrics authorization",
            "ClusterRole belayer-metrics-authorization",
            permissions::metrics_authorization(),
        ));
    }
    let configured = source.configured().map_err(Failure::configuration)?;
    for one in configured {
        let name = one.controller().name;
        if controllers.contains(name) {
            parts.extend(one.requires());
            continue;
        }
        // What it managed in place of Kubernetes' controller has to be managed by that controller again.
        if replaces_kubernetes(&*one) {
            parts.push(Part {
                pvcs: Some(PvcMode::InPlaceButOff),
                ..Part::new(format!("{name} (switched off)"), "", Vec::new())
            });
        }
    }
    Ok(parts)
}
