//! The held pods of a workflow, for its explanation.

use belayer_core::http::{METADATA_ONLY_LIST, RequestError};
use belayer_core::object::{ObjectKey, Resource};
use belayer_holds::argo;
use belayer_holds::names;
use belayer_holds::selection::is_label_value;

use crate::explain::{Belayer, Explained, HeldPod};
use crate::object::Item;
use crate::reader::{Page, Reader, explain as message};

/// Maximum number of pods that are explained: each costs several requests.
const EXPLAINED: usize = 20;

/// Explains the held pods of the owner with this UID. Returns them, and what could not be read.
pub(super) async fn held_pods(
    reader: &Reader,
    kind: &Resource,
    (owner, uid): (&ObjectKey, &str),
    belayer: &Belayer,
) -> (Vec<HeldPod>, Vec<String>) {
    let has_label = argo::is_workflow(kind) && is_label_value(owner.name());
    let selector = has_label.then(|| format!("{}={}", argo::WORKFLOW_LABEL, owner.name()));
    let names = match held(reader, owner, uid, selector.as_deref()).await {
        Ok(names) => names,
        Err(why) => {
            return (
                Vec::new(),
                vec![format!("which of its pods are held: {}", message(&why))],
            );
        }
    };
    let mut missing = Vec::new();
    if names.len() > EXPLAINED {
        missing.push(format!(
            "what the other {} of its {} held pods wait for: only the first {EXPLAINED} are explained",
            names.len() - EXPLAINED,
            names.len()
        ));
    }
    let pods = Resource::pods();
    let explainers = || belayer.explainers.iter().filter(|one| one.is_about(&pods));
    let mut explained = Vec::new();
    for name in names.into_iter().take(EXPLAINED) {
        let key = ObjectKey::new(owner.shared_namespace().clone(), name.as_str());
        let mut its: Vec<Explained> = Vec::new();
        for explainer in explainers() {
            match (explainer.explain)(pods.clone(), key.clone(), reader.clone()).await {
                Ok(one) if one.held => its.push(one),
                Ok(_) => {}
                Err(why) => missing.push(format!("what pod {key} waits for: {why}")),
            }
        }
        // Released in the meantime.
        if !its.is_empty() {
            explained.push(HeldPod { name, belayer: its });
        }
    }
    (explained, missing)
}

/// The names of the pods of the owner with this UID that are held.
async fn held(
    reader: &Reader,
    owner: &ObjectKey,
    uid: &str,
    selector: Option<&str>,
) -> Result<Vec<String>, RequestError> {
    let path = Resource::pods().path(owner.namespace());
    let mut names = Vec::new();
    let query = selector.map(|selector| ("labelSelector", selector));
    let read = reader.pages(&path, METADATA_ONLY_LIST, query, |answer| {
        let page: Page<Item<'_>> = Page::read(answer)?;
        for Item { metadata } in page.items.iter().flatten() {
            let mut owners = metadata.owner_references.iter().flatten();
            let mut finalizers = metadata.finalizers.iter().flatten();
            if owners.any(|one| *one.uid == *uid)
                && finalizers.any(|name| names::holds().any(|hold| *hold == **name))
            {
                names.push(metadata.name.to_string());
            }
        }
        Ok(page.metadata.continue_token)
    });
    read.await?;
    Ok(names)
}
