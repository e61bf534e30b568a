//! Counts the held objects that no profile selects, as a controller does right after its start. The
//! guard against mass release decides by these counts.

use std::collections::HashMap;

use belayer_core::http::{ErrorClass, RequestError};
use belayer_core::informer::{Decoder as _, JsonDecoder};
use belayer_core::object::Resource;
use belayer_core::slim::{DecodeContext, Interner, Keep, ObjectMeta, OwnerMeta};
use belayer_holds::selection::{Guard, MaxUnselected, UnselectedBy};
use belayer_inspect::reader::{Reader, explain};
use belayer_inspect::scan::METADATA_LIST;

/// Counts the objects of `kind` that have the finalizer `hold`; `keeps` are the labels that
/// selectors read of them and of namespaces.
///
/// # Errors
/// A message, if they cannot be read.
pub async fn counted(
    reader: &Reader,
    kind: &Resource,
    hold: &str,
    (keep, of_namespaces): (Keep, Keep),
    max: MaxUnselected,
    unselected: impl Fn(&ObjectMeta, Option<&ObjectMeta>) -> Option<UnselectedBy>,
) -> Result<Guard, String> {
    let mut namespaces = HashMap::new();
    let all = Resource::namespaces();
    each(reader, &all, of_namespaces, |namespace| {
        namespaces.insert(namespace.key.name().to_owned(), namespace);
    })
    .await?;
    let mut guard = Guard::new(max);
    each(reader, kind, keep, |object| {
        if !object.has_finalizer(hold) {
            return;
        }
        let namespace = object.key.namespace().and_then(|name| namespaces.get(name));
        let unselected = unselected(&object, namespace);
        guard.add(object.key.shared_namespace(), unselected);
    })
    .await?;
    Ok(guard)
}

/// Calls `visit` with the metadata of every object of a kind.
async fn each(
    reader: &Reader,
    kind: &Resource,
    keep: Keep,
    mut visit: impl FnMut(ObjectMeta),
) -> Result<(), String> {
    let decoder = JsonDecoder::<OwnerMeta>::new(DecodeContext {
        keep,
        interner: Interner::default(),
    });
    let read = reader
        .pages(&kind.path(None), METADATA_LIST, |answer| {
            let page = decoder.decode_page(&answer.body).map(|page| {
                for OwnerMeta(meta) in page.items.into_iter().flatten() {
                    visit(meta);
                }
                page.continue_token
            });
            async move { page.map_err(|error| RequestError::Decode(error.to_string())) }
        })
        .await;
    match read {
        // A kind that is not installed has no objects.
        Err(error) if error.class() == ErrorClass::NotServed => Ok(()),
        read => read.map_err(|error| format!("{kind}: {}", explain(&error))),
    }
}
