//! Belayer on an embedded API server: what an admin installs, and the controllers. The demo and the simulator use it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use belayer::operator::Components;
use belayer_holds::names;
use belayer_pod_finalizer::Settings;
use belayer_pod_finalizer::profile::{
    Cleanup, Consumer, DeletedWhileRunning, MatchLabels, Mode, Operator, OwnerStatus, Profile,
    Profiles, Requirement, Selector, argo,
};
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
    if tuning.profiles.records_outcomes() {
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
    /// How long the records of re-creations are kept after their end.
    pub record_ttl: Duration,
    /// Whether pod-finalizer adds no holds (`mode: observe`).
    pub observes: bool,
    /// The profiles of pods, as the checker knows them.
    pub profiles: belayer_checker::Settings,
    /// Above how many held pods that are being deleted Belayer adds no finalizers.
    pub backlog_threshold: usize,
}

impl Default for Tuning {
    /// The defaults of Belayer, but for a pause of a second.
    fn default() -> Self {
        Self {
            backoff: 1,
            record_ttl: belayer_pod_recreation::Settings::default().record_ttl,
            observes: false,
            profiles: belayer_checker::Settings::default(),
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

/// A profile of pods with this label `app`, whose consumer reads the records of their outcomes.
fn recorded(app: &str) -> Option<Profile> {
    let label = Requirement::new("app", Operator::In([app.into()].into())).ok()?;
    let profile = Profile {
        name: app.into(),
        selector: Selector::new([label]),
        owner: None,
        consumed: MatchLabels::default(),
        owner_finished: MatchLabels::default(),
        owner_status: OwnerStatus::None,
        capture: true,
        consumer: Consumer::PodOutcome,
        ..argo::profile()
    };
    Some(profile)
}

fn pod_finalizer(tuning: Tuning) -> Settings {
    let mut settings = Settings {
        backlog_threshold: tuning.backlog_threshold,
        ..Settings::default()
    };
    let wanted = tuning.profiles;
    let chosen = |profile: &Arc<Profile>| Profile {
        mode: if tuning.observes {
            Mode::Observe
        } else {
            Mode::Enforce
        },
        node_lost_delay: wanted.node_lost_delay,
        capture: wanted.captures,
        deleted_while_running: if wanted.holds_deleted {
            DeletedWhileRunning::Hold
        } else {
            DeletedWhileRunning::Release
        },
        release_after: wanted.release_after,
        cleanup: if wanted.cleans_up {
            Cleanup::Argo
        } else {
            Cleanup::None
        },
        adopt: wanted.adopts.into_iter().map(Arc::from).collect(),
        ..Profile::clone(profile)
    };
    let mut profiles: Vec<Profile> = settings.profiles.iter().map(chosen).collect();
    profiles.extend(wanted.recorded_app.and_then(recorded));
    if let Ok(profiles) = Profiles::new(profiles) {
        settings.profiles = profiles;
    }
    settings
}
