//! The kinds that own pods: each has one informer, with metadata only.

use std::sync::Arc;

use belayer_core::informer::Event;
use belayer_core::object::Resource;
use belayer_core::queries::{Enqueue, QueryCache};
use belayer_core::slim::{Keep, OwnerMeta};
use belayer_holds::owned::OwnerStores;
use belayer_holds::owner::{OwnerQuery, OwnerReader};

use super::Shared;
use super::informer_handle::{InformerHandle, Watched};

/// The informers of owner kinds. Part of [`Pods`](crate::context::Pods), for the kinds that the
/// [`Controller`](crate::Controller)s need.
pub struct Owners {
    /// The labels that the rules of any controller read.
    pub keep: Keep,
    /// One per kind.
    pub kinds: Vec<Watched<OwnerMeta>>,
}

impl Owners {
    /// Watches each kind once, however many controllers require it.
    pub fn new(shared: &Shared, kinds: impl IntoIterator<Item = Resource>, keep: Keep) -> Self {
        let kinds: Vec<Resource> = kinds.into_iter().collect();
        let mut watched: Vec<Watched<OwnerMeta>> = Vec::new();
        for kind in kinds.iter().cloned() {
            if watched.iter().all(|have| have.resource != kind) {
                let decoders = shared.decoders(keep.clone());
                // Their status may show that a result was read.
                let label = kind.label_among(&kinds);
                let watch = Watched::new(&shared.watches, kind, decoders, |builder| {
                    builder.each_version().label(label)
                });
                watched.push(watch);
            }
        }
        Self {
            keep,
            kinds: watched,
        }
    }

    /// The stores of all kinds.
    pub fn stores(&self) -> OwnerStores {
        let all = self.kinds.iter();
        all.map(|watched| (watched.resource.clone(), watched.store.clone()))
            .collect()
    }

    /// Live reads of the owners. An answer is dropped when the owner is deleted after it.
    pub(super) fn queries(&mut self, shared: &Shared, enqueue: Enqueue) -> QueryCache<OwnerQuery> {
        let decoders = shared.decoders(self.keep.clone());
        let reader = OwnerReader::new(Arc::clone(&shared.executor), decoders);
        let queries = shared.queries(reader, enqueue);
        for watched in &mut self.kinds {
            let (kind, queries) = (watched.resource.clone(), queries.clone());
            watched.on_event(move |event| {
                if let Event::Deleted { last, .. } = event {
                    queries.outdate(&OwnerQuery::about(kind.clone(), &last.object.meta));
                }
            });
        }
        queries
    }

    /// Converts the informers to handles that can be run.
    pub fn into_handles(self) -> impl Iterator<Item = InformerHandle> {
        self.kinds.into_iter().map(Watched::into_handle)
    }
}
