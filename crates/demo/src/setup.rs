//! Belayer on an embedded API server: what an admin installs, and the controllers. The demo and the simulator use it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use belayer::operator::Components;
use belayer_holds::names;
use belayer_pod_finalizer::Settings;
use belayer_pod_finalizer::profile::{Profile, Profiles};
use belayer_pod_recreation::api::Policy;
use belayer_workload::User;

/// Creates what an admin installs before Belayer starts.
///
/// # Errors
/// What the API server answers.
pub fn install(user: &User) -> Result<()> {
    user.create_namespace(names::DEFAULT_NAMESPACE)
        .context("Belayer's namespace")?;
    for definition in [
        belayer_holds::gate::CRD,
        belayer_pod_recreation::crd::YAML,
        belayer_pod_recreation::crd::NODE_WIPE_YAML,
    ] {
        let definition = serde_saphyr::from_str(definition)?;
        user.define(definition).context("a definition")?;
    }
    Ok(())
}

/// All controllers with their defaults, except that pvc-protection holds PVCs, which must be configured (by default it
/// only reports), that a rejected pod is re-created after this time, and that the results of pods are given up when their node
/// has been lost for this long.
pub fn components(backoff_seconds: u32, node_lost_delay: Duration) -> Components {
    let policy = Policy {
        backoff_seconds,
        ..Policy::default()
    };
    Components::default()
        .with(pod_finalizer(node_lost_delay))
        .with(belayer_workflow_finalizer::Settings::default())
        .with(belayer_pvc_protection::Settings {
            mode: belayer_pvc_protection::Mode::Own,
            ..Default::default()
        })
        .with(belayer_pod_recreation::Settings {
            policy,
            ..Default::default()
        })
}

fn pod_finalizer(node_lost_delay: Duration) -> Settings {
    let mut settings = Settings::default();
    let profiles = settings.profiles.iter().map(|profile| Profile {
        node_lost_delay,
        ..Profile::clone(profile)
    });
    if let Ok(profiles) = Profiles::new(profiles) {
        settings.profiles = profiles;
    }
    settings
}
