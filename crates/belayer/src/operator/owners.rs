//! The kinds that own pods: watched once each, as metadata only.

use belayer_core::object::Resource;
use belayer_core::slim::{Keep, OwnerMeta};
use belayer_holds::owned::OwnerStores;

use super::feed::{Feed, Watched};
use super::ground::Ground;

/// The informers of owner kinds.
pub(super) struct Owners {
    /// The labels that somebody's rules read.
    pub(super) keep: Keep,
    /// One per kind.
    pub(super) kinds: Vec<Watched<OwnerMeta>>,
}

impl Owners {
    /// Watches each kind once, however many components name it.
    pub(super) fn new(
        ground: &Ground,
        kinds: impl IntoIterator<Item = Resource>,
        keep: Keep,
    ) -> Self {
        let mut watched: Vec<Watched<OwnerMeta>> = Vec::new();
        for kind in kinds {
            if watched.iter().all(|have| have.resource != kind) {
                let decoders = ground.decoders(keep.clone());
                watched.push(Watched::new(&ground.client, kind, decoders, |b| b));
            }
        }
        Self {
            keep,
            kinds: watched,
        }
    }

    /// The stores of all kinds.
    pub(super) fn stores(&self) -> OwnerStores {
        let all = self.kinds.iter();
        all.map(|watched| (watched.resource.clone(), watched.store.clone()))
            .collect()
    }

    /// Ready to run.
    pub(super) fn into_feeds(self) -> impl Iterator<Item = Feed> {
        self.kinds.into_iter().map(Watched::into_feed)
    }
}
