//! Belayer on an embedded API server: what an admin installs, and the controllers. The demo and the simulator use it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use belayer::operator::Components;
use belayer_holds::names;
use belayer_holds::selection::MaxUnselected;
use belayer_pod_finalizer::Settings;
use belayer_pod_finalizer::profile::{
    Cleanup, Consumer, DeletedWhileRunning, MatchLabels, Mode, Operator, OwnerStatus, Profile,
    Profiles, Requirement, Selector, argo,
};
pub use belayer_pod_recreation::api::{Growth, OnWipeTimeout, Policy};
use belayer_pod_recreation::eligible::{Eligibility, OwnerKind};
use belayer_pod_recreation::rate_limit::{CircuitBreaker, Rate, RateLimits};
use belayer_workflow_finalizer::config::Until;
use belayer_workload::{User, WORKFLOWS};

/// Creates what an admin installs before Belayer starts.
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
    /// The policy of re-creations.
    pub policy: Policy,
    /// Whether rate limits and circuit breakers of re-creation take effect at the second rejected pod.
    pub is_rate_limited: bool,
    /// Whether pods of workflows are re-created, too (`owners`, `allowArgo`).
    pub recreates_of_workflows: bool,
    /// How long the records of re-creations are kept after their end.
    pub record_ttl: Duration,
    /// Whether pod-finalizer adds no holds (`mode: observe`).
    pub observes: bool,
    /// Whether pvc-protection adds no finalizers (`mode: advise`).
    pub advises: bool,
    /// The profiles of pods, as the checker knows them.
    pub profiles: belayer_checker::Settings,
    /// `maxUnselected`, of pods and of workflows.
    pub max_unselected: MaxUnselected,
    /// Above how many held pods that are being deleted Belayer adds no finalizers.
    pub backlog_threshold: usize,
}

impl Default for Tuning {
    /// The defaults of Belayer, but for a pause of a second.
    fn default() -> Self {
        Self {
            policy: Policy {
                backoff_seconds: 1,
                ..Policy::default()
            },
            is_rate_limited: false,
            recreates_of_workflows: false,
            record_ttl: belayer_pod_recreation::Settings::default().record_ttl,
            observes: false,
            advises: false,
            profiles: belayer_checker::Settings::default(),
            max_unselected: MaxUnselected::default(),
            backlog_threshold: Settings::default().backlog_threshold,
        }
    }
}

/// All controllers with their defaults, except that pvc-protection holds PVCs, which must be configured (by default it
/// only reports), and for these settings.
pub fn components(tuning: Tuning) -> Components {
    Components::default()
        .with(pod_finalizer(tuning))
        .with(workflow_finalizer(tuning))
        .with(belayer_pvc_protection::Settings {
            mode: if tuning.advises {
                belayer_pvc_protection::Mode::Advise
            } else {
                belayer_pvc_protection::Mode::Own
            },
            ..Default::default()
        })
        .with(belayer_pod_recreation::Settings {
            eligibility: Eligibility {
                owners: tuning
                    .recreates_of_workflows
                    .then(workflow_kind)
                    .into_iter()
                    .collect(),
                ..Eligibility::default()
            },
            policy: tuning.policy,
            record_ttl: tuning.record_ttl,
            rate_limits: if tuning.is_rate_limited {
                low_limits()
            } else {
                RateLimits::default()
            },
            ..Default::default()
        })
}

fn workflow_finalizer(tuning: Tuning) -> belayer_workflow_finalizer::Settings {
    let mut settings = belayer_workflow_finalizer::Settings {
        max_unselected: tuning.max_unselected,
        ..Default::default()
    };
    if tuning.profiles.until_archived {
        for rule in &mut settings.owners {
            rule.until = Until::Archived;
        }
    }
    settings
}

fn workflow_kind() -> OwnerKind {
    OwnerKind {
        group: WORKFLOWS.group.to_string(),
        kind: "Workflow".to_owned(),
    }
}

/// One pod in five seconds; a node's breaker opens at the second rejection.
fn low_limits() -> RateLimits {
    let usual = RateLimits::default();
    let rate = Rate {
        per_second: 0.2,
        burst: 1,
    };
    RateLimits {
        per_owner: rate,
        per_namespace: rate,
        per_node: rate,
        cluster: rate,
        breaker: CircuitBreaker {
            rejections: 2,
            ..usual.breaker
        },
    }
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
        max_unselected: tuning.max_unselected,
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
