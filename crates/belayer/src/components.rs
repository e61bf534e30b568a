//! What each component is to do: its settings, where it runs.

#[cfg(feature = "pod-finalizer")]
use std::sync::Arc;

#[cfg(feature = "pod-finalizer")]
use belayer_pod_finalizer::profile::config::Settings as PodFinalizerSettings;
#[cfg(feature = "pod-finalizer")]
use belayer_pod_finalizer::profile::{Cleanup, Profile};
#[cfg(feature = "pod-recreation")]
use belayer_pod_recreation::Settings as PodRecreationSettings;
#[cfg(feature = "pvc-protection")]
use belayer_pvc_protection::config::Settings as PvcProtectionSettings;
#[cfg(feature = "workflow-finalizer")]
use belayer_workflow_finalizer::config::Settings as WorkflowFinalizerSettings;

use crate::config::{ConfigError, Source};
use crate::controllers::{Controller, Controllers};
use crate::drain::switched_off::SwitchedOff;
use crate::exit::Failure;
#[cfg(feature = "pod-finalizer")]
use crate::gates::Gate;
use crate::gates::Gates;

/// What each component does; `None` where it is switched off.
#[derive(Debug, Clone, Default)]
pub struct Components {
    /// pod-finalizer.
    #[cfg(feature = "pod-finalizer")]
    pub pod_finalizer: Option<PodFinalizerSettings>,
    /// pod-recreation.
    #[cfg(feature = "pod-recreation")]
    pub pod_recreation: Option<PodRecreationSettings>,
    /// pvc-protection.
    #[cfg(feature = "pvc-protection")]
    pub pvc_protection: Option<PvcProtectionSettings>,
    /// workflow-finalizer.
    #[cfg(feature = "workflow-finalizer")]
    pub workflow_finalizer: Option<WorkflowFinalizerSettings>,
    /// Those that are switched off and whose holds are taken off.
    pub switched_off: Vec<SwitchedOff>,
}

impl Components {
    /// What the controllers that run are to do. The keys of the others are checked as well: what
    /// is wrong in a file is wrong whoever runs.
    ///
    /// `workers` is what a flag says: it counts more than the file.
    ///
    /// # Errors
    /// If a value makes no sense.
    pub fn of(
        source: &Source,
        controllers: &Controllers,
        workers: Option<usize>,
    ) -> Result<Self, ConfigError> {
        #[cfg(not(any(
            feature = "pod-finalizer",
            feature = "workflow-finalizer",
            feature = "pod-recreation",
            feature = "pvc-protection"
        )))]
        let _ = (source, controllers, workers);
        Ok(Self {
            #[cfg(feature = "pod-finalizer")]
            pod_finalizer: {
                let settings = source.pod_finalizer(workers)?;
                let on = controllers.contains(Controller::PodFinalizer);
                on.then_some(settings)
            },
            #[cfg(feature = "pod-recreation")]
            pod_recreation: {
                let settings = source.pod_recreation(workers)?;
                let on = controllers.contains(Controller::PodRecreation);
                on.then_some(settings)
            },
            #[cfg(feature = "pvc-protection")]
            pvc_protection: {
                let settings = source.pvc_protection(workers)?;
                let on = controllers.contains(Controller::PvcProtection);
                on.then_some(settings)
            },
            #[cfg(feature = "workflow-finalizer")]
            workflow_finalizer: {
                let settings = source.workflow_finalizer(workers)?;
                let on = controllers.contains(Controller::WorkflowFinalizer);
                on.then_some(settings)
            },
            switched_off: Vec::new(),
        })
    }

    /// The same with claims held as a flag says, if it says anything.
    #[cfg(feature = "pvc-protection")]
    #[must_use]
    pub fn with_claims_held_by(mut self, flag: Option<belayer_pvc_protection::Mode>) -> Self {
        if let (Some(settings), Some(mode)) = (&mut self.pvc_protection, flag) {
            settings.mode = mode;
        }
        self
    }

    /// Whether they use nothing that a feature gate switches off.
    ///
    /// # Errors
    /// With the key that does.
    pub fn allowed_by(&self, gates: &Gates, source: &Source) -> Result<(), Failure> {
        #[cfg(feature = "pod-finalizer")]
        if let Some(on) = self
            .pod_finalizer
            .as_ref()
            .filter(|_| !gates.is_on(Gate::PodCleanup))
        {
            let cleans = |profile: &Arc<Profile>| profile.cleanup != Cleanup::None;
            if let Some(index) = on.profiles.iter().position(cleans) {
                let key = format!("podFinalizer.profiles[{index}].cleanup");
                let message = "needs the feature gate PodCleanup, which is switched off: remove \
                               the key, or --feature-gates=PodCleanup=true";
                return Err(Failure::configuration(source.error(key, message)));
            }
        }
        #[cfg(not(feature = "pod-finalizer"))]
        let _ = (gates, source);
        Ok(())
    }

    /// Whether a component runs and adds holds. If pvc-protection only reports, it counts
    /// as switched off for its admission policy and for the holds of an earlier configuration.
    pub(crate) fn holds(&self, controller: Controller) -> bool {
        #[cfg(feature = "pvc-protection")]
        if let (Controller::PvcProtection, Some(settings)) = (controller, &self.pvc_protection) {
            return settings.mode.adds_holds();
        }
        self.runs(controller)
    }

    /// Whether a component runs.
    pub(crate) fn runs(&self, controller: Controller) -> bool {
        match controller {
            #[cfg(feature = "pod-finalizer")]
            Controller::PodFinalizer => self.pod_finalizer.is_some(),
            #[cfg(feature = "pod-recreation")]
            Controller::PodRecreation => self.pod_recreation.is_some(),
            #[cfg(feature = "pvc-protection")]
            Controller::PvcProtection => self.pvc_protection.is_some(),
            #[cfg(feature = "workflow-finalizer")]
            Controller::WorkflowFinalizer => self.workflow_finalizer.is_some(),
            #[allow(unreachable_patterns, reason = "a build may leave components out")]
            _ => false,
        }
    }
}
