//! What our own components say of an object: one explainer each.

#[cfg(any(feature = "pod-finalizer", feature = "workflow-finalizer"))]
mod census;
mod decided;
#[cfg(feature = "pod-finalizer")]
mod pod_finalizer;
#[cfg(feature = "pod-recreation")]
mod pod_recreation;
#[cfg(feature = "pod-recreation")]
mod pod_recreation_record;
#[cfg(feature = "pvc-protection")]
mod pvc_protection;
#[cfg(any(
    feature = "pod-finalizer",
    feature = "workflow-finalizer",
    feature = "pod-recreation",
    feature = "pvc-protection"
))]
mod read;
#[cfg(feature = "workflow-finalizer")]
mod workflow_finalizer;

use std::path::Path;

use belayer_inspect::explain::{Belayer, Explainer};
use belayer_inspect::reader::Reader;

use super::lease;
use crate::config::Source;
use crate::exit::Failure;

/// All components that are part of this build, where Belayer is in `own_namespace`.
///
/// # Errors
///
/// When the configuration file cannot be used.
pub(super) fn belayer(
    reader: &Reader,
    config: Option<&Path>,
    own_namespace: &str,
) -> Result<Belayer, Failure> {
    let source = Source::of(config, &[]).map_err(Failure::configuration)?;
    let explainers: Vec<Box<dyn Explainer>> = vec![
        #[cfg(feature = "pod-finalizer")]
        Box::new(pod_finalizer::PodFinalizer::new(
            reader,
            &source,
            config,
            own_namespace,
        )?),
        #[cfg(feature = "pod-recreation")]
        Box::new(pod_recreation::PodRecreation::new(
            reader,
            &source,
            own_namespace,
        )?),
        #[cfg(feature = "pod-recreation")]
        Box::new(pod_recreation_record::Records::new(&source, own_namespace)?),
        #[cfg(feature = "pvc-protection")]
        Box::new(pvc_protection::PvcProtection::new(&source)?),
        #[cfg(feature = "workflow-finalizer")]
        Box::new(workflow_finalizer::WorkflowFinalizer::new(&source)?),
    ];
    // In a build without any component there is nothing to explain with.
    let _ = reader;
    Ok(Belayer {
        explainers,
        lease: lease(&source, own_namespace)?,
    })
}

/// How many holds this component keeps back by this configuration; `None` if it never keeps any.
pub(super) async fn kept(
    reader: &Reader,
    source: &Source,
    component: &str,
) -> Option<Result<usize, String>> {
    let _ = (reader, source);
    match component {
        #[cfg(feature = "pod-finalizer")]
        belayer_pod_finalizer::component::NAME => Some(pod_finalizer::kept(reader, source).await),
        #[cfg(feature = "workflow-finalizer")]
        belayer_workflow_finalizer::component::NAME => {
            Some(workflow_finalizer::kept(reader, source).await)
        }
        _ => None,
    }
}

/// `namespace/name` of the record of a pod that is not there, the newest of several.
#[cfg(feature = "pod-recreation")]
pub(super) async fn record_of(
    reader: &Reader,
    what: &str,
    namespace: &str,
    pod: &str,
) -> Option<String> {
    if !what.starts_with("pods ") {
        return None;
    }
    pod_recreation_record::of_pod(reader, namespace, pod).await
}

#[cfg(not(feature = "pod-recreation"))]
pub(super) async fn record_of(_: &Reader, _: &str, _: &str, _: &str) -> Option<String> {
    None
}
