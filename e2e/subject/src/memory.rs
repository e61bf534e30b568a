//! The memory of slim pods and their index entries.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use belayer_core::index;
use belayer_core::informer::{Decoders, Event, Informer, InformerBuilder, StreamingList};
use belayer_core::object::Resource;
use belayer_core::slim::{DecodeContext, Keep, Pod};
use belayer_holds::owned;

use super::{Pods, server};
use crate::pods::expired;
use crate::resident::{peak_resident_of, reset_peak, resident_of};

/// The memory of a store of pods.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Weight {
    /// How many pods.
    pub objects: usize,
    /// Bytes allocated and not freed, by the counting allocator.
    pub allocated: usize,
    /// Allocations not freed.
    pub allocations: usize,
    /// Bytes by which the resident size of the process grew.
    pub resident: u64,
    /// The same at its peak while all of them, unchanged, were listed again.
    pub relist_peak: u64,
}

/// An informer of pods as in the operator with all controllers on.
pub fn pods(builder: InformerBuilder<Pod>) -> InformerBuilder<Pod> {
    builder
        .index(index::PODS_BY_OWNER, index::owner_of_pod)
        .index(index::PODS_BY_NAMESPACE, index::namespace_of_pod)
        .index(index::PODS_BY_PVC, index::pvcs_of_bound_pod)
        .index(owned::HELD_BY_OWNER, owned::held_by_owner)
}

/// The operator's decoders of pods.
pub fn decoders() -> Decoders<Pod> {
    let context = DecodeContext {
        keep: Keep::nothing(),
        ..DecodeContext::default()
    };
    Decoders::protobuf_or_json(context)
}

/// The kind.
pub fn resource() -> Resource {
    Resource::pods()
}

/// Lists pods into a store and measures its memory.
/// Fails when pods are missing, or the program was started without the counting allocator.
pub async fn weigh(objects: usize) -> Result<Weight> {
    let expire = Arc::new(Notify::new());
    let frames = {
        let expire = Arc::clone(&expire);
        move || {
            let expire = Arc::clone(&expire);
            let frame = async move {
                expire.notified().await;
                expired()
            };
            stream::once(frame).chain(stream::pending())
        }
    };
    let client = server::client_that_watches(Pods::small(), objects, frames);
    let relisted = Arc::new(Notify::new());
    let handler = {
        let relisted = Arc::clone(&relisted);
        move |event: &Event<Pod>| {
            if matches!(event, Event::Relisted { .. }) {
                relisted.notify_one();
            }
        }
    };
    let (resident, before) = (
        resident_of(std::process::id())?,
        INSTRUMENTED_SYSTEM.stats(),
    );
    let builder = Informer::builder(client, resource(), decoders());
    let builder = pods(builder).handler(Arc::new(handler));
    let (informer, store) = builder.streaming_list(StreamingList::Never).build();
    let stop = CancellationToken::new();
    let running = tokio::spawn(informer.run(stop.clone()));
    store.synced().await.context("the informer ended")?;
    ensure!(store.len() == objects, "{} of {objects} pods", store.len());
    let Stats {
        allocations,
        deallocations,
        bytes_allocated,
        bytes_deallocated,
        ..
    } = INSTRUMENTED_SYSTEM.stats() - before;
    ensure!(allocations > 0, "this process does not count allocations");
    let now = resident_of(std::process::id())?;
    reset_peak()?;
    expire.notify_one();
    relisted.notified().await;
    ensure!(
        store.len() == objects,
        "{} of {objects} pods after a relist",
        store.len()
    );
    let weight = Weight {
        objects,
        allocated: bytes_allocated - bytes_deallocated,
        allocations: allocations - deallocations,
        resident: now.saturating_sub(resident),
        relist_peak: peak_resident_of(std::process::id())?.saturating_sub(resident),
    };
    stop.cancel();
    running.await?;
    Ok(weight)
}
