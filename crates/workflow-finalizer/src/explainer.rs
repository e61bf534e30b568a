//! `belayer explain` for a workflow, by workflow-finalizer.

use std::sync::Arc;

use crate::component::{self, Parts, WorkflowFinalizer};
use crate::config::{OwnerRule, Settings};
use crate::evidence::Evidence;
use crate::pods_query::PodsReader;
use crate::row;
use belayer_controller::explain::{Live, explained};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::{Keep, ObjectMeta};
use belayer_core::workqueue::WorkQueue;
use belayer_holds::decision::Write;
use belayer_holds::names;
use belayer_holds::selection::Selection;
use belayer_holds::selection::UnselectedBy;
use belayer_inspect::explain::{Action, ExplainError, Explained, Explainer};
use belayer_inspect::reader::Reader;

/// Explains workflows, of whatever kind, by the same decision that the controller makes.
pub(crate) fn explainer(settings: &Settings) -> Explainer {
    let kinds = settings.owners.iter().map(|rule| rule.kind.clone());
    let (holds, kinds) = (&[names::WORKFLOW_HOLD], kinds.collect());
    Explainer::new(component::NAME, holds, kinds, settings.clone(), explain)
}

async fn explain(
    settings: Arc<Settings>,
    kind: Resource,
    key: ObjectKey,
    reader: Reader,
) -> Result<Explained, ExplainError> {
    let rule = settings
        .owners
        .iter()
        .find(|rule| rule.kind.is_same_kind(&kind))
        .ok_or(ExplainError::NotConfigured {
            key: "workflowFinalizer.owners",
        })?;
    let live = Live::new(&reader);
    let finalizer = finalizer(&live, &settings, rule);
    let workflow = finalizer.parts.workflows.subject(&key).await?;
    let mut seen = live.decide(&finalizer, &workflow).await?;
    if let Some(Write::Release(Evidence::Unselected(_))) = seen.1.write {
        count(&finalizer).await?;
        seen = live.decide(&finalizer, &workflow).await?;
    }
    let (snapshot, decision) = seen;
    let workflow = &workflow.object.meta;
    let view = snapshot.workflow.as_ref();
    let held = view.is_some_and(|view| view.held);
    Ok(Explained {
        why_not: view
            .filter(|_| !held)
            .and_then(|view| why_not_selected(workflow, view.selection)),
        ..explained(&finalizer, held, &decision, |action| {
            let next = match action {
                Action::Keep if decision.row == row::ARCHIVING => {
                    "Belayer releases it once the workflow controller has archived it. If Argo is uninstalled, \
                     remove its label workflows.argoproj.io/workflow-archiving-status"
                }
                Action::Keep if workflow.is_deleting() => {
                    "Belayer releases the workflow's pods, and then the workflow"
                }
                Action::Keep => "nothing, until it is deleted",
                _ => "nothing",
            };
            next.to_owned()
        })
    })
}

/// The controller itself, with live reads instead of caches.
fn finalizer(live: &Live, settings: &Settings, rule: &OwnerRule) -> WorkflowFinalizer<Live> {
    let keep_of_namespaces = component::keep_of_namespaces;
    let parts = Parts {
        workflows: live.store(rule.kind.clone(), component::keep_of_owners(settings)),
        pods: live.store(Resource::pods(), Keep::nothing()),
        namespaces: live.store(Resource::namespaces(), keep_of_namespaces()),
        pod_queries: live.queries(PodsReader::new(live.executor(), None)),
        namespace_queries: live.namespaces(keep_of_namespaces()),
        queue: WorkQueue::new(component::NAME),
        pods_queue: WorkQueue::new(component::NAME),
    };
    WorkflowFinalizer::new(settings, rule.clone(), parts)
}

/// Counts all held workflows, as after a restart.
async fn count(finalizer: &WorkflowFinalizer<Live>) -> Result<(), ExplainError> {
    finalizer.parts.namespaces.list().await?;
    for workflow in finalizer.parts.workflows.list().await? {
        finalizer.note(&workflow.object.meta, UnselectedBy::Configuration);
    }
    Ok(())
}

/// How many unselected workflows stay held with this configuration because of the mass-release limit.
pub(crate) async fn kept(reader: &Reader, settings: &Settings) -> Result<usize, ExplainError> {
    let mut kept = 0;
    for rule in &settings.owners {
        let finalizer = finalizer(&Live::new(reader), settings, rule);
        count(&finalizer).await?;
        kept += finalizer.held_objects().kept();
    }
    Ok(kept)
}

/// Why no entry selects a workflow; `None` if one does.
fn why_not_selected(workflow: &ObjectMeta, selection: Selection) -> Option<String> {
    match selection {
        Selection::Yes => None,
        Selection::Ignored => Some(format!(
            "its namespace has the label {}=true",
            names::IGNORE_LABEL
        )),
        Selection::No => Some(format!(
            "no entry of workflowFinalizer.owners selects its labels and its namespace {}",
            workflow.key.namespace().unwrap_or_default()
        )),
    }
}
