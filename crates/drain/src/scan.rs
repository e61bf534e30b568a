//! Lists every object of every kind: metadata only, in pages, a few kinds concurrently.

use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt as _;
use serde::Deserialize;

use belayer_core::http::{ErrorClass, METADATA_ONLY_LIST, RequestError};
use belayer_core::informer::{Decoders, Page};
use belayer_core::logical_time::LogicalTime;
use belayer_core::object::Resource;
use belayer_core::slim::{Keep, ObjectMeta, OwnerMeta};
use belayer_inspect::reader::{Reader, again_if_expired, explain};

use crate::holds::{HANDED_OVER, PREFIX, is_pvc};
use crate::progress::Progress;
use crate::report::Unseen;

/// Kinds that are listed concurrently.
const PARALLEL: usize = 8;

/// An object with a finalizer that has Belayer's prefix.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) kind: Resource,
    pub(crate) meta: ObjectMeta,
    /// When the read was complete.
    pub(crate) seen: LogicalTime,
}

/// Result of listing all kinds.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    pub(crate) found: Vec<Found>,
    /// Kinds that may not be listed.
    pub(crate) hidden: Vec<Unseen>,
    /// Kinds whose list failed, and objects that cannot be decoded.
    pub(crate) unseen: Vec<Unseen>,
    /// Number of objects in the lists.
    pub(crate) objects: u64,
    /// PVCs that are being deleted and wait only for Kubernetes' own controller.
    pub(crate) handed_over: u64,
    /// PVCs that have the finalizer of Kubernetes' own controller.
    pub(crate) kubernetes_finalizers: u64,
}

/// Decodes metadata of any kind, in the format that the server prefers.
pub(crate) fn decoders(keep: Keep) -> Decoders<OwnerMeta> {
    Decoders::protobuf_or_json(keep.into())
}

/// Lists these kinds.
pub(crate) async fn scan(
    reader: &Reader,
    decoders: &Decoders<OwnerMeta>,
    kinds: &[Resource],
    progress: &dyn Progress,
) -> Scanned {
    progress.scanning(kinds.len());
    let total = AtomicU64::new(0);
    let parts: Vec<Scanned> = futures::stream::iter(kinds.to_vec())
        .map(|kind| {
            let total = &total;
            async move {
                let part = list_kind(reader, decoders, &kind).await;
                let sum = total.fetch_add(part.objects, Ordering::Relaxed) + part.objects;
                progress.listed(&kind, sum);
                part
            }
        })
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    let mut all = Scanned::default();
    for part in parts {
        all.found.extend(part.found);
        all.hidden.extend(part.hidden);
        all.unseen.extend(part.unseen);
        all.objects += part.objects;
        all.handed_over += part.handed_over;
        all.kubernetes_finalizers += part.kubernetes_finalizers;
    }
    all.hidden.sort();
    all.unseen.sort();
    all
}

async fn list_kind(reader: &Reader, decoders: &Decoders<OwnerMeta>, kind: &Resource) -> Scanned {
    let mut part = match again_if_expired(|| list(reader, decoders, kind)).await {
        Ok(part) => part,
        Err(error @ RequestError::Decode(_)) => Scanned::failed(kind, &error),
        Err(error) => return Scanned::failed(kind, &error),
    };
    // An aggregated API may compute its objects, without UIDs or versions. If none has a finalizer of Belayer's,
    // nothing else about them matters.
    if !part.unseen.is_empty()
        && part.found.is_empty()
        && let Some(objects) = count_unheld(reader, kind).await
    {
        part.unseen.clear();
        part.objects = objects;
    }
    part
}

/// The number of objects of a kind; `None` if one has a finalizer with Belayer's prefix, or they cannot be listed.
async fn count_unheld(reader: &Reader, kind: &Resource) -> Option<u64> {
    #[derive(Deserialize)]
    struct Item {
        metadata: Meta,
    }
    #[derive(Deserialize)]
    struct Meta {
        finalizers: Option<Vec<String>>,
    }
    let path = kind.path(None);
    let counted = again_if_expired(|| async {
        let (mut objects, mut held) = (0, false);
        let read = reader.items(&path, METADATA_ONLY_LIST, None, |item: Item| {
            let mut names = item.metadata.finalizers.into_iter().flatten();
            held |= names.any(|name| name.starts_with(PREFIX));
            objects += 1;
        });
        read.await?;
        Ok((objects, held))
    });
    let (objects, held) = counted.await.ok()?;
    (!held).then_some(objects)
}

async fn list(
    reader: &Reader,
    decoders: &Decoders<OwnerMeta>,
    kind: &Resource,
) -> Result<Scanned, RequestError> {
    let path = kind.path(None);
    let mut part = Scanned::default();
    let read = reader.decoded_pages(&path, decoders, |page| {
        part.add(kind, page);
        Ok(())
    });
    read.await?;
    Ok(part)
}

/// Calls `on` for every object of a kind. Skips objects that cannot be decoded.
pub(crate) async fn each(
    reader: &Reader,
    decoders: &Decoders<OwnerMeta>,
    kind: &Resource,
    mut on: impl FnMut(OwnerMeta),
) -> Result<(), RequestError> {
    let path = kind.path(None);
    let read = reader.decoded_pages(&path, decoders, |page| {
        page.items.into_iter().flatten().for_each(&mut on);
        Ok(())
    });
    read.await
}

impl Scanned {
    /// The result if a kind could not be listed.
    pub(crate) fn failed(kind: &Resource, error: &RequestError) -> Self {
        let mut part = Self::default();
        let unseen = Unseen {
            what: kind.to_string(),
            why: explain(error),
            unauthenticated: error.class() == ErrorClass::Unauthorized,
        };
        match error.class() {
            // Not installed, or deleted since discovery: it has no objects.
            ErrorClass::NotServed => {}
            ErrorClass::Forbidden | ErrorClass::Unauthorized => part.hidden.push(unseen),
            _ => part.unseen.push(unseen),
        }
        part
    }

    fn add(&mut self, kind: &Resource, page: Page<OwnerMeta>) {
        let seen = LogicalTime::now();
        for item in page.items {
            self.objects += 1;
            let meta = match item {
                Ok(OwnerMeta { meta }) => meta,
                Err(bad) => {
                    let key = bad.key.map_or_else(String::new, |key| format!(" {key}"));
                    self.unseen.push(Unseen {
                        what: format!("{kind}{key}"),
                        why: format!("cannot be decoded: {}", bad.why),
                        unauthenticated: false,
                    });
                    continue;
                }
            };
            if is_pvc(kind) && meta.has_finalizer(HANDED_OVER) {
                self.kubernetes_finalizers += 1;
            }
            let waits = is_pvc(kind) && meta.is_deleting();
            if waits && meta.finalizers.iter().all(|name| **name == *HANDED_OVER) {
                self.handed_over += 1;
            }
            if meta.finalizers.iter().any(|name| name.starts_with(PREFIX)) {
                let kind = kind.clone();
                self.found.push(Found { kind, meta, seen });
            }
        }
    }
}
