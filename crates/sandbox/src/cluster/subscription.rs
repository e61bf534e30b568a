//! Reading the log.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Cluster;
use super::state::StoreEvent;
use crate::kinds::ResourceKey;
use crate::signal::Listener;

/// Entries fetched under one lock.
const BATCH: usize = 256;

/// The log was compacted past the reader's position: it has to list again. Returned by a
/// [`Subscription`](crate::Subscription). See the [crate's example](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too old resource version: {asked} ({oldest})")]
pub struct Expired {
    /// The version after which the reader wanted to continue.
    pub asked: u64,
    /// The oldest version from which a reader can continue.
    pub oldest: u64,
}

/// A position in the log, and everything after it, in order.
/// [`Cluster::subscribe`](crate::Cluster::subscribe) returns it.
#[derive(Debug)]
pub struct Subscription {
    cluster: Cluster,
    resource: Option<ResourceKey>,
    position: u64,
    ready: VecDeque<Arc<StoreEvent>>,
    changed: Listener,
}

impl Subscription {
    pub(super) fn new(cluster: Cluster, resource: Option<ResourceKey>, from: u64) -> Self {
        let changed = cluster.inner.changed.listen();
        Subscription {
            cluster,
            resource,
            position: from,
            ready: VecDeque::new(),
            changed,
        }
    }

    /// The version up to which every change has been returned.
    pub fn position(&self) -> u64 {
        self.ready.front().map_or(self.position, |next| next.rv - 1)
    }

    /// The next change without waiting; `None` when there is none yet.
    ///
    /// # Errors
    /// [`Expired`] when the log was compacted past this reader.
    pub fn try_next(&mut self) -> Result<Option<Arc<StoreEvent>>, Expired> {
        if self.ready.is_empty() {
            self.fill()?;
        }
        Ok(self.ready.pop_front())
    }

    /// Waits for the next change. Cancel safe.
    ///
    /// # Errors
    /// [`Expired`] when the log was compacted past this reader.
    pub async fn next(&mut self) -> Result<Arc<StoreEvent>, Expired> {
        loop {
            // Mark before reading, so that a change in between wakes this task again.
            self.changed.mark_seen();
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            self.changed.changed().await;
        }
    }

    fn fill(&mut self) -> Result<(), Expired> {
        let state = self.cluster.inner.state.lock();
        let Some(events) = state.since(self.position) else {
            return Err(Expired {
                asked: self.position,
                oldest: state.compacted(),
            });
        };
        for event in events {
            self.position = event.rv;
            let wanted = self.resource.as_ref().is_none_or(|(group, resource)| {
                event.resource.resource == *resource && event.resource.group == *group
            });
            if wanted {
                self.ready.push_back(Arc::clone(event));
                if self.ready.len() == BATCH {
                    break;
                }
            }
        }
        Ok(())
    }
}
