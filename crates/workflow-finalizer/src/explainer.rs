//! What workflow-finalizer says of a workflow.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::component;
use crate::config::{OwnerRule, Settings};
use crate::decide::decide;
use crate::explain::{self, Looks};
use crate::look::PodsReader;
use crate::snapshot::{Held, Selection, Snapshot};
use belayer_controller::explain::{self as shared, Decided, read};
use belayer_core::http::{METADATA_ONLY, Request};
use belayer_core::informer::{Decoders, JsonDecoder};
use belayer_core::object::{ObjectKey, Resource};
use belayer_core::slim::{DecodeContext, Interner, Keep, ObjectMeta, OwnerMeta};
use belayer_holds::names;
use belayer_holds::namespace::{NamespaceReader, is_ignored};
use belayer_holds::selection::{Guard, UnselectedBy};
use belayer_inspect::explain::{Action, Explained, Explainer};
use belayer_inspect::reader::Reader;

/// Explains workflows, of whatever kind, by the same decision that the controller makes.
pub(crate) struct Workflows {
    settings: Settings,
}

impl Workflows {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
        }
    }

    async fn look(
        &self,
        kind: &Resource,
        key: &ObjectKey,
        reader: &Reader,
    ) -> Result<Explained, String> {
        let rule = self
            .settings
            .owners
            .iter()
            .find(|rule| rule.kind.is_same_kind(kind))
            .ok_or("its kind is in no rule")?;
        let context = |keep: Keep| DecodeContext {
            keep,
            interner: Interner::default(),
        };
        let request = Request::get(kind.object_path(key)).accept(METADATA_ONLY);
        let decoder = JsonDecoder::new(context(component::keep_of_owners(&self.settings)));
        let OwnerMeta(workflow) =
            read(reader, &request, &decoder, &format!("{kind} {key}")).await?;
        let namespaces = NamespaceReader::new(
            Arc::clone(reader.executor()),
            Decoders::new(JsonDecoder::new(context(component::keep_of_namespaces()))),
        );
        let looks = Looks {
            rule: rule.clone(),
            namespaces: Arc::new(namespaces),
            pods: Arc::new(PodsReader::new(Arc::clone(reader.executor()))),
        };
        let mut snapshot = looks
            .snapshot(&workflow, &self.settings)
            .await
            .map_err(|error| error.to_string())?;
        let unselected = snapshot
            .workflow
            .as_ref()
            .is_some_and(|view| view.held == Held::Yes && view.selection != Selection::Yes);
        if unselected {
            let mut guard = counted(reader, &self.settings, rule).await?;
            let by = match snapshot.workflow.as_ref().map(|view| view.selection) {
                Some(Selection::Ignored) => UnselectedBy::Namespace,
                _ => UnselectedBy::Configuration,
            };
            snapshot.mass_release = guard.of(key.shared_namespace(), by);
        }
        Ok(in_its_words(&workflow, &snapshot))
    }
}

/// All held workflows of a kind, counted as a controller counts them right after its start.
async fn counted(reader: &Reader, settings: &Settings, rule: &OwnerRule) -> Result<Guard, String> {
    let keeps = (
        component::keep_of_owners(settings),
        component::keep_of_namespaces(),
    );
    let unselected = |workflow: &ObjectMeta, namespace: Option<&ObjectMeta>| {
        let place = workflow.key.namespace().unwrap_or_default();
        match namespace {
            // Its pods decide about its release, whether something selects it or not.
            _ if workflow.is_deleting() => None,
            _ if !rule.selects(&workflow.labels, place) => Some(UnselectedBy::Configuration),
            Some(namespace) if is_ignored(&namespace.labels) => Some(UnselectedBy::Namespace),
            _ => None,
        }
    };
    let (max, hold) = (settings.max_unselected, names::WORKFLOW_HOLD);
    shared::counted(reader, &rule.kind, hold, keeps, max, unselected).await
}

/// How many workflows it keeps by this configuration although nothing selects them.
pub(crate) async fn kept(reader: &Reader, settings: &Settings) -> Result<usize, String> {
    let mut kept = 0;
    for rule in &settings.owners {
        kept += counted(reader, settings, rule).await?.kept();
    }
    Ok(kept)
}

fn in_its_words(workflow: &ObjectMeta, snapshot: &Snapshot) -> Explained {
    let decision = decide(snapshot, Timestamp::now());
    let view = snapshot.workflow.as_ref();
    let held = view.is_some_and(|view| view.held == Held::Yes);
    let decided = Decided {
        component: component::NAME,
        hold: names::WORKFLOW_HOLD,
        held,
        decision: &decision,
    };
    let explained = decided.explained(|action| {
        let next = match action {
            Action::Keep if workflow.is_deleting() => {
                "Belayer releases its pods first, before all others, and then the workflow"
            }
            Action::Keep => "nothing, until it is deleted",
            _ => "nothing",
        };
        next.to_owned()
    });
    Explained {
        why_not: view
            .filter(|_| !held)
            .and_then(|view| explain::why_not_selected(workflow, view.selection)),
        ..explained
    }
}

impl Explainer for Workflows {
    fn component(&self) -> &'static str {
        component::NAME
    }

    fn holds(&self) -> &'static [&'static str] {
        &[names::WORKFLOW_HOLD]
    }

    fn is_about(&self, kind: &Resource) -> bool {
        self.settings
            .owners
            .iter()
            .any(|rule| rule.kind.is_same_kind(kind))
    }

    fn explain<'a>(
        &'a self,
        kind: &'a Resource,
        key: &'a ObjectKey,
        reader: &'a Reader,
    ) -> BoxFuture<'a, Result<Explained, String>> {
        Box::pin(self.look(kind, key, reader))
    }
}
