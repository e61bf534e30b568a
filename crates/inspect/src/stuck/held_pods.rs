//! The held pods of a workflow, for its explanation.

use belayer_core::http::Request;
use belayer_core::object::{ObjectKey, Resource};
use belayer_holds::argo;
use belayer_holds::names::POD_HOLDS;
use serde::Deserialize;

use crate::explain::{Belayer, Explained, HeldPod};
use crate::object::Item;
use crate::reader::{PAGE, Reader, explain as message};
use crate::scan::METADATA_LIST;

/// Maximum number of pods that are explained: each costs several requests.
const EXPLAINED: usize = 20;

/// Longest label value: a longer name cannot be the value of the pods' label.
const LONGEST_LABEL_VALUE: usize = 63;

/// Explains the held pods of the owner with this UID. Returns them, and what could not be read.
pub(super) async fn held_pods(
    reader: &Reader,
    kind: &Resource,
    (owner, uid): (&ObjectKey, &str),
    belayer: &Belayer,
) -> (Vec<HeldPod>, Vec<String>) {
    let label = argo::is_workflow(kind) && owner.name().len() <= LONGEST_LABEL_VALUE;
    let selector = label.then(|| format!("{}={}", argo::WORKFLOW_LABEL, owner.name()));
    let names = match names(reader, owner, uid, selector.as_deref()).await {
        Ok(names) => names,
        Err(why) => {
            return (
                Vec::new(),
                vec![format!("which of its pods are held: {why}")],
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

async fn names(
    reader: &Reader,
    owner: &ObjectKey,
    uid: &str,
    selector: Option<&str>,
) -> Result<Vec<String>, String> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow, default)]
        items: Option<Vec<Item<'a>>>,
        #[serde(default)]
        metadata: ListMeta,
    }
    #[derive(Deserialize, Default)]
    struct ListMeta {
        #[serde(default, rename = "continue")]
        next: Option<String>,
    }
    let path = Resource::pods().path(owner.namespace());
    let mut names = Vec::new();
    let mut token: Option<String> = None;
    loop {
        let mut request = Request::list(&path, PAGE, token.as_deref()).accept(METADATA_LIST);
        if let Some(selector) = selector {
            request = request.query("labelSelector", selector);
        }
        let answer = reader
            .read(&request)
            .await
            .map_err(|error| message(&error))?;
        let list: List<'_> =
            serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
        for Item { metadata } in list.items.into_iter().flatten() {
            let mut owners = metadata.owner_references.iter().flatten();
            let mut finalizers = metadata.finalizers.iter().flatten();
            if owners.any(|one| *one.uid == *uid)
                && finalizers.any(|name| POD_HOLDS.contains(&&**name))
            {
                names.push(metadata.name.to_string());
            }
        }
        token = list.metadata.next.filter(|next| !next.is_empty());
        if token.is_none() {
            return Ok(names);
        }
    }
}
