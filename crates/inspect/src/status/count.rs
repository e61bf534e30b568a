//! Numbers of held, waiting and denied objects by namespace, from the metadata of the held kinds and the
//! Events that report denied releases.

use std::collections::{BTreeMap, HashSet};

use belayer_core::http::{ErrorClass, METADATA_ONLY_LIST, RequestError};

use super::events::events;
use super::{HeldObject, Hold, Numbers, Oldest, Query};
use crate::object::Item;
use crate::reader::{Page, Reader, again_if_expired};

/// The holds of one component on one kind.
#[derive(Default)]
pub(super) struct Counted {
    /// By namespace.
    pub(super) places: BTreeMap<String, Numbers>,
    /// As many as the query asks for.
    pub(super) objects: Vec<HeldObject>,
    /// How many of these are not being deleted.
    not_waiting: usize,
}

/// Counts the holds of one component on one kind.
pub(super) async fn count(
    reader: &Reader,
    hold: &Hold,
    query: &Query,
    denied: &HashSet<String>,
) -> Result<Counted, RequestError> {
    match again_if_expired(|| list(reader, hold, query, denied)).await {
        // A kind that is not installed has no objects.
        Err(error) if error.class() == ErrorClass::NotServed => Ok(Counted::default()),
        listed => listed,
    }
}

async fn list(
    reader: &Reader,
    hold: &Hold,
    query: &Query,
    denied: &HashSet<String>,
) -> Result<Counted, RequestError> {
    let mut counted = Counted::default();
    let path = hold.kind.path(query.namespace.as_deref());
    reader
        .pages(&path, METADATA_ONLY_LIST, None, |answer| {
            let page: Page<Item<'_>> = Page::read(answer)?;
            for item in page.items.iter().flatten() {
                counted.note(hold, item, denied, query.objects);
            }
            Ok(page.metadata.continue_token)
        })
        .await?;
    Ok(counted)
}

impl Counted {
    fn note(&mut self, hold: &Hold, item: &Item<'_>, denied: &HashSet<String>, most: usize) {
        let meta = &item.metadata;
        let mut finalizers = meta.finalizers.iter().flatten();
        if !finalizers.any(|name| hold.finalizers.contains(&&**name)) {
            return;
        }
        let denied = denied.contains(&*meta.uid);
        self.list(hold, item, denied, most);
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let numbers = self.places.entry(namespace.to_owned()).or_default();
        numbers.held += 1;
        // Also counts an object that is not being deleted, such as a pod whose workflow is being deleted.
        if denied {
            numbers.denied += 1;
        }
        let Some(since) = meta.deletion_timestamp else {
            return;
        };
        numbers.waiting += 1;
        let older = numbers
            .oldest
            .as_ref()
            .is_none_or(|oldest| since < oldest.deletion_timestamp);
        if older {
            numbers.oldest = Some(Oldest {
                resource: hold.kind.to_string(),
                namespace: namespace.to_owned(),
                name: (*meta.name).to_owned(),
                deletion_timestamp: since,
                age_seconds: 0,
            });
        }
    }

    /// Keeps the object for the list, unless that is full of objects that are not less urgent.
    fn list(&mut self, hold: &Hold, item: &Item<'_>, denied: bool, most: usize) {
        let meta = &item.metadata;
        let waits = meta.deletion_timestamp.is_some();
        if self.objects.len() >= most {
            if !waits || self.not_waiting == 0 {
                return;
            }
            let idle = |object: &HeldObject| object.deletion_timestamp.is_none();
            if let Some(index) = self.objects.iter().rposition(idle) {
                self.objects.swap_remove(index);
                self.not_waiting -= 1;
            }
        }
        self.not_waiting += usize::from(!waits);
        self.objects.push(HeldObject {
            component: hold.component,
            resource: hold.kind.to_string(),
            namespace: meta.namespace.as_deref().unwrap_or_default().to_owned(),
            name: (*meta.name).to_owned(),
            uid: (*meta.uid).to_owned(),
            deletion_timestamp: meta.deletion_timestamp,
            denied,
            reason: None,
        });
    }
}

/// UIDs of objects whose release was refused, by the Events that report it.
pub(super) async fn denied(
    reader: &Reader,
    namespace: Option<&str>,
) -> Result<HashSet<String>, RequestError> {
    let denied = events(reader, namespace, "ReleaseDenied").await?;
    let uids = denied.into_iter().map(|event| event.involved_object.uid);
    Ok(uids.collect())
}

impl Numbers {
    pub(super) fn add(&mut self, other: &Self) {
        self.held += other.held;
        self.waiting += other.waiting;
        self.denied += other.denied;
        let older = match (&self.oldest, &other.oldest) {
            (Some(a), Some(b)) => b.deletion_timestamp < a.deletion_timestamp,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if older {
            self.oldest.clone_from(&other.oldest);
        }
    }
}
