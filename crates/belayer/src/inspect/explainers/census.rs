//! How many held objects nothing selects, counted as a controller's census counts them: by what it
//! is decided whether so many at once look like a mistake.

use std::collections::HashMap;

use belayer_core::http::RequestError;
use belayer_core::informer::{Decoder as _, JsonDecoder};
use belayer_core::object::Resource;
use belayer_core::slim::{DecodeContext, Interner, Keep, ObjectMeta, OwnerMeta};
use belayer_inspect::reader::{Reader, explain};
use belayer_inspect::scan::METADATA_LIST;

/// What was counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Census {
    /// Objects that carry the hold.
    pub(super) held: usize,
    /// Of these, the ones that nothing selects.
    pub(super) unselected: usize,
}

/// Counts the objects of `kind` that carry `hold`; `keeps` are the labels that selectors read of
/// them and of namespaces.
pub(super) async fn census(
    reader: &Reader,
    kind: &Resource,
    hold: &str,
    (keep, of_namespaces): (Keep, Keep),
    is_selected: impl Fn(&ObjectMeta, Option<&ObjectMeta>) -> bool,
) -> Result<Census, String> {
    let mut namespaces = HashMap::new();
    let all = Resource::namespaces();
    each(reader, &all, of_namespaces, |namespace| {
        namespaces.insert(namespace.key.name().to_owned(), namespace);
    })
    .await?;
    let mut census = Census::default();
    each(reader, kind, keep, |object| {
        if !object.has_finalizer(hold) {
            return;
        }
        census.held += 1;
        let namespace = object.key.namespace().and_then(|name| namespaces.get(name));
        if !is_selected(&object, namespace) {
            census.unselected += 1;
        }
    })
    .await?;
    Ok(census)
}

/// Hands on the metadata of every object of a kind.
async fn each(
    reader: &Reader,
    kind: &Resource,
    keep: Keep,
    mut note: impl FnMut(ObjectMeta),
) -> Result<(), String> {
    let decoder = JsonDecoder::<OwnerMeta>::new(DecodeContext {
        keep,
        interner: Interner::default(),
    });
    let read = reader
        .pages(&kind.path(None), METADATA_LIST, |answer| {
            let page = decoder.decode_page(&answer.body).map(|page| {
                for OwnerMeta(meta) in page.items.into_iter().flatten() {
                    note(meta);
                }
                page.continue_token
            });
            async move { page.map_err(|error| RequestError::Decode(error.to_string())) }
        })
        .await;
    read.map_err(|error| format!("{kind}: {}", explain(&error)))
}
