//! The same decision for a person: a snapshot from live looks instead of stores, and its row in
//! words.

use std::sync::Arc;

use belayer_core::facts::{LiveReader, LookError, look};
use belayer_core::moment::LogicalTime;
use belayer_core::slim::ObjectMeta;
use belayer_holds::names::{IGNORE_LABEL, WORKFLOW_HOLD};
use belayer_holds::namespace::{NamespaceQuery, NamespaceState, NamespaceView, is_ignored};
use belayer_holds::selection::MassRelease;

use crate::config::{OwnerRule, Settings};
use crate::look::{PodsQuery, PodsState};
use crate::snapshot::{Deletion, Held, PodsView, Selection, Snapshot, WorkflowView};

/// What is looked at live.
pub struct Looks {
    /// The rule of the workflow's kind.
    pub rule: OwnerRule,
    /// Answers about namespaces.
    pub namespaces: Arc<dyn LiveReader<NamespaceQuery>>,
    /// Answers about pods.
    pub pods: Arc<dyn LiveReader<PodsQuery>>,
}

impl Looks {
    /// The snapshot that a controller would have whose stores are as of now.
    ///
    /// Whether too many workflows are unselected is not looked at: that takes a count of all.
    ///
    /// # Errors
    ///
    /// When a look gave no answer.
    pub async fn snapshot(
        &self,
        workflow: &ObjectMeta,
        settings: &Settings,
    ) -> Result<Snapshot, LookError> {
        // Everything below begins after this: it is evidence about this very deletion.
        let seen = LogicalTime::now();
        let question = NamespaceQuery::new(workflow.key.shared_namespace().clone());
        let fact = look(&*self.namespaces, &question).await?;
        let cached = match fact.answer() {
            NamespaceState::Present(meta) => Some(meta.clone()),
            NamespaceState::Gone => None,
        };
        let namespace = NamespaceView {
            question,
            cached,
            fact: Some(fact),
        };
        let held = if workflow.has_finalizer(WORKFLOW_HOLD) {
            Held::Yes
        } else {
            Held::No
        };
        Ok(Snapshot {
            workflow: Some(WorkflowView {
                held,
                deletion: workflow
                    .deletion_timestamp
                    .map(|since| Deletion { since, seen }),
                first_seen: seen,
                selection: self.selection(workflow, namespace.cached.as_ref()),
                namespace,
                pods: self.pods(workflow).await?,
            }),
            mass_release: MassRelease::Within,
            resync: settings.resync,
        })
    }

    async fn pods(&self, workflow: &ObjectMeta) -> Result<PodsView, LookError> {
        let question = PodsQuery::new(
            workflow.key.clone(),
            workflow.uid.clone(),
            self.rule.pod_label.clone(),
        );
        let fact = look(&*self.pods, &question).await?;
        // How many they are only the index of a controller says.
        let held = match fact.answer() {
            PodsState::NoneHeld => Some(0),
            PodsState::SomeHeld => None,
        };
        Ok(PodsView {
            question,
            held,
            fact: Some(fact),
        })
    }

    fn selection(&self, workflow: &ObjectMeta, namespace: Option<&ObjectMeta>) -> Selection {
        let place = workflow.key.namespace().unwrap_or_default();
        if !self.rule.selects(&workflow.labels, place) {
            return Selection::No;
        }
        match namespace {
            Some(namespace) if is_ignored(&namespace.labels) => Selection::Ignored,
            _ => Selection::Yes,
        }
    }
}

/// Why nothing selects a workflow, in words; `None` if something does.
pub fn why_not_selected(workflow: &ObjectMeta, selection: Selection) -> Option<String> {
    match selection {
        Selection::Yes => None,
        Selection::Ignored => Some(format!(
            "its namespace carries the label {IGNORE_LABEL}=true"
        )),
        Selection::No => Some(format!(
            "no rule selects it, by its labels or by its namespace {}",
            workflow.key.namespace().unwrap_or_default()
        )),
    }
}
