//! What our own components say of an object: one explainer each.

#[cfg(any(feature = "pod-finalizer", feature = "workflow-finalizer"))]
mod census;
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

use belayer_core::decision::{Decision, Evidence, Write};
use belayer_inspect::explain::{Action, Explained, Explainer, Row};
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
    let source = Source::of(config, &[]).map_err(Failure::configuration)?;
    let explainers: Vec<Box<dyn Explainer>> = vec![
        #[cfg(feature = "pod-finalizer")]
        Box::new(pod_finalizer::PodFinalizer::new(reader, &source, config)?),
        #[cfg(feature = "pod-recreation")]
        Box::new(pod_recreation::PodRecreation::new(reader, &source)?),
        #[cfg(feature = "pod-recreation")]
        Box::new(pod_recreation_record::Records::new(&source)?),
        #[cfg(feature = "pvc-protection")]
        Box::new(pvc_protection::PvcProtection::new(&source)?),
        #[cfg(feature = "workflow-finalizer")]
        Box::new(workflow_finalizer::WorkflowFinalizer::new(&source)?),
    ];
    // In a build without any component there is nothing to explain with.
    let _ = (reader, &source);
    Ok(explainers)
}

/// A decision and whose it is, on its way into words.
#[cfg_attr(
    not(any(
        feature = "pod-finalizer",
        feature = "workflow-finalizer",
        feature = "pod-recreation",
        feature = "pvc-protection"
    )),
    allow(dead_code, reason = "a build without components explains nothing")
)]
struct Decided<'a, E, Q> {
    component: &'static str,
    /// The hold that it is about, and whether the object carries it.
    hold: &'static str,
    held: bool,
    decision: &'a Decision<E, Q>,
    /// The row of the decision table, as a sentence.
    says: &'static str,
}

#[cfg_attr(
    not(any(
        feature = "pod-finalizer",
        feature = "workflow-finalizer",
        feature = "pod-recreation",
        feature = "pvc-protection"
    )),
    allow(dead_code, reason = "a build without components explains nothing")
)]
impl<E: Evidence, Q: std::fmt::Display> Decided<'_, E, Q> {
    /// What a running Belayer does. What waits for something before it is held, waits too.
    fn action(&self) -> Action {
        match &self.decision.write {
            Some(Write::Release(_)) => Action::Release,
            Some(Write::AddHold) => Action::AddHold,
            Some(Write::Record) => Action::Record,
            Some(Write::Delete(_)) => Action::Delete,
            None if self.held || !self.decision.missing.is_empty() => Action::Keep,
            None => Action::Nothing,
        }
    }

    /// In words; `waits` tells what happens next where nothing is written now.
    fn explained(self, waits: impl FnOnce(Action) -> String) -> Explained {
        let action = self.action();
        let next = match action {
            Action::Release => "a running Belayer takes the hold off at once".to_owned(),
            Action::AddHold => "a running Belayer adds the hold at once".to_owned(),
            Action::Record
            | Action::Delete
            | Action::WriteStatus
            | Action::CreatePod
            | Action::DeletePod
            | Action::AnnotatePod => "a running Belayer does so at once".to_owned(),
            Action::Keep | Action::Nothing => waits(action),
        };
        let row = self.decision.row;
        Explained {
            component: self.component,
            hold: self.hold,
            held: self.held,
            row: Row {
                number: row.number,
                name: row.name,
                says: self.says.to_owned(),
            },
            action,
            evidence: self.decision.evidence().map(str::to_owned),
            missing: self.decision.missing_in_words(),
            why_not: None,
            next,
            look_again_seconds: self.decision.look_again.map(|after| after.as_secs()),
            notes: Vec::new(),
        }
    }
}
