//! Numbers of held, waiting and denied objects by namespace, from the metadata of the held kinds and the
//! Events that report denied releases.

use std::collections::{BTreeMap, HashSet};

use belayer_core::http::{ErrorClass, RequestError};

use super::events::events;
use super::{Hold, Numbers, Oldest};
use crate::object::Item;
use crate::reader::{Page, Reader};
use crate::scan::METADATA_LIST;

pub(super) type Places = BTreeMap<String, Numbers>;

/// Counts the holds of one component on one kind, by namespace.
pub(super) async fn count(
    reader: &Reader,
    hold: &Hold,
    namespace: Option<&str>,
    denied: &HashSet<String>,
) -> Result<Places, RequestError> {
    let mut places = Places::new();
    let mut listed = list(reader, hold, namespace, denied, &mut places).await;
    // The continue token has expired (410): start again, once.
    if matches!(&listed, Err(error) if error.class() == ErrorClass::Gone) {
        places.clear();
        listed = list(reader, hold, namespace, denied, &mut places).await;
    }
    match listed {
        // A kind that is not installed has no objects.
        Err(error) if error.class() == ErrorClass::NotServed => Ok(Places::new()),
        listed => listed.map(|()| places),
    }
}

async fn list(
    reader: &Reader,
    hold: &Hold,
    namespace: Option<&str>,
    denied: &HashSet<String>,
    places: &mut Places,
) -> Result<(), RequestError> {
    let path = hold.kind.path(namespace);
    reader
        .pages(&path, METADATA_LIST, |answer| {
            let read = Page::read(&answer).map(|page: Page<Item<'_>>| {
                for item in page.items.iter().flatten() {
                    note(hold, item, denied, places);
                }
                page.metadata.continue_token
            });
            async move { read }
        })
        .await
}

fn note(hold: &Hold, item: &Item<'_>, denied: &HashSet<String>, places: &mut Places) {
    let meta = &item.metadata;
    let mut finalizers = meta.finalizers.iter().flatten();
    if !finalizers.any(|name| hold.finalizers.contains(&&**name)) {
        return;
    }
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let numbers = places.entry(namespace.to_owned()).or_default();
    numbers.held += 1;
    // Also counts an object that is not being deleted, such as a pod whose workflow is being deleted.
    if denied.contains(&*meta.uid) {
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
