//! What our own components say of an object: one explainer each.

#[cfg(feature = "pod-finalizer")]
mod pod_finalizer;
#[cfg(feature = "pvc-protection")]
mod pvc_protection;
#[cfg(feature = "workflow-finalizer")]
mod workflow_finalizer;

use std::path::Path;

use belayer_inspect::explain::Explainer;
use belayer_inspect::reader::Reader;

use crate::config::Source;
use crate::exit::Failure;

/// The explainers of all components that are part of this build.
///
/// # Errors
///
/// When the configuration file cannot be used.
pub(super) fn all(
    reader: &Reader,
    config: Option<&Path>,
) -> Result<Vec<Box<dyn Explainer>>, Failure> {
    let source = match config {
        Some(path) => Source::load(path).map_err(Failure::configuration)?,
        None => Source::default(),
    };
    let explainers: Vec<Box<dyn Explainer>> = vec![
        #[cfg(feature = "pod-finalizer")]
        Box::new(pod_finalizer::PodFinalizer::new(reader, &source, config)?),
        #[cfg(feature = "pvc-protection")]
        Box::new(pvc_protection::PvcProtection::new(&source)?),
        #[cfg(feature = "workflow-finalizer")]
        Box::new(workflow_finalizer::WorkflowFinalizer::new(&source)?),
    ];
    // In a build without any component there is nothing to explain with.
    let _ = (reader, &source);
    Ok(explainers)
}
