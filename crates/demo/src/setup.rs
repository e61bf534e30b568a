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
pub fn install(user: &User, tuning: Tuning) -> Result<()> {
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
    if tuning.capture {
        let definition = belayer_pod_finalizer::outcome::crd();
        user.define(definition).context("a definition")?;
    }
    Ok(())
}

/// The settings that differ between runs.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Seconds before a rejected pod is re-created.
    pub backoff: u32,
    /// How long a node must be lost before the results of its pods are given up.
    pub node_lost_delay: Duration,
    /// How long the records of re-creations are kept after their end.
    pub record_ttl: Duration,
    /// Whether outcomes of pods are recorded.
    pub capture: bool,
    /// Above how many held pods that are being deleted Belayer adds no finalizers.
    pub backlog_threshold: usize,
}

impl Default for Tuning {
    /// The defaults of Belayer, but for a pause of a second.
    fn default() -> Self {
        Self {
            backoff: 1,
            node_lost_delay: Duration::ZERO,
            record_ttl: belayer_pod_recreation::Settings::default().record_ttl,
            capture: false,
            backlog_threshold: Settings::default().backlog_threshold,
        }
    }
}

/// All controllers with their defaults, except that pvc-protection holds PVCs, which must be configured (by default it
/// only reports), and for these settings.
pub fn components(tuning: Tuning) -> Components {
    let policy = Policy {
        backoff_seconds: tuning.backoff,
        ..Policy::default()
    };
    Components::default()
        .with(pod_finalizer(tuning))
        .with(belayer_workflow_finalizer::Settings::default())
        .with(belayer_pvc_protection::Settings {
            mode: belayer_pvc_protection::Mode::Own,
            ..Default::default()
        })
        .with(belayer_pod_recreation::Settings {
            policy,
            record_ttl: tuning.record_ttl,
            ..Default::default()
        })
}

fn pod_finalizer(tuning: Tuning) -> Settings {
    let mut settings = Settings {
        backlog_threshold: tuning.backlog_threshold,
        ..Settings::default()
    };
    let profiles = settings.profiles.iter().map(|profile| Profile {
        node_lost_delay: tuning.node_lost_delay,
        capture: tuning.capture,
        ..Profile::clone(profile)
    });
    if let Ok(profiles) = Profiles::new(profiles) {
        settings.profiles = profiles;
    }
    settings
}
